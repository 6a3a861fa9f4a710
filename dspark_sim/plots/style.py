"""One look for all pictures: colour-blind safe, readable in grey and in print, no decoration."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

__all__ = ["LINES", "MARKERS", "PARTS", "colours", "figure", "finish", "powers_of_two", "save", "seconds_axis"]

mpl.use("Agg")
sns.set_theme(style="ticks", context="notebook", font_scale=0.85, rc={
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.color": "#e6e6e6",
    "axes.axisbelow": True, "axes.titlelocation": "left", "axes.titlesize": "medium", "legend.frameon": False,
    "svg.hashsalt": "dspark-sim",
})
_PALETTE = sns.color_palette("colorblind")
LINES: tuple[Any, ...] = (
    "-", (0, (5, 1.5)), (0, (6, 1.5, 1, 1.5)), (0, (1.5, 1)), (0, (5, 1, 1, 1, 1, 1)), (0, (10, 2)),
)
MARKERS = "os^DvP*X"
# parts of a step's time, of a budget: fixed colours, and hatches that survive a grey printer
PARTS = {
    "draft": (_PALETTE[1], "//"), "schedule": (_PALETTE[4], "xx"), "verify": (_PALETTE[0], ""),
    "other": (_PALETTE[7], ".."), "idle": ((0.93, 0.93, 0.93), ""),
    "bonus token": (_PALETTE[0], ""), "accepted draft tokens": (_PALETTE[2], "//"),
    "rejected draft tokens": ((0.88, 0.88, 0.88), "xx"),
}


def colours(n: int) -> list[tuple[float, float, float]]:
    """``n`` colours that the colour-blind can tell apart; beyond ten they repeat."""
    return [_PALETTE[i % len(_PALETTE)] for i in range(n)]


def figure(width: float, height: float, rows: int = 1, columns: int = 1, **kwargs: Any) -> tuple[Figure, list[Axes]]:
    """A figure (inches) with its axes as a flat list, made without pyplot's global state."""
    fig = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(fig)
    axes = fig.subplots(rows, columns, squeeze=False, **kwargs)
    return fig, list(axes.ravel())


def seconds_axis(ax: Axes, low: float, high: float) -> None:
    """The y axis of a step-time curve: from zero, but logarithmic where a cliff would flatten its stairs."""
    if high > 8 * low > 0:
        ax.set_yscale("log")
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        ax.yaxis.set_minor_locator(NullLocator())
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        ax.set_ylim(low * 0.8, high * 1.6)
    else:
        ax.set_ylim(0, high * 1.2)


def powers_of_two(ax: Axes, low: float, high: float) -> None:
    """A logarithmic x axis of tokens or requests, labelled at powers of two."""
    ax.set_xscale("log", base=2)
    ticks = [1 << k for k in range(21) if low <= 1 << k <= high]
    ax.xaxis.set_major_locator(FixedLocator(ticks[:: 1 if len(ticks) <= 9 else 2]))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


def finish(fig: Figure, title: str, source: Sequence[str]) -> Figure:
    """Title (the question) above, where the inputs come from below."""
    wide = int(fig.get_size_inches()[0] * 15)
    fig.suptitle("\n".join(textwrap.wrap(title, int(wide * 0.62))), x=0.01, ha="left", fontsize="large", weight="bold")
    lines = [line for text in source for line in textwrap.wrap(text, wide)]
    fig.supxlabel("\n".join(lines), x=0.01, ha="left", fontsize=7.5, color="#555555")
    return fig


def save(fig: Figure, path: Path) -> Path:
    """Write aside, then rename."""
    aside = path.with_name(f".{path.stem}.part{path.suffix}")
    try:
        fig.savefig(aside, dpi=150, facecolor="white")
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)
    return path
