"""The two tables of a sweep, tidy: a row per grid point, arm and replication, and a row per grid point and arm.

Both hold nothing but figures and names (no times, no paths) and are sorted by the grid, the arms and the replications,
so the same sweep gives the same bytes however often it was interrupted. Undefined is null (CSV: empty), never NaN.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dspark_sim.results import HEADLINE, MORE, Results
from dspark_sim.runner import TaskResult, summarise
from dspark_sim.stats import paired_percent
from dspark_sim.sweep_cells import write_whole
from dspark_sim.sweep_grid import Point, canonical
from dspark_sim.sweep_key import task_key

if TYPE_CHECKING:
    import pyarrow as pa

    from dspark_sim.arms import ArmSetup
    from dspark_sim.scenario import Scenario

__all__ = ["COMPARED", "GridPoint", "aggregate_rows", "point_results", "task_rows", "to_table", "write_table"]

COMPARED = ("goodput_tok_s_gpu", "tps_user_mean", "tps_user_concurrent", "tpot_ms_p99", "acceptance_length")
_VERSUS = "_vs_first_pct"  # a paired difference to the first arm, in per cent
_TEXT = ("arm", "policy", "drafter", "error")
_WHOLE = ("point", "replication", "replications", "steps", "requests")


@dataclass(frozen=True)
class GridPoint:
    """One point, loaded and checked.

    Attributes:
        number: 0, 1, 2, … in the order of the grid.
        values: the grid's keys.
        scenario, setups: of this point.
        parts: per arm, what its tasks' keys are made of.
    """

    number: int
    values: Point
    scenario: Scenario
    setups: Sequence[ArmSetup]
    parts: Sequence[Mapping[str, str]]

    @cached_property
    def keys(self) -> list[list[str]]:
        """Per arm, the keys of its tasks by replication."""
        return [[task_key(parts, r) for r in range(self.scenario.replications)] for parts in self.parts]


def point_results(
    point: GridPoint, cells: Mapping[str, Mapping[str, Any]], failures: Mapping[str, str], interrupted: bool
) -> tuple[Results, list[TaskResult]]:
    """The comparison of the arms at one point, and its finished and failed tasks, from what the cells say."""
    tasks = []
    for setup, keys in zip(point.setups, point.keys, strict=True):
        for replication, key in enumerate(keys):
            if key in cells:
                body = cells[key]
                tasks.append(TaskResult(setup.name, replication, body["measured"], body["classes"], None,
                                        body["warnings"], 0.0, None))
            elif key in failures:
                tasks.append(TaskResult(setup.name, replication, {}, {}, failures[key], (), 0.0, None))
    return summarise(point.scenario, point.setups, tasks, interrupted=interrupted), tasks


def task_rows(point: GridPoint, tasks: Sequence[TaskResult]) -> list[dict[str, Any]]:
    """A row per (arm, replication) of one point; figures of a failed one are absent and will be null."""
    first = {t.replication: t for t in tasks if t.arm == point.setups[0].name}
    arms = {s.name: s for s in point.setups}
    rows = []
    for task in tasks:
        row = {"point": point.number, **_axes(point.values), **_names(arms[task.arm]),
               "replication": task.replication, "error": task.error}
        if task.error is None:
            row |= {name: task.measured.get(name) for name in (*HEADLINE, *MORE)}
            row |= task.measured
            base = first.get(task.replication)
            for name in ("throughput_tok_s_gpu", *COMPARED):
                row[_versus(name)] = None if base is None else paired_percent(
                    [task.measured.get(name)], [base.measured.get(name)]).mean
        rows.append(row)
    return rows


def aggregate_rows(point: GridPoint, results: Results, tasks: Sequence[TaskResult]) -> list[dict[str, Any]]:
    """A row per arm of one point: every figure with its 95 % interval, and paired differences to the first arm."""
    finished = {s.name: {t.replication: t.measured for t in tasks if t.arm == s.name and t.error is None}
                for s in point.setups}
    base = finished[point.setups[0].name]
    rows = []
    for setup, flat in zip(point.setups, results.to_rows(), strict=True):
        row = {"point": point.number, **_axes(point.values), **_names(setup),
               "replications": len(finished[setup.name]), "error": flat["error"]}
        row |= {name: value for name, value in flat.items() if name not in row}
        own = {} if flat["error"] is not None else finished[setup.name]
        for name in COMPARED:
            figure = paired_percent([m.get(name) for m in own.values()], [base.get(r, {}).get(name) for r in own])
            column = _versus(name)
            row |= {column: figure.mean, f"{column}_ci95_low": figure.ci95_low, f"{column}_ci95_high": figure.ci95_high}
        rows.append(row)
    return rows


def _versus(name: str) -> str:
    return "throughput" + _VERSUS if name == "throughput_tok_s_gpu" else name + _VERSUS


def _axes(values: Point) -> dict[str, Any]:
    """Grid values as columns; what is no scalar stands as JSON."""
    return {key: canonical(v) if isinstance(v, (list, dict)) else v for key, v in values.items()}


def _names(setup: ArmSetup) -> dict[str, Any]:
    return {"arm": setup.name, "policy": setup.policy_reference, "drafter": setup.drafter,
            "lossless": setup.policy_source.lossless}


def to_table(rows: Sequence[Mapping[str, Any]], axes: Sequence[str]) -> pa.Table:
    """Rows as an Arrow table: figures are doubles throughout, a grid column is what all its values are, else text."""
    import pyarrow as pa

    names = list(dict.fromkeys(name for row in rows for name in row))
    columns, kinds = [], []
    for name in names:
        values = [row.get(name) for row in rows]
        kind = _kind(name, values, axes)
        if kind == pa.string():
            values = [v if v is None or isinstance(v, str) else canonical(v) for v in values]
        columns.append(pa.array(values, kind))
        kinds.append(pa.field(name, kind))
    return pa.Table.from_arrays(columns, schema=pa.schema(kinds))


def _kind(name: str, values: Sequence[Any], axes: Sequence[str]) -> Any:
    import pyarrow as pa

    if name in axes:
        types = {type(v) for v in values}
        if types == {bool}:
            return pa.bool_()
        if types == {int} and all(-(2**63) <= v < 2**63 for v in values):
            return pa.int64()
        return pa.float64() if types <= {int, float} and float in types else pa.string()
    if name == "lossless":
        return pa.bool_()
    if name in _TEXT:
        return pa.string()
    return pa.int64() if name in _WHOLE else pa.float64()


def write_table(folder: Path, name: str, table: pa.Table) -> None:
    """``<name>.parquet`` and ``<name>.csv`` with the same rows and columns."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    write_whole(folder / f"{name}.parquet", sink.getvalue().to_pybytes())
    write_whole(folder / f"{name}.csv", to_csv(table))


def to_csv(table: pa.Table) -> str:
    """A line per row; undefined is empty, truth values are ``true`` and ``false``, numbers in full precision."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table.column_names)
    for row in zip(*(column.to_pylist() for column in table.columns), strict=True):
        writer.writerow(["" if v is None else str(v).lower() if isinstance(v, bool) else v for v in row])
    return text.getvalue()
