"""The requests of one replication: endless, deterministic, and the same in every arm (common random numbers).

Every purpose has its own random stream, from the seed, the replication and a number (:data:`PURPOSES`), so a change
of one thing (a rate, a share, a policy) leaves the draws of all others as they were. Draws are made in chunks of
fixed size; request i is the same whoever asks for it, however many others were asked for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from dspark_sim.errors import ScenarioError
from dspark_sim.growing import slices
from dspark_sim.lengths import ConstantLengths, EmpiricalLengths, LognormalLengths
from dspark_sim.rates import arrival_times, exact, rate_of
from dspark_sim.request import Request
from dspark_sim.scenario_schema import Closed, Replay, Sessions, Workload

__all__ = ["PURPOSES", "RequestStream", "document_pools", "drawn", "largest_tokens", "needed", "random_stream"]

IntArray: TypeAlias = npt.NDArray[np.int64]
FloatArray: TypeAlias = npt.NDArray[np.float64]
AnyLengths: TypeAlias = ConstantLengths | LognormalLengths | EmpiricalLengths

PURPOSES = {
    "arrivals": 0, "classes": 1, "lengths": 2, "text": 3, "residual": 4, "policy": 5, "bootstrap": 6, "router": 7,
    "faults": 8, "replay": 9,
    "sessions": 10,
}
CHUNK = 1024
NOWHEN = math.nan


def random_stream(seed: int, replication: int, purpose: str, *more: int) -> np.random.Generator:
    """The random stream of one purpose in one replication; ``more`` tells apart streams of the same purpose.

    Args:
        seed: the scenario's.
        replication: 0, 1, 2, …
        purpose: a key of :data:`PURPOSES`.
        more: e.g. the number of the arm for ``policy``.
    """
    key = (replication, PURPOSES[purpose], *more)
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy=seed, spawn_key=key)))


def drawn(lengths: AnyLengths, z: FloatArray, u: FloatArray, at: IntArray | None = None) -> IntArray:
    """(N,) lengths from standard normals z and uniforms u, of which each kind uses one.

    Args:
        at: (N,) numbers of the requests, for lists that are taken in their order; None: drawn all the same.
    """
    if isinstance(lengths, ConstantLengths):
        return np.full(z.size, lengths.value, dtype=np.int64)
    if isinstance(lengths, LognormalLengths):
        x = np.exp(np.minimum(lengths.mu + lengths.sigma * z, 40.0))  # e^40: far beyond max, and no overflow
        return np.clip(np.rint(x).astype(np.int64), lengths.min, lengths.max)
    if at is not None and lengths.order == "listed":
        return lengths.samples[at % lengths.samples.size]
    return lengths.samples[(u * lengths.samples.size).astype(np.int64)]


class RequestStream:
    """The requests of one replication.

    Args:
        workload: a validated workload whose classes all have lengths.
        seed: the scenario's.
        replication: 0, 1, 2, …

    Used by :mod:`dspark_sim.simulate`, one per arm and replication: streams of equal arguments give equal requests.
    """

    def __init__(self, workload: Workload, seed: int, replication: int) -> None:
        self._workload = workload
        self._prompts = [needed(c.prompt_tokens, c.name) for c in workload.classes]
        self._outputs = [needed(c.output_tokens, c.name) for c in workload.classes]
        share = np.array([c.share for c in workload.classes])
        self._share = share / share.sum()
        self._edges = np.cumsum(self._share)[:-1]
        self._arrivals, self._classes, self._lengths, self._text, self._residual = (
            random_stream(seed, replication, name) for name in ("arrivals", "classes", "lengths", "text", "residual")
        )
        self._issued = self._made = 0
        self._fresh: Iterator[tuple[int, int, int, int]] = iter(())
        self._begun: Iterator[tuple[int, int, int, int, int]] = iter(())

    def take(self) -> Request:
        """The next request; its id is the number of requests issued before, its arrival NaN until it is sent."""
        row = next(self._fresh, None)
        if row is None:
            self._fresh = self._chunk()
            row = next(self._fresh)
        i = self._issued
        self._issued = i + 1
        return Request(i, row[0], NOWHEN, row[1], row[2], row[3])

    def residual(self) -> Request:
        """A request met inside its life at a random moment of a busy system: for the start of a steady closed loop.

        A request is decoding for a time proportional to the tokens after its first one, so the class and the output
        length (o) are drawn with weight share · P(o) · (o − 1), exactly, and ``skipped`` uniformly from 1 … o − 1.
        (Classes also differ in speed, by acceptance; that depends on the arm and is left to the warm-up.) If all
        outputs have one token, an ordinary request with ``skipped`` 0.
        """
        row = next(self._begun, None)
        if row is None:
            self._begun = self._begun_chunk()
            row = next(self._begun)
        i = self._issued
        self._issued = i + 1
        return Request(i, row[0], NOWHEN, row[1], row[2], row[3], row[4])

    def arrivals(self) -> Iterator[float]:
        """Absolute arrival times in seconds, endless, rising; the first gap is an ordinary one.

        Raises:
            ValueError: the loop is closed: users send their next request when they have the last answer.
        """
        arrival = self._workload.arrival
        if isinstance(arrival, Closed):
            raise ValueError("a closed loop has no arrival times of its own")
        assert not isinstance(arrival, Replay | Sessions), "these have streams of their own"
        curve, cv = rate_of(arrival)
        times = arrival_times(curve, cv, self._arrivals, CHUNK)
        n = getattr(arrival, "exact_after", None)
        return times if n is None else exact(times, n, n / arrival.rate_per_s)  # type: ignore[union-attr]

    def _chunk(self) -> Iterator[tuple[int, int, int, int]]:
        of = np.searchsorted(self._edges, self._classes.random(CHUNK), side="right")
        # Every request takes the same draws whatever its class, so that a class's lengths are its own affair.
        z, u = self._lengths.standard_normal((2, CHUNK)), self._lengths.random((2, CHUNK))
        prompt, output = np.empty(CHUNK, dtype=np.int64), np.empty(CHUNK, dtype=np.int64)
        at = self._made + np.arange(CHUNK)
        self._made += CHUNK
        for c in range(len(self._outputs)):
            mine = of == c
            prompt[mine] = drawn(self._prompts[c], z[0, mine], u[0, mine], at[mine])
            output[mine] = drawn(self._outputs[c], z[1, mine], u[1, mine], at[mine])
        return zip(of.tolist(), prompt.tolist(), output.tolist(), _texts(self._text, CHUNK), strict=True)

    def _begun_chunk(self) -> Iterator[tuple[int, int, int, int, int]]:
        rng = self._residual
        of, output = _length_biased(self._outputs, self._share, rng, CHUNK)
        z, u = rng.standard_normal(CHUNK), rng.random(CHUNK)
        prompt = np.empty(CHUNK, dtype=np.int64)
        for c in range(len(self._prompts)):
            mine = of == c
            prompt[mine] = drawn(self._prompts[c], z[mine], u[mine])
        skipped = np.minimum(1 + (rng.random(CHUNK) * (output - 1)).astype(np.int64), output - 1)
        return zip(of.tolist(), prompt.tolist(), output.tolist(), _texts(rng, CHUNK), skipped.tolist(), strict=True)


def largest_tokens(workload: Workload, class_index: int) -> int:
    """The most tokens, prompt and output together, that a request of one class may have."""
    arrival, group = workload.arrival, workload.classes[class_index]
    if isinstance(arrival, Replay):
        log = arrival.log
        return max(int((log.prompt[part] + log.output[part]).max()) for part in slices(log.rows))
    if isinstance(arrival, Sessions):
        return arrival.max_context
    return needed(group.prompt_tokens, group.name).largest + needed(group.output_tokens, group.name).largest


def needed(lengths: AnyLengths | None, name: str) -> AnyLengths:
    """The lengths of class ``name``, which a scenario that was loaded has."""
    if lengths is None:
        raise ScenarioError(f"class {name!r} has no lengths")
    return lengths


def _texts(rng: np.random.Generator, n: int) -> list[int]:
    drawn: list[int] = rng.integers(0, 1 << 64, size=n, dtype=np.uint64).tolist()
    return drawn


def _length_biased(
    outputs: Sequence[AnyLengths], share: FloatArray, rng: np.random.Generator, n: int
) -> tuple[IntArray, IntArray]:
    """(n,) classes and (n,) output lengths o with weight share · P(o) · (o − 1); exact, by rejection.

    A lognormal X of mean m, weighted with x, is a lognormal with mu + sigma²; o = round(X) is then accepted with
    probability (o − 1) / x, which leaves the weight (o − 1). The mass that clipping puts on ``min`` has no such x
    and is a branch of its own, of weight (min − 1) · P(X < min + ½).
    """
    low = np.array([_low_weight(lengths) for lengths in outputs]) * share
    high = np.array([_high_weight(lengths) for lengths in outputs]) * share
    weight = np.concatenate([low, high])
    if weight.sum() == 0.0:  # all outputs are one token
        of = np.searchsorted(np.cumsum(share)[:-1], rng.random(n), side="right").astype(np.int64)
        return of, np.ones(n, dtype=np.int64)
    edges = np.cumsum(weight / weight.sum())[:-1]
    classes: list[IntArray] = []
    lengths_: list[IntArray] = []
    have = 0
    while have < n:
        branch = np.searchsorted(edges, rng.random(n), side="right")
        z, u, keep = rng.standard_normal(n), rng.random(n), rng.random(n)
        of, upper = branch % len(outputs), branch >= len(outputs)
        output, accept = np.empty(n, dtype=np.int64), np.ones(n, dtype=bool)
        for c, lengths in enumerate(outputs):
            mine = of == c
            if isinstance(lengths, LognormalLengths):
                x = np.exp(np.minimum(lengths.mu + lengths.sigma**2 + lengths.sigma * z[mine], 700.0))
                o = np.where(upper[mine], np.rint(np.minimum(x, lengths.max)), lengths.min).astype(np.int64)
                output[mine] = o
                fits = (x >= lengths.min + 0.5) & (keep[mine] * x < o - 1)
                accept[mine] = ~upper[mine] | fits
            elif isinstance(lengths, EmpiricalLengths):
                output[mine] = _weighted(lengths.samples, u[mine])
            else:
                output[mine] = lengths.value
        classes.append(of[accept])
        lengths_.append(output[accept])
        have += int(accept.sum())
    return np.concatenate(classes)[:n], np.concatenate(lengths_)[:n]


def _low_weight(lengths: AnyLengths) -> float:
    """Weight of the outputs that rounding and clipping put on ``min``; 0 for kinds that need no such branch."""
    if not isinstance(lengths, LognormalLengths):
        return 0.0
    z = (math.log(lengths.min + 0.5) - lengths.mu) / lengths.sigma
    return (lengths.min - 1) * 0.5 * math.erfc(-z / math.sqrt(2.0))


def _high_weight(lengths: AnyLengths) -> float:
    return lengths.mean if isinstance(lengths, LognormalLengths) else lengths.mean_tokens - 1.0


def _weighted(samples: IntArray, u: FloatArray) -> IntArray:
    """Of the observed lengths, those at the quantiles u when each counts (length − 1) times."""
    if u.size == 0:
        return samples[:0]
    cumulative = np.cumsum(samples - 1)
    at = np.searchsorted(cumulative, (u * cumulative[-1]).astype(np.int64), side="right")
    drawn: IntArray = samples[np.minimum(at, samples.size - 1)]
    return drawn


def document_pools(
    workload: Workload, trace_document_domains: Sequence[str], seed: int, replication: int
) -> list[IntArray]:
    """Per class: the numbers of the trace's documents that its requests may read.

    ``documents: bootstrap`` draws as many as the domain has, with replacement, afresh in each replication: a domain's
    draw depends on nothing but seed, replication and the domain. ``all`` gives them all.

    Args:
        workload: the traffic.
        trace_document_domains: (D,) domain of each document (``AcceptanceTrace.domain``); empty without a trace,
            and then every pool is empty.
        seed: the scenario's.
        replication: 0, 1, 2, …

    Raises:
        ScenarioError: the trace has no document of a class's domain.
    """
    import zlib

    names: npt.NDArray[Any] = np.asarray(trace_document_domains, dtype=object)
    pools: dict[str | None, IntArray] = {}
    for group in workload.classes:
        if group.domain in pools:
            continue
        documents = np.flatnonzero(names == group.domain).astype(np.int64)
        if names.size and documents.size == 0:
            raise ScenarioError(f"class {group.name!r}: the trace has no document of domain {group.domain!r}",
                                allowed=", ".join(dict.fromkeys(trace_document_domains)))
        if workload.documents == "bootstrap" and documents.size:
            rng = random_stream(seed, replication, "bootstrap", zlib.crc32(str(group.domain).encode()))
            documents = documents[rng.integers(0, documents.size, size=documents.size)]
        pools[group.domain] = documents
    return [pools[group.domain] for group in workload.classes]
