"""The picture of a ranking: every policy's paired change against the baseline, by load, one panel per scenario."""

from __future__ import annotations

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from dspark_sim.plots.style import colours, figure, finish
from dspark_sim.rank_define import AS_IS
from dspark_sim.rank_results import Ranking

__all__ = ["draw"]

_MARKS = "osD^vP*X<>ph8"  # thirteen marks and ten colours: no two of 130 are alike


def draw(ranking: Ranking) -> Figure:
    """Points with 95 % intervals; the clairvoyant bound as crosses."""
    cells = [c for c in ranking.cells if c.condition == AS_IS]
    scenarios = list(dict.fromkeys(c.scenario for c in cells))
    labels = [e.contestant for e in ranking.entries() if e.cells and e.contestant != ranking.baseline]
    fig, axes = figure(max(6.5, 3.6 * len(scenarios)), 5.2, 1, len(scenarios), sharey=False)
    palette = colours(len(labels))
    for ax, scenario in zip(axes, scenarios, strict=True):
        here = [c for c in cells if c.scenario == scenario]
        width = 0.7 / max(len(labels), 1)
        for i, label in enumerate(labels):
            for x, cell in enumerate(here):
                f = ranking.change(cell, label)
                if f.mean is None:
                    continue
                at, half = x + (i - (len(labels) - 1) / 2) * width, f.half_width or 0.0
                ax.errorbar(at, f.mean, yerr=half, fmt=_MARKS[i % len(_MARKS)], color=palette[i], ms=5, capsize=2, lw=1,
                            label=label if x == 0 and ax is axes[0] else None)
        for x, cell in enumerate(here):
            bound = ranking.change(cell, ranking.bound).mean
            if bound is not None:
                ax.plot([x - 0.4, x + 0.4], [bound, bound], color="#777777", ls=":",
                        label="clairvoyant bound" if x == 0 and ax is axes[0] else None)
        ax.axhline(0, color="black", lw=1)
        ax.set_xticks(range(len(here)), ["as is" if c.load is None else f"{c.load:g}" for c in here])
        ax.xaxis.set_minor_locator(NullLocator())
        ax.set_yscale("symlog", linthresh=5)
        ax.yaxis.set_major_locator(FixedLocator([s * v for v in (0, 1, 2, 5, 10, 20, 50, 100, 300) for s in (-1, 1)]))
        ax.yaxis.set_minor_locator(NullLocator())
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:+g}" if value else "0"))
        ax.set_title(scenario)
        ax.set_xlabel("load")
    axes[0].set_ylabel(f"change against {ranking.baseline} (%)")
    fig.legend(loc="outside right upper", fontsize=8)
    return finish(fig, f"Which policy serves more than {ranking.baseline}?", [
        f"{ranking.replications} replications, 95 % paired intervals; beyond ±5 % the axis is logarithmic",
    ])
