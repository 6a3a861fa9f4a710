"""Numbers read off predicted curves, as the paper reads its frontiers: gains at equal speed and at equal throughput."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TypeAlias

from dspark_sim.validate_case import Reading

__all__ = ["read_off"]

Curves: TypeAlias = Mapping[str, Mapping[float, Mapping[str, float | None]]]
"""arm -> load -> figures."""


def read_off(reading: Reading, curves: Curves) -> float | None:
    """The reading's value, None where a curve does not reach it (nothing is extrapolated)."""
    if reading.kind == "ratio":
        top = curves.get(reading.arm, {}).get(float(reading.at), {}).get(reading.quantity or "")
        bottom = curves.get(reading.base, {}).get(float(reading.at), {}).get(reading.quantity or "")
        return None if top is None or not bottom else top / bottom
    x, y = ("tps_user_concurrent", "throughput_tok_s_gpu")
    if reading.kind == "tps_ratio":
        x, y = y, x
    top, bottom = (_on_curve(curves.get(arm, {}), x, y, reading.at) for arm in (reading.arm, reading.base))
    return None if top is None or not bottom else top / bottom


def _on_curve(curve: Mapping[float, Mapping[str, float | None]], x: str, y: str, at: float) -> float | None:
    """y where the curve has x = ``at``, on the straight lines between its loads; the curve must pass it once."""
    points = [(figures.get(x), figures.get(y)) for _, figures in sorted(curve.items())]
    found = []
    for (x0, y0), (x1, y1) in pairwise(points):
        if x0 is None or y0 is None or x1 is None or y1 is None:
            continue
        if min(x0, x1) <= at <= max(x0, x1) and x0 != x1:
            found.append(y0 + (y1 - y0) * (at - x0) / (x1 - x0))
    return found[0] if found else None
