"""The search for the highest load that passes: double or halve until it is bracketed, then bisect.

A coroutine that asks for the verdict at one load after the other, so it can be tried on invented answers and run beside
others. Undecided loads form a band between the highest load that surely passes and the lowest that surely fails; both
of its borders are narrowed down. That more load is never better is *checked*, over all loads that were looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from dspark_sim.plan_decide import Verdict

__all__ = ["MAX_LOADS", "Bracket", "Search", "bracket_of", "search"]

MAX_LOADS = 24  # a search that needs more has no monotone answer
Search: TypeAlias = Generator[float, Verdict, "Bracket"]


@dataclass(frozen=True)
class Bracket:
    """What a search found.

    Attributes:
        low: highest load that passes, with every failing load above it; None if none does.
        high: lowest load that fails (or could not be simulated); None if none does up to the end of the range.
        undecided: loads in between at which the verdict stayed open.
        violations: (load that passes, lower load that fails): more load was better there.
        verdicts: every load that was looked at.
    """

    low: float | None
    high: float | None
    undecided: tuple[float, ...]
    violations: tuple[tuple[float, float], ...]
    verdicts: Mapping[float, Verdict]


def bracket_of(verdicts: Mapping[float, Verdict]) -> Bracket:
    """The bracket that some verdicts make; failing loads win over passing ones above them."""
    fails = [x for x, v in verdicts.items() if v in ("fail", "error")]
    passes = [x for x, v in verdicts.items() if v == "pass"]
    high = min(fails, default=None)
    low = max((x for x in passes if high is None or x < high), default=None)
    between = tuple(sorted(x for x, v in verdicts.items() if v in ("undecided", "sparse")
                           and (low is None or x > low) and (high is None or x < high)))
    violations = tuple((p, f) for p in sorted(passes) for f in sorted(fails) if f < p and verdicts[f] == "fail")
    return Bracket(low, high, between, violations, dict(sorted(verdicts.items())))


def search(
    start: float, *, least: float, most: float, resolution: float, rounded: Callable[[float], float],
    factor: float = 2.0, loads: int = MAX_LOADS,
) -> Search:
    """Yields loads, is sent verdicts, returns the bracket.

    Args:
        start: the first load.
        least, most: ends of the range.
        resolution: relative distance at which passing and failing loads are close enough.
        rounded: the nearest load that can be simulated.
        factor: of the first step while nothing is bracketed yet, above 1; steps below 2 grow, each the square of the
            one before, so that a good guess ends at once and a bad one costs little.
        loads: so many are looked at, at most.
    """
    verdicts: dict[float, Verdict] = {}
    step, most_step = factor, max(factor, 2.0)
    load: float | None = rounded(min(max(start, least), most))

    def beyond(edge: float, up: bool) -> float:
        """The load a step further out; a step that rounding swallows (few whole users) is made larger."""
        nonlocal step
        while True:
            found = rounded(min(edge * step, most) if up else max(edge / step, least))
            last, step = step, min(step * step, most_step)
            if found not in verdicts or not 1.0 < last < most_step:
                return found

    while load is not None and load not in verdicts and len(verdicts) < loads:
        verdicts[load] = yield load
        found = bracket_of(verdicts)
        if found.low is None:
            lowest = min(verdicts)
            if lowest > least and verdicts[lowest] != "sparse":  # even less load would give even fewer requests
                load = beyond(lowest, up=False)
            elif found.high is None and max(verdicts) < most:
                load = beyond(max(verdicts), up=True)
            else:
                load = None
        elif found.high is None:
            load = None if max(verdicts) >= most else beyond(max(verdicts), up=True)
        else:
            load = _inside(found, resolution, rounded)
    return bracket_of(verdicts)


def _inside(found: Bracket, resolution: float, rounded: Callable[[float], float]) -> float | None:
    """The next load between the borders, None when they are close enough."""
    assert found.low is not None
    assert found.high is not None
    edge = [found.low, *found.undecided, found.high]
    gaps = [(edge[0], edge[1])] if len(edge) == 2 else [(edge[0], edge[1]), (edge[-2], edge[-1])]
    for low, high in sorted(gaps, key=lambda gap: gap[0] - gap[1]):
        if high - low > resolution * low:
            middle = rounded((low + high) / 2)
            if low < middle < high:
                return middle
    return None
