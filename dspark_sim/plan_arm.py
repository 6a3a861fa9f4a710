"""One arm in one world: the search with its replications, and the capacity that comes out of it.

A coroutine again: it asks for (load, replication) pairs and is sent what they gave, so that all arms and worlds can be
searched side by side. Replication r has the same random streams in every arm, world and load: comparisons are paired.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeAlias

from dspark_sim.plan_decide import Decision, Verdict, decide, least_requests, level_of, looks
from dspark_sim.plan_judge import Seen
from dspark_sim.plan_load import LoadAxis
from dspark_sim.plan_search import MAX_LOADS, Bracket, search
from dspark_sim.plan_tasks import World

__all__ = ["ArmSearch", "Asked", "Capacity", "mean"]

Asked: TypeAlias = list[tuple[float, int]]  # (load, replication)
BEYOND = 1.5  # times the lowest load whose queue grows: charts end there
MAJORITY = 2  # of the replications of the first look


@dataclass(frozen=True)
class Capacity:
    """The highest load that meets the SLAs, per unit (one engine, or the cluster as it stands).

    Attributes:
        low: highest load that surely passes; None if none does.
        high: lowest load that surely fails (or cannot be simulated); None if none does.
        estimate: where the worst class's attainment crosses the target, between the two; None without a low.
        open: nothing surely passes, but lower loads are undecided: it is not known that nothing does.
        requests_s: requests per second at low, high and the estimate (open loops: the load itself).
        tok_s_gpu: output tokens per second and GPU at low, high and the estimate.
        tokens_per_request: output tokens of a request, mean.
    """

    low: float | None
    high: float | None
    estimate: float | None
    open: bool = False
    requests_s: tuple[float | None, float | None, float | None] = (None, None, None)
    tok_s_gpu: tuple[float | None, float | None, float | None] = (None, None, None)
    tokens_per_request: float | None = None


@dataclass
class ArmSearch:
    """The search of one arm in one world; :meth:`ask` drives it.

    Args:
        arm: number of the arm.
        world: factors.
        axis: loads.
        target: share that must meet the SLA.
        most: replications at one load at most.
        resolution, start, factor, loads: of the search.
        gpus: of one unit.
    """

    arm: int
    world: World
    axis: LoadAxis
    target: float
    most: int
    resolution: float
    start: float
    gpus: int
    factor: float = 2.0
    loads: int = MAX_LOADS
    seen: dict[float, list[Seen]] = field(default_factory=dict)
    decisions: dict[float, Decision] = field(default_factory=dict)
    bracket: Bracket | None = None

    def ask(self) -> Generator[Asked, Sequence[Seen], None]:
        """Yields what is to be computed, is sent the results in the same order."""
        steps = search(self.axis.rounded(self.start), least=self.axis.least, most=self.axis.most, factor=self.factor,
                       resolution=self.resolution, rounded=self.axis.rounded, loads=self.loads)
        try:
            load = next(steps)
            while True:
                verdict = yield from self._look(load)
                load = steps.send(verdict)
        except StopIteration as end:
            self.bracket = end.value

    def _look(self, load: float) -> Generator[Asked, Sequence[Seen], Verdict]:
        """The verdict at one load, with as many replications as it needs."""
        level, plan = level_of(self.most), looks(self.most)
        have = self.seen.setdefault(load, [])
        if plan[0] >= MAJORITY > len(have):
            have += yield [(load, r) for r in range(len(have), MAJORITY)]
            if all(one.saturated for one in have):  # two of three: the third can change nothing
                self.decisions[load] = decide([one.classes for one in have], self.target, level,
                                              saturated=[True] * len(have))
                return self.decisions[load].verdict
        for n in plan:
            if len(have) < n:
                have += yield [(load, r) for r in range(len(have), n)]
            if any(one.error is not None for one in have):
                self.decisions[load] = Decision("error", {}, None)
                return "error"
            found = decide([one.classes for one in have], self.target, level,
                           saturated=[one.saturated for one in have])
            self.decisions[load] = found
            if found.verdict in ("pass", "fail"):
                break
            least = min((a.requests for a in found.classes.values()), default=0)
            if least * self.most / n < 0.7 * least_requests(self.target, level):
                break  # so few requests that more replications will not help
        return self.decisions[load].verdict

    @property
    def error(self) -> str | None:
        """Why the arm has no answer: it failed at every load at which it was tried."""
        if any(d.verdict != "error" for d in self.decisions.values()):
            return None
        return next((one.error for found in self.seen.values() for one in found if one.error is not None), None)

    def hopeless(self, load: float) -> bool:
        """Far above a load whose queue grew without end: it costs most to simulate and shows nothing new."""
        full = [x for x, d in self.decisions.items() if d.saturated]
        return bool(full) and load > BEYOND * min(full)

    def capacity(self) -> Capacity:
        """What the finished search says."""
        assert self.bracket is not None
        low, high = self.bracket.low, self.bracket.high
        if low is None:
            return Capacity(None, high, None, open=bool(self.bracket.undecided))
        estimate = self._crossing(low, high)
        requests = [None if x is None else self._requests_s(x, low) for x in (low, high, estimate)]
        tokens = [None if x is None else self._tok_s_gpu(x, low) for x in (low, high, estimate)]
        first, speed = requests[0], tokens[0]
        per = speed * self.gpus / first if first and speed is not None else None
        return Capacity(low, high, estimate, False, (requests[0], requests[1], requests[2]),
                        (tokens[0], tokens[1], tokens[2]), per)

    def _crossing(self, low: float, high: float | None) -> float:
        """Where attainment crosses the target, linear between the loads that were looked at; ``low`` without an end."""
        if high is None:
            return low
        inside = [x for x in sorted(self.decisions) if low <= x <= high]
        for a, b in pairwise(inside):
            here, there = self._margin(a), self._margin(b)
            if here is None or there is None or self.decisions[b].saturated:
                if self.decisions[b].verdict in ("fail", "error"):
                    return (a + b) / 2
                continue
            if there <= 0 <= here:
                return a + (b - a) * (here / (here - there) if here > there else 0.5)
        return (low + high) / 2

    def _margin(self, load: float) -> float | None:
        """Attainment of the worst class less the target."""
        found = self.decisions[load]
        share = None if found.worst is None else found.classes[found.worst].share
        return None if share is None else share - self.target

    def _requests_s(self, load: float, low: float) -> float | None:
        if self.axis.kind not in ("closed", "sessions"):
            return load
        if load in self.seen:
            value = mean([_rate(one) for one in self.seen[load]])
            if value is not None and self.axis.kind == "closed":
                return value
        at_low = mean([_rate(one) for one in self.seen[low]])
        return None if at_low is None else at_low * load / low

    def _tok_s_gpu(self, load: float, low: float) -> float | None:
        if self.axis.kind == "closed" and load in self.seen:
            value = mean([per_paid_gpu(one.figures, self.gpus) for one in self.seen[load]])
            if value is not None:
                return value
        at_low = mean([per_paid_gpu(one.figures, self.gpus) for one in self.seen[low]])
        return None if at_low is None else at_low * load / low


def per_paid_gpu(figures: Mapping[str, float | None], gpus: int) -> float | None:
    """Tokens per second and GPU that is paid for: all ``gpus`` of the unit, also while they are scaled away.

    Runs report throughput per GPU that is paid for (``gpus_mean``); a plan's money is for the whole unit.
    """
    value, up = figures.get("throughput_tok_s_gpu"), figures.get("gpus_mean")
    return value if value is None or up is None else value * up / gpus


def mean(values: Sequence[float | None]) -> float | None:
    """Of the defined ones."""
    known = [v for v in values if v is not None]
    return sum(known) / len(known) if known else None


def _rate(one: Seen) -> float | None:
    seconds = one.figures.get("window_s")
    return None if not seconds else (one.figures.get("requests") or 0.0) / seconds
