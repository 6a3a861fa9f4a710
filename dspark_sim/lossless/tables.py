"""Where decisions are close: confidence tables with ties and steps, and step-time curves aimed at break-even.

A search over smooth random tables misses most leaks: 200 random perturbations missed the one of Appendix A. Here
values repeat, rows tie, and the curve is laid so that Θ(K) is nearly the same for several K.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dspark_sim.curve import StepCurve
from dspark_sim.lossless.bench import F32, Bench, Rows, frozen
from dspark_sim.policy import expected_tokens

__all__ = ["aimed", "bench_for", "confidences", "rows_of", "staircase"]

MENU = np.array([0.0, 0.05, 0.2, 0.4, 0.5, 0.6, 0.8, 0.9, 0.95, 1.0])
PROBABILITIES = np.array([0.1, 0.2, 0.35, 0.45, 0.6, 0.8, 0.9])
Rng = np.random.Generator


def confidences(rng: Rng, R: int, G: int) -> F32:
    """(R, G) confidences of one of several kinds."""
    kind = int(rng.integers(0, 7))
    if kind == 0:
        table = rng.choice(MENU, (R, G))
    elif kind == 1:  # all the same: every comparison is a tie
        table = np.full((R, G), rng.choice(MENU[1:]))
    elif kind == 2:  # two values
        table = rng.choice(rng.choice(MENU, 2), (R, G))
    elif kind == 3:  # rows that fall like a staircase, some of them equal
        table = np.repeat(np.sort(rng.choice(MENU, (1, G)), axis=1)[:, ::-1], R, axis=0)
        table = np.where(rng.random((R, 1)) < 0.5, table, rng.choice(MENU, (R, G)))
    elif kind == 4:
        table = rng.random((R, G))
    elif kind == 5:  # nearly sure
        table = 1.0 - 0.1 * rng.random((R, G)) ** 3
    else:
        table = np.round(rng.random((R, G)), 1)
    return np.asarray(table, dtype=np.float32)


def rows_of(rng: Rng, ids: tuple[int, ...], table: F32) -> Rows:
    """A step around a table: what the target keeps, and probabilities of the tokens drawn, at random."""
    R, G = table.shape
    kept = np.cumprod(rng.random((R, G)) < 0.7, axis=1).sum(axis=1)
    return Rows(ids, frozen(table, np.float32), frozen(kept, np.int64),
                frozen(rng.choice(PROBABILITIES, (R, G)), np.float32))


def aimed(rng: Rng, table: F32, most: int) -> StepCurve:
    """A curve on which Θ(K) is nearly the same for all K, when ``table`` (R, G) holds the confidences.

    Θ of most K lies a little below, that of a few a little above; a later confidence decides which side wins.
    """
    R, G = table.shape
    tau = expected_tokens(np.cumprod(table, axis=1, dtype=np.float64).astype(np.float32), R)
    tau = np.concatenate([tau, np.full(R * G + 1 - tau.size, tau[-1])])
    edge = 10.0 ** rng.uniform(-6, -0.7)
    seconds = tau * (1.0 + edge * rng.choice([-1.0, 0.0, 1.0, 2.0], tau.size))
    slope = float(rng.choice([0.0, 0.1, 1.0]))  # beyond R (1 + G) tokens
    beyond = seconds[-1] + slope * np.arange(1, most * (1 + G) - R * (1 + G) + 66)
    tokens, seconds = np.arange(R, R + tau.size + beyond.size), np.concatenate([seconds, beyond])
    if R > 1:  # earlier steps may have had fewer requests
        tokens, seconds = np.insert(tokens, 0, 1), np.insert(seconds, 0, 0.9 * seconds[0] / R)
    return StepCurve(tokens, seconds, extrapolate="linear")


def staircase(rng: Rng, most: int) -> StepCurve:
    """Captured sizes: edges of a graph bucket at and around small batches; or a plain line, or a flat curve."""
    kind = int(rng.integers(0, 3))
    if kind == 0:
        edges = np.unique(rng.integers(1, most + 1, 4))
        return StepCurve(edges, np.cumsum(rng.uniform(0.05, 1.0, edges.size)), between="hold", extrapolate="linear")
    slope = 0.0 if kind == 1 else float(rng.uniform(0.01, 0.5))
    return StepCurve(np.array([1, most]), np.array([1.0, 1.0 + slope * (most - 1)]), extrapolate="linear")


def bench_for(rng: Rng, table: F32, past: F32 | None, most: int, host_lag: int, seed: int) -> Bench:
    """An engine whose curve is aimed at the decision's own confidences, at those of an earlier step, or at nothing."""
    G = table.shape[1]
    kind = rng.random()
    target: npt.NDArray[np.float32] = table if past is None or past.shape != table.shape or kind < 0.4 else past
    curve = aimed(rng, target, most) if kind < 0.75 else staircase(rng, most * (1 + G))
    ragged = "padded" if rng.random() < 0.1 else "flattened"
    return Bench(G, curve, most, host_lag=host_lag, seed=seed, ragged=ragged)  # type: ignore[arg-type]
