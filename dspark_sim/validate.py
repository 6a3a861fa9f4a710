"""Predictions laid beside published measurements: run a case's points, compare, judge.

A point is one arm at one load. It is simulated once per replication of the case's scenario, whatever number of
published quantities it has. Only points with ``role: predicted`` are judged: the median and the worst of their absolute
errors, per quantity, against the case's tolerance.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dspark_sim.errors import RunError, nearest, shown
from dspark_sim.validate_case import Case, Role, Table
from dspark_sim.validate_curves import read_off
from dspark_sim.validate_traces import compare_acceptance

__all__ = ["CaseResult", "Point", "Summary", "run_case"]

Key = tuple[str, float, str]
Measured = Mapping[str, float | None]


@dataclass(frozen=True)
class Point:
    """One number: predicted, and as published.

    Attributes:
        arm: arm, or drafter and domain, or the words of a reading.
        at: load, draft tokens or position; NaN never, None for a reading without one.
        quantity: what it is.
        predicted: None when the run failed or the quantity is undefined.
        published: None where nothing was published.
        role: ``predicted`` points are judged.
        absolute: the error is a difference in the quantity's own units, not per cent.
        note: why a prediction is missing, or the case's remark.
    """

    arm: str
    at: float | None
    quantity: str
    predicted: float | None
    published: float | None
    role: Role
    absolute: bool = False
    note: str = ""

    @property
    def error(self) -> float | None:
        """Predicted against published in per cent, or in the quantity's units; None: none is known, or 0 published."""
        if self.predicted is None or self.published is None:
            return None
        if self.absolute:
            return self.predicted - self.published
        if not self.published:
            return 0.0 if not self.predicted else None
        return 100.0 * (self.predicted / self.published - 1.0)


@dataclass(frozen=True)
class Summary:
    """Errors of one quantity and role.

    Attributes:
        n: points with an error.
        median, worst: of the absolute errors.
        allowed: (median, worst) of the tolerance, None for roles that are not judged.
        missing: points without a prediction.
        zero: points that were published as 0 and predicted as something else, which is no error in per cent.
    """

    quantity: str
    role: Role
    n: int
    median: float
    worst: float
    allowed: tuple[float, float] | None
    missing: int = 0
    zero: int = 0

    @property
    def passed(self) -> bool:
        """Inside the tolerance, and nothing missing."""
        return self.allowed is None or (
            not self.missing and not self.zero and self.median <= self.allowed[0] and self.worst <= self.allowed[1]
        )


@dataclass(frozen=True)
class CaseResult:
    """A finished case."""

    case: Case
    points: Sequence[Point]
    summaries: Sequence[Summary] = field(default=())

    @property
    def passed(self) -> bool:
        """Every judged quantity is inside its tolerance."""
        return all(s.passed for s in self.summaries)


def run_case(case: Case, *, quick: bool = False, advance: Callable[[str, int, int], None] | None = None) -> CaseResult:
    """Simulate the points of a case and compare.

    Args:
        case: from :func:`~dspark_sim.validate_case.load_case`.
        quick: only the first and the last load of each arm, one replication; readings that need more are left out,
            and only the worst point is judged (the median of two is none).
        advance: called before each simulation with (words, done, total).

    Raises:
        InputError: an arm or a key of the scenario that does not exist.
    """
    wanted = list(_wanted(case, quick))
    todo = list(dict.fromkeys((table.arm or "", float(row[0] or 0), _key(table.set)) for table, row in wanted))
    sets = {(table.arm or "", float(row[0] or 0), _key(table.set)): table.set for table, row in wanted}
    runs: dict[Key, Measured | str] = {}
    for done, key in enumerate(todo):
        if advance is not None:
            advance(f"{case.name}: {key[0]} at {key[1]:g}", done, len(todo))
        runs[key] = _simulate(case, key[0], key[1], sets[key], quick)
    points: list[Point] = []
    for table, row in wanted:
        key = (table.arm or "", float(row[0] or 0), _key(table.set))
        points += _points(table, row, runs[key])
    curves: dict[str, dict[float, Measured]] = {}
    for (arm, at, extra), run in runs.items():
        if not isinstance(run, str) and extra == "[]":
            curves.setdefault(arm, {})[at] = run
    for reading in case.readings:
        value = read_off(reading, curves)
        if quick and (value is None or reading.kind != "ratio"):
            continue  # two loads are no curve
        points.append(Point(f"{reading.arm} / {reading.base}", reading.at, reading.words, value, reading.value,
                            reading.role, note=reading.note or ""))
    for i, acceptance in enumerate(case.acceptance):
        points += [Point(name, at, quantity, got, value, acceptance.role, acceptance.absolute, acceptance.note or "")
                   for name, at, quantity, got, value in compare_acceptance(case, i, acceptance)]
    return CaseResult(case, points, _judge(case, points, quick))


def _wanted(case: Case, quick: bool) -> list[tuple[Table, list[float | int | None]]]:
    """(table, row) of everything to simulate; loads that are only shown come as rows without numbers."""
    out = [(table, row) for table in case.published for row in table.rows or []]
    for show in case.show:
        for arm in show.arms:
            table = Table(arm=arm, role="shown", columns=["at", *show.quantities], rows=[], set=show.set)
            out += [(table, [at, *[None] * len(show.quantities)]) for at in show.at]
    if not quick:
        return out
    loads: dict[tuple[str | None, str], list[float]] = {}
    for table, row in out:
        loads.setdefault((table.arm, _key(table.set)), []).append(float(row[0] or 0))
    return [(t, r) for t, r in out
            if float(r[0] or 0) in (min(loads[t.arm, _key(t.set)]), max(loads[t.arm, _key(t.set)]))]


def _key(extra: Mapping[str, Any]) -> str:
    return repr(sorted(extra.items()))


def _simulate(case: Case, arm: str, at: float, extra: Mapping[str, Any], quick: bool) -> Measured | str:
    """Means over replications of every figure, or why there are none."""
    from dspark_sim.arms import load_arms
    from dspark_sim.runner import run_task

    load = int(at) if float(at).is_integer() else at
    overrides: dict[str, Any] = {case.axis: load}
    for own in case.at:
        overrides |= own["set"] if own["load"] == load else {}
    overrides |= extra
    if quick:
        overrides["replications"] = 1
    scenario = case.build(overrides)
    setups = {setup.name: setup for setup in load_arms(scenario)}
    if arm not in setups:
        raise case.fault(f"no arm {shown(arm)} in the scenario", allowed=", ".join(setups), hint=nearest(arm, setups))
    tasks = []
    for replication in range(scenario.replications):
        task = run_task(setups[arm], scenario, replication)
        if task.error is not None:
            return str(RunError(task.error))
        per_gpu, gpus = task.measured["throughput_tok_s_gpu"], task.measured["gpus_mean"]  # of all engines in service
        whole = None if per_gpu is None or gpus is None else per_gpu * gpus
        tasks.append({**task.measured, "throughput_tok_s": whole})
    out: dict[str, float | None] = {}
    for name in tasks[0]:
        values = [m[name] for m in tasks]
        defined = [v for v in values if v is not None]
        out[name] = statistics.fmean(defined) if len(defined) == len(values) else None
    tpot, step = out.get("tpot_ms_mean"), out.get("step_ms_mean")
    out["tps_user_harmonic"] = None if not tpot else 1e3 / tpot
    out["steps_per_s"] = None if not step else 1e3 / step
    return out


def _points(table: Table, row: Sequence[float | int | None], run: Measured | str) -> list[Point]:
    out = []
    for quantity, value in zip((table.columns or [])[1:], row[1:], strict=True):
        if value is None and table.role != "shown":
            continue  # an empty cell of a published table
        predicted = None if isinstance(run, str) else run.get(quantity)
        note = run if isinstance(run, str) else table.note or ""
        out.append(Point(table.arm or "", float(row[0] or 0), quantity, predicted, value, table.role, note=note))
    return out


def _judge(case: Case, points: Sequence[Point], quick: bool) -> list[Summary]:
    groups: dict[tuple[str, Role], list[Point]] = {}
    for point in points:
        if point.published is not None:
            groups.setdefault((point.quantity, point.role), []).append(point)
    out = []
    for (quantity, role), members in groups.items():
        errors = [abs(e) for e in (p.error for p in members) if e is not None]
        own = case.tolerance.quantities.get(quantity)
        allowed = (own[0], own[1]) if own else (case.tolerance.median_pct, case.tolerance.worst_pct)
        if quick:
            allowed = (allowed[1], allowed[1])
        out.append(Summary(
            quantity, role, len(errors), statistics.median(errors) if errors else 0.0, max(errors, default=0.0),
            allowed if role == "predicted" else None, sum(p.predicted is None for p in members),
            sum(p.predicted is not None and p.error is None for p in members),
        ))
    return sorted(out, key=lambda s: ("predicted", "fitted", "shown").index(s.role))
