"""Pictures of what the engine did: batch sizes under the staircase, step gaps, throughput over time."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from dspark_sim.plots.data import RunData
from dspark_sim.plots.style import LINES, colours, figure, finish, powers_of_two, seconds_axis

__all__ = ["batch_tokens", "step_gap", "timeline"]


def batch_tokens(data: RunData) -> Figure | None:
    """Histogram of batch tokens per arm, below the measured staircase, on one axis of tokens."""
    counts = data.batches()
    if not counts:
        return None
    used = [np.flatnonzero(c) for c in counts.values()]
    low = max(1.0, min(u[0] for u in used) * 0.8)
    high = max(u[-1] for u in used) * 1.25
    curves = data.curves()
    fig, axes = figure(8.5, 3.6 + 0.62 * len(counts), len(counts) + 1, 1, sharex=True,
                       height_ratios=[3.2] + [1.0] * len(counts))
    top, rows = axes[0], axes[1:]
    at = np.unique(np.round(np.geomspace(low, high, 1500)).astype(np.int64))
    seen = [1e3 * v for c in curves.values() for v in c.at(at[(at >= c.first) & (at <= c.last)])]
    for name, curve in curves.items():
        shown = at[(at >= curve.first) & (at <= curve.last)]
        top.plot(shown, curve.at(shown) * 1e3, color="#333333", lw=1.4, drawstyle="steps-post", label=name)
        if curve.graph_limit is not None and low <= curve.graph_limit <= high:
            top.axvline(curve.graph_limit, color="#999999", lw=1, ls=":")
            top.annotate("CUDA graphs end ", (curve.graph_limit, 0.91), xycoords=("data", "axes fraction"), ha="right",
                         fontsize=8, color="#555555")
    if seen:
        seconds_axis(top, min(seen), max(seen))
    top.set_ylabel("verify (ms)")
    if len(curves) > 1:
        top.legend(loc="upper left")
    edges = np.unique(np.round(np.geomspace(low, high, 90))) - 0.5  # whole sizes lie inside a bar, not on its edge
    for ax, (arm, count), colour in zip(rows, counts.items(), colours(len(counts)), strict=True):
        sizes = np.arange(count.size)
        heights, _ = np.histogram(sizes, bins=edges, weights=count / count.sum() * 100)
        ax.stairs(heights, edges, fill=True, color=colour, alpha=0.85)
        ax.set_ylabel(arm, rotation=0, ha="right", va="center", fontsize=9)
        ax.set_yticks([])
        ax.spines["left"].set_visible(False)
        ax.grid(False, axis="y")
        mean = float((sizes * count).sum() / count.sum())
        right = mean > np.sqrt(low * high)
        ax.annotate(f"mean {mean:,.0f}, most {int(np.flatnonzero(count)[-1]):,}", (0.005 if right else 0.995, 0.72),
                    xycoords="axes fraction", ha="left" if right else "right", fontsize=8, color="#333333")
    last = axes[-1]
    powers_of_two(last, low, high)
    last.set_xlim(low, high)
    last.set_xlabel("batch tokens of the target's forward pass; lower rows: share of steps, each arm to its own scale")
    return finish(fig, "On which stairs do the arms' batches stand?", data.source)


def step_gap(data: RunData) -> Figure | None:
    """Share of step gaps longer than x: what a user sees stall."""
    gaps = data.gaps()
    if not gaps:
        return None
    fig, (ax,) = figure(8.5, 4.6)
    floor, low, high = 1.0, np.inf, 0.0
    for i, ((arm, (ms, count)), colour) in enumerate(zip(gaps.items(), colours(len(gaps)), strict=True)):
        total = count.sum()
        longer = 1.0 - np.cumsum(count) / total
        low, high = min(low, float(ms[0])), max(high, float(ms[-1]))
        x = np.concatenate([[0.0, ms[0]], ms])
        y = np.concatenate([[1.0, 1.0], longer])
        floor = min(floor, float(longer[longer > 0].min()) if np.any(longer > 0) else 1.0)
        ax.plot(x, np.maximum(y, 1e-12), drawstyle="steps-post", color=colour, lw=1.8, ls=LINES[i % len(LINES)],
                label=arm)
    ax.set_yscale("log")
    ax.set_ylim(max(floor / 2, 1e-5), 1.3)
    if high > 5 * low:
        ax.set_xscale("log")
        ax.set_xlim(low * 0.9, high * 1.1)
        ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        ax.xaxis.set_minor_formatter(FuncFormatter(lambda value, _: f"{value:g}" if f"{value:g}"[0] in "235" else ""))
        ax.tick_params(axis="x", which="minor", labelsize=8)
    else:
        ax.set_xlim(0, high * 1.08)
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
    few = floor > 0.02  # less than two decades: some of the marks between them need names
    ax.yaxis.set_minor_formatter(FuncFormatter(
        lambda value, _: f"{100 * value:g} %" if few and f"{value:.0e}"[0] in "235" else ""))
    ax.tick_params(axis="y", which="minor", labelsize=8)
    ax.set_xlabel("time between two deliveries of tokens to a user (ms)")
    ax.set_ylabel("share of gaps that are longer")
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return finish(fig, "How long does a user's stream stand still?", data.source)


def timeline(data: RunData) -> Figure | None:
    """Throughput over simulated time, the unmeasured warm-up shaded."""
    lines = data.timeline()
    if not lines or all(x.size < 3 for x, _ in lines.values()):
        return None
    fig, (ax,) = figure(8.5, 4.2)
    for i, ((arm, (x, y)), colour) in enumerate(zip(lines.items(), colours(len(lines)), strict=True)):
        ax.plot(x, y, color=colour, lw=1.6, ls=LINES[i % len(LINES)], label=arm)
    if data.warmup:
        ax.axvspan(0, data.warmup, color="#f0f0f0", zorder=0)
        ax.annotate("warm-up,\nnot measured", (data.warmup / 2, 0.04), xycoords=("data", "axes fraction"), ha="center",
                    fontsize=8, color="#555555")
    ax.set_ylim(bottom=0)
    ax.set_xlim(left=0)
    ax.set_xlabel("simulated time (s)")
    ax.set_ylabel("throughput (tokens / s / GPU)")
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return finish(fig, "Had the engine settled when the measurement began?", data.source)
