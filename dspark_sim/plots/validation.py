"""Predicted beside published, one picture per validation case: a panel per quantity, error bars as a second row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from dspark_sim.plots.style import colours, figure, finish, save
from dspark_sim.validate_docs import UNITS

__all__ = ["draw_validation"]

Record = dict[str, Any]
MAX_PANELS = 4


def draw_validation(folder: Path) -> list[Path]:
    """Draw every case of ``validation.json`` into ``plots/``; gives the files."""
    data = json.loads((folder / "validation.json").read_text(encoding="utf-8"))
    target = folder / "plots"
    target.mkdir(exist_ok=True)
    out = []
    for case in data["cases"]:
        fig = _case(case, [r for r in data["points"] if r["case"] == case["case"] and r["at"] is not None])
        if fig is not None:
            out.append(save(fig, target / f"{case['case']}.png"))
    return out


def _case(case: Record, records: list[Record]) -> Figure | None:
    quantities = [q for q in dict.fromkeys(r["quantity"] for r in records)
                  if len({r["at"] for r in records if r["quantity"] == q}) > 1][:MAX_PANELS]
    if not quantities:
        return None
    arms = list(dict.fromkeys(r["arm"] for r in records))
    colour = dict(zip(arms, colours(len(arms)), strict=True))
    columns = min(2, len(quantities))  # more would be too small to read on a page and in a narrow window
    lines, words = -(-len(quantities) // columns), 3 if columns == 2 else 2
    legend = 0.25 * -(-(len(arms) + 2) // words)  # inches; a row of axes that are not drawn keeps its place
    fig, axes = figure(7.0 if columns == 1 else 8.6, 1.3 + 4.4 * lines + legend, 2 * lines + 1, columns,
                       height_ratios=[*[2.9, 1.3] * lines, legend])
    for ax in axes[2 * columns * lines :]:
        ax.set_axis_off()
    for i in range(columns * lines):
        at = 2 * columns * (i // columns) + i % columns
        top, below = axes[at], axes[at + columns]
        if i >= len(quantities):
            top.set_axis_off()
            below.set_axis_off()
            continue
        below.sharex(top)
        top.tick_params(labelbottom=False)
        mine = [r for r in records if r["quantity"] == quantities[i]]
        for n, arm in enumerate(arms):
            _curve(top, below, sorted((r for r in mine if r["arm"] == arm), key=lambda r: r["at"]), arm, colour[arm],
                   "osD^vP*X<>"[n % 10])
        _axes(top, below, mine, quantities[i], case["axis_name"], i % columns == 0)
    top = axes[0]
    top.plot([], [], "o", color="#555555", mfc="none", label="published")
    top.plot([], [], "-", color="#555555", label="predicted")
    entries: dict[str, Any] = {}
    for ax in axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    last = axes[2 * columns * lines]
    fig.legend(list(entries.values()), list(entries), loc="center left", bbox_to_anchor=(0.0, 0.5),
               bbox_transform=last.transAxes, ncols=words, fontsize=8)
    judged = any(s["allowed"] for s in case["summaries"])
    verdict = f"{'inside' if case['passed'] else 'outside'} its tolerance" if judged else "nothing is judged"
    n = case["fitted_parameters"]
    return finish(fig, f"{case['title']}: predicted and published", [
        f"{n} number{'s' * (n != 1)} fitted; filled marks: fitted points; {verdict}.",
        f"Source: {'; '.join(case['source'])}"])


def _curve(top: Axes, below: Axes, mine: list[Record], arm: str, colour: Any, marker: str) -> None:
    drawn = [(r["at"], r["predicted"]) for r in mine if r["predicted"] is not None]
    if not drawn:
        return
    label = arm if len(arm) < 40 else arm[:38] + "…"
    top.plot(*zip(*drawn, strict=True), "-", color=colour, lw=1.4, label=label)
    for r in mine:
        if r["published"] is not None:
            fitted = r["role"] == "fitted"
            top.plot(r["at"], r["published"], marker, color=colour, ms=6, mfc=colour if fitted else "none")
            if r["error"] is not None:
                below.plot(r["at"], r["error"], marker, color=colour, ms=5, mfc=colour if fitted else "none")


def _axes(top: Axes, below: Axes, records: list[Record], quantity: str, axis: str, first: bool) -> None:
    top.set_title(UNITS.get(quantity, quantity), fontsize="small")
    loads = [float(r["at"]) for r in records]
    if min(loads) > 0 and max(loads) / min(loads) >= 8:
        for ax in (top, below):
            ax.set_xscale("log", base=2)
            ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    levels = [float(r[k]) for r in records for k in ("predicted", "published") if r[k] is not None]
    if levels and min(levels) > 0 and max(levels) / min(levels) > 20:
        top.set_yscale("log")
    else:
        top.set_ylim(bottom=0)
    errors = [abs(float(r["error"])) for r in records if r["error"] is not None]
    below.axhline(0, color="#888888", lw=0.8)
    if not errors:
        below.set_yticks([])
        below.text(0.5, 0.7, "nothing published", transform=below.transAxes, ha="center", fontsize=8, color="#555555")
    elif max(errors) < 1e-3:  # fitted exactly: what is left is rounding
        below.set_ylim(-1, 1)
    below.set_xlabel(axis)
    absolute = any(r["error_unit"] == "absolute" for r in records)
    if first or absolute:
        below.set_ylabel("difference" if absolute else "error (%)")
