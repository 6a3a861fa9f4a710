"""Validation cases: reading them, comparing, judging, vLLM's results as a case, and the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dspark_sim.cli import app
from dspark_sim.errors import InputError
from dspark_sim.validate import Point, run_case
from dspark_sim.validate_bench import case_from_bench
from dspark_sim.validate_case import Reading, load_case
from dspark_sim.validate_curves import read_off
from dspark_sim.validate_docs import case_markdown, rows, tables
from dspark_sim.validate_page import page

SCENARIO = """
  name: tiny
  profile: synthetic-roofline
  traces: qwen3-4b
  replications: 2
  record: requests
  workload:
    arrival: {kind: closed, concurrency: 4}
    prompt_tokens: {kind: constant, value: 100}
    output_tokens: {kind: constant, value: 60}
    classes: [{name: all, share: 1.0, domain: code}]
  measure: {mode: whole_run, requests: 12}
  arms:
    - {name: plain, policy: no_spec}
    - {name: three, drafter: dspark, policy: {name: fixed, length: 3}}
"""
HEAD = """
title: A test
system: nothing real
source: [the test itself]
fitted: {parameters: 0, on: [nothing]}
predicted: throughput
"""


def write(folder: Path, tables: str, head: str = HEAD, scenario: str = SCENARIO, name: str = "mine.yaml") -> Path:
    path = folder / name
    path.write_text(f"{head}scenario:{scenario}{tables}", encoding="utf-8")
    return path


def table(value: float, role: str = "predicted", at: int = 4) -> str:
    return f"published:\n  - {{arm: plain, role: {role}, columns: [at, throughput_tok_s], rows: [[{at}, {value}]]}}\n"


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> float:
    case = load_case(write(tmp_path_factory.mktemp("truth"), table(1.0)))
    predicted = run_case(case).points[0].predicted
    assert predicted is not None
    return predicted


# -- judging ----------------------------------------------------------------------------------------------------------
def test_a_true_number_passes_and_a_wrong_one_does_not(tmp_path: Path, truth: float) -> None:
    good = run_case(load_case(write(tmp_path, table(truth))))
    assert good.passed
    assert good.points[0].error == pytest.approx(0.0)
    bad = run_case(load_case(write(tmp_path, table(truth / 1.07))))
    assert not bad.passed
    assert bad.points[0].error == pytest.approx(7.0, abs=1e-9)
    assert "OUTSIDE" in case_markdown(bad)


def test_only_predicted_points_are_judged(tmp_path: Path, truth: float) -> None:
    for role in ("fitted", "shown"):
        result = run_case(load_case(write(tmp_path, table(2 * truth, role))))
        assert result.passed
        assert result.points[0].error == pytest.approx(-50.0)


def test_median_and_worst_are_both_kept(tmp_path: Path, truth: float) -> None:
    rows_ = f"[[4, {truth / 1.05}], [4, {truth}], [4, {truth}]]"
    text = f"published:\n  - {{arm: plain, columns: [at, throughput_tok_s], rows: {rows_}}}\n"
    assert run_case(load_case(write(tmp_path, text))).passed  # median 0, worst 5
    tight = HEAD + "tolerance: {worst_pct: 4}\n"
    assert not run_case(load_case(write(tmp_path, text, tight))).passed
    own = HEAD + "tolerance: {worst_pct: 4, quantities: {throughput_tok_s: [1, 6]}}\n"
    assert run_case(load_case(write(tmp_path, text, own))).passed


def test_whole_engine_and_per_gpu_and_harmonic_speed(tmp_path: Path) -> None:
    names = "throughput_tok_s, throughput_tok_s_gpu, tps_user_harmonic, tpot_ms_mean"
    text = f"published:\n  - {{arm: three, columns: [at, {names}], rows: [[4, 1, 1, 1, 1]]}}\n"
    got = {p.quantity: p.predicted for p in run_case(load_case(write(tmp_path, text))).points}
    assert got["throughput_tok_s"] == pytest.approx(2 * (got["throughput_tok_s_gpu"] or 0))  # the profile has two GPUs
    assert got["tps_user_harmonic"] == pytest.approx(1e3 / (got["tpot_ms_mean"] or 1))


def test_a_point_is_simulated_with_the_keys_of_its_load_and_of_its_table(tmp_path: Path) -> None:
    text = """at: [{load: 2, set: {measure.requests: 2}}]
published:
  - {arm: plain, columns: [at, steps_per_s], rows: [[2, 1], [3, 1]]}
  - {arm: three, set: {workload.output_tokens: {kind: constant, value: 1}}, columns: [at, tpot_ms_mean], rows: [[2, 1]]}
"""
    points = run_case(load_case(write(tmp_path, text))).points
    assert [p.at for p in points] == [2, 3, 2]
    assert points[2].predicted is None  # an output of one token has no time per further token
    assert not run_case(load_case(write(tmp_path, text))).passed  # and a missing prediction is no success


def test_a_failing_arm_is_a_missing_prediction_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "boom.py").write_text("""
class Boom:
    lossless, timing = True, "overlapped"

    def verify_lengths(self, view):
        raise RuntimeError("out of ideas")
""")
    scenario = SCENARIO.replace("{name: fixed, length: 3}", "./boom.py")
    result = run_case(load_case(write(tmp_path, table(1.0).replace("plain", "three"), scenario=scenario)))
    assert not result.passed
    assert result.points[0].predicted is None
    assert "out of ideas" in result.points[0].note


def test_loads_that_are_only_shown_have_no_error(tmp_path: Path) -> None:
    text = "show: [{arms: [plain, three], at: [1, 3], quantities: [verification_budget]}]\n"
    result = run_case(load_case(write(tmp_path, text)))
    assert [(p.arm, p.at, p.error) for p in result.points] == [
        ("plain", 1, None), ("plain", 3, None), ("three", 1, None), ("three", 3, None)]
    assert result.passed
    assert tables(result)[0][2] == [["1", "1", "4"], ["3", "1", "4"]]


def test_a_csv_holds_arms_and_roles(tmp_path: Path, truth: float) -> None:
    text = f"# remark\nat,arm,role,throughput_tok_s\n4,plain,predicted,{truth}\n4,three,shown,\n"
    (tmp_path / "t.csv").write_text(text)
    result = run_case(load_case(write(tmp_path, "published: [{file: t.csv}]\n")))
    assert result.passed
    assert [(p.arm, p.role, p.published is None) for p in result.points] == [
        ("plain", "predicted", False), ("three", "shown", True)]


def test_quick_takes_the_ends_of_each_arm(tmp_path: Path, truth: float) -> None:
    text = "published: [{arm: plain, columns: [at, throughput_tok_s], rows: [[1, 9], [2, 9], [4, 9]]}]\n"
    assert [p.at for p in run_case(load_case(write(tmp_path, text)), quick=True).points] == [1, 4]


# -- readings ---------------------------------------------------------------------------------------------------------
def test_readings_are_taken_on_straight_lines_and_never_extrapolated() -> None:
    def curve(*points: tuple[float, float]) -> dict[float, dict[str, float | None]]:
        return {n: {"tps_user_concurrent": x, "throughput_tok_s_gpu": y} for n, (x, y) in enumerate(points)}

    curves = {"a": curve((100, 1000), (50, 3000)), "b": curve((80, 800), (40, 1600))}
    reading = Reading(kind="throughput_ratio", arm="a", base="b", at=60, value=1.0)
    assert read_off(reading, curves) == pytest.approx(2600 / 1200)
    equal = Reading(kind="tps_ratio", arm="a", base="b", at=1200, value=1.0)
    assert read_off(equal, curves) == pytest.approx(95 / 60)
    assert read_off(Reading(kind="throughput_ratio", arm="a", base="b", at=90, value=1.0), curves) is None
    ratio = Reading(kind="ratio", arm="a", base="b", at=1, quantity="tps_user_concurrent", value=1.0)
    assert read_off(ratio, curves) == pytest.approx(50 / 40)


def test_an_absolute_error_has_no_per_cent() -> None:
    assert Point("a", 1, "auc", 0.81, 0.8, "fitted", absolute=True).error == pytest.approx(0.01)
    assert Point("a", 1, "x", 0.81, 0.0, "fitted").error is None


# -- mistakes ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("tables_", "message"), [
    ("published: [{arm: plain, columns: [at, throughput], rows: [[1, 2]]}]\n", "no quantity 'throughput'"),
    ("published: [{arm: plain, columns: [load, throughput_tok_s], rows: [[1, 2]]}]\n", "at as the first column"),
    ("published: [{arm: plain, columns: [at, throughput_tok_s], rows: [[1]]}]\n", "one number for each"),
    ("published: [{arm: plain, columns: [at, throughput_tok_s]}]\n", "columns and rows, or file"),
    ("published: [{columns: [at, throughput_tok_s], rows: [[1, 2]]}]\n", "names no arm"),
    ("published: [{file: nowhere.csv}]\n", "nowhere.csv"),
    ("published: []\n", "nothing to compare"),
    ("show: [{arms: [plain], at: [1], quantities: [verify_budget]}]\n", "did you mean"),
    ("at: [{load: 1}]\n" + table(1), "{load: NUMBER"),
    ("acceptance: [{traces: qwen3-4b, drafter: dspark, domain: poems, columns: [at, auc], rows: [[1, 1]]}]\n", "poems"),
    ("acceptance: [{traces: qwen3-4b, drafter: dspark, domain: chat, columns: [at, acu], rows: [[1, 1]]}]\n", "'auc'"),
])
def test_mistakes_name_their_place(tmp_path: Path, tables_: str, message: str) -> None:
    with pytest.raises(InputError, match=r"mine\.yaml") as caught:
        run_case(load_case(write(tmp_path, tables_)))
    assert message in str(caught.value)


def test_an_unknown_arm_and_a_mistake_in_the_scenario_name_line_and_key(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no arm 'plane'.*did you mean 'plain'"):
        run_case(load_case(write(tmp_path, table(1).replace("plain", "plane"))))
    with pytest.raises(InputError, match=r"mine\.yaml:\d+: workload\.arrival\.concurency"):
        run_case(load_case(write(tmp_path, table(1), scenario=SCENARIO.replace("concurrency: 4", "concurency: 4"))))
    with pytest.raises(InputError, match="did you mean 't1-v4-pro'"):
        load_case("t1-v4-pr")


# -- vLLM -------------------------------------------------------------------------------------------------------------
def bench(folder: Path, load: int, **change: Any) -> Path:
    data: dict[str, Any] = {
        "model_id": "m", "num_prompts": 8, "request_rate": "inf", "burstiness": 1.0, "max_concurrency": load,
        "duration": 10.0, "completed": 8, "total_input_tokens": 800, "total_output_tokens": 480,
        "output_throughput": 500.0, "mean_tpot_ms": 8.0, "median_tpot_ms": 8.0, "median_ttft_ms": 30.0,
    } | change
    path = folder / f"c{load}.json"
    path.write_text(json.dumps({k: v for k, v in data.items() if v is not ...}))
    return path


def base(folder: Path) -> Path:
    lines = [line[2:] for line in SCENARIO.strip("\n").split("\n")]
    path = folder / "system.yaml"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_results_of_vllm_are_a_case(tmp_path: Path) -> None:
    files = [bench(tmp_path, 1), bench(tmp_path, 4, output_lens=[30, 60, 90] * 2 + [60, 60])]
    result = run_case(case_from_bench(files, base(tmp_path), "three"))
    assert {(p.at, p.quantity) for p in result.points} == {
        (at, q) for at in (1, 4) for q in ("throughput_tok_s", "tpot_ms_mean", "tpot_ms_p50")}  # no prefill, no TTFT
    assert {p.arm for p in result.points} == {"three"}
    chunked = base(tmp_path).read_text().replace("record:", "engine: {prefill: chunked}\nrecord:")
    (tmp_path / "system.yaml").write_text(chunked)
    points = run_case(case_from_bench(files[:1], tmp_path / "system.yaml")).points
    assert {p.quantity for p in points} >= {"ttft_ms_p50"}
    assert {p.arm for p in points} == {"plain"}


def test_an_open_loop_of_vllm_is_one(tmp_path: Path) -> None:
    file = bench(tmp_path, 1, max_concurrency=None, request_rate=4.0, burstiness=0.25)
    case = case_from_bench([file], base(tmp_path))
    assert case.axis == "workload.arrival.rate_per_s"
    assert case.at[0]["set"]["workload.arrival"] == {"kind": "gamma", "rate_per_s": 4.0, "cv": 2.0}
    assert run_case(case).points[0].predicted


@pytest.mark.parametrize(("change", "message"), [
    ({"completed": ...}, "completed"), ({"output_throughput": "fast"}, "output_throughput: got 'fast'"),
    ({"max_concurrency": 1.5}, "max_concurrency: got 1.5"), ({"completed": 0}, "completed: got 0"),
    ({"max_concurrency": None}, "request_rate: got 'inf'"), ({"mean_tpot_ms": True}, "mean_tpot_ms: got True"),
])
def test_a_wrong_result_names_file_and_field(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=r"c7\.json") as caught:
        case_from_bench([bench(tmp_path, 7, **change)], base(tmp_path))
    assert message in str(caught.value)


def test_files_of_other_tools_are_refused(tmp_path: Path) -> None:
    for text, message in (("{", "not JSON"), ("[1]", "holds 'list'"), ('{"p50": 3}', "no result of vllm bench serve")):
        (tmp_path / "x.json").write_text(text)
        with pytest.raises(InputError, match=message):
            case_from_bench([tmp_path / "x.json"], base(tmp_path))
    with pytest.raises(InputError, match="again"):
        case_from_bench([bench(tmp_path, 2), bench(tmp_path, 2)], base(tmp_path))
    open_loop = bench(tmp_path, 3, max_concurrency=None, request_rate=1.0)
    with pytest.raises(InputError, match="closed loop and another"):
        case_from_bench([bench(tmp_path, 2), open_loop], base(tmp_path))


# -- command line and page --------------------------------------------------------------------------------------------
def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["validate", *arguments, "--no-plots"])


def test_exit_codes_and_outputs(tmp_path: Path, truth: float) -> None:
    good = write(tmp_path, table(truth))
    bad = write(tmp_path, table(3 * truth), name="bad.yaml")
    done = run(str(good), "--format", "json", "--out", str(tmp_path / "o"), "--quiet", "--write-docs",
               str(tmp_path / "p.md"))
    assert done.exit_code == 0, done.output
    data = json.loads(done.stdout)
    assert data["cases"][0]["passed"] is True
    assert data["points"][0]["error"] == pytest.approx(0.0)
    assert {p.name for p in (tmp_path / "o").iterdir()} == {"validation.json", "validation.csv"}
    assert "Check the simulator on your own system" in (tmp_path / "p.md").read_text()
    missed = run(str(good), str(bad), "--out", str(tmp_path / "o2"))
    assert missed.exit_code == 1
    assert "OUTSIDE" in missed.stdout
    assert run("no-such-case").exit_code == 2
    assert run("--base", "quickstart").exit_code == 2
    assert run("--from-vllm-bench", str(good)).exit_code == 2


def test_vllm_files_may_follow_the_option(tmp_path: Path) -> None:
    files = [str(bench(tmp_path, n)) for n in (1, 2)]
    done = run("--from-vllm-bench", *files, "--base", str(base(tmp_path)), "--format", "csv", "--out",
               str(tmp_path / "o"))
    assert done.exit_code in (0, 1), done.output
    assert {line.split(",")[2] for line in done.stdout.splitlines()[1:]} == {"1.0", "2.0"}


def test_the_page_tells_which_case_misses_the_aim(tmp_path: Path, truth: float) -> None:
    wide = HEAD + "tolerance: {worst_pct: 20, median_pct: 20}\n"
    result = run_case(load_case(write(tmp_path, table(truth / 1.1), wide)))
    text = page([result], {"mine": "img/x.png"})
    assert "inside a wider tolerance; misses the aim" in text
    assert "![A test](img/x.png)" in text
    assert rows([result])[0]["error"] == pytest.approx(10.0)
