"""Training curves: loss and acceptance of drafters against optimiser steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from dspark_sim.plots.style import LINES, colours, figure, finish

__all__ = ["draw"]

SMOOTH = 9  # logged steps per point of a training line


def draw(logs: Mapping[str, Sequence[Any]], source: str = "") -> Figure:
    """Draw one line per drafter.

    Args:
        logs: name -> records with ``step``, ``split`` (train or validation), ``loss`` and ``tau``; training is shown as
            a moving mean, validation as points.
        source: one line below.
    """
    fig, axes = figure(9.0, 3.8, 1, 2)
    shades = colours(len(logs))
    for (name, log), shade, line in zip(logs.items(), shades, LINES * (1 + len(logs) // len(LINES)), strict=False):
        for ax, field in zip(axes, ("loss", "tau"), strict=True):
            train = [(p.step, getattr(p, field)) for p in log if p.split == "train"]
            held = [(p.step, getattr(p, field)) for p in log if p.split == "validation"]
            if train:
                steps, values = np.array(train, dtype=float).T
                width = min(SMOOTH, len(values))
                mean = np.convolve(values, np.ones(width) / width, mode="valid")
                ax.plot(steps[width - 1:], mean, color=shade, linestyle=line, linewidth=1.4, label=name)
            if held:
                ax.plot(*np.array(held, dtype=float).T, "o", color=shade, markersize=4, markerfacecolor="white")
    axes[0].set_ylabel("loss per position (weighted)")
    axes[1].set_ylabel("acceptance length along the text")
    losses = [p.loss for log in logs.values() for p in log if p.step > 30]
    if losses:
        axes[0].set_ylim(min(losses) * 0.9, float(np.quantile(losses, 0.98)) * 1.1)
    for ax in axes:
        ax.set_xlabel("optimiser steps")
    axes[1].legend(fontsize=8)
    return finish(fig, "How training went: lines training batches (moving mean), circles held-out responses",
                  [source] if source else [])
