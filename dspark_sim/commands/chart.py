"""A step-time curve as block characters, for terminals."""

from __future__ import annotations

import numpy as np

from dspark_sim.curve import StepCurve

__all__ = ["staircase"]

_BLOCKS = " ▁▂▃▄▅▆▇█"


def staircase(curve: StepCurve, width: int = 80, height: int = 10) -> str:
    """Bars of seconds by batch tokens (logarithmic, to the graph limit if there is one), with a scale.

    Args:
        curve: what to draw.
        width: columns of the whole picture, 40 at least.
        height: rows of the bars.
    """
    margin = 9
    bars = max(width, 40) - margin - 12
    first = max(curve.first, 1)
    last = curve.last if curve.graph_limit is None else curve.graph_limit
    at = np.geomspace(first, max(last, first), bars).round().astype(np.int64)
    ms = curve.at(at) * 1e3
    top = _round_up(float(ms.max()))
    eighths = np.maximum(1, np.rint(ms / top * height * 8)).astype(int)
    lines = []
    for row in range(height, 0, -1):
        filled = np.clip(eighths - 8 * (row - 1), 0, 8)
        label = f"{top * row / height:5.4g} ms" if row in (height, (height + 1) // 2) else ""
        lines.append(f"{label:>{margin - 1}} " + "".join(_BLOCKS[f] for f in filled).rstrip())
    ticks = [t for k in range(25) if first <= (t := 1 << k) <= last]
    axis = [" "] * (bars + 4)
    free = 0
    for tick in ticks:
        spot = round((bars - 1) * np.log(tick / first) / np.log(max(last, first + 1) / first))
        text = f"{tick}"
        if spot >= free and spot + len(text) <= bars + 4:
            axis[spot : spot + len(text)] = text
            free = spot + len(text) + 2
    lines.append(" " * margin + "".join(axis).rstrip() + " tokens")
    if curve.graph_limit is not None:
        beyond = curve.batch_tokens[curve.batch_tokens > curve.graph_limit]
        if beyond.size:
            before = float(curve.at(curve.graph_limit)) * 1e3
            after = float(curve.at(curve.graph_limit + 1)) * 1e3
            lines.append(f"{' ' * margin}CUDA graphs end at {curve.graph_limit} tokens: {before:.4g} ms; "
                         f"one token more: {after:.4g} ms")
    return "\n".join(lines)


def _round_up(value: float) -> float:
    """The next 1, 1.5, 2, 3, 4, 5, 6, 8 × 10^k."""
    base = 10.0 ** np.floor(np.log10(value)) if value > 0 else 1.0
    return float(next(f * base for f in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if f * base >= value * 0.999))
