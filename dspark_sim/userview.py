"""The user's view of one replication: the requests that finished in the window, their speed, latencies and SLAs.

The table is read piece by piece: once for what can be counted, then once per column that percentiles are taken of, one
after the other. Memory holds one column of 8 bytes per request at most (and its order, with several classes).

C classes. Percentiles interpolate linearly between ranks (numpy's ``linear``). Undefined is None, never NaN.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from dspark_sim.curve import FloatArray
from dspark_sim.spill import pieces
from dspark_sim.userrows import Limits, Rows

if TYPE_CHECKING:
    from dspark_sim.scenario import Scenario
    from dspark_sim.simulate import ArmRun

__all__ = ["Group", "Measured", "UserView", "in_ms", "product", "ratio"]

Measured: TypeAlias = dict[str, float | None]
_SUMS = ("prompt_tokens", "preemptions", "requeued", "cached_tokens", "recomputed_tokens")


@dataclass
class Group:
    """The requests of one class, or all of them.

    Attributes:
        requests: finished in the window; the next ones are sums over them.
        begun: of them, in mid-life when the simulation began: their arrival is not known, so they take part in TPS
            and TPOT (measured from time 0 on), but not in TTFT, E2E or in SLAs that limit those.
        looked_up: prompt tokens looked up in a prefix cache: once more after every preemption and failure.
        refused, timed_out: came in the window and were never served.
        overdue: unfinished at the window's end, and surely late (see :meth:`~dspark_sim.userrows.Rows.overdue`).
        promised: an SLA stands here.
        judged, met: finished requests whose SLA can be judged, and those that met every limit.
        broken: by key of an SLA: requests that broke that limit, the overdue ones included.
        missed: lost or overdue requests of classes with an SLA.
        kept_tokens, known_tokens: output tokens of requests that broke nothing, and of those of which that is known.
        first_arrival, last_finish: seconds, 0 without requests.
        speed, latency: figures over requests.
    """

    requests: int = 0
    begun: int = 0
    prompt_tokens: float = 0.0
    output_tokens: float = 0.0
    preemptions: float = 0.0
    requeued: float = 0.0
    cached_tokens: float = 0.0
    recomputed_tokens: float = 0.0
    looked_up: float = 0.0
    refused: int = 0
    timed_out: int = 0
    overdue: int = 0
    promised: bool = False
    judged: int = 0
    met: int = 0
    broken: dict[str, int] = field(default_factory=dict)
    missed: int = 0
    kept_tokens: float = 0.0
    known_tokens: float = 0.0
    first_arrival: float = np.inf
    last_finish: float = 0.0
    speed: Measured = field(default_factory=dict)
    latency: Measured = field(default_factory=dict)

    def add(self, other: Group) -> None:
        """Count the requests of ``other`` too; figures over requests are not sums and stay."""
        for name, value in vars(other).items():
            if isinstance(value, (int, float)) and name not in ("promised", "first_arrival", "last_finish"):
                setattr(self, name, getattr(self, name) + value)
        for key, count in other.broken.items():
            self.broken[key] = self.broken.get(key, 0) + count
        self.promised |= other.promised
        self.first_arrival = min(self.first_arrival, other.first_arrival)
        self.last_finish = max(self.last_finish, other.last_finish)

    def attainment(self) -> float | None:
        """Share of the requests under an SLA that met every limit of it; None where nothing is promised.

        Requests that were refused, gave up waiting or are overdue at the end count as not met.
        """
        return ratio(self.met, self.judged + self.missed) if self.promised else None

    def goodput_share(self) -> float | None:
        """Share of output tokens in requests that met every SLA they have; None where nothing is promised."""
        return ratio(self.kept_tokens, self.known_tokens) if self.promised else None


class UserView:
    """What the users of one replication saw.

    Args:
        run: the replication.
        scenario: its classes and their SLAs.

    Attributes:
        everyone: all classes together.
        classes: by name, in the scenario's order.
    """

    def __init__(self, run: ArmRun, scenario: Scenario) -> None:
        self._run, self._limits = run, Limits(scenario.workload.classes)
        self._window = None if scenario.measure.mode == "whole_run" else run.window
        n = len(self._limits.names)
        totals = {name: np.zeros(n) for name, value in vars(Group()).items() if type(value) in (int, float)}
        broken = {key: np.zeros(n) for key in self._limits.by_key}
        totals["first_arrival"] += np.inf
        for rows in self._pieces():
            self._count(rows, totals, broken)
        found = [self._group(c, totals, broken) for c in range(n)]
        self.classes = dict(zip(self._limits.names, found, strict=True))
        self.everyone = Group()
        for group in found:
            self.everyone.add(group)
        if not np.isfinite(self.everyone.first_arrival):
            self.everyone.first_arrival = 0.0
        self._percentiles(found)

    def _pieces(self) -> Iterator[Rows]:
        for batch in pieces(self._run.requests):
            yield Rows(batch, self._limits, self._window)

    def _group(self, c: int, totals: dict[str, FloatArray], broken: dict[str, FloatArray]) -> Group:
        group = Group(promised=bool(self._limits.promised[c]))
        for name, values in totals.items():
            setattr(group, name, type(getattr(group, name))(values[c]))
        group.broken = {key: int(values[c]) for key, values in broken.items()
                        if not np.isnan(self._limits.by_key[key][c])}
        return group

    def _count(self, rows: Rows, totals: dict[str, FloatArray], broken: dict[str, FloatArray]) -> None:
        """Add a piece to the (C,) totals and to the (C,) broken limits by key; all are whole numbers, so exact."""
        of = rows.of

        def add(name: str, values: npt.NDArray[Any] | None = None) -> None:
            totals[name] += np.bincount(of, values, minlength=totals[name].size)

        sums = {name: rows.column(name) for name in _SUMS}
        for name, values in sums.items():
            add(name, values)
        kept, met = ~rows.unknown, rows.judged.copy()
        for key, late in rows.broken.items():
            kept &= ~late
            met &= ~late
            broken[key] += np.bincount(of, rows.judged & late, minlength=broken[key].size)
        add("requests")
        add("begun", rows.skipped > 0)
        add("output_tokens", rows.output)
        add("looked_up", sums["prompt_tokens"] * (1.0 + sums["preemptions"] + sums["requeued"]))
        add("judged", rows.judged)
        add("met", met)
        add("kept_tokens", rows.output * kept)
        add("known_tokens", rows.output * ~rows.unknown)
        np.fmin.at(totals["first_arrival"], of, rows.arrival)
        np.maximum.at(totals["last_finish"], of, rows.finished)
        refused, timed_out = rows.lost()
        overdue, late_by = rows.overdue(self._run.window[1])
        for name, counts in (("refused", refused), ("timed_out", timed_out), ("overdue", overdue)):
            totals[name] += counts
        totals["missed"] += np.where(self._limits.promised, refused + timed_out + overdue, 0)
        for key, counts in late_by.items():
            broken[key] += counts

    # -- one column at a time ----------------------------------------------------------------------------------
    def _percentiles(self, found: list[Group]) -> None:
        """Speed and latency of everyone and of each class."""
        of = np.concatenate([np.zeros(0, dtype=np.int16), *(r.of.astype(np.int16) for r in self._pieces())])
        order = np.argsort(of, kind="stable") if len(found) > 1 else None
        edges = np.cumsum([0, *(group.requests for group in found)])
        for name in ("tps", "ttft", "e2e"):
            values = np.empty(of.size)
            at = 0
            for rows in self._pieces():
                part = getattr(rows, name)
                values[at : at + part.size] = part
                at += part.size
            _describe(self.everyone, name, values)
            if order is None:
                found[0].speed, found[0].latency = self.everyone.speed, self.everyone.latency
                continue
            values = values[order]
            for c, group in enumerate(found):
                _describe(group, name, values[edges[c] : edges[c + 1]])


def _describe(group: Group, name: str, values: FloatArray) -> None:
    """Write the figures of one column into a group; requests without a token after the first have no speed."""
    known = values[np.isfinite(values)]
    if name == "tps":
        tpot = 1.0 / known
        group.speed = {
            "tps_user_mean": _mean(known), "tps_user_p50": _percentile(known, 50), "tps_user_p5": _percentile(known, 5),
            "tpot_ms_mean": in_ms(_mean(tpot)), "tpot_ms_p50": in_ms(_percentile(tpot, 50)),
            "tpot_ms_p99": in_ms(_percentile(tpot, 99)), "tpot_ms_std": in_ms(_std(tpot)),
        }
        return
    group.latency |= {
        f"{name}_ms_mean": in_ms(_mean(known)), f"{name}_ms_p50": in_ms(_percentile(known, 50)),
        f"{name}_ms_p99": in_ms(_percentile(known, 99)), f"{name}_ms_std": in_ms(_std(known)),
    }


def ratio(top: float, bottom: float) -> float | None:
    """``top / bottom``, None where it is undefined."""
    return top / bottom if bottom > 0 and np.isfinite(top) else None


def product(a: float | None, b: float | None) -> float | None:
    """``a · b``, None if either is undefined."""
    return None if a is None or b is None else a * b


def in_ms(seconds: float | None) -> float | None:
    """Seconds as milliseconds."""
    return None if seconds is None else seconds * 1e3


def _mean(known: FloatArray) -> float | None:
    return float(known.mean()) if known.size else None


def _std(known: FloatArray) -> float | None:
    return float(known.std()) if known.size else None


def _percentile(known: FloatArray, q: float) -> float | None:
    return float(np.percentile(known, q)) if known.size else None


