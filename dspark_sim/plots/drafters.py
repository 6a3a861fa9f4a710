"""Pictures of what drafters do: acceptance by position, and accepted length and latency by block size."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from dspark_sim.plots.style import LINES, MARKERS, colours, figure, finish
from dspark_sim.plots.tracedata import Drafted, reached, walk

__all__ = ["lengths", "positions"]

_MAX_PANELS = 5


def _panels(drafted: Sequence[Drafted], more: int = 0) -> tuple[list[str], Figure, list[Axes]]:
    """A panel per domain, the legend above."""
    domains = list(dict.fromkeys(d for one in drafted for d in one.trace.domains))[:_MAX_PANELS]
    n = len(domains) + more
    columns = n if n <= 4 else 3
    rows = -(-n // columns)
    fig, axes = figure(max(6.5, 2.9 * columns + 1.5), 1.4 + 2.7 * rows, rows, columns)
    for ax in axes[n:]:
        ax.set_visible(False)
    return domains, fig, axes


def _legend(fig: Figure, axes: Sequence[Axes]) -> None:
    entries: dict[str, Artist] = {}
    for ax in axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    fig.legend(list(entries.values()), list(entries), loc="outside right upper")


def positions(drafted: Sequence[Drafted], source: Sequence[str]) -> Figure | None:
    """Conditional acceptance by position, per domain: over all text positions, and as a server walks them."""
    if not drafted:
        return None
    domains, fig, axes = _panels(drafted)
    for ax, domain in zip(axes, domains, strict=False):
        for i, (one, colour) in enumerate(zip(drafted, colours(len(drafted)), strict=True)):
            trace = one.trace
            if domain not in trace.domains:
                continue
            k = np.arange(1, trace.block_size + 1)
            ax.plot(k, reached(trace.accepted[trace.rows(domain)], trace.block_size), color=colour, lw=1.7,
                    ls=LINES[i % len(LINES)], marker=MARKERS[i % len(MARKERS)], ms=5, label=trace.drafter)
            ax.plot(k, reached(walk(trace, domain, trace.block_size), trace.block_size), color=colour, ls="none",
                    marker=MARKERS[i % len(MARKERS)], ms=9, mfc="none")
        ax.set_title(domain)
        ax.set_xlabel("draft token k")
        ax.sharey(axes[0])
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes[0].set_ylabel("P(k accepted | 1..k−1 accepted)")
    axes[0].set_ylim(max(0.0, axes[0].get_ylim()[0] - 0.1), 1.0)
    axes[0].plot([], [], ls="none", marker="o", ms=9, mfc="none", color="#555555", label="hollow: as decoded")
    _legend(fig, axes)
    return finish(fig, "How does acceptance change along a draft block?", source)


def lengths(drafted: Sequence[Drafted], source: Sequence[str]) -> Figure | None:
    """Accepted length by draft tokens per round, per domain, and what the round costs."""
    if not drafted:
        return None
    timed = [one for one in drafted if one.round_s is not None]
    domains, fig, axes = _panels(drafted, more=1 if timed else 0)
    for ax, domain in zip(axes, domains, strict=False):
        for i, (one, colour) in enumerate(zip(drafted, colours(len(drafted)), strict=True)):
            trace = one.trace
            if domain not in trace.domains:
                continue
            k = np.arange(1, trace.block_size + 1)
            ax.plot(k, [1.0 + float(walk(trace, domain, n).mean()) for n in k.tolist()], color=colour, lw=1.7,
                    ls=LINES[i % len(LINES)], marker=MARKERS[i % len(MARKERS)], ms=6, label=trace.drafter)
        ax.set_title(domain)
        ax.sharey(axes[0])
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes[0].set_ylabel("tokens per round, bonus included")
    axes[0].set_ylim(bottom=1)
    if timed:
        ax = axes[len(domains)]
        for i, (one, colour) in enumerate(zip(drafted, colours(len(drafted)), strict=True)):
            if one.round_s is not None:
                ax.plot(np.arange(1, one.trace.block_size + 1), one.round_s * 1e3, color=colour, lw=1.7,
                        ls=LINES[i % len(LINES)], marker=MARKERS[i % len(MARKERS)], ms=6, label=one.trace.drafter)
        sizes = sorted({one.requests for one in timed})
        ax.set_title(f"a round at {' to '.join(str(s) for s in dict.fromkeys((sizes[0], sizes[-1])))} requests")
        ax.set_ylabel("milliseconds")
        ax.set_ylim(bottom=0)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    for ax in axes:
        ax.set_xlabel("draft tokens per round")
    _legend(fig, axes)
    note = "A shorter block is the beginning of the recorded one: a drafter trained for it might do better."
    return finish(fig, "What does a longer draft block bring, and what does it cost?", [note, *source])
