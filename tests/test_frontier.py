"""The frontier's numbers, against cases whose answer can be worked out on paper."""

from __future__ import annotations

import numpy as np
import pytest

from dspark_sim.frontier import ArmCurve, nice_levels, shared_range, throughput_gain, tps_gain
from dspark_sim.stats import t_quantile


def curve(arm: str, points: list[tuple[float, float, float]]) -> ArmCurve:
    """(load, tps, throughput) per point."""
    load, tps, throughput = (np.array(c, dtype=float) for c in zip(*points, strict=True))
    return ArmCurve(arm, load, tps, throughput)


# throughput falls by 50 tok/s per GPU for each tok/s per user, along both lines
BASE = curve("base", [(10, 90, 1000), (20, 50, 3000)])
ARM = curve("arm", [(10, 110, 1500), (20, 70, 3500)])


def test_two_straight_lines_at_equal_tps() -> None:
    got = throughput_gain(ARM, BASE, 80)
    assert (got.value, got.base) == (pytest.approx(3000), pytest.approx(1500))
    assert got.gain_pct.mean == pytest.approx(100)
    assert got.gain_pct.ci95_low is None
    assert (got.artefact, got.words) == (False, "")


def test_two_straight_lines_at_equal_throughput() -> None:
    got = tps_gain(ARM, BASE, 2000)
    assert (got.value, got.base) == (pytest.approx(100), pytest.approx(70))
    assert got.gain_pct.mean == pytest.approx(100 * 30 / 70)


def test_an_arm_against_itself_gains_nothing() -> None:
    assert throughput_gain(BASE, BASE, 77.5).gain_pct.mean == 0.0
    assert tps_gain(BASE, BASE, 1234.5).gain_pct.mean == 0.0


def test_levels_on_a_point_are_the_point() -> None:
    assert throughput_gain(ARM, BASE, 90).base == 1000
    assert throughput_gain(ARM, BASE, 70).value == 3500
    assert tps_gain(ARM, BASE, 3000).base == 50


def test_collapsed_baseline_is_called_an_artefact() -> None:
    base = curve("base", [(1, 120, 100), (10, 90, 1000), (20, 50, 3000)])
    got = throughput_gain(ARM, base, 105)
    assert got.base == pytest.approx(550)  # halfway: 18 % of its peak of 3000
    assert got.value == pytest.approx(1750)
    assert got.gain_pct.mean == pytest.approx(100 * (1750 / 550 - 1))
    assert got.artefact
    assert "artefact" in got.words
    assert "18 %" in got.words
    assert not throughput_gain(ARM, base, 85).artefact  # 1250: 42 %
    assert not tps_gain(ARM, curve("b", [(1, 120, 100), (20, 50, 8000)]), 1600).artefact  # a ratio of speeds stays one


def test_no_overlap_is_null_with_words() -> None:
    got = throughput_gain(ARM, BASE, 100)
    assert got.gain_pct.mean is None
    assert got.base is None
    assert got.value == pytest.approx(2000)
    assert "base never reaches 100 tok/s per user (most: 90, at load 10)" in got.words
    assert "arm extends the frontier, with 2,000 tok/s per GPU here" in got.words
    low = throughput_gain(ARM, BASE, 60)
    assert (low.value, low.gain_pct.mean) == (None, None)
    assert "arm stays above 60 tok/s per user at every load of the sweep; a higher load would reach it" in low.words
    fast = tps_gain(ARM, BASE, 1200)
    assert "arm stays above 1,200 tok/s per GPU at every load of the sweep; a lower load would reach it" in fast.words


def test_undefined_loads_are_gaps_not_bridges() -> None:
    hole = curve("hole", [(1, 100, 500), (2, np.nan, np.nan), (4, 60, 2500)])
    got = throughput_gain(hole, BASE, 80)
    assert got.value is None
    assert "hole has no figures on one side of 80 tok/s per user" in got.words
    assert "has no figures" in throughput_gain(curve("none", [(1, np.nan, np.nan)]), BASE, 80).words


def test_a_curve_that_turns_back_gives_its_best() -> None:
    """Beyond saturation both figures fall; an operator takes the better of two loads with the same TPS."""
    bent = curve("bent", [(1, 100, 1000), (2, 60, 3000), (3, 80, 2500)])
    assert throughput_gain(bent, BASE, 70).value == pytest.approx(2750)


def test_intervals_are_paired_by_replication() -> None:
    """Both arms move together from one replication to the next: each gain is exactly 100 %, so is the interval."""
    noise = np.array([[0.9, 1.0, 1.1]])

    def noisy(c: ArmCurve, more: float = 0.0) -> ArmCurve:
        by = c.throughput[:, None] * noise + more * np.array([[-1.0, 0.0, 1.0]])
        return ArmCurve(c.arm, c.load, c.tps, c.throughput, np.repeat(c.tps[:, None], 3, axis=1), by)

    got = throughput_gain(noisy(ARM), noisy(BASE), 80).gain_pct
    assert (got.mean, got.ci95_low, got.ci95_high) == pytest.approx((100, 100, 100))
    # now the arm alone moves by 30 tok/s: 2 % of the baseline's 1500
    flat = ArmCurve("base", BASE.load, BASE.tps, BASE.throughput, np.repeat(BASE.tps[:, None], 3, axis=1),
                    np.repeat(BASE.throughput[:, None], 3, axis=1))
    moved = ArmCurve("arm", ARM.load, ARM.tps, ARM.throughput, np.repeat(ARM.tps[:, None], 3, axis=1),
                     ARM.throughput[:, None] + np.array([[-30.0, 0.0, 30.0]]))
    got = throughput_gain(moved, flat, 80).gain_pct
    half = t_quantile(2) * 2 / np.sqrt(3)
    assert (got.ci95_low, got.ci95_high) == pytest.approx((100 - half, 100 + half))


def test_no_interval_when_a_replication_falls_short() -> None:
    tps = np.array([[90.0, 79.0], [50.0, 50.0]])
    base = ArmCurve("base", BASE.load, np.array([84.5, 50.0]), BASE.throughput, tps,
                    np.repeat(BASE.throughput[:, None], 2, axis=1))
    arm = ArmCurve("arm", ARM.load, ARM.tps, ARM.throughput, np.repeat(ARM.tps[:, None], 2, axis=1),
                   np.repeat(ARM.throughput[:, None], 2, axis=1))
    got = throughput_gain(arm, base, 80)
    assert got.gain_pct.mean is not None
    assert got.gain_pct.half_width is None
    assert "no interval for arm at 80 tok/s per user: only 1 of 2 replications" in got.words


def test_shared_range_and_round_levels() -> None:
    assert shared_range([BASE, ARM], BASE, of_tps=True) == (70, 90)
    assert shared_range([BASE, ARM], BASE, of_tps=False) == (1500, 3000)
    assert shared_range([BASE], BASE, of_tps=True) is None
    far = curve("far", [(1, 300, 10), (2, 200, 20)])
    assert shared_range([BASE, far], BASE, of_tps=True) is None
    assert nice_levels(70, 90) == [70, 75, 80, 85, 90]
    assert nice_levels(1500, 3000) == [1500, 2000, 2500, 3000]
    assert nice_levels(3, 3) == []
    assert nice_levels(float("nan"), 3) == []
    for low, high in ((0.01, 0.035), (17, 23111), (1e5, 1.001e5)):
        levels = nice_levels(low, high)
        assert 2 <= len(levels) <= 6
        assert low * 0.999999 <= levels[0] <= levels[-1] <= high * 1.000001


def test_the_papers_own_readings() -> None:
    """Figure 7, V4-Flash, as drawn (points around the levels): +51 % throughput at 80 tok/s/user, +60 % TPS at 10.6 k
    tok/s/GPU, and at 120 tok/s/user the +661 % that the authors call an artefact."""
    mtp = curve("MTP-1", [(6, 50.3, 19433.8), (5, 83.9617, 9456.31), (4, 87.3966, 8518.3), (3, 118.3104, 1661.35),
                          (2, 120.5431, 1470.53), (1, 136.0, 631.89)][::-1])
    dspark = curve("DSpark", [(3, 73.8, 16733.59), (2, 147.202, 8482.26), (1, 231.0, 1210.86)][::-1])
    fair = throughput_gain(dspark, mtp, 80)
    assert fair.gain_pct.mean == pytest.approx(51, abs=1)
    assert not fair.artefact
    assert tps_gain(dspark, mtp, 10_600).gain_pct.mean == pytest.approx(60, abs=1)
    absurd = throughput_gain(dspark, mtp, 120)
    assert absurd.gain_pct.mean == pytest.approx(661, abs=3)
    assert absurd.artefact


@pytest.mark.parametrize(("load", "tps"), [([2.0, 1.0], [1.0, 1.0]), ([1.0, 2.0], [1.0])])
def test_mistakes_of_the_caller(load: list[float], tps: list[float]) -> None:
    with pytest.raises(ValueError, match="arm: "):
        ArmCurve("arm", np.array(load), np.array(tps), np.ones(2))


def test_reasons_that_differ_in_their_level_only_are_told_once() -> None:
    from dspark_sim.report.readings import _folded

    said = [(120.0, "A stays above 120 tok/s."), (1300.0, "A stays above 1,300 tok/s."),
            (5.0, "B never reaches 5 tok/s.")]
    assert _folded(said) == ["A stays above 120 and 1,300 tok/s.", "B never reaches 5 tok/s."]
