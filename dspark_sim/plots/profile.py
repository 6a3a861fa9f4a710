"""The picture of a hardware profile: its staircase and what its drafters cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from dspark_sim.plots.style import colours, figure, finish, powers_of_two, seconds_axis

if TYPE_CHECKING:
    from dspark_sim.profile import HardwareProfile

__all__ = ["draw"]


def draw(profile: HardwareProfile) -> Figure:
    """Left: verify time by batch tokens with the measured points; right: drafters' time by requests."""
    columns = 2 if profile.drafters else 1
    fig, axes = figure(10.5 if columns == 2 else 7.5, 4.6, 1, columns, width_ratios=[1.7, 1][:columns])
    curve, ax = profile.verify, axes[0]
    at = np.unique(np.round(np.geomspace(max(curve.first, 1), max(curve.last, 2), 3000)).astype(np.int64))
    ax.plot(at, curve.at(at) * 1e3, color=colours(1)[0], lw=1.3, drawstyle="steps-post")
    ax.plot(curve.batch_tokens, curve.seconds * 1e3, "o", ms=3, color="#333333", label="given points")
    if curve.graph_limit is not None:
        ax.axvline(curve.graph_limit, color="#999999", lw=1, ls=":")
        ax.annotate(f"CUDA graphs end at {curve.graph_limit:,} ", (curve.graph_limit, 0.95),
                    xycoords=("data", "axes fraction"), ha="right", fontsize=8, color="#555555")
    powers_of_two(ax, max(curve.first, 1), curve.last)
    seconds_axis(ax, float(curve.seconds.min()) * 1e3, float(curve.seconds.max()) * 1e3)
    ax.set_xlabel("batch tokens of one forward pass of the target")
    ax.set_ylabel("milliseconds")
    ax.legend(loc="lower right")
    if columns == 2:
        right = axes[1]
        marks = zip(profile.drafters.items(), colours(len(profile.drafters)), "os^DvP*X" * 8, strict=False)
        for (name, cost), colour, marker in marks:
            c = cost.seconds
            per = " per token" if cost.kind == "autoregressive" else " per block"
            right.plot(c.batch_tokens, c.seconds * 1e3, marker=marker, ms=3.5, lw=1.2, color=colour, label=name + per)
        powers_of_two(right, max(1, min(c.seconds.first for c in profile.drafters.values())),
                max(c.seconds.last for c in profile.drafters.values()))
        right.set_ylim(bottom=0)
        right.set_xlabel("requests that draft")
        right.legend(loc="upper left")
    p = profile.provenance
    return finish(fig, f"What does a step cost on {profile.name}?",
                  [f"{p.kind}: {p.system}, {p.software}, {p.date}.", f"Source: {p.source}",
                   *(f"Cost of drafter {n}: {t.split('. ')[0]}" for n, t in profile.drafter_notes.items())])
