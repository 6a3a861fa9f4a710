"""The search on invented answers, the verdicts on invented counts: nothing is simulated here."""

from __future__ import annotations

import numpy as np
import pytest

from dspark_sim.plan_decide import Counts, Verdict, attainment, decide, least_requests, level_of, looks
from dspark_sim.plan_search import Bracket, bracket_of, search


def driven(verdict, start: float = 4.0, *, resolution: float = 0.05, least: float = 0.0625, most: float = 256.0,
           whole: bool = False, factor: float = 2.0) -> Bracket:
    def rounded(load: float) -> float:
        return float(round(load)) if whole else load

    steps = search(start, least=least, most=most, resolution=resolution, rounded=rounded,
                   factor=factor)
    try:
        load = next(steps)
        while True:
            load = steps.send(verdict(load))
    except StopIteration as end:
        return end.value


@pytest.mark.parametrize("capacity", [0.1, 3.99, 4.0, 7.3, 200.0])
def test_the_capacity_lies_between_a_passing_and_a_failing_load_that_are_close(capacity: float) -> None:
    found = driven(lambda load: "pass" if load <= capacity else "fail")
    assert found.low <= capacity < found.high
    assert found.high <= found.low * 1.05
    assert found.violations == ()
    assert len(found.verdicts) <= 14


def test_whole_numbers_end_at_neighbours() -> None:
    found = driven(lambda load: "pass" if load <= 37 else "fail", 8.0, whole=True, least=1, resolution=0.001)
    assert (found.low, found.high) == (37.0, 38.0)


@pytest.mark.parametrize("start", [1, 3, 5, 8])
@pytest.mark.parametrize("capacity", [1, 3, 8])
def test_a_small_step_is_not_swallowed_by_whole_numbers(capacity: int, start: int) -> None:
    found = driven(lambda load: "pass" if load <= capacity else "fail", start, whole=True, least=1, factor=1.0675)
    assert (found.low, found.high) == (capacity, capacity + 1)


def test_nothing_passes_and_everything_passes() -> None:
    none, all_ = driven(lambda load: "fail"), driven(lambda load: "pass")
    assert (none.low, none.high) == (None, 0.0625)
    assert (all_.low, all_.high) == (256.0, None)


def test_an_undecided_band_is_narrowed_from_both_sides_and_stays_undecided() -> None:
    found = driven(lambda load: "pass" if load < 5 else "fail" if load > 8 else "undecided")
    assert found.low < 5
    assert found.high > 8
    assert found.undecided
    assert all(5 <= load <= 8 for load in found.undecided)
    assert found.undecided[0] <= found.low * 1.06  # both borders are known to the resolution
    assert found.high <= found.undecided[-1] * 1.06


def test_a_load_with_too_few_requests_is_not_made_smaller_still() -> None:
    asked: list[float] = []

    def verdict(load: float) -> Verdict:
        asked.append(load)
        return "sparse" if load < 1 else "undecided" if load < 8 else "fail"

    found = driven(verdict)
    assert found.low is None
    assert min(asked) == 0.5


def test_more_load_that_is_better_is_reported_and_the_lower_capacity_taken() -> None:
    verdicts: dict[float, Verdict] = {1.0: "pass", 2.0: "fail", 3.0: "undecided", 4.0: "pass", 8.0: "fail"}
    found = bracket_of(verdicts)
    assert found.violations == ((4.0, 2.0),)
    assert (found.low, found.high) == (1.0, 2.0)


def test_a_search_over_answers_that_are_not_monotone_ends_and_says_so() -> None:
    found = driven(lambda load: "fail" if 4 < load <= 6 or load > 16 else "pass", 5.0)
    assert found.low <= 4 < found.high <= 6
    assert found.violations == ()  # it never looked above 5: the lower capacity is what counts


def counts(*pairs: tuple[int, int]) -> list[dict[str, Counts]]:
    return [{"all": Counts(judged, met)} for judged, met in pairs]


def test_looks_grow_to_the_most_and_share_the_error() -> None:
    assert looks(20) == [3, 5, 8, 13, 20]
    assert looks(3) == [3]
    assert level_of(20) == pytest.approx(0.99)
    assert level_of(3) == pytest.approx(0.95)


def test_verdicts_pass_fail_and_undecided() -> None:
    assert decide(counts(*[(1000, 990)] * 3), 0.95, 0.95).verdict == "pass"
    assert decide(counts(*[(1000, 900)] * 3), 0.95, 0.95).verdict == "fail"
    noisy = decide(counts((1000, 990), (1000, 900), (1000, 970)), 0.95, 0.95)
    assert noisy.verdict == "undecided"
    assert noisy.classes["all"].low < 0.95 < noisy.classes["all"].high


def test_few_requests_that_all_met_their_sla_prove_nothing() -> None:
    assert decide(counts((5, 5), (5, 5), (5, 5)), 0.95, 0.95).verdict == "sparse"
    n = least_requests(0.95, 0.95)
    assert n == 72  # 0.95^72 < 2.5 % < 0.95^71
    third = n // 3
    assert decide(counts(*[(third, third)] * 3), 0.95, 0.95).verdict == "pass"
    assert decide([], 0.95, 0.95).verdict == "sparse"


def test_one_failing_class_is_enough_and_a_silent_class_is_not_a_pass() -> None:
    both = [{"a": Counts(1000, 999), "b": Counts(1000, 800)}] * 3
    found = decide(both, 0.95, 0.95)
    assert (found.verdict, found.worst) == ("fail", "b")
    half = [{"a": Counts(1000, 999), "b": Counts(0, 0)}] * 3
    assert decide(half, 0.95, 0.95).verdict == "sparse"


def test_a_growing_queue_fails_however_fast_the_served_ones_were() -> None:
    good = counts(*[(1000, 1000)] * 3)
    assert decide(good, 0.95, 0.95, saturated=[True, True, False]).verdict == "fail"
    assert decide(good, 0.95, 0.95, saturated=[True, False, False]).verdict == "pass"


def test_a_verdict_in_noise_is_wrong_in_at_most_one_case_of_twenty() -> None:
    """Attainment exactly at the target, with replications that differ: pass or fail are both mistakes."""
    rng, wrong, n = np.random.default_rng(4), 0, 400
    for _ in range(n):
        seen: list[dict[str, Counts]] = []
        for look in looks(20):
            while len(seen) < look:
                share = np.clip(rng.normal(0.9, 0.03), 0, 1)
                seen.append({"all": Counts(200, int(rng.binomial(200, share)))})
            if decide(seen, 0.9, level_of(20)).verdict in ("pass", "fail"):
                wrong += 1
                break
    assert wrong / n < 0.05 + 3 * np.sqrt(0.05 * 0.95 / n)


def test_the_interval_is_clopper_and_pearsons_where_replications_agree() -> None:
    a = attainment([Counts(10, 9)] * 2, 0.95)
    assert (a.share, a.requests) == (0.9, 20)
    assert a.low == pytest.approx(0.6830, abs=1e-4)  # 18 of 20, tables
    assert a.high == pytest.approx(0.9877, abs=1e-4)


def test_a_good_guess_ends_at_once_and_a_bad_one_soon() -> None:
    """Capacity 100, steps that begin at 1.09: from a guess within 9 % two loads; from half of it no creeping."""
    def looked_at(start: float) -> int:
        loads: list[float] = []
        found = driven(lambda load: (loads.append(load), "pass" if load <= 100.0 else "fail")[1], start,
                       resolution=0.1, most=1e4, factor=1.09)
        assert found.low <= 100.0 < found.high <= 1.1 * found.low
        return len(loads)

    assert [looked_at(start) for start in (95.0, 105.0)] == [2, 2]
    assert looked_at(50.0) <= 9
    assert looked_at(200.0) <= 9
