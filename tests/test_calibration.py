"""Calibration against answers on paper, a brute-force AUC, and data whose true calibration is known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspark_sim.calibration import auc, brier, ece, fit_scale_bias, fit_sts, quality, reliability
from dspark_sim.errors import TraceError


def test_ece_on_paper() -> None:
    """Three predictions of 0.9, two true: |2 − 2.7|; one of 0.1, false: |0 − 0.1|; over four rows."""
    assert ece([0.9, 0.9, 0.9, 0.1], [1, 1, 0, 0]) == pytest.approx((0.7 + 0.1) / 4)
    assert ece([], []) == 0.0
    assert ece([1.0], [1]) == 0.0


def test_reliability_bins() -> None:
    mean, seen, count = reliability([0.0, 0.049, 1.0], [0, 1, 1], bins=20)
    assert (count[0], count[19]) == (2, 1)
    assert (mean[0], seen[0], seen[19]) == (pytest.approx(0.0245), 0.5, 1.0)
    assert np.isnan(mean[10])


def test_auc_and_brier_on_paper() -> None:
    assert auc([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1]) == pytest.approx(0.75)
    assert auc([0.5, 0.5], [0, 1]) == pytest.approx(0.5)
    assert auc([0.5, 0.7], [1, 1]) is None
    assert brier([0.5, 1.0], [1, 1]) == pytest.approx(0.125)
    assert brier([], []) is None


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=2, max_size=30))
def test_auc_equals_pair_count(rows: list[tuple[int, bool]]) -> None:
    good = [s for s, y in rows if y]
    bad = [s for s, y in rows if not y]
    expected = None
    if good and bad:
        expected = sum((g > b) + 0.5 * (g == b) for g in good for b in bad) / (len(good) * len(bad))
    found = auc([s / 5 for s, _ in rows], [y for _, y in rows])
    assert found == (None if expected is None else pytest.approx(expected))


def overconfident(n: int, temperature: list[float], seed: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Rows whose true logits are the stated ones divided by ``temperature``: STS must find it."""
    rng = np.random.default_rng(seed)
    logit = rng.normal(1.5, 1.5, (n, len(temperature)))
    truth = 1 / (1 + np.exp(-logit / np.array(temperature)))
    kept = np.cumprod(rng.random(truth.shape) < truth, axis=1)
    return 1 / (1 + np.exp(-logit)), kept.sum(axis=1)


def test_sts_finds_the_temperature() -> None:
    confidence, accepted = overconfident(60_000, [2.0, 1.5, 1.0])
    fit = fit_sts(confidence, accepted)
    assert fit.temperature[0] == pytest.approx(2.0, rel=0.12)
    assert fit.temperature[1] == pytest.approx(1.5, rel=0.2)
    assert fit.at_limit == ()
    assert all(after < before for after, before in zip(fit.after.ece[:2], fit.before.ece[:2], strict=True))
    assert fit.after.ece[0] < 0.01


def test_sts_keeps_the_order() -> None:
    confidence, accepted = overconfident(3_000, [3.0, 2.0])
    fit = fit_sts(confidence, accepted)
    for k in range(2):
        assert np.all(np.diff(fit.apply(confidence)[np.argsort(confidence[:, k]), k]) >= 0)
    assert fit.before.auc == pytest.approx(fit.after.auc, abs=1e-4)


def test_sts_says_when_the_grid_ends() -> None:
    """All confidences are 0.9, nothing is accepted: no temperature reaches below 0.5, so the grid's end is hit."""
    fit = fit_sts(np.full((500, 2), 0.9), np.zeros(500, dtype=int))
    assert 1 in fit.at_limit
    assert fit.after.ece[0] > 0.4
    assert fit_scale_bias(np.full((500, 2), 0.9), np.zeros(500, dtype=int)).after.ece[0] < 0.05


def test_scale_and_bias_finds_both() -> None:
    rng = np.random.default_rng(5)
    logit = rng.normal(0, 2, (60_000, 1))
    truth = 1 / (1 + np.exp(-(logit / 2 - 0.7)))
    accepted = (rng.random(truth.shape) < truth).sum(axis=1)
    fit = fit_scale_bias(1 / (1 + np.exp(-logit)), accepted)
    assert fit.temperature[0] == pytest.approx(2.0, rel=0.05)
    assert fit.bias is not None
    assert fit.bias[0] == pytest.approx(-0.7, abs=0.05)


def test_quality_counts_conditionally() -> None:
    """AUC of position 2 sees only rows that reached it: the row with accepted = 0 must not count."""
    found = quality([[0.9, 0.9], [0.9, 0.2], [0.9, 0.99]], [2, 1, 0])
    assert found.auc[1] == 1.0
    assert found.ece[0] == pytest.approx(abs(2 - 2.7) / 3)


@pytest.mark.parametrize("bad", [([0.5], [1]), ([[0.5]], [1, 1]), (np.empty((0, 2)), [])])
def test_wrong_shapes_are_refused(bad: tuple[object, object]) -> None:
    with pytest.raises(TraceError, match="calibration needs"):
        fit_sts(*bad)  # type: ignore[arg-type]
