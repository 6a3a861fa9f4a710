"""The same question in other worlds, who wins in which, and where speculation stops paying."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from dspark_sim.plan_arm import Capacity
from dspark_sim.plan_tasks import World

__all__ = ["BASE", "WORLDS", "BreakEven", "Winner", "break_even_acceptance", "break_even_load", "winner"]

BASE = "as stated"
WORLDS: dict[str, World] = {
    "acceptance −20 %": World(acceptance=0.8), "acceptance −10 %": World(acceptance=0.9),
    "acceptance +10 %": World(acceptance=1.1), "step time +10 %": World(step_time=1.1),
    "output length +25 %": World(output_tokens=1.25),
}


@dataclass(frozen=True)
class BreakEven:
    """Where an arm is as good as the first one; ``value`` None means nowhere in the range, and ``words`` say why."""

    value: float | None
    words: str

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {"value": self.value, "words": self.words}


@dataclass(frozen=True)
class Winner:
    """The arm with the largest capacity in one world; ``sure`` when its interval lies above everybody else's."""

    arm: str | None
    sure: bool
    second: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {"arm": self.arm, "sure": self.sure, "second": self.second}


def winner(capacities: Mapping[str, Capacity]) -> Winner:
    """By the estimate; a tie of intervals is said, not decided."""
    known = sorted(((c.estimate, name) for name, c in capacities.items() if c.estimate is not None),
                   key=lambda item: -item[0])
    if not known:
        return Winner(None, True)
    best = known[0][1]
    rivals = [capacities[name] for _, name in known[1:]]
    low = capacities[best].low
    sure = all(low is not None and rival.high is not None and low >= rival.high for rival in rivals)
    return Winner(best, sure, known[1][1] if len(known) > 1 else None)


def break_even_acceptance(points: Sequence[tuple[float, float | None, float | None]]) -> BreakEven:
    """The factor on acceptance at which an arm's capacity equals the first arm's.

    Args:
        points: (factor, capacity of the arm, capacity of the first arm), rising factors; None: no load passes.
    """
    gaps = [(f, (arm or 0.0) - (first or 0.0)) for f, arm, first in points]
    if len(gaps) < 2 or all(arm is None and first is None for _, arm, first in points):
        return BreakEven(None, "not known: too few answers")
    for (f, gap), (g, other) in pairwise(gaps):
        if gap <= 0 < other:
            return BreakEven(f + (g - f) * (-gap) / (other - gap), "acceptance times this, and both serve as much")
    low, high = gaps[0][0], gaps[-1][0]
    if all(gap > 0 for _, gap in gaps):
        return BreakEven(None, f"serves more than the first arm down to acceptance × {low:g}, the lowest looked at")
    if all(gap <= 0 for _, gap in gaps):
        return BreakEven(None, f"serves no more than the first arm up to acceptance × {high:g}, the highest looked at")
    return BreakEven(None, "serves more at lower acceptance than at higher: no break-even can be stated")


def break_even_load(points: Sequence[tuple[float, float | None, float | None]], unit: str) -> BreakEven:
    """The load from which an arm gives its users no more tokens per second than the first arm does at the same load.

    Args:
        points: (load, TPS per user of the arm, of the first arm), rising loads; pairs with None are left out.
        unit: of the load.
    """
    gaps = [(x, arm - first) for x, arm, first in points if arm is not None and first is not None]
    if not gaps:
        return BreakEven(None, "not known: no load was looked at in both arms")
    if gaps[0][1] <= 0:
        return BreakEven(None, f"gives users no more speed than the first arm already at {gaps[0][0]:g} {unit}")
    for (x, gap), (y, other) in pairwise(gaps):
        if other <= 0 < gap:
            return BreakEven(x + (y - x) * gap / (gap - other), "from this load on users are no faster than with the "
                             "first arm")
    return BreakEven(None, f"gives users more speed at every load looked at, up to {gaps[-1][0]:g} {unit}")
