"""Rates to a parametric specification: rows are drawn so that walked rounds show the rates.

Averages say nothing of how acceptance varies along the text. Two ways out, and the user chooses:

* independent rounds (the default): every row accepts token k with the given probability, whatever the text;
* difficulty borrowed from another drafter's specification: how strongly acceptance varies, over documents and along the
  text, is that drafter's; levels are then found (by walking the rows that come out) so that rounds show the rates.

A confidence can be borrowed too: without one, policies that read confidences cannot be simulated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dspark_sim.errors import TraceError
from dspark_sim.parametric import MAX_POSITIONS, Drafter, Spec, generate
from dspark_sim.trace import AcceptanceTrace
from dspark_sim.trace_calibrate import walk_rows
from dspark_sim.trace_import.rates import Rates

__all__ = ["Borrowed", "build", "walked_rates"]

LIMIT = 12.0  # logits of acceptance that nobody can tell from 0 or 1 by counting
ROWS = 256  # per document
CLOSE = 5e-4
TRIES = 20
INDEPENDENT = ("rates give no spread of difficulty: rounds are independent draws, so acceptance varies between "
               "requests and along the text by chance alone; real text varies more, which favours policies that adapt")


@dataclass(frozen=True)
class Borrowed:
    """Whose difficulty, and whether its confidence as well."""

    name: str  # target/drafter
    spec: Spec
    drafter: Drafter
    confidence: bool


def build(
    rates: Mapping[str, Rates], *, target: str, drafter: str, temperature: float, kind: str, seed: int,
    documents: int, words: Mapping[str, Any], borrowed: Borrowed | None = None,
) -> tuple[dict[str, Any], AcceptanceTrace]:
    """(the specification as plain data, the trace it gives).

    Args:
        rates: by domain, all of one block size.
        documents: per domain, of ROWS rows.
        words: ``description`` and ``provenance``.

    Raises:
        TraceError: domains with different block sizes, or a borrowed drafter whose blocks are shorter.
    """
    sizes = {len(r.conditional) for r in rates.values()}
    if len(sizes) > 1:
        raise TraceError(f"domains have {', '.join(map(str, sorted(sizes)))} positions",
                         allowed="as many positions in every domain: one drafter has one block size")
    G = sizes.pop()
    if borrowed is not None and borrowed.drafter.block_size < G:
        raise TraceError(f"{borrowed.name} drafts {borrowed.drafter.block_size} tokens, the rates have {G} positions",
                         key="--spread-from", allowed="a drafter with at least as many")
    if documents * ROWS * len(rates) > MAX_POSITIONS:
        raise TraceError(f"{documents} documents in {len(rates)} domains are too many rows", key="--documents",
                         allowed=f"at most {MAX_POSITIONS // ROWS // len(rates)}")
    goal = {d: _logit(np.array(r.conditional)) for d, r in rates.items()}
    spread = [0.0] * G if borrowed is None else list(borrowed.drafter.spread[:G])
    one: dict[str, Any] = {"block_size": G, "levels": {d: _short(v) for d, v in goal.items()}, "spread": spread}
    if borrowed is not None:
        one["unseen"] = borrowed.drafter.unseen
        if borrowed.confidence:
            one["confidence"] = _confidence(borrowed, G)
    text: dict[str, Any] = {"document_share": 0.0, "correlation": 0.0}
    if borrowed is not None:
        text = borrowed.spec.difficulty.model_dump()
    data = {
        "format": "dspark-sim parametric traces 1", "target": target, "description": words["description"], "kind": kind,
        "temperature": float(temperature), "seed": seed, "document_rows": ROWS,
        "domains": [{"name": d, "documents": documents} for d in rates],
        "difficulty": text, "drafters": {drafter: one}, "provenance": words["provenance"],
    }
    one["levels"] = _solve(data, drafter, goal, 0.0 if borrowed is None else 1.2)
    return data, generate(Spec.model_validate(data), drafter)


def _confidence(borrowed: Borrowed, G: int) -> dict[str, Any]:
    says = borrowed.drafter.confidence
    if says is None:
        raise TraceError(f"{borrowed.name} has no confidence to borrow", key="--confidence",
                         allowed="a drafter with a confidence head, or no --confidence")
    return {name: values[:G] for name, values in says.model_dump().items() if values is not None}


def _solve(
    data: dict[str, Any], drafter: str, goal: Mapping[str, npt.NDArray[np.float64]], above: float
) -> dict[str, list[float]]:
    """Levels by domain whose rows, walked, show the rates: each is moved by what it misses, in logits, from ``above``
    the rates' own. For independent rounds that only takes the chance of the draw out."""
    one = data["drafters"][drafter]
    levels = {d: v + above for d, v in goal.items()}
    best, nearest_yet = dict[str, list[float]](), float("inf")
    for _ in range(TRIES):
        one["levels"] = {d: _short(v) for d, v in levels.items()}
        trace = generate(Spec.model_validate(data), drafter)
        worst = 0.0
        for d, wanted in goal.items():
            got = np.array([0.0 if c is None else c for c in walked_rates(trace, d)])
            worst = max(worst, float(np.abs(got - _sigmoid(wanted)).max()))
            levels[d] = np.clip(levels[d] + (1.4 if above else 1.0) * (wanted - _logit(got)), -29, 29)
        if worst < nearest_yet:
            best, nearest_yet = dict(one["levels"]), worst
        if worst < CLOSE:
            break
    return best


def walked_rates(trace: AcceptanceTrace, domain: str) -> list[float | None]:
    """Conditional acceptance by position on walked rounds; None where no round reached."""
    documents = np.array([d for d, name in enumerate(trace.domain) if name == domain])
    kept = trace.accepted[walk_rows(trace, documents)]
    reached = [int((kept >= k).sum()) for k in range(trace.block_size + 1)]
    return [reached[k + 1] / reached[k] if reached[k] else None for k in range(trace.block_size)]


def _logit(p: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    p = np.clip(p, 1e-9, 1 - 1e-9)
    return np.asarray(np.clip(np.log(p) - np.log1p(-p), -LIMIT, LIMIT))


def _sigmoid(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.asarray(1 / (1 + np.exp(-x)))


def _short(values: npt.NDArray[np.float64]) -> list[float]:
    return [round(float(v), 4) for v in values]


