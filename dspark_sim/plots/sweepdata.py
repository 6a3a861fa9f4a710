"""What the pictures and the report of a sweep need, read from its folder once.

A sweep has one or more grid keys. One of them is the *load* (concurrency or arrival rate) or, failing that, the first
key whose values are numbers: it becomes the axis. Each combination of the others is a :class:`Facet` with pictures of
its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from dspark_sim.errors import DsparkSimError
from dspark_sim.frontier import ArmCurve, curves

__all__ = ["Facet", "SweepData"]

LOADS = ("workload.arrival.concurrency", "workload.arrival.rate_per_s")
Row = dict[str, Any]


@dataclass(frozen=True)
class Facet:
    """The rows at one value of every grid key but the axis.

    Attributes:
        label: ``key = value, …``; "" when there is no other key.
        rows: of the aggregated table.
        curves: an :class:`~dspark_sim.frontier.ArmCurve` per arm; empty without an axis.
    """

    label: str
    rows: Sequence[Row]
    curves: Sequence[ArmCurve]


class SweepData:
    """A sweep's folder for drawing and reporting.

    Attributes:
        manifest: ``manifest.json``.
        keys: the grid's keys, in order.
        axis: the key along which curves run; None if no key is a number with several values.
        is_load: the axis is a load, so that a frontier makes sense.
        rows, tasks: the two tables, as dicts by column.
        facets: in the order of the table.
        slas: (words, tokens/s per user) of every SLA that asks for a speed.
        source: sentences for the foot of every picture.
    """

    def __init__(self, folder: Path) -> None:
        self.manifest: dict[str, Any] = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        self.rows: list[Row] = pq.read_table(folder / "aggregate.parquet").to_pylist()
        self.tasks: list[Row] = pq.read_table(folder / "tasks.parquet").to_pylist()
        self.keys = list(self.manifest["over"])
        self.axis = self._axis()
        self.is_load = self.axis is not None and self.axis.startswith("workload.arrival.")
        self.facets = self._facets()
        self.slas = _slas(self.manifest)
        n = self.manifest["replications"]
        inputs = [f"profile {name} ({p['provenance']['kind']})" for name, p in self.manifest["profiles"].items()]
        inputs += [f"trace {name} ({t['kind']})" for name, t in self.manifest["traces"].items()]
        runs = f"{n} replications, intervals 95 %" if n > 1 else "1 replication, no intervals"
        name, seed = self.manifest["scenario"]["name"], self.manifest["seed"]
        self.source = [f"Simulated. Sweep of {name}, seed {seed}, {runs}.",
                       "Inputs: " + "; ".join(inputs) + "."]

    @property
    def arms(self) -> list[str]:
        """Names, in the scenario's order; the first is the baseline of differences."""
        return list(dict.fromkeys(row["arm"] for row in self.rows))

    def _axis(self) -> str | None:
        def numbers(key: str) -> bool:
            values = {row.get(key) for row in self.rows}
            return len(values) > 1 and all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values)

        return next((key for key in (*LOADS, *self.keys) if key in self.keys and numbers(key)), None)

    def _facets(self) -> list[Facet]:
        others = [key for key in self.keys if key != self.axis]

        def group(row: Row) -> tuple[Any, ...]:
            return tuple(row[key] for key in others)

        out = []
        for values in dict.fromkeys(group(row) for row in self.rows):
            rows = [row for row in self.rows if group(row) == values]
            tasks = [row for row in self.tasks if group(row) == values]
            label = ", ".join(f"{key} = {value}" for key, value in zip(others, values, strict=True))
            out.append(Facet(label, rows, curves(rows, tasks, self.axis) if self.axis is not None else ()))
        return out


def _slas(manifest: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Speeds that SLAs ask for: ``tps_user_min``, or ``tpot_ms_max`` as its inverse. None if the scenario that the
    manifest holds cannot be read any more."""
    from dspark_sim.scenario import scenario_from_text

    facts = manifest["scenario"]
    base = None if not facts.get("file") else Path(facts["file"]).resolve().parent
    try:
        scenario = scenario_from_text(facts["text"], base, facts.get("overrides") or {})
    except DsparkSimError:
        return []
    speeds: dict[float, list[str]] = {}
    for group in scenario.workload.classes:
        sla = group.sla
        if sla is not None and sla.tps_user_min:
            speeds.setdefault(float(sla.tps_user_min), []).append(group.name)
        if sla is not None and sla.tpot_ms_max:
            speeds.setdefault(1000.0 / sla.tpot_ms_max, []).append(group.name)
    everyone = len(scenario.workload.classes)
    return [(f"SLA: {tps:.4g} tok/s" + ("" if len(set(names)) == everyone else f" ({', '.join(dict.fromkeys(names))})"),
             tps) for tps, names in sorted(speeds.items())]
