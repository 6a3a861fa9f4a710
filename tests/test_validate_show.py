"""What validate shows: a verdict per case, numbers published as 0, pictures that fit a page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dspark_sim.plots.validation import draw_validation
from dspark_sim.validate import run_case
from dspark_sim.validate_case import load_case
from dspark_sim.validate_docs import misses_aim, rows, summary_lines, verdicts
from tests.test_validate import HEAD, run, table, write


@pytest.fixture(name="truth", scope="module")
def _truth(tmp_path_factory: pytest.TempPathFactory) -> float:
    predicted = run_case(load_case(write(tmp_path_factory.mktemp("truth"), table(1.0)))).points[0].predicted
    assert predicted is not None
    return predicted


def test_the_last_table_has_a_verdict_per_case(tmp_path: Path, truth: float) -> None:
    good = write(tmp_path, table(truth / 1.01))
    wide = write(tmp_path, table(truth / 1.10), HEAD + "tolerance: {median_pct: 20, worst_pct: 20}\n", name="wide.yaml")
    bad = write(tmp_path, table(truth / 1.07), name="bad.yaml")
    shown = write(tmp_path, table(truth, "shown"), name="only-shown.yaml")
    done = run(*map(str, (good, wide, bad, shown)), "--out", str(tmp_path / "o"))
    assert done.exit_code == 1
    lines = done.stdout.splitlines()
    start = next(i for i, line in enumerate(lines) if line.split()[:2] == ["case", "quantity"])
    assert [line.split() for line in lines[start + 1 : start + 5]] == [
        ["mine", "throughput_tok_s", "1", "1", "%", "1", "%", "3,", "6", "%", "PASS"],
        ["wide", "throughput_tok_s", "1", "10", "%", "10", "%", "20,", "20", "%", "PASS"],
        ["bad", "throughput_tok_s", "1", "7", "%", "7", "%", "3,", "6", "%", "FAIL"],
        ["only-shown", "nothing", "is", "judged", "–"]]
    assert "by that aim these miss: wide." in " ".join(" ".join(lines[start + 5 :]).split())
    assert max(map(len, lines)) <= 80


def test_a_case_inside_the_aim_does_not_miss_it(tmp_path: Path, truth: float) -> None:
    own = HEAD + "tolerance: {median_pct: 20, worst_pct: 20}\n"
    assert not misses_aim(run_case(load_case(write(tmp_path, table(truth / 1.02), own))))
    assert misses_aim(run_case(load_case(write(tmp_path, table(truth / 1.07), own))))


def test_a_number_published_as_0_is_not_a_missing_prediction(tmp_path: Path) -> None:
    result = run_case(load_case(write(tmp_path, table(0.0))))
    assert not result.passed
    (line,) = summary_lines(result)
    assert "without a prediction" not in line
    assert "1 published as 0 and predicted as more, which has no error in per cent" in line
    assert verdicts([result])[0][-1] == "FAIL"
    text = "published:\n  - {arm: plain, columns: [at, preemptions], rows: [[4, 0]]}\n"
    exact = run_case(load_case(write(tmp_path, text)))  # nobody is preempted there
    assert exact.points[0].error == 0.0
    assert exact.passed


def test_pictures_are_no_wider_than_a_page(tmp_path: Path) -> None:
    """Four quantities stand in two columns, and every arm has its entry below."""
    names = "throughput_tok_s, tps_user_harmonic, tpot_ms_mean, acceptance_length"
    case = load_case(write(tmp_path, f"show: [{{arms: [plain, three], at: [2, 4], quantities: [{names}]}}]\n"))
    result = run_case(case)
    (tmp_path / "validation.json").write_text(json.dumps({"points": rows([result]), "cases": [{
        "case": "mine", "title": "A test", "passed": True, "axis_name": "users", "source": ["a test"],
        "fitted_parameters": 0, "summaries": []}]}))
    (file,) = draw_validation(tmp_path)
    data = file.read_bytes()
    width, height = int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")
    assert (width, height > width) == (1290, True)
