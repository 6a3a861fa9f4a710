"""Workloads: the same requests for everybody, from the distributions that were stated."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from dspark_sim.errors import ScenarioError
from dspark_sim.request import Request
from dspark_sim.scenario import scenario_from_text
from dspark_sim.scenario_schema import Workload
from dspark_sim.workload import CHUNK, RequestStream, random_stream
from tests.small_inputs import SCENARIO

LOGNORMAL = {"kind": "lognormal", "mean": 40.0, "cv": 0.5, "min": 2, "max": 200}


def workload(**overrides: Any) -> Workload:
    keys = {"workload." + key.replace("__", "."): value for key, value in overrides.items()}
    return scenario_from_text(SCENARIO, overrides=keys).workload


def drawn(stream: RequestStream, n: int) -> list[tuple[int, int, int, int, int]]:
    return [facts(stream.take()) for _ in range(n)]


def facts(r: Request) -> tuple[int, int, int, int, int]:
    return r.class_index, r.prompt_tokens, r.output_tokens, r.text, r.skipped


def outputs(lengths: Any, n: int = 20_000, *, seed: int = 1) -> np.ndarray:
    stream = RequestStream(workload(output_tokens=lengths), seed, 0)
    return np.array([stream.take().output_tokens for _ in range(n)])


# -- common random numbers -----------------------------------------------------------------------------------------
def test_request_i_is_the_same_whoever_asks_and_whatever_was_asked_before() -> None:
    n = 2 * CHUNK + 10
    alone = drawn(RequestStream(workload(), 1, 0), n)
    mixed = RequestStream(workload(), 1, 0)
    first = [mixed.residual() for _ in range(7)]
    taken = [mixed.take() for _ in range(n)]
    assert [r.id for r in taken] == list(range(7, 7 + n))
    got = [facts(r) for r in taken]
    assert got == alone
    assert [r.id for r in first] == list(range(7))


def test_residuals_do_not_depend_on_what_was_taken() -> None:
    one, two = RequestStream(workload(), 1, 0), RequestStream(workload(), 1, 0)
    drawn(two, 50)
    assert [facts(one.residual()) for _ in range(20)] == [facts(two.residual()) for _ in range(20)]


def test_replications_and_seeds_differ() -> None:
    streams = [drawn(RequestStream(workload(), seed, replication), 20) for seed in (1, 2) for replication in (0, 1)]
    assert all(a != b for a, b in itertools.combinations(streams, 2))


def test_a_change_of_one_thing_leaves_the_draws_of_the_others() -> None:
    base = drawn(RequestStream(workload(), 1, 0), 500)
    longer = drawn(RequestStream(workload(output_tokens={**LOGNORMAL, "mean": 80.0}), 1, 0), 500)
    assert [(r[0], r[1], r[3]) for r in base] == [(r[0], r[1], r[3]) for r in longer]
    assert np.corrcoef([r[2] for r in base], [r[2] for r in longer])[0, 1] > 0.99
    classes = {"math": 0.2, "chat": 0.8}
    skewed = drawn(RequestStream(workload(**{f"classes__{k}__share": v for k, v in classes.items()}), 1, 0), 500)
    assert [r[3] for r in base] == [r[3] for r in skewed]
    same = [(a, b) for a, b in zip(base, skewed, strict=True) if a[0] == b[0]]
    assert len(same) > 300
    assert all(a == b for a, b in same)


def test_streams_of_different_purposes_differ() -> None:
    draws = {p: random_stream(1, 0, p).random() for p in ("arrivals", "classes", "lengths", "policy", "bootstrap")}
    assert len(set(draws.values())) == len(draws)
    assert random_stream(1, 0, "policy", 0).random() != random_stream(1, 0, "policy", 1).random()
    assert random_stream(1, 0, "policy", 3).random() == random_stream(1, 0, "policy", 3).random()


def test_a_new_request_has_no_history() -> None:
    request = RequestStream(workload(), 1, 0).take()
    assert np.isnan(request.arrival)
    assert (request.skipped, request.emitted, request.steps, request.admitted) == (0, 0, 0, None)
    assert 0 <= request.text < 2**64


# -- lengths -------------------------------------------------------------------------------------------------------
def test_constant_lengths() -> None:
    assert set(outputs({"kind": "constant", "value": 17}, 50)) == {17}


def test_lognormal_lengths_have_the_stated_mean_and_cv() -> None:
    n = 200_000
    got = outputs({"kind": "lognormal", "mean": 500.0, "cv": 1.0, "min": 1, "max": 100_000}, n)
    assert got.mean() == pytest.approx(500, abs=5 * 500 / np.sqrt(n))
    assert got.std() / got.mean() == pytest.approx(1.0, abs=0.03)
    assert got.dtype.kind == "i"


def test_clipping_puts_the_outside_on_the_ends() -> None:
    spec = {"kind": "lognormal", "mean": 40.0, "cv": 1.0, "min": 20, "max": 60}
    lengths: Any = workload(output_tokens=spec).output_tokens
    got = outputs(spec)
    assert (got.min(), got.max()) == (20, 60)
    assert got.mean() == pytest.approx(lengths.mean_tokens, abs=0.5)
    sigma = np.sqrt(np.log(2))
    from scipy.stats import norm

    z = (np.log(59.5) - np.log(40) + sigma**2 / 2) / sigma
    assert (got == 60).mean() == pytest.approx(norm.sf(z), abs=0.015)


def test_extreme_lognormals_do_not_overflow() -> None:
    spec = {"kind": "lognormal", "mean": 1e7, "cv": 100.0, "min": 1, "max": 10_000_000}
    assert 1 <= outputs(spec, 3000).min() <= outputs(spec, 3000).max() <= 10_000_000
    stream = RequestStream(workload(output_tokens=spec), 1, 0)
    assert all(1 <= stream.residual().output_tokens <= 10_000_000 for _ in range(3000))


def test_empirical_lengths_are_drawn_evenly_from_what_was_observed() -> None:
    got = outputs({"kind": "empirical", "values": [3, 3, 9, 30]})
    values, counts = np.unique(got, return_counts=True)
    assert values.tolist() == [3, 9, 30]
    assert counts / got.size == pytest.approx([0.5, 0.25, 0.25], abs=0.015)


@pytest.mark.parametrize("arrival", [{"kind": "poisson"}, {"kind": "gamma", "cv": 2.0}])
def test_a_stated_number_of_arrivals_takes_an_exact_time(arrival: dict[str, Any]) -> None:
    """The first N gaps keep their proportions; later ones are as they would have been."""
    plain = RequestStream(workload(arrival={**arrival, "rate_per_s": 4.0}), 1, 0).arrivals()
    exact = RequestStream(workload(arrival={**arrival, "rate_per_s": 4.0, "exact_after": 100}), 1, 0).arrivals()
    a, b = (np.array([next(times) for _ in range(150)]) for times in (plain, exact))
    assert b[99] == 25.0
    assert a[99] != pytest.approx(25.0, rel=0.01)
    assert b[:100] / b[99] == pytest.approx(a[:100] / a[99])
    assert np.diff(b[99:]) == pytest.approx(np.diff(a[99:]))


def test_a_list_is_taken_in_its_order() -> None:
    """Request n has length n of the list, whatever its class, and the list begins again; other draws stay theirs."""
    listed = {"kind": "empirical", "values": [3, 5, 7], "order": "listed"}
    got = outputs(listed)
    assert got.tolist() == [(3, 5, 7)[i % 3] for i in range(got.size)]
    assert got.size > 3 * 2048
    classes = {f"classes__{name}__output_tokens": listed for name in ("math", "chat")}
    stream, other = RequestStream(workload(**classes), 1, 0), RequestStream(workload(), 1, 0)
    both = [(stream.take(), other.take()) for _ in range(300)]
    assert [a.output_tokens for a, _ in both] == [3, 5, 7] * 100
    assert [(a.class_index, a.prompt_tokens) for a, _ in both] == [(b.class_index, b.prompt_tokens) for _, b in both]
    assert {a.class_index for a, _ in both} == {0, 1}


def test_classes_come_in_their_shares_with_their_own_lengths() -> None:
    stream = RequestStream(workload(classes__math__share=0.2, classes__chat__share=0.8), 1, 0)
    got = [stream.take() for _ in range(20_000)]
    assert np.mean([r.class_index for r in got]) == pytest.approx(0.8, abs=0.012)
    assert {r.prompt_tokens for r in got if r.class_index == 0} == {16}
    assert {r.prompt_tokens for r in got if r.class_index == 1} == {8, 9}


# -- requests met inside their life --------------------------------------------------------------------------------
def pmf(lengths: Any) -> np.ndarray:
    """(max + 1,) probabilities of each length, by integrating the lognormal over the interval that rounds to it."""
    from scipy.stats import norm

    k = np.arange(lengths.min, lengths.max + 1)
    upper = norm.cdf((np.log(k + 0.5) - lengths.mu) / lengths.sigma)
    upper[-1] = 1.0
    out = np.zeros(lengths.max + 1)
    out[k] = np.diff(upper, prepend=0.0)
    return out


@pytest.mark.parametrize(
    ("mean", "cv", "low", "high"),
    [(12.0, 0.6, 1, 60), (12.0, 1.5, 8, 30), (10.0, 1.0, 10, 200), (30.0, 0.8, 1, 30), (3.0, 0.5, 1, 20)],
)
def test_residual_lengths_are_exactly_length_biased(mean: float, cv: float, low: int, high: int) -> None:
    """Against share · P(o) · (o − 1), with rounding and clipping, by a chi-square over all lengths."""
    from scipy.stats import chisquare

    spec = {"kind": "lognormal", "mean": mean, "cv": cv, "min": low, "max": high}
    load = workload(output_tokens=spec)
    weight = pmf(load.output_tokens) * np.maximum(np.arange(high + 1) - 1, 0)
    expected = weight / weight.sum()
    n = 40_000
    stream = RequestStream(load, 5, 0)
    got = np.bincount([stream.residual().output_tokens for _ in range(n)], minlength=high + 1)
    assert got[expected == 0].sum() == 0
    often = expected * n >= 8
    seen, wanted = np.append(got[often], got[~often].sum()), np.append(expected[often], expected[~often].sum()) * n
    keep = wanted > 0
    assert chisquare(seen[keep], wanted[keep] * seen.sum() / wanted.sum()).pvalue > 1e-4


def test_residuals_favour_the_classes_with_long_answers() -> None:
    """0.9 · (11 − 1) against 0.1 · (91 − 1): as many tokens of either are being decoded at any moment."""
    stream = RequestStream(workload(
        classes__math__share=0.9, classes__math__output_tokens={"kind": "constant", "value": 11},
        classes__chat__share=0.1, classes__chat__output_tokens={"kind": "empirical", "values": [1, 181]},
    ), 1, 0)
    got = [stream.residual() for _ in range(20_000)]
    assert np.mean([r.class_index for r in got]) == pytest.approx(0.5, abs=0.015)
    assert {r.output_tokens for r in got} == {11, 181}  # a one-token answer is never being decoded
    assert {r.prompt_tokens for r in got if r.class_index == 0} == {16}


def test_residuals_have_emitted_any_number_of_tokens_alike() -> None:
    stream = RequestStream(workload(output_tokens={"kind": "constant", "value": 9}), 1, 0)
    skipped = np.bincount([stream.residual().skipped for _ in range(16_000)], minlength=9)
    assert skipped[0] == 0
    assert skipped[1:] / 16_000 == pytest.approx(np.full(8, 1 / 8), abs=0.015)


def test_residuals_are_a_busy_systems_snapshot() -> None:
    """Users who decode one token a second, looked at long after the start, hold what residual() draws."""
    spec = {"kind": "empirical", "values": [2, 5, 50]}
    load = workload(output_tokens=spec)
    seen = []
    for user in range(1500):
        stream = RequestStream(load, 9, user)
        left = 5000
        while left > 0:
            length = stream.take().output_tokens
            left -= length - 1  # the first token costs no step
        seen.append(length)
    stream = RequestStream(load, 9, 0)
    drawn_ = [stream.residual().output_tokens for _ in range(15_000)]
    for value in (2, 5, 50):
        assert np.mean(np.array(seen) == value) == pytest.approx(np.mean(np.array(drawn_) == value), abs=0.03)


def test_one_token_answers_have_no_inside() -> None:
    for lengths in ({"kind": "constant", "value": 1}, {"kind": "empirical", "values": [1, 1]}):
        request = RequestStream(workload(output_tokens=lengths), 1, 0).residual()
        assert (request.output_tokens, request.skipped) == (1, 0)


# -- arrivals ------------------------------------------------------------------------------------------------------
def gaps(arrival: Any, n: int = 50_000) -> np.ndarray:
    times = list(itertools.islice(RequestStream(workload(arrival=arrival), 1, 0).arrivals(), n))
    assert times == sorted(times)
    return np.diff(times, prepend=0.0)


def test_poisson_arrivals() -> None:
    got = gaps({"kind": "poisson", "rate_per_s": 4.0})
    assert got.mean() == pytest.approx(0.25, rel=0.02)
    assert got.std() / got.mean() == pytest.approx(1.0, abs=0.02)
    assert np.corrcoef(got[1:], got[:-1])[0, 1] == pytest.approx(0, abs=0.02)


@pytest.mark.parametrize("cv", [0.25, 1.0, 2.0, 4.0])
def test_gamma_arrivals_have_rate_and_cv(cv: float) -> None:
    got = gaps({"kind": "gamma", "rate_per_s": 10.0, "cv": cv}, 200_000)
    assert got.mean() == pytest.approx(0.1, rel=0.05)
    assert got.std() / got.mean() == pytest.approx(cv, rel=0.06)


def test_a_gamma_of_cv_1_is_poisson() -> None:
    assert np.array_equal(
        gaps({"kind": "gamma", "rate_per_s": 4.0, "cv": 1.0}, 100), gaps({"kind": "poisson", "rate_per_s": 4.0}, 100)
    )


def test_a_closed_loop_has_no_arrival_times() -> None:
    with pytest.raises(ValueError, match="closed loop"):
        RequestStream(workload(), 1, 0).arrivals()


def test_turns_of_sessions_take_no_list_in_its_order() -> None:
    talks = {"kind": "sessions", "rate_per_s": 2.0, "turns": {"kind": "constant", "value": 2},
             "think_time_s": {"mean": 0.5}, "max_context": 9000}
    listed = {"kind": "empirical", "values": [3, 5], "order": "listed"}
    with pytest.raises(ScenarioError, match="has no effect on sessions"):
        workload(arrival=talks, classes__math__prompt_tokens=listed, classes__chat__prompt_tokens=listed)
