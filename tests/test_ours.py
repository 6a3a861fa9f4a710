"""renewal: the objective against a literal loop, who rests, what is learned, its claim, and where it wins."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dspark_sim.arms import load_arms
from dspark_sim.curve import DraftCost, StepCost, StepCurve
from dspark_sim.runner import run_task
from dspark_sim.scenario import scenario_from_text
from dspark_sim.stats import paired_percent
from dspark_sim.testing import check_policy
from tests.fakes import make_cost, make_setup, make_view, staircase
from tests.policy_worlds import Survival, candidates, costs, policy, survivals
from tests.test_field_policies import outcome


def started(cost: StepCost, rate: float = 0.0, **parameters: Any) -> Any:
    """A policy that has seen a rate of ``rate`` tokens per second."""
    made = policy("renewal", **parameters)
    made.start(make_setup(cost))
    made._tokens, made._seconds = rate, float(rate > 0)
    return made


def with_past(a: Any, step: int = 1, *, drafted: bool = True) -> Any:
    table = np.asarray(a, dtype=np.float32)
    missing = np.full(table.shape, np.nan)
    return make_view(table, drafted=[table.shape[1]] * len(table), step=step,
                     pasts={n: table if drafted else missing for n in range(1, 9)})


# -- the budget ------------------------------------------------------------------------------------------------------
@settings(max_examples=60)
@given(st.integers(1, 5).flatmap(lambda G: st.tuples(survivals(G=G), costs(G))), st.floats(0.1, 10.0))
def test_the_budget_maximises_tau_minus_lambda_seconds(world: tuple[Survival, StepCost], rate: float) -> None:
    """Literal loop; equal pasts, so pooling changes nothing."""
    a, cost = world
    R, G = a.shape
    made = started(cost, rate, draft="none", learn="none")
    made.draft_lengths(with_past(a))
    seconds = [cost.verify_seconds(R + K) for K in range(R * G + 1)]
    tau, values = float(R), [R - rate * seconds[0]]
    for admitted, (value, _, _) in enumerate(candidates(a), start=1):
        tau += value
        values.append(tau - rate * seconds[admitted])
    K = made._budget
    reached = [k for k in range(len(values)) if values[k] >= max(values) - 1e-5]
    assert any(k <= K and all(s <= seconds[k] for s in seconds[k : K + 1]) for k in reached)  # best, or its free tail


def test_the_budget_fills_its_bucket_even_with_hopeless_tokens() -> None:
    made = started(make_cost(staircase([2, 4, 8, 64], [1.0, 1.1, 1.2, 9.0]), block_size=4, max_requests=8), 3.0)
    made.draft_lengths(with_past([[0.9, 0.8, 0.0, 0.0], [0.9, 0.0, 0.0, 0.0]]))
    assert made._budget == 6


def test_the_rate_leaves_out_what_prompts_add() -> None:
    """Six tokens in a step of 3 s, of which 50 prompt tokens on the shared curve took 1 s."""
    made = started(make_cost({1: 1.0, 101: 3.0}, block_size=4, max_requests=8))
    made.observe(outcome([2, 2], [4, 4], prefill_tokens=50, batch_tokens=60, padded_tokens=60, verify_seconds=3.0))
    assert made._tokens / made._seconds == pytest.approx(6 / 2.0)


def test_a_padded_engine_gets_one_length() -> None:
    cost = make_cost(staircase([2, 4, 6, 64], [1.0, 1.1, 1.2, 9.0]), block_size=4, max_requests=8, ragged="padded")
    made, view = started(cost, 3.0), with_past([[0.9, 0.9, 0.9, 0.9], [0.5, 0.4, 0.3, 0.2]])
    made.draft_lengths(view)
    assert made.verify_lengths(view).tolist() == [2, 2]  # two rows of three tokens fill the six


# -- who rests -------------------------------------------------------------------------------------------------------
def expensive(seconds_per_row: float, G: int = 4) -> StepCost:
    curve = StepCurve(np.array([1, 100]), np.array([1.0, 2.0]), extrapolate="linear")
    draft = StepCurve(np.array([1, 100]), np.array([1, 100]) * seconds_per_row)
    return StepCost(curve, block_size=G, max_requests=16, max_tokens=400, draft=DraftCost("parallel", draft))


def test_the_batch_rests_while_drafting_does_not_pay_and_is_probed_ever_more_rarely() -> None:
    made = started(expensive(5.0), 4.0, draft="batch", learn="none", probe=4)
    drafted: list[int] = []
    for step in range(1, 100):
        recent = drafted[-2] if len(drafted) >= 2 else 4  # what the lag shows: rows of two steps ago
        drafted.append(int(np.max(made.draft_lengths(with_past(np.full((4, 4), 0.9), step, drafted=recent > 0)))))
    probes = [step for step, length in enumerate(drafted, start=1) if length]
    assert probes
    assert all(step % 4 == 0 for step in probes)
    assert len(probes) < 8


def test_the_batch_wakes_up_when_drafting_pays() -> None:
    made = started(expensive(0.01), 4.0, draft="batch", learn="none", probe=4)
    made._rests = True
    assert made.draft_lengths(with_past(np.full((4, 4), 0.9), 1, drafted=False)) == 0
    assert made.draft_lengths(with_past(np.full((4, 4), 0.9), 7)) == 4


def test_only_rows_whose_drafts_are_worth_the_drafter_draft() -> None:
    """Row 1 is never right; a row's share of the drafter costs about 0.6 tokens."""
    made = started(expensive(0.4), 4.0, learn="none", probe=1000)
    table = [[0.9, 0.9, 0.9, 0.9], [0.1, 0.0, 0.0, 0.0], [0.9, 0.8, 0.8, 0.7], [0.9, 0.8, 0.6, 0.5]]
    for step in range(1, 60):
        asked = made.draft_lengths(with_past(table, step))
    assert np.asarray(asked).tolist() == [4, 0, 4, 4]
    assert 0.2 < made._row_price < 2.0


# -- what is learned -------------------------------------------------------------------------------------------------
def test_a_bucket_that_the_belief_does_not_know_is_found() -> None:
    """Believed: a line. True: 8 tokens cost what 5 cost. One step that was padded from 5 to 8 tells."""
    made = started(make_cost({1: 1.0, 64: 7.3}, block_size=4, max_requests=8), 4.0, draft="none")
    view = with_past([[0.9, 0.39, 0.39, 0.3], [0.9, 0.39, 0.39, 0.3]])
    made.draft_lengths(view)
    assert made._budget == 2
    made.observe(outcome([1, 1], [2, 1], batch_tokens=5, padded_tokens=8, verify_seconds=1.4))
    made._tokens, made._seconds = 4.0, 1.0
    view.step = 8
    made.draft_lengths(view)
    assert made._budget == 6


@pytest.mark.parametrize(("shift", "budget"), [(1.0, "smaller"), (-1.0, "larger")])
def test_miscalibrated_confidences_are_corrected(shift: float, budget: str) -> None:
    """The drafter's confidences are σ(logit + shift) of the truth; after 300 steps they are seen near the truth."""
    rng, G, R = np.random.default_rng(1), 3, 16
    made = started(make_cost({1: 1.0, 100: 2.0}, block_size=G, max_requests=R), 10.0, draft="none", learn="confidence")
    for step in range(400):
        c = rng.uniform(0.3, 0.9, (R, G))
        believed = np.cumprod(1 / (1 + (1 / c - 1) * np.exp(-shift)), axis=1)
        view = with_past(believed, step)
        made.draft_lengths(view)
        lengths = made.verify_lengths(view)
        kept = np.cumprod(rng.random((R, G)) < c, axis=1).sum(axis=1)
        made.observe(outcome(np.minimum(kept, lengths), lengths, step=step))
        if step >= 300:
            corrected, truth = made._confidence.corrected(believed.astype(np.float32)), np.cumprod(c, axis=1)
            assert abs(corrected[:, 0].mean() - truth[:, 0].mean()) < 0.06
            assert (corrected.mean() < believed.mean()) == (budget == "smaller")


def test_right_confidences_are_left_alone() -> None:
    rng, G, R = np.random.default_rng(1), 3, 16
    made = started(make_cost({1: 1.0, 100: 2.0}, block_size=G, max_requests=R), 10.0, draft="none")
    for step in range(200):
        c = rng.uniform(0.3, 0.9, (R, G))
        view = with_past(np.cumprod(c, axis=1), step)
        made.draft_lengths(view)
        lengths = made.verify_lengths(view)
        kept = np.cumprod(rng.random((R, G)) < c, axis=1).sum(axis=1)
        made.observe(outcome(np.minimum(kept, lengths), lengths, step=step))
    assert made._confidence.factor is None or np.abs(made._confidence.factor - 1).max() < 0.3


# -- its claim, and where it wins ------------------------------------------------------------------------------------
@pytest.mark.parametrize("parameters", [{"draft": "batch"}, {"learn": "none"}, {"slo_weight": 2.0, "probe": 2}])
def test_every_setting_is_lossless(parameters: dict[str, Any]) -> None:
    report = check_policy("renewal", parameters, cases=150)
    assert report.ok, str(report)


WORLD = """
name: world
profile: b300x4-deepseek-v4-flash
traces: deepseek-v4
replications: 3
record: requests
workload:
  arrival: {kind: closed, concurrency: 128}
  prompt_tokens: {kind: constant, value: 500}
  output_tokens: {kind: lognormal, mean: 400, cv: 0.8, min: 8, max: 4096}
  classes: [{name: code, share: 0.5, domain: code}, {name: chat, share: 0.5, domain: chat}]
measure: {mode: steady, warmup_s: 3, duration_s: 3}
"""


@pytest.mark.parametrize(("change", "least"), [
    ({}, -0.5), ({"belief": {"confidence_shift": -1.0}}, 1.0), ({"engine": {"ragged": "padded"}}, 3.0),
    ({"belief": {"profile": "deepseek-v4-flash-paper"}}, 2.0),
], ids=["right beliefs", "underconfident", "padded", "no stairs"])
def test_against_async_global(change: dict[str, Any], least: float) -> None:
    """A tie where everything is as believed; a gain of more than ``least`` per cent where it is not."""
    arms = [{"name": name, "drafter": "dspark-5", "policy": name, **change} for name in ("async_global", "renewal")]
    scenario = scenario_from_text(f"{WORLD}arms: {json.dumps(arms)}\n")
    base, ours = ([run_task(s, scenario, r).measured["throughput_tok_s_gpu"] for r in range(3)]
                  for s in load_arms(scenario))
    figure = paired_percent(ours, base)
    assert figure.mean is not None
    assert figure.mean > least
