"""The field's schedulers, against numbers worked out by hand and literal loops. Their claims: test_policy_check."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dspark_sim.curve import DraftCost, StepCost, StepCurve
from dspark_sim.policy import StepOutcome
from tests.fakes import decide, frozen, make_cost, make_setup, make_view, staircase
from tests.policy_worlds import Survival, candidates, first_k, policy, survivals


def outcome(accepted: Any, verified: Any, *, step: int = 0, **more: Any) -> StepOutcome:
    out = StepOutcome()
    out.step, out.slot = step, np.arange(len(accepted))
    out.accepted, out.verified = np.array(accepted), np.array(verified)
    out.drafted, out.emitted, out.finished = out.verified, out.accepted + 1, np.zeros(len(accepted), dtype=np.bool_)
    out.draft_seconds, out.schedule_seconds, out.verify_seconds, out.other_seconds = 0.0, 0.0, 1.0, 0.0
    out.batch_tokens = out.padded_tokens = int(out.verified.sum()) + len(accepted)
    out.prefill_tokens = 0
    for name, value in more.items():
        setattr(out, name, value)
    return out


def requests(R: int, G: int = 7) -> Any:
    return make_view(np.full((R, G), 0.5))


# -- batch_schedule --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("R", "length"), [(1, 3), (16, 3), (17, 3), (63, 3), (64, 2), (128, 2), (200, 2), (256, 0),
                                           (5000, 0)])
def test_schedule_ranges_are_inclusive_and_gaps_inherit(R: int, length: int) -> None:
    made, setup = policy("batch_schedule"), make_setup(make_cost({1: 1.0}, max_requests=64))
    made.start(setup)
    assert made.draft_lengths(requests(R)) == length


def test_schedule_below_its_first_range_and_beyond_the_block() -> None:
    made = policy("batch_schedule", ranges=[[4, 8, 6], [10, 20, 1]])
    made.start(make_setup(make_cost({1: 1.0}, block_size=5)))
    assert [made.draft_lengths(requests(R, 5)) for R in (1, 9, 10)] == [5, 5, 1]
    assert decide(made, requests(10, 5)).tolist() == [1] * 10


@pytest.mark.parametrize("ranges", [[], [[1, 2]], [[3, 2, 1]], [[1, 5, 1], [5, 6, 1]], [[0, 5, 1]], [[1, 5, 65]]])
def test_schedule_refuses(ranges: Any) -> None:
    with pytest.raises(ValueError, match=r"ranges|list"):
        policy("batch_schedule", ranges=ranges)


# -- goodput ---------------------------------------------------------------------------------------------------------
def line(draft: float, per_token: float, G: int = 5) -> StepCost:
    """1 s, plus ``per_token`` for each token beyond R = 2; the drafter takes ``draft`` per token."""
    curve = StepCurve(np.array([2, 60]), np.array([1.0, 1.0 + 58 * per_token]), extrapolate="linear")
    one = StepCurve(np.array([1]), np.array([draft]), extrapolate="linear")
    return StepCost(curve, block_size=G, max_requests=8, max_tokens=200, draft=DraftCost("autoregressive", one))


@settings(max_examples=50)
@given(st.floats(0.05, 0.95), st.floats(0.0, 0.5), st.floats(0.0, 0.2))
def test_goodput_is_the_best_ratio(alpha: float, draft: float, per_token: float) -> None:
    made = policy("goodput", prior=alpha)
    made.start(make_setup(line(draft, per_token)))
    ratios = [sum(alpha**j for j in range(k + 1)) / (1.0 + 2 * k * per_token + draft * k) for k in range(6)]
    assert ratios[made.draft_lengths(make_view(np.full((2, 5), 0.5), step=1))] == pytest.approx(max(ratios))


def test_goodput_counts_decided_tokens_and_probes_when_nothing_pays() -> None:
    made = policy("goodput", prior=0.5, memory=0.5, probe=10)
    made.start(make_setup(line(draft=5.0, per_token=1.0)))
    view = make_view(np.full((2, 5), 0.5), step=3)
    assert made.draft_lengths(view) == 0
    view.step = 20
    assert made.draft_lengths(view) == 1
    made.observe(outcome([3, 1], [3, 4]))  # four kept, one refused, two never decided
    assert made._kept == pytest.approx(0.5 * 5 + 4)
    assert made._tried == pytest.approx(0.5 * 10 + 5)


# -- ema_ladder ------------------------------------------------------------------------------------------------------
def climbed(accepted: list[float], **parameters: Any) -> list[int]:
    made = policy("ema_ladder", **({"alpha": 1.0, "interval": 1, "warmup": 0} | parameters))
    made.start(make_setup(make_cost({1: 1.0}, block_size=7)))
    out = []
    for a in accepted:
        length = made.draft_lengths(requests(4))
        out.append(length)
        made.observe(outcome([round(a * 4), 0, 0, 0], [length] * 4))
    return out


def test_ladder_climbs_above_a_half_and_falls_below_a_quarter() -> None:
    """Rungs 1, 3, 7, starting at 3: up above 2.5, down at 1 − 0.5 − 0.25 = 0.25 and below."""
    assert climbed([2.5, 2.75, 2.25, 0.25, 0.5, 0.75, 0.0]) == [3, 3, 7, 3, 1, 1, 3]


def test_ladder_waits_for_warmup_and_interval_and_leaves_zero_again() -> None:
    assert climbed([7.0] * 8, warmup=3, interval=2) == [3, 3, 3, 3, 3, 7, 7, 7]
    assert climbed([0.0] * 5, rungs=[0, 1, 3], down=0.0) == [1, 0, 1, 0, 1]


def test_ladder_is_cut_to_the_block() -> None:
    made = policy("ema_ladder")
    made.start(make_setup(make_cost({1: 1.0}, block_size=2)))
    assert made._ladder == [1, 2]


# -- throughput_aware ------------------------------------------------------------------------------------------------
def test_throughput_aware_picks_the_best_score() -> None:
    made = policy("throughput_aware", candidates=[1, 3, 5], window=4, interval=4)
    made.start(make_setup(line(draft=0.02, per_token=0.02)))
    view = make_view(np.full((2, 5), 0.5))
    assert made.draft_lengths(view) == 3

    def best(tokens: dict[int, float]) -> int:
        scores = {S: t / (1.0 + 2 * S * 0.02 + 0.02 * S) for S, t in tokens.items()}
        return max(scores, key=lambda S: scores[S])

    for kept, tokens, length in (
        ([3, 1], {1: 2.0, 3: 3.0, 5: 4.0}, 5),  # a = 1, 0.5, 0.5, and the last ratio goes on: 0.5, 0.5
        ([2, 1], {1: 2.0, 3: 2.5, 5: 2.5}, 3),
        ([1, 1], {1: 2.0, 3: 2.0, 5: 2.0}, 1),
    ):
        for step in range(4):
            before = made._length
            assert made.draft_lengths(view) == before  # no decision before the window is full
            made.observe(outcome(kept, [made._length] * 2, step=step))
        assert made.draft_lengths(view) == best(tokens) == length


# -- budgets ---------------------------------------------------------------------------------------------------------
@given(survivals(), st.floats(0, 4))
def test_tetris_fills_its_capacity_best_first(a: Survival, per_request: float) -> None:
    R, G = a.shape
    K = min(int(per_request * R), R * G)
    view = make_view(a, drafted=[G] * R)
    assert decide(policy("tetris", per_request=per_request), view).tolist() == first_k(a, K)
    assert decide(policy("tetris", capacity=3), view).sum() == min(3, R * G, len(candidates(a)))


@given(survivals())
def test_dcut_keeps_the_share_of_its_batch_size(a: Survival) -> None:
    R, G = a.shape
    share = 0.5 if R >= 4 else 0.8 if R >= 2 else 1.0
    view = make_view(a, drafted=[G] * R)
    assert decide(policy("dcut", ratios=[[2, 0.8], [4, 0.5]]), view).tolist() == first_k(a, round(share * R * G))


# -- specdec_pp ------------------------------------------------------------------------------------------------------
@given(survivals(), st.sampled_from([0.0, 0.1, 0.5, 0.7, 1.0]))
def test_stopper_is_a_loop(a: Survival, threshold: float) -> None:
    view, made = make_view(a), policy("specdec_pp", threshold=threshold)
    want = []
    for r, row in enumerate(a):
        n = 0
        while n < view.drafted[r] and row[n] >= 1 - threshold:
            n += 1
        want.append(n)
    assert made.stop_drafting(view).tolist() == want


# -- slo_aware -------------------------------------------------------------------------------------------------------
def test_late_requests_come_first_then_the_likeliest() -> None:
    """Budget 4 (the stair at 6 tokens). Request 0 is late and needs 2 expected tokens, though its chances are poor."""
    cost = make_cost(staircase([2, 6, 16], [1.0, 1.2, 9.0]), block_size=4, max_requests=4)
    view = make_view([[0.5, 0.4, 0.3, 0.1], [0.9, 0.8, 0.7, 0.6]])
    made = policy("slo_aware")
    assert decide(made, view, make_setup(cost)).tolist() == [0, 4]
    view.now, view.first_token, view.emitted = 10.0, frozen([0.0, 0.0], np.float64), frozen([10, 100], np.int64)
    view.tpot_sla = frozen([11.2 / 11, np.inf], np.float64)  # at the end of the step 11 tokens are due, 9 came
    assert decide(made, view, make_setup(cost)).tolist() == [3, 1]  # 1 + 0.5 + 0.4 < 2 ≤ 1 + 0.5 + 0.4 + 0.3


def test_slo_budget_is_a_share_of_step_time() -> None:
    cost = make_cost(staircase([2, 6, 8, 16], [1.0, 1.2, 1.4, 9.0]), block_size=4, max_requests=4)
    made = policy("slo_aware", slack=0.3)
    made.start(make_setup(cost))
    made.draft_lengths(make_view(np.full((2, 4), 0.5)))
    assert made._budget == 4
