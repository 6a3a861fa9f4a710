"""The paper's two readings of a frontier as tables and sentences of a report."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence

from dspark_sim.frontier import COLLAPSED, ArmCurve, Reading, nice_levels, shared_range, throughput_gain, tps_gain
from dspark_sim.plots.sweepdata import Facet, SweepData
from dspark_sim.report.table import Cell, Column, Table, figure_cell, text_cell

__all__ = ["answer", "artefacts", "read_facet", "reading_lists", "reading_tables"]

_GAIN = Column("gain_pct", "gain", "%", "difference to the baseline; its interval is paired by replication")
_KINDS = (("at-equal-tps", "Throughput at equal speed for users", "TPS per user", "tok/s", "tok/s/GPU"),
          ("at-equal-throughput", "Speed for users at equal throughput", "throughput", "tok/s/GPU", "tok/s"))


def read_facet(facet: Facet, data: SweepData, baseline: str) -> tuple[list[Reading], list[Reading]]:
    """(at equal TPS, at equal throughput): SLAs and round numbers where the baseline and another arm both are."""
    curves = {c.arm: c for c in facet.curves}
    if baseline not in curves:
        return [], []
    base, others = curves[baseline], [c for c in facet.curves if c.arm != baseline]

    def levels(of_tps: bool, first: Sequence[float]) -> list[float]:
        ends = shared_range(facet.curves, base, of_tps=of_tps)
        return sorted({*first, *(nice_levels(*ends) if ends is not None else ())})

    def read(gain: Callable[[ArmCurve, ArmCurve, float], Reading], at: Sequence[float]) -> list[Reading]:
        return [gain(other, base, level) for level in at for other in others]

    return (read(throughput_gain, levels(True, [tps for _, tps in data.slas])),
            read(tps_gain, levels(False, [])))


def reading_tables(
    facet: Facet, baseline: str, at_tps: Sequence[Reading], at_throughput: Sequence[Reading]
) -> list[Table]:
    """A row per level and a column per arm; why a cell is empty or doubtful stands below."""
    out = []
    for (key, title, level, unit, other), found in zip(_KINDS, (at_tps, at_throughput), strict=True):
        if not found:
            continue
        arms = list(dict.fromkeys(r.arm for r in found))
        columns = [Column("level", level, unit, left=True), Column("base", baseline, other),
                   *(Column(arm, arm, f"gain % · {other}", _GAIN.help) for arm in arms)]
        rows = []
        for at in dict.fromkeys(r.level for r in found):
            here = {r.arm: r for r in found if r.level == at}
            rows.append([_level(at), _plain(next(iter(here.values())).base), *(_gain(here[arm]) for arm in arms)])
        note = f"Read off the frontier by straight lines between neighbouring loads; gains are against {baseline}. " \
               "† marks artefacts of its collapse, – what cannot be read."
        words = _folded([(r.level, f"{r.words[0].upper()}{r.words[1:]}.") for r in found if r.words and not r.artefact])
        out.append(Table(key + _mark(facet), title + _where(facet), columns, rows, note, words))
    return out


def _folded(sentences: Sequence[tuple[float, str]]) -> list[str]:
    """Sentences that differ in nothing but their level are told once, with all their levels."""
    levels: dict[str, list[str]] = {}
    for level, sentence in sentences:
        shown = f"{level:,.6g}"
        levels.setdefault(sentence.replace(f" {shown} ", " \0 "), []).append(shown)
    out = []
    for sentence, all_of in levels.items():
        together = all_of[0] if len(all_of) == 1 else f"{', '.join(all_of[:-1])} and {all_of[-1]}"
        out.append(sentence.replace("\0", together))
    return out


def reading_lists(
    facet: Facet, baseline: str, at_tps: Sequence[Reading], at_throughput: Sequence[Reading]
) -> list[Table]:
    """The same, a row per level and arm, with what is doubtful in words: the form for spreadsheets."""
    out = []
    for (key, title, level, unit, other), found in zip(_KINDS, (at_tps, at_throughput), strict=True):
        columns = [Column("level", level, unit, left=True), Column("arm", "arm", left=True),
                   Column("value", "the arm", other), Column("base", baseline, other), _GAIN,
                   Column("ci95_low", "from", "%"), Column("ci95_high", "to", "%"),
                   Column("doubt", "doubt", left=True)]
        rows = [[_level(r.level), text_cell(r.arm), _plain(r.value), _plain(r.base),
                 figure_cell(_GAIN, r.gain_pct.mean), *(figure_cell(c, v) for c, v in zip(
                     columns[5:7], (r.gain_pct.ci95_low, r.gain_pct.ci95_high), strict=True)),
                 text_cell(r.words, "bad" if r.artefact else "")] for r in found]
        if rows:
            out.append(Table(f"{key}{_mark(facet)}-list", f"{title}{_where(facet)}: in full", columns, rows))
    return out


def artefacts(facet: Facet, baseline: str, at_tps: Sequence[Reading]) -> str:
    """The warning of a collapsed baseline, "" where no reading is an artefact."""
    levels = sorted({r.level for r in at_tps if r.artefact})
    if not levels:
        return ""
    where = f"{facet.label}: at" if facet.label else "At"
    return (f"{where} {', '.join(f'{v:g}' for v in levels)} tokens/s per user {baseline} has collapsed to less than "
            f"{100 * COLLAPSED:.0f} % of its own peak throughput. Throughput gains over it there (marked †) are "
            "artefacts: they say that the other arm's frontier is longer, not how much faster it is")


def _where(facet: Facet) -> str:
    return f" ({facet.label})" if facet.label else ""


def _mark(facet: Facet) -> str:
    """Part of an anchor and of a file's name, the same in every process."""
    return f"-{zlib.crc32(facet.label.encode()):08x}" if facet.label else ""


def _level(value: float) -> Cell:
    return Cell(f"{value:,.4g}" if value < 1e4 else f"{value:,.0f}", value)


def _plain(value: float | None) -> Cell:
    return Cell("–", None, tone="dim") if value is None else Cell(f"{value:,.0f}", value)


def _gain(r: Reading) -> Cell:
    cell = figure_cell(_GAIN, r.gain_pct.mean, r.gain_pct.ci95_low, r.gain_pct.ci95_high)
    reached = "" if r.value is None else f"{r.value:,.0f}"
    more = " · ".join(part for part in (cell.more, reached) if part)
    return Cell(cell.text + ("†" if r.artefact else ""), cell.sort, more, "dim" if r.artefact else cell.tone)


def _told(r: Reading) -> bool:
    """Whether the interval of a gain, where there is one, leaves out 0: only then may a sentence name a winner."""
    low, high = r.gain_pct.ci95_low, r.gain_pct.ci95_high
    return low is None or high is None or not low <= 0 <= high


def answer(
    readings: Sequence[tuple[Facet, Sequence[Reading], Sequence[Reading]]], baseline: str, data: SweepData
) -> list[str]:
    """The paper's two sentences, at the SLA if there is one, else in the middle of what can be compared."""
    lossy = {row["arm"] for row in data.rows if not row["lossless"]}
    out = []
    for facet, *both in readings[:3]:
        where = f"{facet.label}: " if facet.label else ""
        for at_tps, found in zip((True, False), both, strict=True):
            fair = [r for r in found if r.gain_pct.mean is not None and not r.artefact and r.arm not in lossy]
            levels = sorted({r.level for r in fair})
            wanted = [tps for _, tps in data.slas if tps in levels] if at_tps else []
            if not levels:
                continue
            level = wanted[0] if wanted else levels[len(levels) // 2]
            here = [r for r in fair if r.level == level]
            best = max([r for r in here if _told(r)] or here, key=lambda r: r.value or 0.0)
            half = best.gain_pct.half_width
            gain = f"{best.gain_pct.mean:+.1f} %" + ("" if half is None else f" (± {half:.1f})")
            gain += "" if _told(best) else ", which so few replications do not tell from nothing,"
            out.append(where + (
                f"Where each user gets {level:,.4g} tokens/s, {best.arm} serves {best.value:,.0f} tokens/s per GPU, "
                f"{gain} against {baseline}." if at_tps else
                f"At {level:,.0f} tokens/s per GPU, {best.arm} gives each user {best.value:,.0f} tokens/s, {gain} "
                f"against {baseline}."))
    return out or ["No comparison at equal speed or equal throughput can be read from this sweep."]
