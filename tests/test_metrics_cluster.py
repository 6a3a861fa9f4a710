"""What clusters add to the figures: GPUs that come and go, requests that never were served."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dspark_sim.metrics import measure
from dspark_sim.notes import arm_warnings
from dspark_sim.scenario import load_scenario
from dspark_sim.stats import Figure
from tests.synthetic_run import interval, request, run, scenario, setup


def test_a_gpu_that_is_given_back_costs_nothing_and_one_that_is_down_does() -> None:
    """Two engines of 4 GPUs, one of them paid for half of the second and up for a tenth of it: 6 GPUs, so 60 tokens are
    10 per second and GPU."""
    tables = run([interval(0.0, emitted=40.0), interval(0.0, engine=1, up_s=0.1, paid_s=0.5, emitted=20.0)], [])
    figures = measure(tables, scenario(), setup(gpus=4))
    assert figures["gpus_mean"] == pytest.approx(6.0)
    assert figures["throughput_tok_s_gpu"] == pytest.approx(10.0)


def test_idle_is_time_in_service_without_a_step() -> None:
    tables = run([interval(0.0, verify_s=0.6), interval(0.0, engine=1, up_s=0.2, verify_s=0.0)], [])
    assert measure(tables, scenario(), setup())["time_idle_share"] == pytest.approx(0.5)


def test_refused_and_impatient_requests_break_their_promise() -> None:
    """Ten tokens in 0.1 s meet 50 tokens per second; two of four are never served: half of the promises are kept."""
    rows = [
        request(0.1), request(0.1), request(None, outcome="refused", arrival=0.5),
        request(None, outcome="timed_out", arrival=0.6), request(None, arrival=0.7, first_token=None),
    ]
    figures = measure(run([interval(0.0, emitted=20.0)], rows), scenario(c={"tps_user_min": 50.0}), setup())
    assert (figures["refused"], figures["timed_out"]) == (1.0, 1.0)
    result: Any = SimpleNamespace(error=None, arm="a", figures={"throughput_tok_s_gpu": Figure(1.0)})
    said = arm_warnings(load_scenario("quickstart"), result, [figures])
    assert any(w.startswith("a: 2 of 4 requests (50 %) were refused or gave up waiting; ") for w in said)
    assert figures["sla_attainment"] == pytest.approx(0.5)
    assert figures["requests"] == 2.0


def test_losses_before_the_window_are_not_counted() -> None:
    rows = [request(1.5), request(None, outcome="refused", arrival=0.5)]
    figures = measure(run([interval(1.0, emitted=20.0)], rows, (1.0, 2.0)), scenario(c={"tps_user_min": 1.0}), setup())
    assert figures["refused"] == 0.0
    assert figures["sla_attainment"] == 1.0


def test_prefix_hits_are_a_share_of_what_was_looked_up() -> None:
    """Prompts of 10 tokens, 8 of them cached: one request is admitted three times and finds them each time."""
    rows = [request(0.1, cached_tokens=24, preemptions=1, requeued=1), request(0.2)]
    figures = measure(run([interval(0.0, emitted=20.0)], rows), scenario(), setup())
    assert figures["prefix_hit_share"] == pytest.approx(24 / 40)


def test_many_overdue_requests_are_said() -> None:
    rows = [request(0.1), *(request(None, first_token=None, arrival=0.1) for _ in range(3))]
    figures = measure(run([interval(0.0, emitted=20.0)], rows), scenario(c={"ttft_ms_max": 500.0}), setup())
    result: Any = SimpleNamespace(error=None, arm="a", figures={"throughput_tok_s_gpu": Figure(1.0)})
    said = arm_warnings(load_scenario("quickstart"), result, [figures])
    assert any(w.startswith("a: 3 more requests were still unfinished at the end and already beyond") for w in said)
    assert figures["sla_attainment"] == pytest.approx(1 / 4)
