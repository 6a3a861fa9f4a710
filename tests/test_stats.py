"""Intervals against tabulated t quantiles, their coverage, paired differences, precision and drift."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspark_sim.stats import (
    Figure,
    drift,
    interval,
    paired_percent,
    precision_warning,
    replications_for,
    t_quantile,
)


@pytest.mark.parametrize(("freedom", "value"), [(1, 12.7062), (2, 4.3027), (4, 2.7764), (9, 2.2622), (30, 2.0423)])
def test_t_quantiles_are_the_tabulated_ones(freedom: int, value: float) -> None:
    assert t_quantile(freedom) == pytest.approx(value, abs=5e-5)


def test_interval_by_hand() -> None:
    """1..5: mean 3, s = √2.5, half-width 2.7764 · s / √5 = 1.9632."""
    figure = interval([1.0, 2.0, 3.0, 4.0, 5.0])
    assert figure.mean == pytest.approx(3.0)
    assert figure.half_width == pytest.approx(2.7764 * math.sqrt(2.5 / 5), abs=1e-3)


def test_one_replication_has_no_interval_and_none_has_no_mean() -> None:
    assert interval([7.0]) == Figure(7.0, None, None)
    assert interval([]) == Figure(None, None, None)
    assert interval([None, None]) == Figure(None, None, None)
    assert interval([None, 7.0, None]).mean == 7.0


def test_bounds_cut_the_interval_only() -> None:
    figure = interval([0.9, 1.0], low=0.0, high=1.0)
    assert figure.mean == pytest.approx(0.95)
    assert figure.ci95_high == 1.0
    assert figure.ci95_low == pytest.approx(0.95 - 12.7062 * 0.05, abs=1e-3)


def test_coverage_is_95_per_cent() -> None:
    """4,000 experiments of 5 replications: 95 % ± 1.1 (three standard errors)."""
    rng = np.random.default_rng(1)
    hits = 0
    for row in rng.normal(10.0, 3.0, (4000, 5)):
        figure = interval(row.tolist())
        assert figure.ci95_low is not None
        assert figure.ci95_high is not None
        hits += figure.ci95_low <= 10.0 <= figure.ci95_high
    assert hits / 4000 == pytest.approx(0.95, abs=0.011)


def test_pairing_removes_what_replications_share() -> None:
    """Replications differ by a factor of 2, the ratio of the arms is exactly 1.1 in each."""
    first = [100.0, 150.0, 200.0]
    figure = paired_percent([110.0, 165.0, 220.0], first)
    assert figure.mean == pytest.approx(10.0)
    assert figure.half_width == pytest.approx(0.0, abs=1e-9)
    assert interval(first).half_width > 100  # type: ignore[operator]


def test_pairs_with_a_gap_are_left_out() -> None:
    assert paired_percent([110.0, None, 220.0], [100.0, 100.0, None]) == Figure(pytest.approx(10.0), None, None)
    assert paired_percent([1.0], [0.0]) == Figure(None)


@given(st.lists(st.floats(1.0, 1e6), min_size=2, max_size=30))
def test_mean_lies_inside_its_interval(values: list[float]) -> None:
    figure = interval(values)
    assert figure.ci95_low <= figure.mean <= figure.ci95_high  # type: ignore[operator]


def test_precision_warning_says_how_many_replications() -> None:
    """s = 10 at mean 100: with n replications t(n−1) · 10 / √n ≤ 2 first holds at n = 99 (t 1.9845 → 1.9945)."""
    values = (np.random.default_rng(2).normal(0, 1, 10)).tolist()
    z = (np.array(values) - np.mean(values)) / np.std(values, ddof=1)
    figure = interval((100 + 10 * z).tolist())
    assert replications_for(figure, 10) == pytest.approx(99, abs=2)
    text = precision_warning("arm", figure, 10)
    assert text is not None
    assert "±7.15 %" in text
    assert "instead of 10" in text
    assert precision_warning("arm", figure, 10, target=0.08) is None


def test_no_precision_warning_without_an_interval() -> None:
    assert precision_warning("arm", Figure(5.0), 1) is None
    assert precision_warning("arm", Figure(None), 3) is None


def test_drift_is_reported_when_real_only() -> None:
    assert drift([100, 101, 99], [110, 111, 109]) == pytest.approx(0.1, abs=0.001)
    assert drift([100, 100, 100], [115, 90, 104]) is None  # 3 %, but noise
    assert drift([1000, 1001, 999], [1001, 1002, 1000]) is None  # real, but a tenth of a per cent
    assert drift([100], [103]) is None
    assert drift([100], [90]) == pytest.approx(-0.1)
    assert drift([None, 0.0], [1.0, 1.0]) is None
