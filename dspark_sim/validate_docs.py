"""Results of validation as text: tables for the screen and for docs/validation.md, rows for JSON and CSV."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from dspark_sim.validate import CaseResult, Point, Summary

__all__ = ["AIM", "UNITS", "case_markdown", "misses_aim", "rows", "summary_lines", "tables", "verdicts"]

AIM = (3.0, 6.0)
"""Median and worst error in per cent that every case aims at."""
UNITS = {
    "throughput_tok_s": "throughput, tokens/s of the engine", "throughput_tok_s_gpu": "throughput, tokens/s per GPU",
    "tps_user_mean": "mean tokens/s of a user", "tps_user_concurrent": "tokens/s of a user (throughput / concurrency)",
    "tps_user_harmonic": "tokens/s of a user (1 / mean TPOT)",
    "verification_budget": "verification budget, tokens per request and step", "tpot_ms_mean": "mean TPOT, ms",
    "tpot_ms_p50": "median TPOT, ms", "ttft_ms_p50": "median TTFT, ms", "acceptance_length": "acceptance length",
    "conditional_acceptance": "conditional acceptance", "ece_before_pct": "ECE before calibration, %",
    "ece_after_pct": "ECE after calibration, %", "auc": "AUC", "share_pct": "share of rounds, %",
    "accepted_per_drafted": "accepted / drafted", "step_ms_mean": "mean step, ms",
}


def number(value: float | None) -> str:
    """Four significant digits, thousands without a separator."""
    if value is None:
        return "–"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def error_of(point: Point) -> str:
    """``+1.2 %``, or the difference in the quantity's units."""
    if point.error is None:
        return ""
    return f"{point.error:+.2g}" if point.absolute else f"{round(point.error, 1) + 0.0:+.1f} %"


def tables(result: CaseResult) -> list[tuple[str, list[str], list[list[str]]]]:
    """(title, header, rows) per quantity: a row per load, two columns per arm (predicted, published with error)."""
    out = []
    for quantity in dict.fromkeys(p.quantity for p in result.points):
        points = [p for p in result.points if p.quantity == quantity]
        arms = list(dict.fromkeys(p.arm for p in points))
        loads = sorted({p.at for p in points if p.at is not None})
        cell = {(p.arm, p.at): p for p in points}
        marked = {arm: {p.role for p in points if p.arm == arm} for arm in arms}
        label = {arm: f"{arm} (fitted)" if roles == {"fitted"} else f"{arm} (shown)" if roles == {"shown"} else arm
                 for arm, roles in marked.items()}
        header = [result.case.axis_name if result.case.scenario is not None else "at", *(label[a] for a in arms)]
        lines = []
        for at in loads:
            line = [f"{at:g}"]
            for arm in arms:
                p = cell.get((arm, at))
                if p is None:
                    line.append("")
                elif p.published is None:
                    line.append(number(p.predicted))
                else:
                    mark = "* " if p.role == "fitted" and len(marked[arm]) > 1 else " "
                    line.append(f"{number(p.predicted)} / {number(p.published)}{mark}{error_of(p)}".rstrip())
            lines.append(line)
        out.append((UNITS.get(quantity, quantity), header, lines))
    return out


def summary_lines(result: CaseResult) -> list[str]:
    """One sentence per quantity and role."""
    return [_sentence(s, result) for s in result.summaries]


def _sentence(s: Summary, result: CaseResult) -> str:
    absolute = any(p.absolute for p in result.points if p.quantity == s.quantity)
    unit = "" if absolute else " %"
    text = (f"{UNITS.get(s.quantity, s.quantity)}, {s.role}: {s.n} point{'s' * (s.n != 1)}, median "
            f"{_small(s.median)}{unit}, worst {_small(s.worst)}{unit}")
    if s.missing:
        text += f", {s.missing} without a prediction"
    if s.zero:
        text += f", {s.zero} published as 0 and predicted as more, which has no error in per cent"
    if s.allowed is not None:
        text += f" (allowed {s.allowed[0]:g} and {s.allowed[1]:g}): {'inside' if s.passed else 'OUTSIDE'}"
    return text


def verdicts(results: Iterable[CaseResult]) -> list[tuple[str, str, str, str, str, str, str]]:
    """A row per case and judged quantity: case, quantity, points, median, worst, allowed, ``PASS`` or ``FAIL``."""
    out = []
    for r in results:
        judged = [s for s in r.summaries if s.allowed is not None]
        if not judged:
            out.append((r.case.name, "nothing is judged", "", "", "", "", "–"))
        for s in judged:
            assert s.allowed is not None
            unit = "" if any(p.absolute for p in r.points if p.quantity == s.quantity) else " %"
            out.append((r.case.name, s.quantity, str(s.n), f"{_small(s.median)}{unit}", f"{_small(s.worst)}{unit}",
                        f"{s.allowed[0]:g}, {s.allowed[1]:g}{unit}", "PASS" if s.passed else "FAIL"))
    return out


def misses_aim(result: CaseResult) -> bool:
    """Whether a judged quantity is inside a tolerance of its case's own, but not inside the aim."""
    own = result.case.tolerance
    for s in (s for s in result.summaries if s.allowed is not None):
        median, worst = own.quantities.get(s.quantity, (own.median_pct, own.worst_pct))
        if (median > AIM[0] or worst > AIM[1]) and ((s.n > 2 and s.median > AIM[0]) or s.worst > AIM[1]):
            return True
    return False


def _small(value: float) -> str:
    return "0" if value < 1e-6 else f"{value:.2g}" if value < 100 else f"{value:,.0f}"


def rows(results: Iterable[CaseResult]) -> list[dict[str, Any]]:
    """One record per point, for JSON and CSV."""
    return [
        {"case": r.case.name, "arm": p.arm, "at": p.at, "quantity": p.quantity, "role": p.role,
         "predicted": p.predicted, "published": p.published, "error": p.error,
         "error_unit": "absolute" if p.absolute else "percent", "passed": r.passed, "note": p.note}
        for r in results for p in r.points
    ]


def case_markdown(result: CaseResult, picture: str | None = None) -> str:
    """The section of one case in docs/validation.md."""
    case = result.case
    parts = [
        f"## {case.name}: {case.title}",
        f"**{_verdict(result)}.** {case.system}",
        f"*Source:* {_joined(case.source)}", f"*Fitted ({case.fitted.parameters} numbers):* {_joined(case.fitted.on)}",
        f"*Predicted:* {case.predicted}",
    ]
    if picture is not None:
        parts.append(f"![{case.title}]({picture})")
    for title, header, lines in tables(result):
        parts.append(f"{title[:1].upper()}{title[1:]}" + (" (predicted / published, error):" if any(
            "/" in c for line in lines for c in line[1:]) else " (predicted):"))
        parts.append(_table(header, lines))
    if result.summaries:
        parts.append("\n".join(f"* {line}" for line in summary_lines(result)))
    notes = dict.fromkeys(p.note for p in result.points if p.note)
    if notes:
        parts.append("\n".join(f"* Note: {note}" for note in notes))
    sections = {"What it shows": case.findings, "What was tried": case.tried, "What cannot be identified": case.limits}
    for name, texts in sections.items():
        if texts:
            parts.append(f"*{name}:*\n\n" + "\n".join(f"* {text}" for text in texts))
    return "\n\n".join(parts)


def _verdict(result: CaseResult) -> str:
    if not any(s.allowed for s in result.summaries):
        return "A demonstration, nothing is judged"
    return "Inside its tolerance" if result.passed else "Outside its tolerance"


def _joined(texts: Sequence[str]) -> str:
    return "; ".join(t.rstrip(".") for t in texts) + "."


def _table(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    out = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(out + ["| " + " | ".join(line) + " |" for line in lines])
