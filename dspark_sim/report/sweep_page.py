"""A sweep's report: the two readings of its frontier, every grid point, and what to doubt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dspark_sim.errors import InputError, nearest
from dspark_sim.plots.sweepdata import SweepData
from dspark_sim.report.folder import Folder
from dspark_sim.report.inputs import inputs_of, reproduce
from dspark_sim.report.page import Page, Picture
from dspark_sim.report.readings import answer, artefacts, read_facet, reading_lists, reading_tables
from dspark_sim.report.table import (
    FIGURES,
    Column,
    Table,
    arm_cell,
    figure_cell,
    figure_columns,
    moment,
    text_cell,
)
from dspark_sim.results import HEADLINE, MORE

__all__ = ["baseline_of", "sweep_page"]

MAX_ROWS = 2000
_FIRST = ("throughput_tok_s_gpu", "throughput_vs_first_pct", "tps_user_concurrent", "tps_user_mean", "tps_user_p5",
          "tpot_ms_p99", "acceptance_length", "verification_budget", "sla_attainment", "goodput_tok_s_gpu")


def baseline_of(data: SweepData, name: str | None) -> str:
    """The arm that others are compared with: the one asked for, the first one otherwise.

    Raises:
        InputError: no arm has that name.
    """
    if name is None:
        return data.arms[0]
    if name not in data.arms:
        raise InputError(f"no arm {name!r}", key="--baseline", allowed=", ".join(data.arms),
                         suggestion=nearest(name, data.arms))
    return name


def sweep_page(
    folder: Folder, data: SweepData, baseline: str, pictures: Sequence[Picture], missing: Sequence[str]
) -> Page:
    """The page of a sweep; pictures come from outside, for they need the drawing libraries."""
    manifest = folder.manifest
    failures = [f"{f['arm']} failed at {_point(f['values'])}, replication {f['replication'] + 1}: {f['error']}"
                for f in manifest.get("failures", ())]
    if manifest.get("status") not in ("finished", "failed"):
        failures.append(f"The sweep is {manifest.get('status')}: figures cover the tasks that had finished.")
    apart = [(point["values"], line) for point in manifest.get("points", ()) for line in point.get("warnings", ())]
    readings = [(f, *read_facet(f, data, baseline)) for f in data.facets] if data.is_load else []
    warnings = [w for f, at_tps, _ in readings if (w := artefacts(f, baseline, at_tps))] + list(manifest["warnings"])
    if apart:
        warnings.append(f"{len(apart)} further warnings at single grid points: see the table of warnings below")
    tables = [t for f, *both in readings for t in reading_tables(f, baseline, *both)]
    facts = [("scenario", str(manifest["scenario"]["name"])), ("grid points", str(len(manifest.get("points", ())))),
             ("arms", str(len(data.arms))), ("replications", str(manifest["replications"])),
             ("seed", str(manifest["seed"])), ("status", str(manifest.get("status"))),
             ("made", moment(manifest.get("finished"))),
             ("dspark-sim", str((manifest.get("packages") or {}).get("dspark-sim", "unknown")))]
    keys = "; ".join(f"{key} = {', '.join(map(str, values))}" for key, values in manifest["over"].items())
    details = [replace(_points("points", "Every grid point", data, _FIRST), open=True),
               _points("all", "Every grid point, every figure", data, (*HEADLINE, *MORE)),
               *(t for f, *both in readings for t in reading_lists(f, baseline, *both))]
    if apart:
        details.insert(1, Table("warnings", "Warnings at single grid points",
                                [Column("point", "grid point", left=True), Column("warning", "warning", left=True)],
                                [[text_cell(_point(values)), text_cell(line)] for values, line in apart]))
    return Page(
        title=f"{manifest['scenario']['name']}: a sweep", subtitle="Simulated comparison of ways to serve an LLM",
        description=f"Over {keys}. Baseline: {baseline}.", facts=facts, failures=failures, warnings=warnings,
        answer=answer(readings, baseline, data), tables=tables,
        details=details, pictures=pictures, missing=missing, assumptions=list(manifest["assumptions"]),
        inputs=inputs_of(manifest), reproduce=reproduce(manifest, "sweep"),
        glossary=[FIGURES[n] for n in (*HEADLINE, *MORE) if n in FIGURES],
    )


def _point(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} = {value}" for key, value in values.items())


def _points(key: str, title: str, data: SweepData, names: Sequence[str]) -> Table:
    known = [n for n in names if any(row.get(n) is not None for row in data.rows)]
    figures = figure_columns(known)
    columns = [Column("arm", "arm", left=True), *(Column(k, k.rpartition(".")[2], help=k) for k in data.keys), *figures]
    rows = [[arm_cell(row["arm"], bool(row["lossless"])), *(text_cell(row[k]) for k in data.keys),
             *(figure_cell(c, row.get(c.key), row.get(f"{c.key}_ci95_low"), row.get(f"{c.key}_ci95_high"))
               for c in figures)] for row in data.rows[:MAX_ROWS]]
    cut = f" The first {MAX_ROWS:,} of {len(data.rows):,} rows; all are in aggregate.csv." \
        if len(data.rows) > MAX_ROWS else ""
    return Table(key, title, columns, rows, "Click a column's head to sort. Differences are paired, against the first "
                 f"arm ({data.arms[0]}).{cut}")
