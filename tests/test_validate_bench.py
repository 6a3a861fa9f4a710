"""Results of vLLM as a case: scenarios with several classes or engines, and limits that work against each other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dspark_sim.errors import InputError
from dspark_sim.scenario import load_scenario
from dspark_sim.validate import run_case
from dspark_sim.validate_bench import case_from_bench
from tests.test_validate import base, bench

TWO = "[{name: a, share: 0.5, domain: code}, {name: b, share: 0.5, domain: math}]"


def test_every_class_gets_the_measured_lengths(tmp_path: Path) -> None:
    """The same lengths stand under both classes; that is no YAML alias."""
    system = base(tmp_path)
    system.write_text(system.read_text().replace("[{name: all, share: 1.0, domain: code}]", TWO))
    files = [bench(tmp_path, 1), bench(tmp_path, 4, output_lens=[30, 60, 90] * 2 + [60, 60])]
    case = case_from_bench(files, system)
    assert all(point.predicted for point in run_case(case, quick=True).points)
    classes = case.build(case.at[1]["set"]).workload.classes
    assert [c.output_tokens.largest for c in classes if c.output_tokens is not None] == [90, 90]
    assert load_scenario(system).workload.classes[0].output_tokens is not None


def test_throughput_is_that_of_all_engines_in_service(tmp_path: Path) -> None:
    """Two engines that are hardly busy serve what one serves: the whole throughput, not half of it."""
    system = base(tmp_path)
    file = bench(tmp_path, 2, max_concurrency=None, request_rate=0.5)
    one = {p.quantity: p.predicted for p in run_case(case_from_bench([file], system)).points}
    system.write_text(system.read_text() + "cluster: {engines: [{name: e, count: 2}]}\n")
    two = {p.quantity: p.predicted for p in run_case(case_from_bench([file], system)).points}
    assert two["throughput_tok_s"] == pytest.approx(one["throughput_tok_s"], rel=0.02)


def test_two_limits_at_once_are_not_guessed(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="either may have been the limit") as caught:
        case_from_bench([bench(tmp_path, 64, request_rate=1.0)], base(tmp_path))
    assert "request_rate" in str(caught.value)
    case_from_bench([bench(tmp_path, 64, request_rate=float("inf"))], base(tmp_path))


def test_appended_results_are_several(tmp_path: Path) -> None:
    """``--append-result`` writes one object after the other into the same file."""
    texts = [bench(tmp_path, load).read_text() for load in (1, 4, 8)]
    file = tmp_path / "all.json"
    file.write_text(texts[0] + "\n" + json.dumps(json.loads(texts[1]), indent=2) + texts[2] + "\n")
    case = case_from_bench([file], base(tmp_path))
    assert [at["load"] for at in case.at] == [1, 4, 8]
    file.write_text(texts[0] + "\n" + texts[1] + "\n" + texts[1].replace("500.0", "-1"))
    with pytest.raises(InputError, match=r"all.json:3: output_throughput: got -1"):
        case_from_bench([file], base(tmp_path))
    file.write_text(texts[0] + "\n" + texts[1][:40])
    with pytest.raises(InputError, match=r"all.json:2: is not JSON .*--append-result"):
        case_from_bench([file], base(tmp_path))
    file.write_text("\n")
    with pytest.raises(InputError, match="is empty"):
        case_from_bench([file], base(tmp_path))


def test_a_result_without_tpot_is_compared_in_what_it_has(tmp_path: Path) -> None:
    """``--percentile-metrics ttft`` leaves TPOT out."""
    case = case_from_bench([bench(tmp_path, 2, mean_tpot_ms=..., median_tpot_ms=...)], base(tmp_path))
    assert {p.quantity for p in run_case(case, quick=True).points} == {"throughput_tok_s"}


def test_lengths_are_taken_in_the_order_in_which_they_were_sent(tmp_path: Path) -> None:
    """Not so where some requests failed: which prompts those had is not told."""
    sent = [30, 60, 90, 10, 20, 40, 80, 5]
    case = case_from_bench([bench(tmp_path, 4, input_lens=[9] * 8, output_lens=sent)], base(tmp_path))
    (group,) = case.build(case.at[0]["set"]).workload.classes
    assert group.output_tokens is not None
    assert (group.output_tokens.order, group.output_tokens.values) == ("listed", tuple(sent))  # type: ignore[union-attr]
    case = case_from_bench([bench(tmp_path, 4, completed=7, output_lens=[*sent[:-1], 0])], base(tmp_path))
    (group,) = case.build(case.at[0]["set"]).workload.classes
    assert group.output_tokens.order == "drawn"  # type: ignore[union-attr]
