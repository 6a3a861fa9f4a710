"""dspark-sim trace calibrate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from dspark_sim.commands.output import emit, emit_console, emit_rows, note
from dspark_sim.errors import InputError, TraceError

if TYPE_CHECKING:
    from rich.console import Console

    from dspark_sim.calibration import Quality
    from dspark_sim.trace import AcceptanceTrace
    from dspark_sim.trace_calibrate import Method, Part, Report

__all__ = ["calibrate_command"]

PICTURES = (".png", ".svg", ".pdf")


def calibrate_command(
    reference: str, drafter: str | None, *, method: str, share: float, seed: int, domains: list[str], fit_on: str,
    bins: int, out: Path | None, in_place: bool, plot: Path | None, form: str,
) -> None:
    """Fit, measure, print; write the trace where ``out`` or ``in_place`` says so."""
    from dspark_sim.trace_calibrate import attached, calibrate_trace

    if plot is not None and plot.suffix.lower() not in PICTURES:
        raise InputError(f"got {str(plot)!r}", key="--plot", allowed="a file ending in .png, .svg or .pdf")
    trace, path = _open(reference, drafter)
    goal = _goal(path, out, in_place)
    report = calibrate_trace(trace, cast("Method", method), share=share, seed=seed, domains=domains, bins=bins,
                             fit_on=cast('Literal["walked", "all"]', fit_on))
    assert report.reversed_pairs == 0, "a calibration must not change the order of confidences"
    if goal is not None:
        attached(trace, report).save(goal)
    if plot is not None:
        from dspark_sim.plots import draw_reliability

        draw_reliability(trace, report, plot)
    if form == "json":
        import json

        emit(json.dumps(_facts(trace, report, goal), indent=2, ensure_ascii=False) + "\n")
    elif form == "csv":
        emit_rows(_rows(report), form)
    else:
        emit_console(lambda console: _show(console, trace, report))
    for text in report.notes:
        note(f"warning: {text}")
    if plot is not None:
        note(f"reliability drawn into {plot}")
    note(_what_now(trace, report, path, goal))


def _open(reference: str, drafter: str | None) -> tuple[AcceptanceTrace, Path | None]:
    """The trace and its file (None: made from a specification)."""
    from dspark_sim.trace import load_trace
    from dspark_sim.traceset import find_traces

    if reference.endswith(".parquet"):
        path = Path(reference).expanduser()
        trace = load_trace(path)
        if drafter not in (None, trace.drafter):
            raise TraceError(f"holds drafter {trace.drafter!r}, not {drafter!r}", file=path)
        return trace, path
    found = find_traces(reference)
    if drafter is None:
        if len(found.drafters) > 1:
            raise InputError("which drafter?", key="DRAFTER", allowed=", ".join(found.drafters))
        drafter = found.drafters[0]
    return found.open(drafter), None if found.spec is not None else found.path / f"{drafter}.parquet"


def _goal(path: Path | None, out: Path | None, in_place: bool) -> Path | None:
    """Where to write, checked before the work."""
    if out is None and not in_place:
        return None
    if out is not None and in_place:
        raise InputError("say either --out or --in-place", key="--out")
    if path is None:
        raise InputError(
            "the trace is generated from a specification, so there is no recording to write to",
            key="--in-place" if in_place else "--out",
            allowed="neither; put the temperatures into the specification's confidence.sts_temperature",
        )
    if out is None:
        return path
    if out.suffix != ".parquet" or out.is_dir():
        raise InputError(f"got {str(out)!r}", key="--out", allowed="a file ending in .parquet")
    if out.exists():
        raise InputError(f"{out} exists", key="--out", allowed="a new file, or --in-place for the one that was read")
    return out


def _quality(q: Quality, k: int) -> dict[str, float | None]:
    return {"ece": round(q.ece[k], 6), "brier": round(q.brier[k], 6),
            "auc": None if (auc := q.auc[k]) is None else round(auc, 6)}


def _rows(report: Report) -> list[dict[str, Any]]:
    """One row per position and set of rows."""
    bias = report.fit.bias
    return [
        {"documents": part.documents, "rows": part.rows, "count": part.count, "position": k + 1,
         "temperature": t, "bias": None if bias is None else bias[k]}
        | {f"{name}_before": value for name, value in _quality(part.before, k).items()}
        | {f"{name}_after": value for name, value in _quality(part.after, k).items()}
        for part in report.parts for k, t in enumerate(report.fit.temperature)
    ]


def _facts(trace: AcceptanceTrace, report: Report, goal: Path | None) -> dict[str, Any]:
    return {
        "target": trace.target, "drafter": trace.drafter, "kind": trace.kind, "method": report.method,
        "fitted_on": report.fit_on, "fit_share": report.share, "seed": report.seed, "bins": report.bins,
        "domains": list(report.domains), "documents_fitted": report.documents[0],
        "documents_held_out": report.documents[1], "sts_temperature": list(report.fit.temperature),
        "sts_bias": None if report.fit.bias is None else list(report.fit.bias),
        "at_limit": list(report.fit.at_limit), "reversed_pairs": report.reversed_pairs, "merged": report.merged,
        "quality": _rows(report), "notes": list(report.notes), "written": None if goal is None else str(goal),
    }


def _change(before: float | None, after: float | None) -> str:
    return f"{_figure(before)} → {_figure(after)}"


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"


def _show(console: Console, trace: AcceptanceTrace, report: Report) -> None:
    from rich.table import Table
    from rich.text import Text

    def table(*titles: str) -> Table:
        made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold cyan")
        for title in titles:
            made.add_column(title, justify="right", no_wrap=True)
        return made

    held, held_all, fitted, _ = report.parts
    what = {"sts": "sequential temperature scaling", "scale-bias": "scale and bias per position"}[report.method]
    console.print(Text(f"{trace.target}/{trace.drafter} ({trace.kind}): {what}", style="bold"))
    where = "all domains" if report.domains == trace.domains else "domains " + ", ".join(report.domains)
    on = "walked rounds" if report.fit_on == "walked" else "all positions"
    console.print(Text(f"{where}; fitted on {on} of {report.documents[0]:,} documents, measured on "
                       f"{report.documents[1]:,} others (seed {report.seed})"))
    console.print()
    bias = report.fit.bias
    ece = table("k", "T", *([] if bias is None else ["bias"]), "ECE held out,\nwalked rounds",
                "held out,\nall positions", "fitted,\nwalked rounds")
    rest = table("k", "Brier held out,\nwalked rounds", "AUC of c_k held out,\nwalked rounds")
    for k, t in enumerate(report.fit.temperature):
        cells: list[Part] = [held, held_all, fitted]
        ece.add_row(str(k + 1), f"{t:.3f}", *([] if bias is None else [f"{bias[k]:+.3f}"]),
                    *(_change(p.before.ece[k], p.after.ece[k]) for p in cells))
        rest.add_row(str(k + 1), _change(held.before.brier[k], held.after.brier[k]),
                     _change(held.before.auc[k], held.after.auc[k]))
    console.print(ece)
    console.print()
    console.print(rest)
    console.print()
    merged = f"; {report.merged:,} neighbours became equal by rounding" if report.merged else ""
    console.print(Text(f"rows: {held.count:,} walked held out, {held_all.count:,} all held out, {fitted.count:,} "
                       f"walked fitted. Order of confidences at each position: unchanged (no pair reversed{merged}).",
                       style="dim"))
    console.print(Text(f"ECE ({report.bins} bins) and Brier: of the product of confidences against acceptance of the "
                       "whole prefix; AUC: of c_k among rows that reached k.", style="dim"))


def _what_now(trace: AcceptanceTrace, report: Report, path: Path | None, goal: Path | None) -> str:
    if goal is not None:
        other = "" if goal.stem == trace.drafter else (
            f"; in a folder of recordings it must be named {trace.drafter}.parquet")
        return f"calibration written into {goal}; arms apply it unless they say calibrated: false{other}"
    if path is not None:
        return "nothing was written: --in-place writes the calibration into the trace, --out FILE into a copy"
    if report.fit.bias is not None:
        return ("nothing was written: the trace is generated from a specification, which can hold temperatures but no "
                "biases")
    values = ", ".join(f"{t:g}" for t in report.fit.temperature)
    return ("nothing was written: the trace is generated from a specification; in one of your own, "
            f"confidence: sts_temperature: [{values}]")
