"""Small worlds that hypothesis draws for policies, and the literal loops that policies are held against."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from hypothesis import strategies as st

from dspark_sim.curve import StepCost, StepCurve
from dspark_sim.registry import load_policy
from tests.fakes import make_cost, staircase

Survival = Any  # (R, G) float32


def policy(name: str, **parameters: Any) -> Any:
    """A shipped policy."""
    return load_policy(name, parameters)[0]


# -- what hypothesis draws: few values, so that ties and zeros are common; curves that are flat, jump, and fall ------
@st.composite
def survivals(draw: st.DrawFn, R: int | None = None, G: int | None = None) -> Survival:
    R = R or draw(st.integers(1, 6))
    G = G or draw(st.integers(1, 5))
    few = st.sampled_from([0.0, 0.25, 0.5, 0.9, 1.0])
    value = draw(st.sampled_from([few, st.floats(0, 1, width=32)]))
    c = np.array(draw(st.lists(value, min_size=R * G, max_size=R * G))).reshape(R, G)
    return np.cumprod(c, axis=1).astype(np.float32)


@st.composite
def costs(draw: st.DrawFn, G: int, ragged: Literal["flattened", "padded"] = "flattened") -> StepCost:
    shape = draw(st.sampled_from(["jagged", "staircase", "line", "cliff"]))
    R, size = 6, 6 * (1 + G) + 8
    if shape == "line":
        seconds: dict[int, float] | StepCurve = {1: 1.0, size: draw(st.floats(1, 20))}
    elif shape == "staircase":
        edges = sorted(draw(st.sets(st.integers(1, size), min_size=1, max_size=6)) | {size})
        seconds = staircase(edges, np.cumsum(draw(st.lists(
            st.sampled_from([0.5, 1.0, 3.0]), min_size=len(edges), max_size=len(edges)))).tolist())
    elif shape == "cliff":
        limit = draw(st.integers(2, size - 1))
        seconds = staircase([1, limit, limit + 1, limit + 50], [1.0, 1.2, 9.0, 9.5], limit=limit)
    else:
        values = draw(st.lists(st.sampled_from([1.0, 1.1, 1.5, 2.0]), min_size=size, max_size=size))
        seconds = dict(enumerate([*values, 2.0], start=1))
    draft = draw(st.sampled_from([0.0, 0.5]))
    return make_cost(seconds, block_size=G, max_requests=R, draft=draft, ragged=ragged)


worlds = survivals().flatmap(lambda a: st.tuples(st.just(a), costs(a.shape[1]), st.integers(0, 5)))


# -- literal loops ---------------------------------------------------------------------------------------------------
def candidates(a: Survival) -> list[tuple[float, int, int]]:
    R, G = a.shape
    tokens = [(float(a[r, j]), r, j) for r in range(R) for j in range(G) if a[r, j] > 0]
    return sorted(tokens, key=lambda token: (-token[0], token[1], token[2]))


def first_k(a: Survival, K: int) -> list[int]:
    lengths = [0] * len(a)
    for _, r, _ in candidates(a)[:K]:
        lengths[r] += 1
    return lengths


def algorithm_1(a: Survival, seconds: Any) -> list[int]:
    R = len(a)
    tau, best, lengths = float(R), R / float(seconds[0]), [0] * R
    for admitted, (value, r, _) in enumerate(candidates(a), start=1):
        tau += value
        theta = tau / float(seconds[admitted])
        if theta <= best:
            break
        best = theta
        lengths[r] += 1
    return lengths


def global_search(a: Survival, seconds: Any) -> tuple[int, list[float]]:
    tau, thetas = float(len(a)), [len(a) / float(seconds[0])]
    for admitted, (value, _, _) in enumerate(candidates(a), start=1):
        tau += value
        thetas.append(tau / float(seconds[admitted]))
    return thetas.index(max(thetas)), thetas


def filled(past: Survival, new: float) -> Survival:
    out = past.copy()
    for r, row in enumerate(past):
        for j in range(len(row)):
            if np.isnan(row[0]):
                out[r, j] = np.float32(new)
            elif np.isnan(row[j]):
                out[r, j] = min(np.float32(new), out[r, j - 1])
    return out


@st.composite
def async_worlds(draw: st.DrawFn) -> tuple[Survival, Survival, StepCost, int]:
    current = draw(survivals())
    R, G = current.shape
    past = draw(survivals(R, G)).copy()
    for r in range(R):
        past[r, draw(st.sampled_from([0, G, G, draw(st.integers(0, G))])):] = np.nan
    return current, past, draw(costs(G)), draw(st.integers(0, 5))
