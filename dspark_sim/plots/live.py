"""Predicted beside measured on the live engine: a row per load, a panel per quantity, an arm per line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from dspark_sim.plots.style import colours, figure, finish, save
from dspark_sim.validate_live import QUANTITIES, read_result

__all__ = ["draw_live"]

PANELS = tuple(QUANTITIES)[:3]


def draw_live(folder: Path) -> list[Path]:
    """Draw ``live.json`` into ``plots/live.png``; nothing where no arm finished."""
    result = read_result(folder / "live.json")
    loads = [load for load in result["loads"] if load["records"]]
    if not loads:
        return []
    arms = list(dict.fromkeys(r["arm"] for load in loads for r in load["records"]))
    fig, axes = figure(10.0, 1.5 + len(loads) * (0.9 + 0.36 * len(arms)), len(loads), len(PANELS))
    measured, predicted = colours(2)
    for i, load in enumerate(loads):
        for j, quantity in enumerate(PANELS):
            ax = axes[i * len(PANELS) + j]
            records = {r["arm"]: r for r in load["records"] if r["quantity"] == quantity}
            for line, arm in enumerate(arms):
                if arm in records:
                    _point(ax, line + 0.14, records[arm]["measured"], measured, "o", None if line else "measured")
                    _point(ax, line - 0.14, records[arm]["predicted"], predicted, "D", None if line else "predicted")
            ax.set_ylim(len(arms) - 0.5, -0.5)
            ax.set_yticks(range(len(arms)), arms if j == 0 else [""] * len(arms))
            ends = [v for r in records.values() for w in ("measured", "predicted")
                    for v in (r[w]["mean"], r[w]["ci95_high"]) if v is not None]
            ax.set_xlim(0, 1.08 * max(ends, default=1.0))
            ax.set_title(f"{QUANTITIES[quantity]}, {load['concurrency']} at once", fontsize="small")
    handles = axes[0].get_legend_handles_labels()
    fig.legend(*handles, loc="outside upper right", ncols=2, fontsize=8)
    plan = result["plan"]
    finish(fig, "Does the simulator predict what the live engine does?", [
        f"{plan['target']} with {plan['drafter_name']} on {result['machine']['device']}; {result['requests']} requests "
        f"of {plan['tokens']} tokens, temperature {plan['temperature']:g}; means with 95 % intervals over "
        f"{plan['repeat']} repeats (predicted: over {plan['samples']} samples of texts). {result['date'][:10]}."])
    target = folder / "plots"
    target.mkdir(exist_ok=True)
    return [save(fig, target / "live.png")]


def _point(ax: Axes, y: float, value: dict[str, Any], colour: Any, marker: str, label: str | None) -> None:
    mean, low, high = value["mean"], value["ci95_low"], value["ci95_high"]
    if mean is None:
        return
    if low is not None and high is not None:
        ax.plot([max(low, 0), high], [y, y], "-", color=colour, lw=1.6, alpha=0.7)
    ax.plot([mean], [y], marker, color=colour, ms=5, mfc=colour if marker == "o" else "none", label=label)
