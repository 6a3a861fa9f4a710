"""Pictures of a plan: goodput against load per arm, what the demand costs, and how capacities move in other worlds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from dspark_sim.plots.style import LINES, MARKERS, colours, figure, finish, save

if TYPE_CHECKING:
    from dspark_sim.plan_results import PlanResults

__all__ = ["cost", "draw_plan", "goodput", "worlds"]


def draw_plan(found: PlanResults, folder: Path) -> list[Path]:
    """Draw what there is to draw into a folder."""
    out = []
    for name, fig in (("goodput", goodput(found)), ("cost", cost(found)), ("worlds", worlds(found))):
        if fig is not None:
            out.append(save(fig, folder / f"{name}.png"))
    return out


def _source(found: PlanResults) -> list[str]:
    kinds = [f"profile {name}: {p['provenance']['kind']}" for name, p in found.facts.get("profiles", {}).items()]
    kinds += [f"trace {name}: {t['kind']}" for name, t in found.facts.get("traces", {}).items()]
    return [f"Simulated. Scenario {found.name}, seed {found.seed}. " + "; ".join(kinds)]


def goodput(found: PlanResults) -> Figure | None:
    """Goodput per GPU and attainment against load, one line per arm, the capacities marked."""
    drawn = [(i, arm) for i, arm in enumerate(found.arms) if arm.points]
    if not drawn:
        return None
    fig, (left, right) = figure(11.5, 4.9, columns=2)
    palette = colours(len(found.arms))
    for i, arm in drawn:
        style = {"color": palette[i], "ls": LINES[i % len(LINES)], "lw": 1.7}
        points = [p for p in arm.points if p.figures["goodput_tok_s_gpu"] is not None]
        left.plot([p.load for p in points], [p.figures["goodput_tok_s_gpu"] or 0.0 for p in points],
                  marker=MARKERS[i % len(MARKERS)], ms=4.5, label=arm.arm, **style)
        known = [p for p in arm.points if p.attainment is not None]
        x = [p.load for p in known]
        for p in known:
            if p.verdict != "chart" and p.attainment_low is not None and p.attainment_high is not None:
                right.plot([p.load] * 2, [100 * p.attainment_low, 100 * p.attainment_high], color=palette[i], lw=1.3)
        right.plot(x, [100 * (p.attainment or 0.0) for p in known], marker=MARKERS[i % len(MARKERS)], ms=4.5, **style)
        if arm.capacity.low is not None:
            for ax in (left, right):
                ax.axvspan(arm.capacity.low, arm.capacity.high or arm.capacity.low * 1.01, color=palette[i], alpha=0.12,
                           lw=0)
    right.axhline(100 * found.target, color="#333333", lw=1.1, ls=(0, (2, 2)))
    right.annotate(f"target {100 * found.target:g} %", (0.3, 100 * found.target), xycoords=("axes fraction", "data"),
                   xytext=(0, -4), textcoords="offset points", fontsize=8, color="#333333", ha="right", va="top")
    left.set_ylim(0, None)
    right.set_ylim(0, 102)
    for ax in (left, right):
        ax.set_xlim(0, None)
        ax.set_xlabel(f"load per unit ({found.axis.unit})")
    left.set_ylabel("goodput (tokens / s / GPU)")
    right.set_ylabel("requests that keep their SLA (%)")
    left.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    left.legend(loc="upper left")
    return finish(fig, "How much load can each arm serve before its users' SLAs break?", [
        "Shaded columns: from the highest load that surely passes to the lowest that surely fails. Goodput: tokens of "
        "requests that kept their whole SLA. Right: the worst class; upright lines: its interval where a verdict was "
        "asked for.", *_source(found)])


def cost(found: PlanResults) -> Figure | None:
    """GPUs for the demand, with the range of the capacity's interval, and the cost per million output tokens."""
    arms = [arm for arm in found.arms if arm.sizing.gpus is not None]
    if not arms:
        return None
    priced = [arm for arm in arms if arm.sizing.cost_million is not None]
    fig, axes = figure(11.5, 1.7 + 0.55 * len(arms), columns=2 if priced else 1)
    palette = colours(len(found.arms))
    names = [arm.arm for arm in found.arms]
    marks = [palette[names.index(arm.arm)] for arm in arms]
    gpus = [(float(s.gpus_best or s.gpus or 0), float(s.gpus or 0)) for s in (arm.sizing for arm in arms)]
    _amounts(axes[0], gpus, marks, lambda low, high: f"{high:,.0f}" if low == high else f"{low:,.0f} – {high:,.0f}")
    axes[0].set_xlabel(f"GPUs for {found.need.peak:.4g} {found.need.unit}")
    if len(axes) > 1:
        money = [None if s.cost_million is None else (s.cost_million_best or s.cost_million, s.cost_million)
                 for s in (arm.sizing for arm in arms)]
        _amounts(axes[1], money, marks, lambda low, high: f"{high:,.2f}")
        axes[1].set_xlabel(f"{priced[0].price.currency} per million output tokens, at capacity")
    for ax in axes:
        ax.set_yticks(range(len(arms)), [arm.arm for arm in arms] if ax is axes[0] else [""] * len(arms))
        ax.set_ylim(len(arms) - 0.5, -0.5)
    note = ("Black lines: the range that the capacity's interval leaves. "
            + (f"Price: {priced[0].price.per_gpu_hour:g} {priced[0].price.currency} per GPU and hour "
               f"({priced[0].price.source})." if priced else "No price is known; GPUs only."))
    return finish(fig, "What does the demand take?", [note, *_source(found)])


def _amounts(
    ax: Axes, amounts: Sequence[tuple[float, float] | None], marks: Sequence[tuple[float, float, float]],
    words: Callable[[float, float], str],
) -> None:
    """One amount per row with its range: bars from zero, or dots on a logarithmic scale, where a bar's length means
    nothing, if the small ones could not be told apart on a plain one."""
    known = [(y, pair) for y, pair in enumerate(amounts) if pair is not None]
    values = [high for _, (_, high) in known]
    wide = max(values) > 15 * min(values) > 0
    for y, (low, high) in known:
        if wide:
            ax.plot([high], [y], marker="o", ms=8, color=marks[y], ls="")
        else:
            ax.barh(y, high, color=marks[y], height=0.55)
        ax.plot([low, high], [y, y], color="#222222", lw=2, solid_capstyle="butt")
        ax.annotate(words(low, high), (high, y), xytext=(8, 0), textcoords="offset points", va="center", fontsize=9)
    if wide:
        ax.set_xscale("log")
        ax.set_xlim(min(values) / 3, max(values) * 3)
        ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    else:
        ax.set_xlim(0, max(values) * 1.2 or 1.0)
        ax.grid(visible=False, axis="y")


def worlds(found: PlanResults) -> Figure | None:
    """Capacity by arm in every world: the estimate, with the interval."""
    if len(found.worlds) < 2:
        return None
    fig, (ax,) = figure(9.5, 1.6 + 0.5 * len(found.worlds))
    palette, arms = colours(len(found.arms)), [arm.arm for arm in found.arms]
    for i, name in enumerate(arms):
        for y, world in enumerate(found.worlds):
            c = world.capacities[name]
            if c.estimate is None:
                continue
            at = y + (i - (len(arms) - 1) / 2) * 0.7 / max(len(arms), 1)
            ax.plot([c.low or 0.0, c.high or c.estimate], [at, at], color=palette[i], lw=2.2, alpha=0.5)
            ax.plot([c.estimate], [at], color=palette[i], marker=MARKERS[i % len(MARKERS)], ms=6, ls="",
                    label=name if y == 0 else None)
    ax.set_yticks(range(len(found.worlds)), [world.name for world in found.worlds])
    ax.invert_yaxis()
    ax.set_xlim(0, None)
    ax.set_xlabel(f"capacity per unit ({found.axis.unit})")
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return finish(fig, "Does the answer hold if the inputs are off?", [
        "Marks: estimates; lines: from the highest load that passes to the lowest that fails.", *_source(found)])
