"""Pictures that compare arms: throughput and speed, budgets, where the time goes, acceptance by class and position."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from dspark_sim.plots.data import RunData
from dspark_sim.plots.style import LINES, MARKERS, PARTS, colours, figure, finish

__all__ = ["acceptance", "budget", "by_position", "seen", "throughput", "time"]


def _height(data: RunData, extra: float = 1.7, each: float = 0.42) -> float:
    return extra + each * max(len(data.arms), 2)


def _arm_axis(ax: Axes, data: RunData) -> None:
    names = [data.label(a) + ("" if data.lossless(a) else " (not lossless)") for a in data.arms]
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.grid(False, axis="y")
    ax.tick_params(axis="y", length=0)


def throughput(data: RunData) -> Figure | None:
    """Throughput per GPU beside TPS per user, with intervals."""
    if not data.arms:
        return None
    fig, (left, right) = figure(9.5, _height(data), 1, 2, sharey=True)
    palette = colours(len(data.arms))
    for i, arm in enumerate(data.arms):
        mean, low, high = data.figure(arm, "throughput_tok_s_gpu")
        left.barh(i, mean, 0.6, color=palette[i], alpha=0.85)
        left.errorbar(mean, i, xerr=[[mean - low], [high - mean]], color="black", capsize=3, lw=1.2)
        change = data.mean(arm, "throughput_vs_first_pct")
        left.annotate(f" {mean:,.0f}" + (f"  ({change:+.0f} %)" if i and np.isfinite(change) else ""), (high, i),
                      xytext=(4, 0), textcoords="offset points", va="center", fontsize=8)
        p5, mid = data.mean(arm, "tps_user_p5"), data.figure(arm, "tps_user_mean")
        right.plot([p5, mid[0]], [i, i], color=palette[i], lw=5, alpha=0.4, solid_capstyle="butt")
        right.errorbar(mid[0], i, xerr=[[mid[0] - mid[1]], [mid[2] - mid[0]]], fmt="o", color=palette[i], ms=7,
                       ecolor="black", capsize=3, lw=1.2)
        right.annotate(f"{mid[0]:,.0f}", (mid[0], i), xytext=(0, 8), textcoords="offset points", ha="center",
                       fontsize=8)
    _arm_axis(left, data)
    right.tick_params(axis="y", length=0)
    right.grid(False, axis="y")
    left.set_xlim(0, max(data.figure(a, "throughput_tok_s_gpu")[2] for a in data.arms) * 1.32)
    right.set_xlim(0, right.get_xlim()[1])
    left.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    left.set_xlabel("throughput (tokens / s / GPU)")
    right.set_xlabel("TPS per user (tokens / s): mean, and down to p5")
    return finish(fig, "Which arm serves the most tokens per GPU, and how fast is it for each user?", data.source)


def budget(data: RunData) -> Figure | None:
    """Tokens per request in the target's batch: bonus, accepted, rejected."""
    if not data.arms:
        return None
    fig, (ax,) = figure(8.5, _height(data, 2.0))
    for i, arm in enumerate(data.arms):
        whole, kept = data.mean(arm, "verification_budget"), data.mean(arm, "acceptance_length")
        at = 0.0
        for part, size in (("bonus token", 1.0), ("accepted draft tokens", kept - 1.0),
                           ("rejected draft tokens", whole - kept)):
            colour, hatch = PARTS[part]
            ax.barh(i, size, 0.62, left=at, color=colour, hatch=hatch, edgecolor="white", lw=0.5,
                    label=part if i == 0 else None)
            at += size
        text = f" {kept:.2f} of {whole:.2f} kept" if whole > 1.005 else " nothing is verified"
        ax.annotate(text, (whole, i), xytext=(3, 0), textcoords="offset points", va="center", fontsize=8)
    _arm_axis(ax, data)
    ax.set_xlim(0, max(data.mean(a, "verification_budget") for a in data.arms) * 1.28)
    ax.set_xlabel("verification budget: tokens per request in one forward pass of the target")
    ax.legend(loc="lower center", bbox_to_anchor=(0.45, 1.0), ncols=3)
    return finish(fig, "How many tokens does each arm verify, and how many of them are kept?", data.source)


def time(data: RunData) -> Figure | None:
    """Milliseconds of a step by part, and the same per token that a user receives."""
    if not data.arms:
        return None
    fig, (left, right) = figure(9.5, _height(data, 2.0), 1, 2, sharey=True)
    parts = [p for p in ("draft", "schedule", "verify", "other")
             if any(data.mean(a, f"time_{p}_share") > 0 for a in data.arms)]
    for ax, per_token in ((left, False), (right, True)):
        longest = 0.0
        for i, arm in enumerate(data.arms):
            step = data.mean(arm, "step_ms_mean")
            busy = data.mean(arm, "utilisation")
            scale = step / busy / (data.mean(arm, "acceptance_length") if per_token else 1.0)
            at = 0.0
            for part in parts:
                size = data.mean(arm, f"time_{part}_share") * scale
                colour, hatch = PARTS[part]
                ax.barh(i, size, 0.62, left=at, color=colour, hatch=hatch, edgecolor="white", lw=0.5,
                        label=part if i == 0 and not per_token else None)
                at += size
            ax.annotate(f" {at:.1f}", (at, i), xytext=(2, 0), textcoords="offset points", va="center", fontsize=8)
            longest = max(longest, at)
        ax.set_xlim(0, longest * 1.12)
        ax.grid(False, axis="y")
    _arm_axis(left, data)
    right.tick_params(axis="y", length=0)
    left.set_xlabel("one step (ms)")
    right.set_xlabel("per token of a user: step / acceptance length (ms)")
    left.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=4)
    return finish(fig, "Where does a step's time go, and what does a token cost?", data.source)


def acceptance(data: RunData) -> Figure | None:
    """Spread of the acceptance length over requests, by class."""
    classes, lengths = data.acceptance()
    arms = [a for a in data.arms if any((a, c) in lengths for c in classes)]
    if not arms:
        return None
    fig, (ax,) = figure(8.5, 1.9 + 0.3 * max(2, len(arms) * len(classes)))
    palette = colours(len(classes))
    step = len(classes) + 0.8
    for i, arm in enumerate(arms):
        for j, group in enumerate(classes):
            values = lengths.get((arm, group))
            if values is None or values.size == 0:
                continue
            p5, q1, median, q3, p95 = np.percentile(values, (5, 25, 50, 75, 95))
            y = i * step + j
            ax.plot([p5, p95], [y, y], color="#333333", lw=1.0, marker="|", ms=8)
            ax.barh(y, q3 - q1, 0.7, left=q1, color=palette[j], edgecolor="#333333", lw=0.8)
            ax.plot([median, median], [y - 0.35, y + 0.35], color="black", lw=1.6)
    ax.set_yticks([i * step + (len(classes) - 1) / 2 for i in range(len(arms))], arms)
    ax.set_ylim(len(arms) * step - 1.0, -0.9)
    ax.set_xlim(left=0.9)
    ax.grid(False, axis="y")
    ax.tick_params(axis="y", length=0)
    for j, group in enumerate(classes):
        ax.plot([], [], "s", color=palette[j], ms=8, label=group)
    ax.legend(loc="lower center", bbox_to_anchor=(0.45, 1.0), ncols=min(len(classes), 6))
    ax.set_xlabel("acceptance length of a request (tokens per step, bonus included): median, quartiles, 5 % and 95 %")
    return finish(fig, "How differently do requests accept their drafts?", data.source)


def seen(data: RunData) -> Figure | None:
    """Conditional acceptance by position as the run saw it, and how often each position was verified."""
    verified = data.verified()
    if not verified:
        return None
    fig, (left, right) = figure(9.5, 4.2, 1, 2)
    palette, arms = colours(len(data.arms)), list(data.arms)  # an arm keeps its colour from picture to picture
    for arm, counts in verified.items():
        i = arms.index(arm)
        how = {"color": palette[i], "lw": 1.7, "ls": LINES[i % len(LINES)], "marker": MARKERS[i % len(MARKERS)],
               "ms": 6, "label": data.label(arm)}
        k = np.arange(1, counts.shape[0])
        asked, kept = by_position(counts)
        with np.errstate(invalid="ignore", divide="ignore"):
            left.plot(k, kept / asked, **how)
        right.plot(k, 100 * counts[::-1].sum(axis=1).cumsum()[::-1][1:] / counts.sum(), **how)
    for ax in (left, right):
        ax.set_xlabel("draft token k")
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    left.set_ylim(max(0.0, left.get_ylim()[0] - 0.1), 1.0)
    left.set_ylabel("P(k accepted | k verified, 1..k−1 accepted)")
    right.set_ylim(0, 103)
    right.set_ylabel("rows in which k was verified (%)")
    fig.legend(*left.get_legend_handles_labels(), loc="outside right upper")
    note = "A policy that verifies where it is confident sees more acceptance than its drafter has elsewhere."
    return finish(fig, "How often was each draft token verified in this run, and how often kept?",
                  [note, *data.source])


def by_position(counts: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """(G,) rows that verified position k and had kept all before it, and (G,) those of them that kept k.

    Args:
        counts: (G + 1, G + 1) rows by draft tokens verified and kept.
    """
    G = counts.shape[0] - 1
    asked = np.array([counts[k:, k - 1 :].sum() for k in range(1, G + 1)])
    kept = np.array([counts[k:, k:].sum() for k in range(1, G + 1)])
    return asked, kept
