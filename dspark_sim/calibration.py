"""Are confidences true? Reliability, ECE, AUC, Brier, and Sequential Temperature Scaling (numpy only).

A confidence c_k says "token k is accepted, given that 1..k-1 were"; a survival a_k = c_1 … c_k says "all of the first k
are accepted". Schedulers spend survivals, so calibration is judged on survivals: the expected calibration error (ECE)
of the cumulative product at each position.

Shapes: N rows (anchors), G block size. Sources: the DSpark paper, section 4.3 and Figure 6 (Sequential Temperature
Scaling: position by position, left to right, a grid search on the ECE of the cumulative product with the temperatures
of earlier positions fixed; one temperature per position keeps the order of confidences at that position).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from dspark_sim.errors import TraceError
from dspark_sim.trace import calibrate

__all__ = ["Calibration", "Quality", "auc", "brier", "ece", "fit_scale_bias", "fit_sts", "quality", "reliability"]

FloatArray: TypeAlias = npt.NDArray[np.float64]
GRID = np.round(np.geomspace(0.2, 5.0, 121), 6)  # temperatures tried by Sequential Temperature Scaling
BINS = 20
FLATTEST = 0.02  # smallest slope that scale plus bias may give a confidence


def _pair(predicted: npt.ArrayLike, outcome: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    p, y = np.asarray(predicted, dtype=np.float64), np.asarray(outcome, dtype=np.float64)
    if p.ndim != 1 or p.shape != y.shape:
        raise ValueError(f"predictions and outcomes must be two lists of equal length, got {p.shape} and {y.shape}")
    return p, y


def reliability(
    predicted: npt.ArrayLike, outcome: npt.ArrayLike, bins: int = BINS
) -> tuple[FloatArray, FloatArray, npt.NDArray[np.int64]]:
    """Per bin of equal width: mean prediction, observed frequency (both NaN where empty) and count, (bins,) each."""
    p, y = _pair(predicted, outcome)
    which = np.minimum((p * bins).astype(np.int64), bins - 1)
    count = np.bincount(which, minlength=bins)
    with np.errstate(invalid="ignore"):
        return np.bincount(which, p, bins) / count, np.bincount(which, y, bins) / count, count


def ece(predicted: npt.ArrayLike, outcome: npt.ArrayLike, bins: int = BINS) -> float:
    """Expected calibration error: mean |observed − predicted| over equal bins, weighted by count; 0 if empty."""
    p, y = _pair(predicted, outcome)
    which = np.minimum((p * bins).astype(np.int64), bins - 1)
    return float(np.abs(np.bincount(which, y - p, bins)).sum() / max(p.size, 1))


def auc(score: npt.ArrayLike, outcome: npt.ArrayLike) -> float | None:
    """Area under the ROC curve: P(score of a success > of a failure), ties counting half; None if one is missing."""
    s, y = _pair(score, outcome)
    good = int((y > 0.5).sum())
    bad = y.size - good
    if not good or not bad:
        return None
    _, inverse, counts = np.unique(s, return_inverse=True, return_counts=True)
    rank = np.cumsum(counts) - (counts - 1) / 2.0  # mean rank of each distinct score
    total = float(rank[inverse][y > 0.5].sum())
    return (total - good * (good + 1) / 2.0) / (good * bad)


def brier(predicted: npt.ArrayLike, outcome: npt.ArrayLike) -> float | None:
    """Mean squared error of the predictions; None without any."""
    p, y = _pair(predicted, outcome)
    return float(np.mean((p - y) ** 2)) if p.size else None


@dataclass(frozen=True)
class Quality:
    """How good confidences are, position by position (G entries each).

    Attributes:
        ece: of the survival a_k against "the first k were accepted", all rows.
        brier: of the same.
        auc: of the confidence c_k among rows whose first k − 1 tokens were accepted; None where nothing to rank.
    """

    ece: tuple[float, ...]
    brier: tuple[float, ...]
    auc: tuple[float | None, ...]


def quality(confidence: npt.ArrayLike, accepted: npt.ArrayLike, bins: int = BINS) -> Quality:
    """Measure (N, G) confidences against (N,) accepted lengths."""
    c, a = _table(confidence, accepted)
    survival = np.cumprod(c, axis=1)
    errors, squares, areas = [], [], []
    for k in range(c.shape[1]):
        reached, kept = a >= k, a > k
        errors.append(ece(survival[:, k], kept, bins))
        squares.append(brier(survival[:, k], kept) or 0.0)
        areas.append(auc(c[reached, k], kept[reached]))
    return Quality(tuple(errors), tuple(squares), tuple(areas))


def _table(confidence: npt.ArrayLike, accepted: npt.ArrayLike) -> tuple[FloatArray, npt.NDArray[np.int64]]:
    c, a = np.asarray(confidence, dtype=np.float64), np.asarray(accepted, dtype=np.int64)
    if c.ndim != 2 or a.shape != c.shape[:1] or c.shape[0] == 0:
        raise TraceError(f"calibration needs (N, G) confidences and (N,) accepted lengths, got {c.shape} and {a.shape}")
    return c, a


@dataclass(frozen=True)
class Calibration:
    """A fitted calibration: c_k becomes σ(logit(c_k) / temperature_k + bias_k).

    Attributes:
        temperature: (G,) > 0.
        bias: (G,), None for pure temperature scaling.
        at_limit: positions (from 1) where the grid search ended on the edge of its grid. A temperature cannot move a
            confidence across 0.5, so a limit there usually means that scaling alone cannot repair this position.
        before, after: quality on the rows that it was fitted on.
    """

    temperature: tuple[float, ...]
    bias: tuple[float, ...] | None
    at_limit: tuple[int, ...]
    before: Quality
    after: Quality

    def apply(self, confidence: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """(…, G) calibrated confidences; the order at each position stays."""
        return calibrate(np.asarray(confidence), self.temperature, self.bias)


def fit_sts(
    confidence: npt.ArrayLike, accepted: npt.ArrayLike, *, grid: npt.ArrayLike = GRID, bins: int = BINS
) -> Calibration:
    """Sequential Temperature Scaling, as the paper has it.

    Args:
        confidence: (N, G) raw, of held-out documents.
        accepted: (N,) tokens the target kept.
        grid: temperatures to try, rising; on equal ECE the one nearest to 1 wins.
        bins: of the ECE.
    """
    c, a = _table(confidence, accepted)
    tried = np.asarray(grid, dtype=np.float64)
    if tried.ndim != 1 or tried.size < 2 or np.any(np.diff(tried) <= 0) or tried[0] <= 0:
        raise ValueError("the grid must be rising temperatures above 0")
    clipped = np.clip(c, 1e-6, 1 - 1e-6)
    logit = np.log(clipped) - np.log1p(-clipped)
    survival, chosen, limits = np.ones(a.size), [], []
    for k in range(c.shape[1]):
        kept = a > k
        errors = np.array([ece(survival / (1 + np.exp(-logit[:, k] / t)), kept, bins) for t in tried])
        best = min(np.flatnonzero(errors <= errors.min() + 1e-12), key=lambda i: abs(np.log(tried[i])))
        chosen.append(float(tried[best]))
        if best in (0, tried.size - 1):
            limits.append(k + 1)
        survival = survival / (1 + np.exp(-logit[:, k] / tried[best]))
    return _result(c, a, tuple(chosen), None, tuple(limits), bins)


def fit_scale_bias(confidence: npt.ArrayLike, accepted: npt.ArrayLike, *, bins: int = BINS) -> Calibration:
    """Scale and bias per position (Platt scaling), by maximum likelihood on the rows that reach the position.

    Repairs what a temperature cannot: errors that cross 0.5 (σ(z / T) never does). Convex, solved by Newton's method
    with a weak pull (one pseudo-row) towards no change, so that separable or tiny data stay finite.
    """
    c, a = _table(confidence, accepted)
    clipped = np.clip(c, 1e-6, 1 - 1e-6)
    logit = np.log(clipped) - np.log1p(-clipped)
    temperature, bias = [], []
    for k in range(c.shape[1]):
        reached = a >= k
        x, y = logit[reached, k], (a > k)[reached].astype(np.float64)
        slope, shift = _logistic(x, y)
        if slope < FLATTEST:  # a confidence that ranks backwards is flattened, never turned round
            slope, shift = FLATTEST, _logistic(FLATTEST * x, y, shift_only=True)[1]
        temperature.append(1.0 / slope)
        bias.append(shift)
    return _result(c, a, tuple(temperature), tuple(bias), (), bins)


def _logistic(x: FloatArray, y: FloatArray, *, shift_only: bool = False) -> tuple[float, float]:
    """(slope, shift) of P(y) = σ(slope·x + shift), pulled weakly to (1, 0); ``shift_only`` keeps the slope at 1."""
    design = np.stack([x, np.ones_like(x)], axis=1)
    prior, free = np.array([1.0, 0.0]), np.array([0.0 if shift_only else 1.0, 1.0])
    w = prior.copy()
    for _ in range(100):
        p = 1 / (1 + np.exp(-np.clip(design @ w, -40, 40)))
        gradient = (design.T @ (y - p) - (w - prior)) * free
        hessian = (design * (p * (1 - p))[:, None]).T @ design * np.outer(free, free) + np.eye(2)
        step = np.linalg.solve(hessian, gradient)
        w = w + step / max(1.0, float(np.abs(step).max()))
        if np.abs(step).max() < 1e-10:
            break
    return float(w[0]), float(w[1])


def _result(
    c: FloatArray, a: npt.NDArray[np.int64], temperature: tuple[float, ...], bias: tuple[float, ...] | None,
    limits: tuple[int, ...], bins: int,
) -> Calibration:
    after = calibrate(c, temperature, bias)
    return Calibration(temperature, bias, limits, quality(c, a, bins), quality(after, a, bins))
