"""What a step costs, for the slow engine: straight from the profile's curves, one number at a time."""

from __future__ import annotations

import math
from typing import Any

__all__ = ["price"]


def seconds_of(curve: Any, size: int) -> float:
    """A curve's seconds at one size, ``inf`` where it may not answer."""
    return float(curve.at(size))


def drafter_cost(setup: Any) -> Any:
    """The cost entry of the arm's drafter: the one that the arm names, its own, or its name without ``-<number>``."""
    entries = setup.profile.drafters
    name = getattr(setup, "drafter_cost", None) or setup.drafter
    return entries[name] if name in entries else entries[name.rsplit("-", 1)[0]]


def price(setup: Any, planned: list[int], drafted: list[int], verified: list[int], resumed: int, prefill: int,
          kv_tokens: int) -> tuple[tuple[float, float, float, float], int, int]:
    """Seconds of a step by part (draft, schedule, verify, other), its batch tokens, and the size that was charged.

    Args:
        planned, drafted, verified: of each decoding row; drafted is where drafting stopped.
        resumed: rows that draft again after a step in which they did not.
        prefill: prompt tokens of the step.
        kv_tokens: KV tokens that attention reads.
    """
    profile, R = setup.profile, len(drafted)

    draft_s = 0.0
    cost = None if setup.drafter is None else drafter_cost(setup)
    drafting = sum(1 for n in (drafted if cost is not None and cost.kind == "autoregressive" else planned) if n > 0)
    if cost is not None and drafting:
        draft_s = seconds_of(cost.seconds, drafting)
        if cost.kind == "autoregressive":
            draft_s *= max(drafted)
        elif cost.per_token is not None:
            draft_s += seconds_of(cost.per_token, drafting) * max(drafted)
        if resumed and cost.catch_up is not None:
            draft_s += seconds_of(cost.catch_up, resumed)

    schedule_s = 0.0
    if R and profile.schedule is not None and setup.policy_source.timing == "synchronous":
        schedule_s = seconds_of(profile.schedule, R)

    budgets = sum(1 + n for n in verified)
    charged = R * (1 + max(verified)) if R and setup.engine.ragged == "padded" else budgets
    if profile.prefill is None:
        charged += prefill
    verify_s = seconds_of(profile.verify, charged) if charged else 0.0
    padded = profile.verify.pad(charged) if charged and charged <= profile.verify.last else charged
    if profile.prefill is not None and prefill:
        verify_s += seconds_of(profile.prefill, prefill)

    other_s = profile.per_request * R
    for curve in (profile.fixed, profile.speculation_overhead if setup.drafter is not None else None):
        if curve is not None:  # measured for batches; a step without decoding rows pays the smallest one's
            other_s += seconds_of(curve, max(R, curve.first))
    if profile.per_kv_token:
        other_s += profile.per_kv_token * (kv_tokens - profile.measured_context * R)
    assert not math.isnan(draft_s + schedule_s + verify_s + other_s)
    return (draft_s, schedule_s, verify_s, other_s), budgets + prefill, padded
