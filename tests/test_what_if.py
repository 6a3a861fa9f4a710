"""what_if: the stated laws, on traces, profiles and lengths; and that nothing else moves."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from dspark_sim.errors import InputError
from dspark_sim.lengths import ConstantLengths, EmpiricalLengths, LognormalLengths
from dspark_sim.trace import AcceptanceTrace
from dspark_sim.traceset import open_traces
from dspark_sim.what_if import drifted, longer
from tests.worlds import World, make_trace

FULL = {"arms.0.policy": {"name": "fixed", "length": 4}}


@pytest.fixture(scope="module")
def trace() -> AcceptanceTrace:
    return open_traces("deepseek-v4", ["dspark-5"])["dspark-5"]


def conditional(trace: AcceptanceTrace, domain: str) -> np.ndarray:
    accepted = trace.accepted[trace.rows(domain)]
    return np.array([(accepted >= k).sum() / (accepted >= k - 1).sum() for k in range(1, trace.block_size + 1)])


@pytest.mark.parametrize("factor", [0.5, 0.8, 0.9, 1.05, 1.1, 1.25])
def test_the_conditional_acceptance_of_every_position_and_domain_is_multiplied(
    trace: AcceptanceTrace, factor: float
) -> None:
    other = drifted(trace, factor)
    for domain in trace.domains:
        before, after = conditional(trace, domain), conditional(other, domain)
        rows = trace.accepted[trace.rows(domain)]
        n = np.array([max((other.accepted[trace.rows(domain)] >= k).sum(), 1) for k in range(trace.block_size)])
        want = np.minimum(1.0, factor * before)
        error = 4 * np.sqrt(np.maximum(want * (1 - want), 1e-4) / n)  # 4 standard errors of a share of n rows
        assert rows.size > 10_000
        assert np.all(np.abs(after - want) < error), (domain, after, want)


def test_a_larger_factor_never_accepts_less_anywhere(trace: AcceptanceTrace) -> None:
    steps = [drifted(trace, f).accepted for f in (0.0, 0.3, 0.8, 0.95, 1.0, 1.02, 1.1, 1.4, 10.0)]
    for lower, higher in itertools.pairwise(steps):
        assert np.all(lower <= higher)
    assert steps[0].max() == 0
    assert np.array_equal(steps[4], trace.accepted)
    assert steps[-1].min() == trace.block_size  # 10 times any of them is certain


def test_the_drift_is_deterministic_and_leaves_confidence_and_calibration_alone(trace: AcceptanceTrace) -> None:
    once, again = drifted(trace, 0.8), drifted(trace, 0.8)
    assert np.array_equal(once.accepted, again.accepted)
    assert np.array_equal(once.confidence, trace.confidence)
    assert once.sts_temperature == trace.sts_temperature
    assert once.provenance["what_if"] == "conditional acceptance × 0.8"
    assert drifted(trace, 1.0) is trace


def test_survival_of_each_token_does_not_depend_on_its_neighbours(trace: AcceptanceTrace) -> None:
    """P(j of 5 kept) from full rows is geometric: f^j (1 - f), and f^5 for the whole block."""
    full = trace.accepted == trace.block_size
    kept = drifted(trace, 0.7).accepted[full]
    want = [0.7**j * 0.3 for j in range(5)] + [0.7**5]
    share = np.bincount(kept, minlength=6) / kept.size
    assert share == pytest.approx(want, abs=4 * 0.5 / np.sqrt(kept.size))


def test_a_position_where_all_are_rejected_stays_so() -> None:
    start, accepted = np.array([0, 4000]), np.tile(np.array([0, 1], dtype=np.uint8), 2000)
    other = drifted(AcceptanceTrace("t", "d", 3, accepted, start, ("math",)), 1.5).accepted  # c = 0.5, 0, unknown
    assert other.max() == 1
    assert other.mean() == pytest.approx(0.75, abs=0.03)


def test_every_part_of_a_step_takes_longer_and_the_policy_knows(tmp_path: Path) -> None:
    changes = {"speculation_overhead": {"points": [[1, 0.001], [8, 0.002]]}, "per_kv_token": 1e-7,
               "schedule": {"points": [[1, 0.0005], [8, 0.0006]]}, "fixed": {"points": [[1, 0.001], [8, 0.001]]},
               "per_request": 1e-5, "prefill": {"points": [[1, 0.002], [96, 0.02]]}}
    world = World(tmp_path, profile=changes)
    (_, (before,)), (_, (after,)) = world.arms(FULL), world.arms(FULL | {"what_if": {"step_time": 1.25}})
    assert after.honest
    for truth, other in ((before.cost(), after.cost()), (before.belief(), after.belief())):
        for parts in (lambda c: c.draft_seconds(4, 4), lambda c: c.schedule_seconds(4),
                      lambda c: c.verify_seconds(17, 30), lambda c: c.other_seconds(4, 500), lambda c: c.step(20, 4)):
            assert parts(other) == pytest.approx(1.25 * parts(truth), rel=1e-12)
    assert after.profile.name == before.profile.name
    assert before.profile.verify.seconds[0] == pytest.approx(0.010)  # the original is as it was


def test_a_belief_in_another_profile_is_measured_again_too(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.profile("other", {"verify.points.0": [1, 0.005]})
    arm = FULL | {"arms.0.belief": {"profile": "./other"}}
    (_, (before,)), (_, (after,)) = world.arms(arm), world.arms(arm | {"what_if": {"step_time": 2.0}})
    assert not after.honest
    assert after.belief().verify_seconds(1) == pytest.approx(2 * before.belief().verify_seconds(1))


@pytest.mark.parametrize(("lengths", "least", "most", "mean"), [
    (ConstantLengths(kind="constant", value=10), 13, 13, 13.0),
    (LognormalLengths(kind="lognormal", mean=40, cv=0.5, min=2, max=100), 2, 125, 50.0),
    (EmpiricalLengths(kind="empirical", values=(1, 2, 40)), 1, 50, 53 / 3),
])
def test_lengths_of_every_kind_are_multiplied(lengths: object, least: int, most: int, mean: float) -> None:
    other = longer(lengths, 1.3 if isinstance(lengths, ConstantLengths) else 1.25)
    assert (other.smallest, other.largest) == (least, most)
    assert other.mean_tokens == pytest.approx(mean, rel=0.02)
    assert longer(None, 2.0) is None


def test_output_lengths_of_requests_are_multiplied_and_prompts_are_not(tmp_path: Path) -> None:
    world = World(tmp_path)
    plain = world.runs(FULL)[0].requests
    long = world.runs(FULL | {"what_if": {"output_tokens": 2.0}})[0].requests
    by_id = {r["id"]: r for r in plain.to_pylist()}
    for row in long.to_pylist():
        assert row["output_tokens"] == pytest.approx(2 * by_id[row["id"]]["output_tokens"], abs=1.01)
        assert row["prompt_tokens"] == by_id[row["id"]]["prompt_tokens"]


def test_a_replayed_log_is_lengthened_and_the_log_itself_is_not(tmp_path: Path) -> None:
    world = World(tmp_path)
    (tmp_path / "log.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,5,10\n0.5,5,11\n1,5,1\n")
    replay = {"workload": {"arrival": {"kind": "replay", "file": "log.csv"}, "classes": [
        {"name": "all", "domain": "math"}]}, "measure": {"mode": "whole_run", "requests": "all"}}
    scenario = world.scenario(FULL | replay | {"what_if": {"output_tokens": 1.25}})
    from dspark_sim.what_if import traffic_of

    assert traffic_of(scenario).arrival.log.output.tolist() == [12, 14, 1]
    assert scenario.workload.arrival.log.output.tolist() == [10, 11, 1]
    rows = world.runs(FULL | replay | {"what_if": {"output_tokens": 1.25}})[0].requests.to_pylist()
    assert [r["output_tokens"] for r in sorted(rows, key=lambda r: r["id"])] == [12, 14, 1]


def test_longer_outputs_are_checked_against_the_kv_cache(tmp_path: Path) -> None:
    world = World(tmp_path)
    fits = FULL | {"engine.kv_blocks": 30, "engine.kv_block_tokens": 4}
    world.arms(fits)
    with pytest.raises(InputError, match="kv_blocks"):
        world.arms(fits | {"what_if": {"output_tokens": 3.0}})


def test_the_report_says_what_was_asked(tmp_path: Path) -> None:
    from dspark_sim.runner import run

    factors = {"acceptance": 0.9, "step_time": 1.1, "output_tokens": 1.25}
    lines = run(World(tmp_path).scenario(FULL | {"what_if": factors})).assumptions
    said = [line for line in lines if line.startswith("what if: ")]
    assert len(said) == 3
    assert "acceptance" in said[0]
    assert "0.9" in said[0]
    assert not [line for line in run(World(tmp_path).scenario(FULL)).assumptions if "what if" in line]


def test_a_scenario_with_factors_loads_again_from_its_resolved_form(tmp_path: Path) -> None:
    import json

    from dspark_sim.scenario import scenario_from_text

    scenario = World(tmp_path).scenario(FULL | {"what_if": {"output_tokens": 1.5, "acceptance": 0.7}})
    again = scenario_from_text(json.dumps(scenario.resolved()), tmp_path)
    assert again.resolved() == scenario.resolved()


@pytest.mark.parametrize("wrong", [{"acceptance": -0.1}, {"step_time": 0}, {"output_tokens": -2}, {"acceptence": 0.8}])
def test_factors_that_cannot_be(tmp_path: Path, wrong: dict[str, float]) -> None:
    with pytest.raises(InputError, match="what_if"):
        World(tmp_path).scenario({"what_if": wrong})


def test_shared_coins_keep_aligned_drafters_paired() -> None:
    """The same text position and draft position meets the same fate, whatever the block size."""
    a, b = make_trace("par", 4, acceptance=1.0), make_trace("auto", 3, acceptance=1.0)
    four, three = drifted(a, 0.6).accepted, drifted(b, 0.6).accepted
    assert np.array_equal(np.minimum(four, 3), three)
