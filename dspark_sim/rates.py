"""Rates that change with time, and the arrival times they give.

A time-changed renewal process: gaps of mean 1 (gamma with the coefficient of variation asked for) are added up to
operational time, and the n-th arrival comes when the cumulative rate Λ(t) = ∫ λ has reached the n-th sum. With cv 1
this is the Poisson process of rate λ(t); with any cv the expected count up to t is Λ(t) but for a bounded term
((cv² − 1) / 2), and over short times of constant rate the gaps have the cv that was asked for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from dspark_sim.arrival_schema import Diurnal, Gamma, Piecewise, Poisson, Sessions

__all__ = ["ConstantRate", "DiurnalRate", "PiecewiseRate", "RateCurve", "arrival_times", "exact", "rate_of"]

FloatArray: TypeAlias = npt.NDArray[np.float64]
OpenKind: TypeAlias = Poisson | Gamma | Piecewise | Diurnal | Sessions
_HALVINGS = 60  # more than a float's mantissa


class RateCurve(Protocol):
    """λ(t) by its integral and the inverse of that."""

    def cumulative(self, seconds: FloatArray) -> FloatArray:
        """Λ: expected arrivals up to each time."""
        ...

    def inverse(self, counts: FloatArray) -> FloatArray:
        """The first time at which Λ reaches each of the rising ``counts``."""
        ...


class ConstantRate:
    """λ(t) = rate."""

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def cumulative(self, seconds: FloatArray) -> FloatArray:
        return seconds * self.rate

    def inverse(self, counts: FloatArray) -> FloatArray:
        return counts / self.rate


class PiecewiseRate:
    """Steps, or straight lines between points; the last rate holds on.

    Args:
        points: [second, rate] with rising seconds from 0; the last rate is above 0.
        linear: straight lines between the points instead of steps.
    """

    def __init__(self, points: tuple[tuple[float, float], ...], *, linear: bool) -> None:
        self.at, self.rate = np.array(points, dtype=np.float64).T
        widths = np.diff(self.at)
        after = self.rate[1:] if linear else self.rate[:-1]
        self.slope = np.append((after - self.rate[:-1]) / widths, 0.0)
        self.sum = np.concatenate([[0.0], np.cumsum(widths * (self.rate[:-1] + after) / 2)])

    def cumulative(self, seconds: FloatArray) -> FloatArray:
        i = np.searchsorted(self.at, seconds, side="right") - 1
        d = seconds - self.at[i]
        out: FloatArray = self.sum[i] + d * (self.rate[i] + self.slope[i] * d / 2)
        return out

    def inverse(self, counts: FloatArray) -> FloatArray:
        i = np.searchsorted(self.sum, counts, side="left") - 1  # never a piece of rate 0, which no count lies inside
        i = np.maximum(i, 0)
        need, rate, slope = counts - self.sum[i], self.rate[i], self.slope[i]
        root = np.sqrt(np.maximum(rate * rate + 2 * slope * need, 0.0))
        with np.errstate(divide="ignore", invalid="ignore"):  # need = 0 where rate = 0
            d = np.where(need > 0, 2 * need / (rate + root), 0.0)
        out: FloatArray = self.at[i] + d
        return out


class DiurnalRate:
    """λ(t) = mean · (1 + amplitude · sin(2π (t + phase) / period))."""

    def __init__(self, mean: float, amplitude: float, period: float, phase: float) -> None:
        self.mean, self.amplitude, self.period = mean, amplitude, period
        self.phase = math.fmod(phase, period)

    def cumulative(self, seconds: FloatArray) -> FloatArray:
        turn = 2 * math.pi / self.period
        swing = (math.cos(turn * self.phase) - np.cos(turn * (seconds + self.phase))) / turn
        out: FloatArray = self.mean * (seconds + self.amplitude * swing)
        return out

    def inverse(self, counts: FloatArray) -> FloatArray:
        middle = counts / self.mean
        reach = self.amplitude * self.period / math.pi  # |swing| is at most period / π
        low, high = np.maximum(middle - reach, 0.0), middle + reach
        for _ in range(_HALVINGS):
            half = (low + high) / 2
            below = self.cumulative(half) < counts
            low, high = np.where(below, half, low), np.where(below, high, half)
        return high


def rate_of(arrival: OpenKind) -> tuple[RateCurve, float]:
    """(rate curve, coefficient of variation of the gaps) of an open loop; of new sessions for ``sessions``."""
    if isinstance(arrival, Piecewise):
        return PiecewiseRate(arrival.rates, linear=arrival.between == "linear"), arrival.cv
    if isinstance(arrival, Diurnal):
        return DiurnalRate(arrival.mean_rate_per_s, arrival.amplitude, arrival.period_s, arrival.phase_s), arrival.cv
    return ConstantRate(arrival.rate_per_s), 1.0 if isinstance(arrival, Poisson) else arrival.cv


def exact(times: Iterator[float], after: int, seconds: float) -> Iterator[float]:
    """The same arrivals with the gaps of the first ``after`` scaled, so that the last of those comes at ``seconds``."""
    first = list(islice(times, after))
    scale, late = seconds / first[-1], seconds - first[-1]
    yield from (t * scale for t in first[:-1])
    yield seconds
    yield from (t + late for t in times)


def arrival_times(curve: RateCurve, cv: float, rng: np.random.Generator, chunk: int) -> Iterator[float]:
    """Absolute arrival times in seconds, endless, rising; the first gap is an ordinary one.

    Args:
        curve: the rate.
        cv: of the gaps in operational time.
        rng: its own stream.
        chunk: draws at once; part of what makes the sequence.
    """
    done, shape = 0.0, 1.0 / cv**2
    if isinstance(curve, ConstantRate):  # rounds once where the general way rounds twice
        while True:
            gaps = rng.standard_gamma(shape, chunk) if cv != 1.0 else rng.exponential(size=chunk)
            times = done + np.cumsum(gaps) / (curve.rate * shape)
            yield from times.tolist()
            done = float(times[-1])
    while True:
        gaps = rng.standard_gamma(shape, chunk) if cv != 1.0 else rng.exponential(size=chunk)
        counts = done + np.cumsum(gaps) / shape
        yield from curve.inverse(counts).tolist()
        done = float(counts[-1])
