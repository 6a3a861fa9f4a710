"""Figures of hand-made tables, by arithmetic. Every number on the right is worked out in the line or the docstring."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from dspark_sim import userview
from dspark_sim.metrics import gap_percentile, measure, measure_classes
from tests.synthetic_run import gap_bin, interval, request, run, scenario, setup

BUSY = {"steps": 10, "busy_s": 0.8, "draft_s": 0.1, "schedule_s": 0.05, "verify_s": 0.6, "other_s": 0.05,
        "request_steps": 40, "request_seconds": 3.2, "drafted": 200, "verified": 120, "accepted": 60, "emitted": 96,
        "batch_tokens": 160, "padded_tokens": 200, "waiting_seconds": 0.5}


def test_engine_figures() -> None:
    """4 requests over 10 steps: 96 tokens in 1 s on 2 GPUs; 40 request-steps with 120 verified, 60 accepted."""
    got = measure(run([interval(0.0, **BUSY)], [request(0.5)]), scenario(), setup(gpus=2))
    assert got["throughput_tok_s_gpu"] == pytest.approx(96 / 2)
    assert got["tps_user_concurrent"] == pytest.approx(96 / 3.2)
    assert got["acceptance_length"] == pytest.approx(1 + 60 / 40)
    assert got["verification_budget"] == pytest.approx(1 + 120 / 40)
    assert got["acceptance_rate"] == pytest.approx(60 / 120)
    assert got["accepted_per_drafted"] == pytest.approx(60 / 200)
    assert got["wasted_share"] == pytest.approx(60 / 120)
    assert got["step_ms_mean"] == pytest.approx(80.0)
    assert got["batch_tokens_mean"] == pytest.approx(16)
    assert got["padded_tokens_mean"] == pytest.approx(20)
    assert got["requests_decoding_mean"] == pytest.approx(3.2)
    assert got["requests_waiting_mean"] == pytest.approx(0.5)
    assert got["utilisation"] == pytest.approx(0.8)
    shares = [got[f"time_{part}_share"] for part in ("draft", "schedule", "verify", "other", "idle")]
    assert shares == pytest.approx([0.1, 0.05, 0.6, 0.05, 0.2])


def test_two_engines_count_as_twice_the_gpus() -> None:
    rows = [interval(0.0, engine=0, **BUSY), interval(0.0, engine=1, **BUSY)]
    got = measure(run(rows, []), scenario(), setup(gpus=2))
    assert got["throughput_tok_s_gpu"] == pytest.approx(2 * 96 / 4)
    assert got["utilisation"] == pytest.approx(0.8)


def test_only_the_window_counts() -> None:
    """Intervals from the warm-up's end on; requests that finished after it, up to and including the end."""
    rows = [interval(t, emitted=n, steps=1) for t, n in ((0.0, 1000), (1.0, 10), (2.0, 30))]
    done = [request(0.5), request(1.0), request(1.5), request(3.0), request(None)]
    got = measure(run(rows, done, (1.0, 3.0)), scenario(), setup())
    assert got["throughput_tok_s_gpu"] == pytest.approx(20)
    assert got["steps"] == 2
    assert got["requests"] == 2
    assert got["tok_s_first_half"] == pytest.approx(10)
    assert got["tok_s_second_half"] == pytest.approx(30)


def test_speed_of_a_request() -> None:
    """11 tokens, first at 1 s, last at 3 s: 10 tokens after the first in 2 s; TPOT is the inverse."""
    got = measure(run([interval(0.0)], [request(3.0, arrival=0.25, first_token=1.0)], (0.0, 4.0)), scenario(), setup())
    assert got["tps_user_mean"] == pytest.approx(5.0)
    assert got["tpot_ms_p50"] == pytest.approx(200.0)
    assert got["ttft_ms_p50"] == pytest.approx(750.0)
    assert got["e2e_ms_p50"] == pytest.approx(2750.0)


def test_percentiles_are_linear_over_requests() -> None:
    done = [request(float(t), output_tokens=11, first_token=0.0) for t in (1, 2, 3, 4, 5)]
    got = measure(run([interval(0.0)], done, (0.0, 5.0)), scenario(), setup())
    tps = np.array([10.0, 5.0, 10 / 3, 2.5, 2.0])
    assert got["tps_user_mean"] == pytest.approx(tps.mean())
    assert got["tps_user_p50"] == pytest.approx(10 / 3)
    assert got["tps_user_p5"] == pytest.approx(2.0 + 0.2 * 0.5)  # a fifth of the way from the last to the next
    assert got["tpot_ms_p99"] == pytest.approx(400 + 0.96 * 100)


def test_one_token_outputs_have_no_tpot() -> None:
    done = [request(0.5, output_tokens=1, first_token=0.5), request(1.0, output_tokens=3)]
    got = measure(run([interval(0.0)], done), scenario(), setup())
    assert got["requests"] == 2
    assert got["tps_user_mean"] == pytest.approx(2.0)
    alone = measure(run([interval(0.0)], done[:1]), scenario(), setup())
    assert alone["tps_user_mean"] is None
    assert alone["tpot_ms_p99"] is None


def test_requests_begun_before_time_zero() -> None:
    """100 of 110 tokens were out: 10 in 2 s. Its arrival is unknown: no TTFT, no E2E."""
    done = [request(2.0, output_tokens=110, skipped=100)]
    got = measure(run([interval(0.0)], done, (0.0, 2.0)), scenario(c={"ttft_ms_max": 1.0}), setup())
    assert got["tps_user_mean"] == pytest.approx(5.0)
    assert got["ttft_ms_p50"] is None
    assert got["e2e_ms_p99"] is None
    assert got["sla_attainment"] is None  # an SLA on TTFT cannot be judged
    assert got["begun_before_start_share"] == 1.0
    judged = measure(run([interval(0.0)], done, (0.0, 2.0)), scenario(c={"tps_user_min": 4.0}), setup())
    assert judged["sla_attainment"] == 1.0


@pytest.mark.parametrize(("key", "keeps", "breaks"), [
    ("tps_user_min", 5.0, 5.1), ("tpot_ms_max", 200.0, 199.0), ("ttft_ms_max", 1000.0, 999.0), ("e2e_s_max", 3.0, 2.9),
])
def test_each_limit_of_an_sla(key: str, keeps: float, breaks: float) -> None:
    """TPS 5, TPOT 200 ms, TTFT 1 s, E2E 3 s; a limit that is just kept is kept."""
    made = run([interval(0.0, emitted=50)], [request(3.0, arrival=0.0, first_token=1.0)], (0.0, 4.0))
    assert measure(made, scenario(c={key: keeps}), setup())["sla_attainment"] == 1.0
    assert measure(made, scenario(c={key: breaks}), setup())["sla_attainment"] == 0.0
    assert measure(made, scenario(c={key: breaks}), setup())["goodput_tok_s_gpu"] == 0.0


def test_goodput_is_throughput_by_tokens_of_requests_that_kept_their_sla() -> None:
    """30 of 40 tokens belong to requests that met their SLA (the class without one breaks nothing)."""
    done = [
        request(1.0, **{"class": "fast"}, output_tokens=11, first_token=0.0),  # 10 tokens/s
        request(1.0, **{"class": "fast"}, output_tokens=10, first_token=0.1),  # 10 tokens/s
        request(2.0, **{"class": "fast"}, output_tokens=10, first_token=0.0),  # 4.5 tokens/s
        request(2.0, **{"class": "free"}, output_tokens=9, first_token=0.0),
    ]
    made = run([interval(0.0, emitted=80)], done, (0.0, 2.0))
    both = scenario(fast={"tps_user_min": 9.0}, free=None)
    got = measure(made, both, setup())
    assert got["sla_attainment"] == pytest.approx(2 / 3)
    assert got["goodput_tok_s_gpu"] == pytest.approx(40 * 30 / 40)
    groups = measure_classes(made, both, setup())
    assert groups["fast"]["sla_attainment"] == pytest.approx(2 / 3)
    assert groups["fast"]["throughput_tok_s_gpu"] == pytest.approx(40 * 31 / 40)
    assert groups["fast"]["goodput_tok_s_gpu"] == pytest.approx(40 * 21 / 40)
    assert groups["free"]["sla_attainment"] is None
    assert groups["free"]["goodput_tok_s_gpu"] is None
    assert groups["free"]["tps_user_mean"] == pytest.approx(4.0)


def test_a_thousand_classes_cost_no_more_reading_than_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """100 classes of 3 requests, in any order, one class without any: every row is read as often as with one class."""
    names = [f"c{i}" for i in range(100)]
    done = [request(0.5 + j / 10, **{"class": name}, output_tokens=10 + i) for j in range(3)
            for i, name in enumerate(names[:-1])]
    read: list[int] = []
    real = userview.pieces
    monkeypatch.setattr(userview, "pieces", lambda table: (read.append(table.num_rows), real(table))[1])
    made = run([interval(0.0, emitted=80)], done, (0.0, 2.0))
    groups = measure_classes(made, scenario(**dict.fromkeys(names)), setup())
    assert sum(read) <= 5 * len(done)
    assert [groups[name]["requests"] for name in names] == [3.0] * 99 + [0.0]
    assert groups["c7"]["tps_user_p50"] == pytest.approx(16 / 0.6)
    assert groups["c99"]["tps_user_p50"] is None
    total = sum(3 * (10 + i) for i in range(99))
    assert groups["c7"]["throughput_tok_s_gpu"] == pytest.approx(40 * 3 * 17 / total)


def test_pieces_of_a_table_give_the_same_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures do not depend on where the table is cut."""
    done = [request(0.1 + 0.07 * i, **{"class": "ab"[i % 2]}, first_token=0.01 * i, output_tokens=5 + i % 7,
                    skipped=int(i % 5 == 4)) for i in range(40)] + [request(None, **{"class": "a"})]
    made, classes = run([interval(0.0, emitted=80)], done, (0.2, 2.0)), {"a": {"ttft_ms_max": 150.0}, "b": None}
    whole = measure(made, scenario(**classes), setup()), measure_classes(made, scenario(**classes), setup())
    real = userview.pieces
    monkeypatch.setattr(userview, "pieces", lambda table: real(table, 3))
    assert (measure(made, scenario(**classes), setup()), measure_classes(made, scenario(**classes), setup())) == whole


@pytest.mark.parametrize(("sla", "fields", "late"), [
    ({"ttft_ms_max": 500.0}, {"first_token": None, "arrival": 1.4}, True),  # 0.6 s and no token yet
    ({"ttft_ms_max": 700.0}, {"first_token": None, "arrival": 1.4}, False),
    ({"ttft_ms_max": 500.0}, {"first_token": 1.9, "arrival": 1.0}, False),  # late, and counted when it finishes
    ({"e2e_s_max": 0.5}, {"first_token": 1.9, "arrival": 1.4}, True),
    ({"tpot_ms_max": 50.0}, {"first_token": 1.4, "output_tokens": 14}, False),  # 0.6 s for 13 tokens
    ({"tpot_ms_max": 50.0}, {"first_token": 1.4, "output_tokens": 12}, True),
    ({"tps_user_min": 20.0}, {"first_token": 1.4, "output_tokens": 12}, True),
    ({"ttft_ms_max": 500.0}, {"first_token": None, "arrival": 0.0, "skipped": 3}, False),  # its arrival is not known
])
def test_who_is_unfinished_and_surely_late_missed_the_sla(
    sla: dict[str, float], fields: dict[str, Any], late: bool
) -> None:
    """One request finished well before the window's end at 2 s; another one is still here."""
    done = [request(1.0, arrival=0.9, first_token=0.95, output_tokens=3), request(None, **fields)]
    got = measure(run([interval(0.0, emitted=50)], done, (0.0, 2.0)), scenario(c=sla), setup())
    assert got["overdue"] == float(late)
    assert got["sla_attainment"] == (0.5 if late else 1.0)
    assert got["goodput_tok_s_gpu"] == 25.0  # throughput counts tokens; those of finished requests are judged


def test_no_sla_no_goodput() -> None:
    got = measure(run([interval(0.0, emitted=80)], [request(0.5)]), scenario(), setup())
    assert got["sla_attainment"] is None
    assert got["goodput_tok_s_gpu"] is None


def test_step_gaps_come_from_the_histogram() -> None:
    """98 gaps of 10 ms, 2 of 100 ms, told in two intervals: p50 10 ms, p99 100 ms, each within half a per cent."""
    short, long = gap_bin(0.010), gap_bin(0.100)
    rows = [interval(0.0, gaps={short: 58, long: 1}), interval(1.0, gaps={short: 40, long: 1})]
    got = measure(run(rows, [], (0.0, 2.0)), scenario(), setup())
    assert got["step_gap_ms_p50"] == pytest.approx(10, rel=0.006)
    assert got["step_gap_ms_p99"] == pytest.approx(100, rel=0.006)
    assert got["step_gap_ms_mean"] == pytest.approx(0.98 * 10 + 0.02 * 100, rel=0.006)


def test_gap_percentile_is_the_nearest_rank() -> None:
    bins, counts = np.array([0, 100, 200]), np.array([50, 49, 1])
    for share, b in ((0.01, 0), (0.5, 0), (0.501, 100), (0.99, 100), (1.0, 200)):
        assert gap_percentile(bins, counts, share) == pytest.approx(math.exp((b + 0.5) / 100)), share
    assert gap_percentile(np.array([], dtype=int), np.array([], dtype=int), 0.5) is None


def test_whole_run_counts_output_tokens_from_first_arrival_to_last_finish() -> None:
    done = [request(5.0, arrival=1.0, output_tokens=30), request(9.0, arrival=2.0, output_tokens=50)]
    made = run([interval(0.0, emitted=78), interval(1.0)], done, (0.0, 20.0))
    got = measure(made, scenario("whole_run"), setup(gpus=2))
    assert got["window_s"] == pytest.approx(8.0)
    assert got["throughput_tok_s_gpu"] == pytest.approx(80 / 8 / 2)
    assert "tok_s_first_half" not in got


def test_undefined_is_none_and_never_nan() -> None:
    got = measure(run([interval(0.0)], []), scenario(), setup(drafter=None))
    assert got["throughput_tok_s_gpu"] == 0.0
    for name in ("tps_user_mean", "acceptance_rate", "accepted_per_drafted", "wasted_share", "step_gap_ms_p99",
                 "acceptance_length", "verification_budget", "step_ms_mean", "ttft_ms_p50"):
        assert got[name] is None, name
    json.dumps(got, allow_nan=False)


def test_no_speculation_has_acceptance_length_one() -> None:
    got = measure(run([interval(0.0, request_steps=10, emitted=10)], []), scenario(), setup(drafter=None))
    assert got["acceptance_length"] == 1.0
    assert got["verification_budget"] == 1.0
    assert got["acceptance_rate"] is None
    assert got["drafts"] == 0.0
