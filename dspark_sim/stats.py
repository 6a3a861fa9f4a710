"""Statistics over replications: intervals, paired differences, and whether a result deserves belief.

A replication is one independent repetition of the same scenario (own seeds, the same for every arm), so its figure is
one observation. Intervals are 95 % t-intervals over replications. Differences between arms are paired: arm and first
arm of the *same* replication served the same requests and read the same texts (common random numbers).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["PRECISION_TARGET", "Figure", "drift", "interval", "paired_percent", "precision_warning", "replications_for"]

LEVEL = 0.95
PRECISION_TARGET = 0.02  # relative half-width of throughput that a result should reach
MAX_REPLICATIONS = 10_000


@dataclass(frozen=True)
class Figure:
    """A mean over replications with its 95 % interval.

    Attributes:
        mean: None when the figure is undefined in every replication.
        ci95_low, ci95_high: None when it is defined in fewer than two replications.
    """

    mean: float | None
    ci95_low: float | None = None
    ci95_high: float | None = None

    @property
    def half_width(self) -> float | None:
        """Half of the interval's length."""
        return None if self.ci95_low is None or self.ci95_high is None else (self.ci95_high - self.ci95_low) / 2

    def to_dict(self) -> dict[str, float | None]:
        """``{mean, ci95_low, ci95_high}``."""
        return {"mean": self.mean, "ci95_low": self.ci95_low, "ci95_high": self.ci95_high}


def t_quantile(freedom: int, level: float = LEVEL) -> float:
    """Two-sided quantile of Student's t: P(\\|T\\| ≤ t) = level at ``freedom`` ≥ 1 degrees."""
    from scipy.special import stdtrit  # scipy.stats costs a second to import, this does not

    return float(stdtrit(freedom, 0.5 + level / 2))


def interval(
    values: Sequence[float | None], *, low: float | None = None, high: float | None = None, level: float = LEVEL
) -> Figure:
    """Mean and t-interval over replications; undefined ones (None) are left out.

    Args:
        values: one per replication.
        low, high: natural bounds of the figure (a share lies in 0..1); the interval is cut there.
        level: coverage.
    """
    known = np.asarray([v for v in values if v is not None], dtype=np.float64)
    if known.size == 0:
        return Figure(None)
    mean = float(known.mean())
    if known.size == 1:
        return Figure(mean)
    half = t_quantile(known.size - 1, level) * float(known.std(ddof=1)) / math.sqrt(known.size)
    bottom = mean - half if low is None else max(low, mean - half)
    top = mean + half if high is None else min(high, mean + half)
    return Figure(mean, bottom, top)


def paired_percent(values: Sequence[float | None], first: Sequence[float | None]) -> Figure:
    """The difference to the first arm in per cent, replication by replication, with its interval."""
    ratios = [
        100.0 * (v / f - 1.0) for v, f in zip(values, first, strict=False) if v is not None and f is not None and f > 0
    ]
    return interval(ratios)


def replications_for(figure: Figure, have: int, target: float = PRECISION_TARGET) -> int | None:
    """How many replications would bring the relative half-width to ``target``; None when not known.

    The smallest n with t(n − 1) · s / √n ≤ target · mean, s from the replications at hand.
    """
    if figure.mean is None or figure.half_width is None or figure.mean <= 0 or have < 2:
        return None
    s = figure.half_width * math.sqrt(have) / t_quantile(have - 1)
    n = max(2, math.ceil((s * 1.96 / (target * figure.mean)) ** 2))
    while n < MAX_REPLICATIONS and t_quantile(n - 1) * s / math.sqrt(n) > target * figure.mean:
        n += max(1, n // 50)
    return min(n, MAX_REPLICATIONS)


def precision_warning(arm: str, figure: Figure, have: int, target: float = PRECISION_TARGET) -> str | None:
    """A sentence when the throughput of ``arm`` is not known to ``target``, and what would help; else None."""
    if figure.mean is None or figure.half_width is None or figure.mean <= 0:
        return None
    relative = figure.half_width / figure.mean
    if relative <= target:
        return None
    need, longer = replications_for(figure, have, target), (relative / target) ** 2
    window = f", or a measured window {max(longer, 1.1):.1f} times as long" if longer <= 20 else ""
    return (
        f"{arm}: throughput is known to ±{100 * relative:.3g} % only (target ±{100 * target:g} %); it would need about "
        f"{need} replications instead of {have}{window}"
    )


def drift(
    first: Sequence[float | None], second: Sequence[float | None], *, least: float = 0.01, level: float = 0.99
) -> float | None:
    """Relative change from the first to the second half of the window when it is real; None when it is noise.

    Real: at least ``least`` of the mean and outside the ``level`` interval around 0. With one replication, where no
    interval exists, five times ``least``.
    """
    changes = [b / a - 1.0 for a, b in zip(first, second, strict=True) if a is not None and b is not None and a > 0]
    figure = interval(changes, level=level)
    if figure.mean is None:
        return None
    if figure.half_width is None:
        return figure.mean if abs(figure.mean) >= 5 * least else None
    return figure.mean if abs(figure.mean) >= least and abs(figure.mean) > figure.half_width else None
