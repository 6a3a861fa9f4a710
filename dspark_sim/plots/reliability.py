"""The picture of a calibration: observed against predicted acceptance, position by position, before and after."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from dspark_sim.plots.style import colours, figure, finish

if TYPE_CHECKING:
    from dspark_sim.trace import AcceptanceTrace
    from dspark_sim.trace_calibrate import Report

__all__ = ["draw"]

MAX_PANELS = 8
LEAST = 10  # rounds in a bin for a point of its own: fewer say nothing


def draw(trace: AcceptanceTrace, report: Report) -> Figure:
    """One panel per position (at most eight, spread evenly); the area of a point is its share of the rounds."""
    G = len(report.curves)
    shown = np.unique(np.linspace(0, G - 1, min(G, MAX_PANELS)).round().astype(int))
    columns = min(len(shown), 4)
    rows = -(-len(shown) // columns)
    fig, axes = figure(2.1 * columns + 0.6, 2.4 * rows + 1.3, rows, columns, sharex=True, sharey=True)
    held, (before, after) = report.parts[0], colours(2)[::-1]
    for ax, k in zip(axes, shown, strict=False):
        ax.plot([0, 1], [0, 1], color="#999999", lw=1, ls=":")
        looks = ((before, "s", (0, (5, 1.5)), "before"), (after, "o", "-", "after"))
        for (said, seen, count), (colour, marker, line, name) in zip(report.curves[k], looks, strict=True):
            some = count >= LEAST
            ax.plot(said[some], seen[some], color=colour, lw=1.2, ls=line)
            area = 3 + 80 * count[some] / max(count.sum(), 1)
            ax.scatter(said[some], seen[some], s=area, marker=marker, color=colour, linewidths=0,
                       label=name)
        ax.set_title(f"k = {k + 1}: ECE {held.before.ece[k]:.3f} → {held.after.ece[k]:.3f}", fontsize=9)
        ax.set_xlim(0, 1)
        ax.set_ylim(0, 1)
        ax.set_aspect("equal")
    for ax in axes[len(shown):]:
        ax.set_visible(False)
    axes[0].legend(loc="upper left", markerscale=0.8)
    for i, ax in enumerate(axes[: len(shown)]):
        if i % columns == 0:
            ax.set_ylabel("first k accepted")
        if i + columns >= len(shown):
            ax.set_xlabel("predicted")
            ax.tick_params(labelbottom=True)
    method = {"sts": "a temperature per position", "scale-bias": "slope and shift per position"}[report.method]
    return finish(fig, f"Are the confidences of {trace.target}/{trace.drafter} true?", [
        f"{trace.kind}. Calibration: {method}, fitted on {report.documents[0]:,} documents; drawn: {held.count:,} "
        f"walked rounds of {report.documents[1]:,} other documents ({', '.join(report.domains)}). Bins with fewer than "
        f"{LEAST} rounds are left out.",
    ])
