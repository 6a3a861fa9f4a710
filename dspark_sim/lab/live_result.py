"""Predicted beside measured: figures with intervals, errors, and the sentences that go with them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dspark_sim.metrics import Measured
from dspark_sim.stats import Figure, interval

__all__ = ["AIMS", "QUANTITIES", "compared", "drift", "error_of", "flat"]

QUANTITIES = {
    "throughput_tok_s_gpu": "throughput, tokens/s", "acceptance_length": "acceptance length τ",
    "verification_budget": "verification budget, tokens", "step_ms_mean": "mean step, ms",
}
AIMS = {"throughput_tok_s_gpu": (10.0, 5.0), "acceptance_length": (3.0, 3.0)}
"""Per cent that a prediction aims at: on a CPU, on a GPU."""
Record = dict[str, Any]


def error_of(predicted: Figure, measured: Figure) -> Figure:
    """Predicted against measured in per cent; its interval from those of both, taken as independent."""
    if predicted.mean is None or not measured.mean:
        return Figure(None)
    error = 100.0 * (predicted.mean / measured.mean - 1.0)
    if measured.half_width is None:
        return Figure(error)
    half = 100.0 * predicted.mean / measured.mean * math.hypot(
        (predicted.half_width or 0.0) / predicted.mean if predicted.mean else 0.0, measured.half_width / measured.mean)
    return Figure(error, error - half, error + half)


def compared(
    concurrency: int, arm: str, predicted: Sequence[Measured], measured: Sequence[Measured], on_gpu: bool
) -> list[Record]:
    """A record per quantity of one arm at one load."""
    out = []
    for quantity in QUANTITIES:
        p, m = (interval([run.get(quantity) for run in runs]) for runs in (predicted, measured))
        error = error_of(p, m)
        aim = AIMS[quantity][on_gpu] if quantity in AIMS else None
        out.append({
            "concurrency": concurrency, "arm": arm, "quantity": quantity, "predicted": p.to_dict(),
            "measured": m.to_dict(), "error_pct": error.to_dict(), "aim_pct": aim,
            "inside_aim": None if aim is None or error.mean is None else abs(error.mean) <= aim,
        })
    return out


def drift(before: Mapping[str, Any], after: Mapping[str, Any]) -> float:
    """Per cent that the same steps took longer after the runs than before them (mean over the sizes of the pass)."""
    first, last = dict(map(tuple, before["verify"])), dict(map(tuple, after["verify"]))
    ratios = [last[size] / seconds for size, seconds in first.items() if size in last]
    return 100.0 * (math.exp(sum(map(math.log, ratios)) / len(ratios)) - 1.0)


def flat(records: Sequence[Record]) -> list[Record]:
    """The records as rows of a table."""
    out = []
    for r in records:
        row = {"concurrency": r["concurrency"], "arm": r["arm"], "quantity": r["quantity"]}
        for word in ("predicted", "measured", "error_pct"):
            row |= {word: r[word]["mean"], f"{word}_low": r[word]["ci95_low"], f"{word}_high": r[word]["ci95_high"]}
        out.append(row | {"aim_pct": r["aim_pct"], "inside_aim": r["inside_aim"]})
    return out
