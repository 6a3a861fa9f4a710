"""Results of vLLM as a case: scenarios with several classes or engines, and limits that work against each other."""

from __future__ import annotations

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
