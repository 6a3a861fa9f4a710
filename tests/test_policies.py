"""The order of candidates, Algorithm 1, thresholds and fixed lengths, against literal loops."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspark_sim.curve import StepCost
from dspark_sim.policy import expected_tokens, top_k_lengths
from tests.fakes import decide, make_cost, make_setup, make_view, staircase
from tests.policy_worlds import Survival, algorithm_1, candidates, first_k, policy, survivals, worlds


# -- the order of candidates -----------------------------------------------------------------------------------------
@given(survivals(), st.integers(0, 40))
def test_top_k_is_a_stable_sort(a: Survival, k: int) -> None:
    lengths = top_k_lengths(a, k)
    assert lengths.tolist() == first_k(a, k)
    assert lengths.dtype == np.int64


@given(survivals())
def test_expected_tokens_has_the_bits_of_a_loop(a: Survival) -> None:
    tau, want = float(len(a)), [float(len(a))]
    for value, _, _ in candidates(a):
        tau += value
        want.append(tau)
    assert expected_tokens(a, len(a)).tolist() == want


def test_ranking_does_not_touch_or_need_its_input() -> None:
    whole = np.array([[0.9, 0.5, 0.4, 0.0], [0.9, 0.9, 0.1, 0.0]], dtype=np.float32)
    whole.flags.writeable = False
    part = whole[:, :3]  # not contiguous
    assert top_k_lengths(part, 4).tolist() == first_k(part, 4) == [2, 2]
    assert expected_tokens(part, 2).size == 7


# -- early_stop ------------------------------------------------------------------------------------------------------
@given(worlds, st.sampled_from(["step", "verify"]))
def test_early_stop_is_algorithm_1(world: tuple[Survival, StepCost, int], part: Literal["step", "verify"]) -> None:
    a, cost, prefill = world
    got = decide(policy("early_stop", cost=part), make_view(a, prefill_tokens=prefill), make_setup(cost))
    assert got.tolist() == algorithm_1(a, cost.table(len(a), prefill, part=part))


def test_early_stop_stops_at_an_equal_theta() -> None:
    """Θ = 1, 1, 4/3: the paper stops where Θ does not rise, even just before it would."""
    setup = make_setup(make_cost({1: 1.0, 2: 1.5, 3: 1.5}, block_size=2, max_requests=1))
    assert decide(policy("early_stop"), make_view([[0.5, 0.5]]), setup).tolist() == [0]
    assert decide(policy("sync_global"), make_view([[0.5, 0.5]]), setup).tolist() == [2]


def test_early_stop_returns_nothing_on_a_bucket_edge_and_async_global_steps_over_it() -> None:
    curve = staircase([8, 64, 512], [10.0, 12.0, 40.0])
    cost = make_cost(curve, block_size=7, max_requests=16)
    a = np.cumprod(np.full((8, 7), 0.9), axis=1).astype(np.float32)
    view = make_view(a, pasts={2: a})
    assert decide(policy("early_stop"), view, make_setup(cost)).sum() == 0
    assert decide(policy("async_global"), view, make_setup(cost)).sum() == 56


# -- thresholds, fixed, no_spec --------------------------------------------------------------------------------------
@given(survivals(), st.sampled_from([0.0, 0.25, 0.3, 0.5, 0.9, 1.0]), st.sampled_from(["confidence", "survival"]))
def test_threshold_is_a_loop(a: Survival, threshold: float, on: str) -> None:
    view = make_view(a)
    score = view.confidence if on == "confidence" else view.survival
    want = []
    for r in range(len(a)):
        n = 0
        while n < view.drafted[r] and not score[r, n] < np.float32(threshold):
            n += 1
        want.append(n)
    assert decide(policy("threshold", threshold=threshold, on=on), view).tolist() == want


def test_fixed_and_no_spec() -> None:
    view = make_view(np.full((3, 5), 0.5), drafted=[5, 2, 0])
    setup = make_setup(make_cost({1: 1.0}, block_size=5))
    assert decide(policy("fixed", length=3), view, setup).tolist() == [3, 2, 0]
    assert policy("fixed", length=3).draft_lengths(view) == 3
    assert decide(policy("no_spec"), view, setup).tolist() == [0, 0, 0]
    with pytest.raises(ValueError, match=r"length: got 6, but the drafter proposes at most 5"):
        policy("fixed", length=6).start(setup)


def test_async_global_refuses_a_lag_that_the_host_cannot_serve() -> None:
    with pytest.raises(ValueError, match=r"lag: got 1, but confidences reach the host after 2 steps"):
        policy("async_global", lag=1).start(make_setup(make_cost({1: 1.0}), host_lag=2))
