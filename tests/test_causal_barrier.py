"""The paper's Appendix A, exactly, and the rule that makes a policy lossless."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dspark_sim.curve import StepCost
from dspark_sim.policy import expected_tokens
from tests.fakes import decide, make_cost, make_setup, make_view
from tests.policy_worlds import Survival, async_worlds, policy

# -- Appendix A ------------------------------------------------------------------------------------------------------
# One request, two tokens A and B. Target (0.7, 0.3), drafter (0.5, 0.5): the first draft token is kept with chance 0.8.
# After A the drafter is sure (c_2 = 0.9), after B it knows that it is lost (c_2 = 0). SPS(1..3) = 1, 0.5, 0.45.
TARGET, DRAFTER, SECOND = (0.7, 0.3), (0.5, 0.5), (0.9, 0.0)
SPS = (1.0, 0.5, 0.45)


def appendix_a() -> StepCost:
    return make_cost({B: 1 / sps for B, sps in enumerate(SPS, start=1)}, block_size=2, max_requests=1)


def first_token_law(name: str, **options: Any) -> tuple[float, float]:
    """The exact law of the first output token: every drafted token, every acceptance."""
    law = [0.0, 0.0]
    residual = np.maximum(np.subtract(TARGET, DRAFTER), 0)
    residual /= residual.sum()
    for token, chance in enumerate(DRAFTER):
        row = [[0.8, 0.8 * SECOND[token]]]
        view = make_view(row, drafted=[2], pasts={2: [[0.8, 0.72]]})
        length = int(decide(policy(name, **options), view, make_setup(appendix_a()))[0])
        keep = min(1.0, TARGET[token] / DRAFTER[token])
        for out in range(2):
            if length == 0:
                law[out] += chance * TARGET[out]
            else:
                law[out] += chance * (keep * (out == token) + (1 - keep) * residual[out])
    return law[0], law[1]


def test_appendix_a_objective() -> None:
    seconds = appendix_a().table(1, part="verify")

    def thetas(c2: float) -> list[float]:
        return [float(x) for x in expected_tokens(np.array([[0.8, 0.8 * c2]]), 1) / seconds[: 3 if c2 else 2]]

    assert thetas(0.9) == pytest.approx([1.0, 0.9, 1.134])
    assert thetas(0.0) == pytest.approx([1.0, 0.9])
    assert (1 + 0.8 + 0.0) * SPS[2] == pytest.approx(0.81)  # a second token that is certainly lost


@pytest.mark.parametrize(("c2", "early", "sync"), [(0.9, 0, 2), (0.0, 0, 0)])
def test_appendix_a_decisions(c2: float, early: int, sync: int) -> None:
    view, setup = make_view([[0.8, 0.8 * c2]]), make_setup(appendix_a())
    assert decide(policy("early_stop", cost="verify"), view, setup).tolist() == [early]
    assert decide(policy("sync_global", cost="verify"), view, setup).tolist() == [sync]


def test_appendix_a_output_laws() -> None:
    assert first_token_law("sync_global") == pytest.approx((0.85, 0.15), abs=1e-12)
    for name, options in [("early_stop", {}), ("async_global", {}), ("threshold", {"threshold": 0.85}),
                          ("threshold", {"threshold": 0.6, "on": "survival"}), ("fixed", {"length": 2}),
                          ("no_spec", {})]:
        assert first_token_law(name, **options) == pytest.approx(TARGET, abs=1e-12), name


# -- the causal barrier ----------------------------------------------------------------------------------------------
@settings(max_examples=150)
@given(async_worlds(), st.data(), st.sampled_from([
    ("early_stop", {}), ("async_global", {}), ("threshold", {}), ("threshold", {"on": "survival"}), ("fixed", {}),
]))
def test_lengths_are_a_joint_stopping_rule(
    world: tuple[Survival, Survival, StepCost, int], data: st.DataObject, which: tuple[str, dict[str, Any]]
) -> None:
    current, past, cost, prefill = world
    R, G = current.shape
    made, setup = policy(which[0], **which[1]), make_setup(cost)
    view = make_view(current, drafted=[G] * R, pasts={2: past}, prefill_tokens=prefill)
    before = decide(made, view, setup)
    confidence = view.confidence.astype(np.float64)
    for r in range(R):
        tail = confidence[r, before[r] + 1:]
        tail[:] = data.draw(st.lists(st.sampled_from([0.0, 1.0, 0.5]), min_size=tail.size, max_size=tail.size))
    other = np.cumprod(confidence, axis=1).astype(np.float32)
    for r in range(R):
        other[r, : before[r] + 1] = current[r, : before[r] + 1]  # untouched to the last bit
    np.minimum.accumulate(other, axis=1, out=other)
    changed = make_view(other, confidence=confidence, drafted=[G] * R, pasts={2: past}, prefill_tokens=prefill)
    assert decide(made, changed, setup).tolist() == before.tolist()
