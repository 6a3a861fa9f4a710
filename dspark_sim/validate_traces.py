"""Published acceptance against the traces themselves, on rounds *walked* as an engine walks them."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from dspark_sim.calibration import auc, ece
from dspark_sim.errors import nearest, shown
from dspark_sim.trace import AcceptanceTrace
from dspark_sim.traceset import open_traces
from dspark_sim.validate_case import Acceptance, Case

__all__ = ["compare_acceptance", "walked"]

IntArray: TypeAlias = npt.NDArray[np.int64]
ACCEPTANCE = ("acceptance_length", "conditional_acceptance", "ece_before_pct", "ece_after_pct", "auc", "share_pct")


def walked(trace: AcceptanceTrace, domain: str, width: int | None = None) -> tuple[IntArray, IntArray]:
    """(row numbers, accepted) of the rounds that decoding each document of ``domain`` visits.

    Args:
        trace: the trace.
        domain: which documents.
        width: verify at most so many draft tokens; None for all.
    """
    wide = trace.block_size if width is None else width
    accepted = np.minimum(trace.accepted, wide).astype(np.int64)
    start = trace.document_start
    live = np.array([d for d, name in enumerate(trace.domain) if name == domain], dtype=np.int64)
    row, end = start[live], start[live + 1]
    rows = []
    while live.size:
        rows.append(row)
        row = row + 1 + accepted[row]
        inside = row < end
        live, row, end = live[inside], row[inside], end[inside]
    every = np.sort(np.concatenate([np.zeros(0, dtype=np.int64), *rows]))
    return every, accepted[every]


def compare_acceptance(case: Case, index: int, wanted: Acceptance) -> list[tuple[str, float, str, float | None, float]]:
    """(name, at, quantity, from the trace, published) of one table; None where the trace cannot say."""
    at, quantity = wanted.columns
    if at != "at" or quantity not in ACCEPTANCE:
        raise case.fault(f"got {shown(wanted.columns)}", "acceptance", index, "columns",
                         allowed=f"at, and one of {', '.join(ACCEPTANCE)}", hint=nearest(quantity, ACCEPTANCE))
    trace = open_traces(wanted.traces, [wanted.drafter], case.base)[wanted.drafter]
    if wanted.domain not in trace.domain:
        names = list(dict.fromkeys(trace.domain))
        raise case.fault(f"no domain {shown(wanted.domain)}", "acceptance", index, "domain",
                         allowed=", ".join(names), hint=nearest(wanted.domain, names))
    name = wanted.label or f"{wanted.drafter}, {wanted.domain}"
    return [(name, float(row[0]), quantity, _measure(trace, wanted.domain, quantity, int(row[0])), float(row[1]))
            for row in wanted.rows]


def _measure(trace: AcceptanceTrace, domain: str, quantity: str, k: int) -> float | None:
    if k > trace.block_size:
        return None
    if quantity == "acceptance_length":
        return 1.0 + float(walked(trace, domain, k)[1].mean())
    rows, accepted = walked(trace, domain)
    if quantity == "conditional_acceptance":
        reached = int(np.count_nonzero(accepted >= k - 1))
        return np.count_nonzero(accepted >= k) / reached if reached and k else None
    if quantity == "share_pct":
        return 100.0 * float(np.mean(accepted == k))
    survival = trace.survival(calibrated=quantity == "ece_after_pct")
    if survival is None or not k:
        return None
    score, kept = survival[rows, k - 1].astype(np.float64), accepted >= k
    return auc(score, kept) if quantity == "auc" else 100.0 * ece(score, kept)
