"""Synthetic traffic against closed forms: rates that change with time, and sessions whose turns wait for answers."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dspark_sim.rates import ConstantRate, DiurnalRate, PiecewiseRate, RateCurve, arrival_times
from dspark_sim.scenario_schema import Workload
from dspark_sim.sessions import SessionStream
from dspark_sim.workload import RequestStream
from tests.test_slow_engine import compare_arm
from tests.worlds import World

CURVES: dict[str, RateCurve] = {
    "constant": ConstantRate(3.0),
    "steps": PiecewiseRate(((0.0, 2.0), (10.0, 8.0), (20.0, 0.0), (30.0, 1.0)), linear=False),
    "late": PiecewiseRate(((0.0, 0.0), (5.0, 4.0)), linear=False),
    "lines": PiecewiseRate(((0.0, 0.0), (10.0, 6.0), (20.0, 0.0), (25.0, 0.0), (40.0, 3.0)), linear=True),
    "waves": DiurnalRate(5.0, 0.7, 20.0, 3.0),
    "full waves": DiurnalRate(5.0, 1.0, 20.0, -7.0),
}


def rate_at(name: str, t: float) -> float:
    """The rate written down again, as a person would."""
    if name == "constant":
        return 3.0
    if name == "steps":
        return 2.0 if t < 10 else 8.0 if t < 20 else 0.0 if t < 30 else 1.0
    if name == "late":
        return 0.0 if t < 5 else 4.0
    if name == "lines":
        return float(np.interp(t, [0, 10, 20, 25, 40], [0, 6, 0, 0, 3]))
    mean, amplitude, period, phase = (5.0, 0.7, 20.0, 3.0) if name == "waves" else (5.0, 1.0, 20.0, -7.0)
    return mean * (1 + amplitude * math.sin(2 * math.pi * (t + phase) / period))


@pytest.mark.parametrize("name", CURVES)
def test_the_cumulative_rate_is_the_integral_of_the_rate(name: str) -> None:
    step = 0.001
    middles = np.arange(0, 60, step) + step / 2
    sums = np.cumsum([rate_at(name, float(t)) for t in middles]) * step
    at = np.arange(1, 61) * 1.0
    assert CURVES[name].cumulative(at) == pytest.approx(sums[(at / step).astype(int) - 1], abs=0.02)


@pytest.mark.parametrize("name", CURVES)
def test_the_inverse_is_the_first_time_at_which_the_count_is_reached(name: str) -> None:
    curve, counts = CURVES[name], np.linspace(0.01, 90, 1777)
    times = curve.inverse(counts)
    assert np.all(np.diff(times) > 0)
    assert curve.cumulative(times) == pytest.approx(counts, abs=1e-9)


def test_nothing_arrives_while_the_rate_is_zero() -> None:
    times = np.array(list(itertools.islice(arrival_times(CURVES["steps"], 1.0, np.random.default_rng(0), 64), 2000)))
    assert not np.any((times > 20) & (times < 30))
    assert np.count_nonzero(times < 20) == pytest.approx(100, abs=40)


@pytest.mark.parametrize("cv", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("name", ["steps", "lines", "waves"])
def test_counts_per_window_are_those_of_the_closed_form(name: str, cv: float) -> None:
    """Mean over runs of N(0, t) is Λ(t) + (cv² − 1) / 2 once a few have arrived; its variance about cv² Λ(t)."""
    curve, runs = CURVES[name], 600
    edges = np.array([10.0, 20.0, 40.0, 60.0])
    expected = curve.cumulative(edges)
    counts = np.zeros((runs, edges.size))
    for i in range(runs):
        times = np.array(list(itertools.takewhile(
            lambda t: t <= 60.0, arrival_times(curve, cv, np.random.default_rng([7, i]), 512))))
        counts[i] = np.searchsorted(times, edges, side="right")
    error = 5 * cv * np.sqrt(expected / runs) + 0.05
    assert np.all(np.abs(counts.mean(axis=0) - expected - (cv**2 - 1) / 2) < error), counts.mean(axis=0) - expected
    assert counts[:, -1].var() == pytest.approx(cv**2 * expected[-1], rel=0.3)


@pytest.mark.parametrize("cv", [0.4, 1.0, 3.0])
def test_gaps_have_the_cv_in_the_time_of_the_rate(cv: float) -> None:
    curve = CURVES["waves"]
    times = np.array(list(itertools.islice(arrival_times(curve, cv, np.random.default_rng(5), 1024), 100_000)))
    gaps = np.diff(curve.cumulative(times))
    assert gaps.mean() == pytest.approx(1.0, abs=0.04)
    assert gaps.std() == pytest.approx(cv, rel=0.04)
    assert np.corrcoef(gaps[1:], gaps[:-1])[0, 1] == pytest.approx(0, abs=0.02)


def workload(arrival: dict[str, Any], **more: Any) -> Workload:
    lengths = {"kind": "lognormal", "mean": 30, "cv": 0.8, "min": 2, "max": 90}
    return Workload.model_validate({
        "arrival": arrival, "classes": [
            {"name": "a", "share": 0.5, "prompt_tokens": lengths, "output_tokens": lengths} | more,
            {"name": "b", "share": 0.5, "prompt_tokens": {"kind": "constant", "value": 700},
             "output_tokens": {"kind": "constant", "value": 100}},
        ]})


def test_the_lengths_of_requests_do_not_depend_on_when_they_arrive() -> None:
    pieces = {"kind": "piecewise", "rates": [[0, 1], [5, 9]]}
    waves = {"kind": "diurnal", "mean_rate_per_s": 3, "amplitude": 0.5}
    a, b = (RequestStream(workload(arrival), 1, 0) for arrival in (pieces, waves))
    for _ in range(100):
        one, other = a.take(), b.take()
        for name in ("class_index", "prompt_tokens", "output_tokens", "text"):
            assert getattr(one, name) == getattr(other, name)


# -- sessions ------------------------------------------------------------------------------------------------------
TALKS = {"kind": "sessions", "rate_per_s": 2.0, "turns": {"kind": "lognormal", "mean": 5, "cv": 0.6, "max": 12},
         "think_time_s": {"mean": 0.5}, "shared_tokens": 1100, "max_context": 100_000}


def test_a_turn_says_everything_that_was_said_before() -> None:
    stream = SessionStream(workload(TALKS), 1, 0)
    sessions = [stream.take() for _ in range(200)]
    ids = [request.id for s in sessions for request in (s.request(k) for k in range(len(s.turns)))]
    assert ids == list(range(len(ids)))
    assert np.mean([len(s.turns) for s in sessions]) == pytest.approx(5, abs=0.7)
    for s in sessions:
        requests = [s.request(k) for k in range(len(s.turns))]
        said = 1100
        for request in requests:
            assert request.session == s.number
            assert request.class_index == s.class_index
            new = request.prompt_tokens - said
            assert new == 700 if s.class_index == 1 else 2 <= new <= 90
            assert len(request.prefix) == (request.prompt_tokens + request.output_tokens) // 512  # the answer too
            said = request.prompt_tokens + request.output_tokens
        for before, after in itertools.pairwise(requests):
            assert after.prefix[: len(before.prefix)] == before.prefix  # a cache that kept the first finds it


def test_sessions_share_the_system_prompt_of_their_class_and_nothing_else() -> None:
    stream = SessionStream(workload(TALKS), 1, 0)
    sessions = [stream.take() for _ in range(60)]
    last = [(s.class_index, s.request(len(s.turns) - 1).prefix) for s in sessions]
    for (a, one), (b, other) in itertools.combinations(last, 2):
        assert set(one) & set(other) == (set(one[:2]) if a == b else set())


def test_what_turn_k_is_depends_on_nothing_else() -> None:
    """More turns, other rates, other pauses, another context limit: the sizes of turn k of session s stay."""
    base = SessionStream(workload(TALKS), 1, 0)
    wanted = [base.take() for _ in range(50)]
    for change in ({"rate_per_s": 9.0}, {"think_time_s": {"mean": 3.0, "cv": 0.0}}, {"max_context": 3000},
                   {"turns": {"kind": "constant", "value": 4}}, {"turns": {"kind": "constant", "value": 40}}):
        other = SessionStream(workload(TALKS | change), 1, 0)
        for session in wanted:
            got = other.take()
            assert got.class_index == session.class_index
            for one, same in zip(session.turns, got.turns, strict=False):
                assert (one.prompt, one.output, one.text) == (same.prompt, same.output, same.text)


def test_a_session_ends_before_its_context_is_too_long() -> None:
    stream = SessionStream(workload(TALKS | {"max_context": 4000}), 1, 0)
    sessions = [stream.take() for _ in range(300)]
    assert sum(s.cut for s in sessions) > 100
    assert all(turn.prompt + turn.output <= 4000 for s in sessions for turn in s.turns)
    assert all(s.turns for s in sessions)


def talking(**changes: Any) -> dict[str, Any]:
    arrival = {"kind": "sessions", "rate_per_s": 3.0, "turns": {"kind": "constant", "value": 4},
               "think_time_s": {"mean": 0.3}, "max_context": 900} | changes
    return {"workload.arrival": arrival, "measure": {"mode": "whole_run", "requests": 90}, "engine.prefill": "chunked",
            "arms": [{"name": "spec", "drafter": "par", "policy": {"name": "fixed", "length": 4}},
                     {"name": "plain", "policy": "no_spec"}]}


@pytest.mark.parametrize("pause", [{"mean": 0.3}, {"mean": 0.25, "cv": 0.0}, {"mean": 0.0}])
def test_a_turn_comes_a_think_time_after_the_answer_before_it(tmp_path: Path, pause: dict[str, float]) -> None:
    world = World(tmp_path)
    scenario = world.scenario(talking(think_time_s=pause))
    tables = [run.requests.to_pylist() for run in world.runs(talking(think_time_s=pause))]
    stream = SessionStream(scenario.workload, scenario.seed, 0)
    begins = list(itertools.islice(stream.arrivals(), 23))
    sessions = [stream.take() for _ in range(23)]
    for rows in tables:
        of = {row["id"]: row for row in rows}
        assert sorted(of) == list(range(90))  # the same ones in every arm, each once
        for session, begin in zip(sessions, begins, strict=True):
            for k, turn in enumerate(session.turns):
                row = of.get(session.first_id + k)
                if row is None:
                    assert session.first_id + k >= 90
                    continue
                assert (row["prompt_tokens"], row["output_tokens"]) == (turn.prompt, turn.output)
                assert row["outcome"] == "finished"
                due = begin if k == 0 else of[session.first_id + k - 1]["finished"] + turn.think
                assert row["arrival"] == pytest.approx(due, abs=1e-9)
    pauses = [turn.think for session in sessions for turn in session.turns]
    assert np.mean(pauses) == pytest.approx(pause["mean"], rel=0.35)


def test_what_a_session_said_is_found_in_the_prefix_cache(tmp_path: Path) -> None:
    plan = {"kind": "sessions", "rate_per_s": 1.0, "turns": {"kind": "constant", "value": 5},
            "think_time_s": {"mean": 0.1}, "shared_tokens": 2000, "max_context": 100_000}
    changes = talking() | {"workload.arrival": plan, "measure.requests": 25}
    world = World(tmp_path)
    cached = sum(run.intervals["prefill_tokens"].to_numpy().sum() for run in world.runs(changes))
    fresh = sum(run.intervals["prefill_tokens"].to_numpy().sum()
                for run in world.runs(changes | {"engine.prefix_cache": False}))
    assert cached < 0.6 * fresh


# -- against the slow engine ---------------------------------------------------------------------------------------
def compare(world: World, changes: dict[str, Any]) -> None:
    scenario, arms = world.arms(changes)
    for arm in arms:
        compare_arm(arm, scenario, 0)


@pytest.mark.parametrize("arrival", [
    {"kind": "piecewise", "rates": [[0, 4.0], [1, 12.0], [2, 1.0]], "cv": 1.7},
    {"kind": "diurnal", "mean_rate_per_s": 8.0, "amplitude": 1.0, "period_s": 1.5, "cv": 0.5},
])
def test_the_slow_engine_agrees_on_rates_that_change(tmp_path: Path, arrival: dict[str, Any]) -> None:
    compare(World(tmp_path), {"workload.arrival": arrival, "engine.prefill": "chunked"})


@pytest.mark.parametrize("more", [{}, {"rate_scale": 1.7, "window": [1.0, 9.0]}, {"thin": {"keep": 0.7}}])
def test_the_slow_engine_agrees_on_a_replayed_log(tmp_path: Path, more: dict[str, Any]) -> None:
    rng = np.random.default_rng(4)
    rows = [f"{t:.3f},{rng.integers(4, 60)},{rng.integers(1, 50)}" for t in np.cumsum(rng.exponential(0.3, 40))]
    (tmp_path / "log.csv").write_text("\n".join(["arrival_s,prompt_tokens,output_tokens", *rows]))
    compare(World(tmp_path), {
        "workload.arrival": {"kind": "replay", "file": "log.csv", **more}, "workload.prompt_tokens": None,
        "workload.output_tokens": None, "measure.requests": "all", "engine.prefill": "chunked"})
