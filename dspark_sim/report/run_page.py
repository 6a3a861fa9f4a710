"""A run's report: its summary and manifest as tables and sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dspark_sim.report.folder import Folder
from dspark_sim.report.inputs import inputs_of, reproduce
from dspark_sim.report.page import Page, Picture
from dspark_sim.report.table import (
    FIGURES,
    Cell,
    Column,
    Table,
    arm_cell,
    figure_cell,
    figure_columns,
    moment,
    text_cell,
)
from dspark_sim.results import HEADLINE, MORE

__all__ = ["run_page"]

Arm = Mapping[str, Any]
_FIRST = (
    "throughput_tok_s_gpu", "throughput_vs_first_pct", "tps_user_mean", "tps_user_p50", "tps_user_p5",
    "tps_user_concurrent", "tpot_ms_p50", "tpot_ms_p99", "step_gap_ms_p99", "acceptance_length", "verification_budget",
    "acceptance_rate", "accepted_per_drafted", "wasted_share", "sla_attainment", "goodput_tok_s_gpu",
)
_ARM = Column("arm", "arm", left=True)


def run_page(folder: Folder, pictures: Sequence[Picture], missing: Sequence[str]) -> Page:
    """The page of a run; pictures come from outside, for they need the drawing libraries."""
    summary, manifest = folder.summary, folder.manifest
    arms = summary["arms"]
    failures = [f"{a['arm']} failed and has no figures: {a['error']}" for a in arms if a.get("error")]
    warnings = [w for w in summary.get("warnings", ()) if w not in failures]
    n = summary["replications"]
    facts = [("scenario", str(summary["scenario"])), ("arms", str(len(arms))),
             ("replications", f"{n}" if n > 1 else "1 (no intervals)"), ("seed", str(summary["seed"])),
             ("status", str(manifest.get("status", "unknown"))), ("made", moment(manifest.get("finished"))),
             ("dspark-sim", str((manifest.get("packages") or {}).get("dspark-sim", "unknown")))]
    comparison = _comparison(arms, n)
    columns = [c for c in comparison.columns if c.key in FIGURES]
    return Page(
        title=str(summary["scenario"]), subtitle="Simulated comparison of ways to serve an LLM",
        description=str(summary.get("description") or ""), facts=facts, failures=failures, warnings=warnings,
        answer=_answer(arms, _open_loop(manifest)), tables=[comparison],
        details=[_engine(arms, n), *_classes(arms)], pictures=pictures,
        missing=missing, assumptions=list(summary.get("assumptions", ())), inputs=inputs_of(manifest),
        reproduce=reproduce(manifest, "run"), glossary=[*columns, *figure_columns(MORE)],
    )


def _cells(figures: Mapping[str, Any], columns: Sequence[Column]) -> list[Cell]:
    out = []
    for column in columns:
        f = figures.get(column.key) or {}
        out.append(figure_cell(column, f.get("mean"), f.get("ci95_low"), f.get("ci95_high")))
    return out


def _defined(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[Column]:
    """Columns of the figures that at least one row has."""
    return figure_columns([n for n in names if any((r.get(n) or {}).get("mean") is not None for r in rows)])


def _comparison(arms: Sequence[Arm], replications: int) -> Table:
    figures = _defined(arms, [*_FIRST, *(n for n in HEADLINE if n not in _FIRST)])
    columns = [_ARM, *figures, Column("policy", "policy", left=True), Column("drafter", "drafter", left=True),
               Column("lossless", "lossless", help="what the policy claims: the output distribution stays exact",
                      left=True),
               Column("steps", "steps", help="engine steps in the measured windows of all replications"),
               Column("requests", "requests", help="requests that finished in the measured windows")]
    rows = []
    for i, arm in enumerate(arms):
        cells = _cells(arm, figures)
        if i == 0:
            cells = [Cell("first arm", 0.0, tone="dim") if c.key == "throughput_vs_first_pct" and cell.sort is not None
                     else cell for c, cell in zip(figures, cells, strict=True)]
        rows.append([arm_cell(arm["arm"], bool(arm["lossless"])), *cells, text_cell(_policy(arm)),
                     text_cell(arm["drafter"] or "none"), text_cell(bool(arm["lossless"])), text_cell(arm["steps"]),
                     text_cell(arm["requests"])])
    note = "Click a column's head to sort. ± is half of the 95 % interval over replications; differences are " \
           "coloured when their interval leaves zero out." if replications > 1 else \
           "Click a column's head to sort. One replication, so there are no intervals."
    return Table("comparison", "The arms side by side", columns, rows, note)


def _policy(arm: Arm) -> str:
    inside = ", ".join(f"{k}={v}" for k, v in (arm.get("policy_parameters") or {}).items())
    return f"{arm['policy']}({inside})" if inside else str(arm["policy"])


def _engine(arms: Sequence[Arm], replications: int) -> Table:
    figures = _defined(arms, MORE)
    rows = [[text_cell(arm["arm"]), *_cells(arm, figures)] for arm in arms]
    return Table("engine", "More figures: latencies, batches, where the time goes", [_ARM, *figures], rows)


def _classes(arms: Sequence[Arm]) -> list[Table]:
    """Users' figures by class of requests; none when there is only one class."""
    pairs = [(arm, name, figures) for arm in arms for name, figures in (arm.get("classes") or {}).items()]
    if len({name for _, name, _ in pairs}) < 2:
        return []
    columns = _defined([f for *_, f in pairs], list(dict.fromkeys(k for *_, f in pairs for k in f)))
    rows = [[text_cell(arm["arm"]), text_cell(name), *_cells(figures, columns)] for arm, name, figures in pairs]
    return [Table("classes", "By class of requests", [_ARM, Column("class", "class", left=True), *columns], rows)]


def _open_loop(manifest: Mapping[str, Any]) -> bool:
    """Whether requests come at their own rate, so that throughput is the traffic's and not the arm's."""
    resolved = (manifest.get("scenario") or {}).get("resolved") or {}
    arrival = (resolved.get("workload") or {}).get("arrival") or {}
    return bool(arrival.get("kind", "closed") != "closed")


def _answer(arms: Sequence[Arm], open_loop: bool) -> list[str]:
    """The first sentence that a reader wants: which lossless arm serves best, and is that sure?"""
    name = "tps_user_mean" if open_loop else "throughput_tok_s_gpu"
    known = [a for a in arms if a[name]["mean"] is not None and a["lossless"]]
    if not known:
        return ["No lossless arm has figures."]
    ranked = sorted(known, key=lambda a: -a[name]["mean"])
    best = ranked[0]
    what, unit = ("Most speed for users", "for each user") if open_loop else ("Most throughput", "per GPU")
    text = f"{what} of the lossless arms: {best['arm']} with {best[name]['mean']:,.0f} tokens/s {unit}"
    half = _half(best[name])
    text += f" (± {half:,.0f})" if half is not None else ""
    if open_loop:
        return [f"{text}. Requests come at their own rate: while an arm keeps up, its throughput is the traffic's.",
                *_sure(ranked, name)]
    gain = best["throughput_vs_first_pct"]
    if best is not arms[0] and gain["mean"] is not None:
        text += f", {gain['mean']:+.1f} % against {arms[0]['arm']}"
    speed = best["tps_user_mean"]["mean"]
    text += f"; each user receives {speed:,.0f} tokens/s on average." if speed is not None else "."
    return [text, *_sure(ranked, name)]


def _sure(ranked: Sequence[Arm], name: str) -> list[str]:
    """What keeps the first from being sure of its place."""
    if len(ranked) < 2:
        return []
    low, high = ranked[0][name]["ci95_low"], ranked[1][name]["ci95_high"]
    if low is None or high is None:
        return [f"Whether it really is ahead of {ranked[1]['arm']} cannot be said without intervals."]
    if low <= high:
        return [f"Its interval overlaps that of {ranked[1]['arm']}: the order of the two is not settled."]
    return []


def _half(figure: Mapping[str, Any]) -> float | None:
    low, high = figure["ci95_low"], figure["ci95_high"]
    return None if low is None or high is None else (high - low) / 2
