"""Calibrate a whole trace: fit on some documents, measure on others, attach. ``trace calibrate`` is built on this.

Neighbouring text positions share their difficulty, so rows of one document on both sides of a split would flatter the
result: documents are split, per domain. Confidences are judged on *walked rounds* (the rows that decoding each document
with full verification visits), as a server meets them, and on all text positions beside it: averages over all
positions flatter, for rounds start again where drafting failed.

Shapes: N rows, D documents, G block size.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from dspark_sim.calibration import BINS, FLATTEST, GRID, Calibration, Quality, fit_scale_bias, fit_sts, quality
from dspark_sim.calibration import reliability as binned
from dspark_sim.errors import TraceError, nearest, shown
from dspark_sim.trace import AcceptanceTrace

__all__ = ["METHODS", "Method", "Part", "Report", "attached", "calibrate_trace", "split_documents", "walk_rows"]

Method: TypeAlias = Literal["sts", "scale-bias"]
METHODS: tuple[Method, ...] = ("sts", "scale-bias")
IntArray: TypeAlias = npt.NDArray[np.int64]
FloatArray: TypeAlias = npt.NDArray[np.float64]
Curve: TypeAlias = tuple[FloatArray, FloatArray, IntArray]


def split_documents(
    trace: AcceptanceTrace, share: float, seed: int, domains: Sequence[str] = ()
) -> tuple[IntArray, IntArray]:
    """Document numbers (to fit on, held out), both rising; every domain is split by itself, at random.

    Args:
        share: of each domain's documents to fit on; at least one goes to either side.
        seed: of the draw; a domain's draw does not depend on which others are asked for.
        domains: only these; none: all.

    Raises:
        TraceError: an unknown domain, a share outside 0..1, or a domain with a single document.
    """
    if not 0 < share < 1:
        raise TraceError(f"got {share:g}", key="--fit-share", allowed="more than 0, less than 1")
    for name in domains:
        if name not in trace.domains:
            raise TraceError(f"no domain {shown(name)} in {trace.target}/{trace.drafter}", key="--domain",
                             allowed=", ".join(trace.domains), suggestion=nearest(name, trace.domains))
    fitted, held = list[IntArray](), list[IntArray]()
    for name in dict.fromkeys(domains or trace.domains):
        own = np.array([d for d, domain in enumerate(trace.domain) if domain == name])
        if own.size < 2:
            raise TraceError(f"domain {name!r} has one document, and documents cannot be cut in two", key="--domain",
                             allowed="domains with at least two documents")
        rng = np.random.default_rng(np.random.SeedSequence([seed, zlib.crc32(name.encode())]))
        own = own[rng.permutation(own.size)]
        cut = min(max(round(share * own.size), 1), own.size - 1)
        fitted.append(own[:cut])
        held.append(own[cut:])
    return np.sort(np.concatenate(fitted)), np.sort(np.concatenate(held))


def all_rows(trace: AcceptanceTrace, documents: IntArray) -> IntArray:
    """Every row of the documents."""
    start = trace.document_start
    return np.concatenate([np.arange(start[d], start[d + 1]) for d in documents])


def walk_rows(trace: AcceptanceTrace, documents: IntArray) -> IntArray:
    """The rows that decoding each document from its first row visits, all G tokens verified; rising."""
    at, end = trace.document_start[:-1][documents], trace.document_start[1:][documents]
    rounds = []
    while at.size:
        rounds.append(at)
        at = at + 1 + trace.accepted[at].astype(np.int64)
        going = at < end
        at, end = at[going], end[going]
    return np.sort(np.concatenate(rounds))


@dataclass(frozen=True)
class Part:
    """Quality of the confidences before and after, on one set of rows.

    Attributes:
        documents: ``fitted`` or ``held out``.
        rows: ``walked`` rounds or ``all`` positions.
        count: N.
    """

    documents: str
    rows: str
    count: int
    before: Quality
    after: Quality


@dataclass(frozen=True)
class Report:
    """What :func:`calibrate_trace` found.

    Attributes:
        fit: temperatures, biases, and positions at the grid's limit.
        method, fit_on, share, seed, bins, domains: as asked.
        documents: (fitted, held out), counts.
        parts: held out walked, held out all, fitted walked, fitted all.
        reversed_pairs, merged: neighbours in the order of confidence that came out in reverse order (must be 0), and
            that came out equal (rounding), over all positions.
        curves: per position, on held-out walked rounds: (before, after), each ((bins,) mean prediction, (bins,)
            observed frequency, (bins,) count) of survivals.
        notes: sentences that the user must read.
    """

    fit: Calibration
    method: Method
    fit_on: str
    share: float
    seed: int
    bins: int
    domains: tuple[str, ...]
    documents: tuple[int, int]
    parts: tuple[Part, ...]
    reversed_pairs: int
    merged: int
    curves: tuple[tuple[Curve, Curve], ...]
    notes: tuple[str, ...]


def calibrate_trace(
    trace: AcceptanceTrace, method: Method = "sts", *, share: float = 0.5, seed: int = 0,
    domains: Sequence[str] = (), bins: int = BINS, fit_on: Literal["walked", "all"] = "walked",
) -> Report:
    """Fit on ``share`` of the documents, measure on the others; ``trace`` stays as it is.

    Raises:
        TraceError: no confidence to calibrate, or a split that is not possible.
    """
    raw = trace.confidence
    if raw is None:
        raise TraceError(f"{trace.target}/{trace.drafter} has no confidence, so there is nothing to calibrate",
                         allowed="a trace of a drafter with a confidence head, e.g. DSpark's")
    fitted, held = split_documents(trace, share, seed, domains)
    rows = {(name, kind): take(trace, chosen) for name, chosen in (("held out", held), ("fitted", fitted))
            for kind, take in (("walked", walk_rows), ("all", all_rows))}
    learn = rows["fitted", fit_on]
    fit = (fit_sts if method == "sts" else fit_scale_bias)(raw[learn], trace.accepted[learn], bins=bins)
    after = fit.apply(raw)
    parts = tuple(
        Part(name, kind, at.size, quality(raw[at], trace.accepted[at], bins), quality(after[at], trace.accepted[at],
                                                                                      bins))
        for (name, kind), at in rows.items()
    )
    backwards, merged = _order(raw, after)
    at = rows["held out", "walked"]
    survivals = [np.cumprod(c[at].astype(np.float64), axis=1) for c in (raw, after)]
    kept = trace.accepted[at]
    curves = tuple((binned(survivals[0][:, k], kept > k, bins), binned(survivals[1][:, k], kept > k, bins))
                   for k in range(trace.block_size))
    return Report(fit, method, fit_on, share, seed, bins, tuple(dict.fromkeys(domains)) or trace.domains,
                  (fitted.size, held.size), parts, backwards, merged, curves,
                  tuple(_notes(trace, fit, method, parts[0])))


def _order(raw: npt.NDArray[Any], after: npt.NDArray[Any]) -> tuple[int, int]:
    """Pairs of neighbouring distinct confidences that calibration (reversed, made equal), summed over positions."""
    backwards = merged = 0
    for k in range(raw.shape[1]):
        _, first = np.unique(raw[:, k], return_index=True)
        steps = np.diff(after[first, k])
        backwards += int((steps < 0).sum())
        merged += int((steps == 0).sum())
    return backwards, merged


def _notes(trace: AcceptanceTrace, fit: Calibration, method: Method, held: Part) -> list[str]:
    out = []
    if trace.sts_temperature is not None or trace.sts_bias is not None:
        out.append("the trace has a calibration already; *before* is its raw confidence, and the new fit would replace "
                   "the old one")
    if fit.at_limit:
        where = ", ".join(map(str, fit.at_limit))
        out.append(
            f"position{'s' * (len(fit.at_limit) > 1)} {where}: the temperature stands at a limit of the grid "
            f"({GRID[0]:g} to {GRID[-1]:g}). A temperature cannot carry a confidence across 0.5, so where the error "
            "lies across it no temperature is enough: --method scale-bias can"
        )
    if method == "scale-bias":
        flat = [k + 1 for k, t in enumerate(fit.temperature) if t >= 1 / FLATTEST - 1e-9]
        if flat:
            out.append(f"position{'s' * (len(flat) > 1)} {', '.join(map(str, flat))}: confidence ranks acceptance "
                       "backwards or not at all; it was flattened to a constant, not turned round")
    worse = [k + 1 for k, (b, a) in enumerate(zip(held.before.ece, held.after.ece, strict=True)) if a > b + 0.002]
    if worse:
        where = ", ".join(map(str, worse))
        out.append(f"held-out ECE rises at position{'s' * (len(worse) > 1)} {where}: too few rows, or fitted and "
                   "held-out documents differ")
    return out


def attached(trace: AcceptanceTrace, report: Report) -> AcceptanceTrace:
    """The trace with the calibration, and with what was done in its provenance under ``calibration``."""
    held = report.parts[0]
    facts = {
        "method": report.method, "fitted_on": "walked rounds" if report.fit_on == "walked" else "all positions",
        "domains": list(report.domains), "documents_fitted": report.documents[0],
        "documents_held_out": report.documents[1], "fit_share": report.share, "seed": report.seed,
        "bins": report.bins, "at_limit": list(report.fit.at_limit),
        "held_out_ece_before": [round(e, 5) for e in held.before.ece],
        "held_out_ece_after": [round(e, 5) for e in held.after.ece],
    }
    done = trace.with_sts(report.fit.temperature, report.fit.bias)
    return replace(done, provenance={**trace.provenance, "calibration": facts})
