"""Pictures of a sweep: the frontier, the load picture, and where a step's time goes as the load rises."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from dspark_sim.frontier import COLLAPSED, ArmCurve
from dspark_sim.plots.style import LINES, MARKERS, PARTS, colours, figure, finish
from dspark_sim.plots.sweepdata import Facet, Row, SweepData

__all__ = ["frontier", "load", "time_by_load"]

FloatArray = npt.NDArray[np.float64]
_MAX_ARMS = 9
PARTS_OF_TIME = ("draft", "schedule", "verify", "other")


def _thousands(value: float, _: int) -> str:
    return f"{value:,.0f}"


def _style(i: int) -> dict[str, Any]:
    """Colour, line and marker of arm ``i``: any one of the three is enough to tell it from its neighbours."""
    return {"color": colours(i + 1)[i], "ls": LINES[i % len(LINES)], "marker": MARKERS[i % len(MARKERS)], "lw": 1.7,
            "ms": 5.5}


def _title(question: str, facet: Facet) -> str:
    return f"{question} ({facet.label})" if facet.label else question


def frontier(data: SweepData, facet: Facet, baseline: str) -> Figure | None:
    """Throughput per GPU against TPS per user, a curve per arm, with SLAs and where the baseline has collapsed."""
    drawn = [c for c in facet.curves if np.isfinite(c.tps).any()]
    if not data.is_load or not drawn:
        return None
    fig, (ax,) = figure(8.6, 5.2)
    for i, curve in enumerate(facet.curves):
        if curve not in drawn:
            continue
        style = _style(i)
        band = np.isfinite(curve.tps_low) & np.isfinite(curve.throughput_low)
        if band.any():
            ax.fill(np.concatenate([curve.tps_low[band], curve.tps_high[band][::-1]]),
                    np.concatenate([curve.throughput_low[band], curve.throughput_high[band][::-1]]),
                    color=style["color"], alpha=0.18, lw=0)
        ax.plot(curve.tps, curve.throughput, label=curve.arm, **style)
    best = max(drawn, key=lambda c: float(np.nanmax(c.throughput)))
    for x, y, n in zip(best.tps, best.throughput, best.load, strict=True):
        if np.isfinite(x) and np.isfinite(y):
            ax.annotate(f"{n:g}", (x, y), xytext=(6, 4), textcoords="offset points", fontsize=7.5, color="#555555")
    ax.set_ylim(0, ax.get_ylim()[1] * 1.06)
    ax.set_xlim(0, None)
    _collapse(ax, next((c for c in drawn if c.arm == baseline), None))
    for words, tps in data.slas:
        if tps < ax.get_xlim()[1]:
            ax.axvline(tps, color="#333333", lw=1.1, ls=(0, (2, 2)))
            ax.annotate(words, (tps, 1.005), xycoords=("data", "axes fraction"), fontsize=8, va="bottom", ha="center",
                        color="#333333")
    ax.yaxis.set_major_formatter(FuncFormatter(_thousands))
    ax.set_xlabel("TPS per user (tokens / s): throughput over decoding requests")
    ax.set_ylabel("throughput (tokens / s / GPU)")
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    numbers = f"Numbers beside the marks of {best.arm}: {data.axis}. Bands join the ends of both 95 % intervals."
    return finish(fig, _title("Which arm gives more throughput at the same speed for users?", facet),
                  [numbers, *data.source])


def _collapse(ax: Axes, base: ArmCurve | None) -> None:
    """Shade the speeds at which the baseline serves next to nothing."""
    if base is None:
        return
    low = base.throughput < COLLAPSED * base.peak
    if not low.any() or not (~low & np.isfinite(base.throughput)).any():
        return
    alive = np.flatnonzero(~low & np.isfinite(base.tps))
    first, last = int(alive[0]), float(base.tps[alive].max())
    if first > 0 and np.isfinite(base.tps[first - 1]):  # where the line itself passes the threshold
        a, b = base.throughput[first - 1], base.throughput[first]
        share = (COLLAPSED * base.peak - a) / (b - a) if b != a else 1.0
        last = float(base.tps[first - 1] + share * (base.tps[first] - base.tps[first - 1]))
    if last < ax.get_xlim()[1]:
        ax.axvspan(last, ax.get_xlim()[1], color="#f0f0f0", lw=0, zorder=0)
        ax.annotate(f"{base.arm} is below {100 * COLLAPSED:.0f} % of its peak here:\nratios to it are artefacts",
                    (0.99, 0.98), xycoords="axes fraction", ha="right", va="top", fontsize=8, color="#555555")


def _axis(ax: Axes, data: SweepData, values: Sequence[float]) -> None:
    """The axis of loads, logarithmic when they span a wide range."""
    ticks = sorted(set(values))
    if len(ticks) > 1 and ticks[0] > 0 and ticks[-1] / ticks[0] >= 8:
        ax.set_xscale("log", base=2)
        ratio = np.log2(ticks[-1] / ticks[0]) / 9
        kept = [ticks[0]]
        for tick in ticks[1:]:
            if np.log2(tick / kept[-1]) >= ratio:
                kept.append(tick)
        ax.xaxis.set_major_locator(FixedLocator(kept))
        ax.xaxis.set_minor_locator(NullLocator())
        ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    names = {"workload.arrival.concurrency": "concurrent requests",
             "workload.arrival.rate_per_s": "requests that arrive per second"}
    ax.set_xlabel(names.get(data.axis or "", data.axis or ""))


def load(data: SweepData, facet: Facet, baseline: str) -> Figure | None:
    """Throughput and verification budget against the load."""
    axis = data.axis
    if axis is None or not any(np.isfinite(c.throughput).any() for c in facet.curves):
        return None
    fig, (left, right) = figure(11.5, 4.6, 1, 2)
    loads: list[float] = []
    for i, curve in enumerate(facet.curves):
        style = _style(i)
        rows = sorted((r for r in facet.rows if r["arm"] == curve.arm), key=lambda r: float(r[axis]))
        loads += curve.load.tolist()
        left.plot(curve.load, curve.throughput, label=curve.arm, **style)
        left.fill_between(curve.load, curve.throughput_low, curve.throughput_high, color=style["color"], alpha=0.18,
                          lw=0)
        budget, low, high = (_column(rows, f"verification_budget{end}") for end in ("", "_ci95_low", "_ci95_high"))
        right.plot(curve.load, budget, **style)
        right.fill_between(curve.load, low, high, color=style["color"], alpha=0.18, lw=0)
    for ax in (left, right):
        _axis(ax, data, loads)
    left.set_ylim(bottom=0)
    right.set_ylim(bottom=0)
    left.yaxis.set_major_formatter(FuncFormatter(_thousands))
    left.set_ylabel("throughput (tokens / s / GPU)")
    right.set_ylabel("verification budget (tokens per request)")
    fig.legend(*left.get_legend_handles_labels(), loc="outside right upper")
    return finish(fig, _title("How do throughput and verification change with the load?", facet), data.source)


def _column(rows: Sequence[Row], name: str) -> FloatArray:
    return np.array([np.nan if row.get(name) is None else row[name] for row in rows], dtype=np.float64)


def time_by_load(data: SweepData, facet: Facet, baseline: str) -> Figure | None:
    """Milliseconds of a step by part against the load, a panel per arm."""
    shown = [c for c in facet.curves if np.isfinite(c.throughput).any()][:_MAX_ARMS]
    axis = data.axis
    if axis is None or not shown:
        return None
    columns = min(3, len(shown))
    lines = -(-len(shown) // columns)
    fig, axes = figure(max(5.5, 3.5 * columns), 1.4 + 2.4 * lines, lines, columns, sharey=True)
    for ax in axes[len(shown):]:
        ax.set_visible(False)
    used: dict[str, Any] = {}
    for ax, curve in zip(axes, shown, strict=False):
        rows = sorted((r for r in facet.rows if r["arm"] == curve.arm), key=lambda r: float(r[axis]))
        spots = np.arange(len(rows))
        scale = _column(rows, "step_ms_mean") / _column(rows, "utilisation")
        bottom = np.zeros(len(rows))
        for part in PARTS_OF_TIME:
            size = np.nan_to_num(_column(rows, f"time_{part}_share") * scale)
            if size.max() <= 0:
                continue
            colour, hatch = PARTS[part]
            used[part] = ax.bar(spots, size, 0.75, bottom=bottom, color=colour, hatch=hatch, edgecolor="white", lw=0.4)
            bottom += size
        every = -(-len(rows) // 8)
        ax.set_xticks(spots[::every], [f"{row[axis]:g}" for row in rows[::every]], fontsize=8)
        ax.set_title(curve.arm)
        ax.grid(False, axis="x")
    for row in range(lines):
        axes[row * columns].set_ylabel("one step (ms)")
    for ax in axes[max(0, len(shown) - columns): len(shown)]:
        _axis(ax, data, [])
    used = {part: used[part] for part in PARTS_OF_TIME if part in used}
    fig.legend(list(used.values()), list(used), loc="outside right upper")
    return finish(fig, _title("Where does a step's time go as the load rises?", facet), data.source)
