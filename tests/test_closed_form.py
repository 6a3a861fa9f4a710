"""Cases whose answer can be written down: the paper is in the docstring, the engine must find the same number."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.worlds import World, make_trace

FLAT = {"points": [[1, 0.01], [4096, 0.01]]}
NO_SPEC = [{"name": "plain", "policy": "no_spec"}]
ONE_CLASS = [{"name": "all", "share": 1.0, "domain": "math"}]


def column(table: Any, name: str) -> np.ndarray:
    return np.asarray(table.column(name).to_pylist(), dtype=np.float64)


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_one_server_is_an_m_d_1_queue(load: float, tmp_path: Path) -> None:
    """Poisson arrivals, one request at a time, a constant service time s: Pollaczek and Khinchine's mean wait.

    ``max_num_seqs: 1`` and outputs of 3 tokens, whose first exists at admission: s = 2 steps of 10 ms = 20 ms.
    With load ρ = λ s the mean time between arrival and admission is W = ρ s / (2 (1 − ρ)): at ρ = 0.3, 0.6, 0.8
    W = 4.286, 15, 40 ms. Waits of one replication are correlated, its mean is one draw: 12 replications of 4,000
    requests give a standard error, and W must lie within 4 of them (which are themselves small against W).
    """
    s = 0.02
    world = World(tmp_path, {"verify": FLAT})
    changes = {"workload.arrival": {"kind": "poisson", "rate_per_s": load / s}, "engine.max_num_seqs": 1,
               "workload.output_tokens": {"kind": "constant", "value": 3}, "arms": NO_SPEC, "record": "requests",
               "measure": {"mode": "whole_run", "requests": 4000}, "interval_s": 100.0, "replications": 12}
    means = []
    for replication in range(12):
        (run,) = world.runs(changes, replication)
        wait = column(run.requests, "admitted") - column(run.requests, "arrival")
        assert np.allclose(column(run.requests, "finished") - column(run.requests, "admitted"), s)
        assert wait.min() >= 0
        means.append(wait[400:].mean())
    error = np.std(means, ddof=1) / math.sqrt(len(means))
    expected = load * s / (2 * (1 - load))
    assert error < 0.06 * expected
    assert abs(np.mean(means) - expected) < 4 * error


@pytest.mark.parametrize(("a", "length", "block"), [(0.8, 5, 5), (0.5, 5, 5), (0.9, 3, 6), (0.8, 1, 5)])
def test_constant_acceptance_gives_the_geometric_length(a: float, length: int, block: int, tmp_path: Path) -> None:
    """Each draft token is kept with probability a, independently: τ = 1 + a + … + a^ℓ = (1 − a^(ℓ+1)) / (1 − a).

    At a = 0.8, ℓ = 5: 3.68928. ℓ is what is verified, so a block of 6 of which 3 are verified has ℓ = 3. The number
    accepted per step has a variance below (ℓ/2)², steps are independent (each reads a row of its own), and the mean
    over n steps must lie within 4.5 σ / √n.
    """
    trace = make_trace("par", block, acceptance=a, lengths=[40_000] * 4, domains=("math",), probability=False)
    world = World(tmp_path, traces=[trace])
    (run,) = world.runs({
        "arms": [{"name": "x", "drafter": "par", "policy": {"name": "fixed", "length": length}}],
        "workload.classes": ONE_CLASS, "workload.output_tokens": {"kind": "constant", "value": 3000},
        "workload.documents": "all", "measure": {"mode": "whole_run", "requests": 12},
    })
    accepted, requests = (column(run.requests, name) for name in ("accepted", "steps"))
    steps = requests.sum()
    tau = 1 + accepted.sum() / steps
    assert abs(tau - (1 - a ** (length + 1)) / (1 - a)) < 4.5 * (length / 2) / math.sqrt(steps)
    assert column(run.requests, "verified").sum() == length * steps


@pytest.mark.parametrize("kept", [0, 2, 4])
def test_a_drafter_that_always_keeps_k_tokens(kept: int, tmp_path: Path) -> None:
    """Accepted is k in every row and all are verified: a request of n tokens needs ⌈(n − 1) / (1 + k)⌉ steps.

    One user, n = 50, G = 4: 49, 17, 10 steps of (10 + 1.1) ms each, and the last one emits what is left. The tables
    say k per step, also in the step that is cut: accepted counts before the cut.
    """
    trace = make_trace("par", 4, acceptance=0.5)
    fixed = type(trace)(**{**{f: getattr(trace, f) for f in trace.__dataclass_fields__},
                           "accepted": np.full(trace.positions, kept, dtype=np.uint8)})
    world = World(tmp_path, {"verify": FLAT}, traces=[fixed])
    (run,) = world.runs({
        "arms": [{"name": "x", "drafter": "par", "policy": {"name": "fixed", "length": 4}}],
        "workload.arrival.concurrency": 1, "workload.output_tokens": {"kind": "constant", "value": 50},
        "measure": {"mode": "whole_run", "requests": 3},
    })
    steps = math.ceil(49 / (1 + kept))
    for request in run.requests.to_pylist():
        assert request["steps"] == steps
        assert request["accepted"] == kept * steps
        assert request["drafted"] == request["verified"] == 4 * steps
        assert request["finished"] - request["admitted"] == pytest.approx(steps * (0.01 + 0.0011))
        assert request["slowest_gap"] == pytest.approx(0.0111)
    emitted = run.steps.column("emitted").to_pylist()
    assert emitted == ([1 + kept] * (steps - 1) + [49 - (steps - 1) * (1 + kept)]) * 3


@pytest.mark.parametrize("length", [0, 2, 4])
def test_saturation(length: int, tmp_path: Path) -> None:
    """More users than seats: the batch is always full, R = 8, and throughput is R τ / seconds(R (1 + ℓ)).

    Long outputs, so that the cut at their end is rare: τ is that of the run itself, as the tables give it, and
    throughput must be 8 τ / t within 1 %. t: 10 ms + 0.1 ms · 8 (1 + ℓ) on a line, drafter 1.7 ms at R = 8.
    The first tokens exist at admission and are not among those that steps emit.
    """
    world = World(tmp_path, {"verify": {"points": [[0 + 1, 0.0101], [100, 0.02]]}})
    (run,) = world.runs({
        "arms": [{"name": "x", "drafter": "par", "policy": {"name": "fixed", "length": length}}],
        "workload.arrival.concurrency": 40, "workload.output_tokens": {"kind": "constant", "value": 1500},
        "measure": {"mode": "steady", "warmup_s": 2.0, "duration_s": 40.0}, "interval_s": 1.0,
    })
    assert set(run.steps.column("requests").to_pylist()) == {8}
    window = [i for i in run.intervals.to_pylist() if i["start"] >= 2.0]
    tau = 1 + sum(i["accepted"] for i in window) / sum(i["request_steps"] for i in window)
    seconds = 0.010 + 0.0001 * 8 * (1 + length) + (0.0017 if length else 0.0)
    assert sum(i["emitted"] for i in window) / 40.0 == pytest.approx(8 * tau / seconds, rel=0.01)
    assert sum(i["waiting_seconds"] for i in window) == pytest.approx(32 * 40.0, rel=0.001)


def test_an_overloaded_queue_serves_at_capacity(tmp_path: Path) -> None:
    """Ten times more work than one server can do: throughput is the service rate, 1 / (2 · 10 ms) = 50 requests/s."""
    world = World(tmp_path, {"verify": FLAT})
    (run,) = world.runs({
        "workload.arrival": {"kind": "poisson", "rate_per_s": 500.0}, "engine.max_num_seqs": 1,
        "workload.output_tokens": {"kind": "constant", "value": 3}, "arms": NO_SPEC,
        "measure": {"mode": "steady", "warmup_s": 1.0, "duration_s": 20.0}, "interval_s": 1.0,
    })
    finished = [r for r in run.requests.to_pylist() if r["finished"] is not None and r["finished"] > 1.0]
    assert abs(len(finished) - 1000) <= 1
    assert [r["id"] for r in finished] == sorted(r["id"] for r in finished)


@pytest.mark.parametrize("mode", ["chunked", "separate"])
def test_time_to_first_token_of_a_lonely_prompt(mode: str, tmp_path: Path) -> None:
    """A prompt of 200 tokens in steps of at most 96: 96, 96, 8, at 0.1 ms per token + 10 ms: TTFT = 50 ms.

    Then 4 more tokens, one step each of 10.1 ms. With an own curve of 20 ms per pass, TTFT = 60 ms instead.
    """
    line = {"points": [[1, 0.0101], [100, 0.02]]}
    for own, ttft in ((None, 0.05), ({"points": [[1, 0.02], [96, 0.02]]}, 0.06)):
        world = World(tmp_path / str(ttft), {"verify": line} | ({} if own is None else {"prefill": own}))
        (run,) = world.runs({
            "engine.prefill": mode, "workload.prompt_tokens": {"kind": "constant", "value": 200}, "arms": NO_SPEC,
            "workload.output_tokens": {"kind": "constant", "value": 5}, "workload.arrival.concurrency": 1,
            "measure": {"mode": "whole_run", "requests": 2},
        })
        assert run.steps.column("prefill_tokens").to_pylist() == [96, 96, 8, 0, 0, 0, 0] * 2
        assert run.steps.column("emitted").to_pylist() == [0, 0, 1, 1, 1, 1, 1] * 2
        for request in run.requests.to_pylist():
            assert request["first_token"] - request["arrival"] == pytest.approx(ttft)
            assert request["finished"] - request["first_token"] == pytest.approx(4 * 0.0101)


def test_area_under_the_batch_size(tmp_path: Path) -> None:
    """∫ R(t) dt = Σ over requests of (finished − admitted): both say how many request-seconds were served."""
    world = World(tmp_path)
    for changes in ({}, {"engine.max_num_seqs": 2}, {"workload.arrival": {"kind": "poisson", "rate_per_s": 5.0}}):
        (run,) = world.runs({"measure.requests": 40} | changes)
        served = column(run.requests, "finished") - column(run.requests, "admitted")
        assert column(run.intervals, "request_seconds").sum() == pytest.approx(served.sum())


def test_area_under_the_batch_size_with_prompts(tmp_path: Path) -> None:
    """The same with prefill: ∫ R(t) dt = Σ (finished − first_token), for who stands still for others' prompts decodes.

    Were those seconds left out, TPS per user on the concurrent axis would exceed what any user gets.
    """
    world = World(tmp_path)
    for mode in ("chunked", "separate"):
        (run,) = world.runs({"measure.requests": 40, "engine.prefill": mode})
        served = column(run.requests, "finished") - column(run.requests, "first_token")
        assert column(run.intervals, "request_seconds").sum() == pytest.approx(served.sum())
        assert column(run.steps, "stalled").any() == (mode == "separate")


def test_the_cliff_of_captured_graphs(tmp_path: Path) -> None:
    """R = 7, 8 and 9 with ℓ = 3 cost the captured sizes 32, 32 and, beyond the limit of 32, the point at 64.

    Budgets 28, 32, 36: the curve charges 32 (18.7 ms), 32 (18.7 ms), and holds 64's 30.9 ms down to 33 tokens.
    """
    world = World(tmp_path, {"max_num_seqs": 16})
    for R, tokens, padded, seconds in ((7, 28, 32, 0.0187), (8, 32, 32, 0.0187), (9, 36, 36, 0.0309)):
        (run,) = world.runs({
            "arms": [{"name": "x", "drafter": "par", "policy": {"name": "fixed", "length": 3}}],
            "workload.arrival.concurrency": R, "workload.output_tokens": {"kind": "constant", "value": 50},
            "measure": {"mode": "whole_run", "requests": R}})
        first = run.steps.to_pylist()[0]
        assert (first["batch_tokens"], first["padded_tokens"], first["verify_s"]) == (tokens, padded, seconds)


@pytest.mark.parametrize(("drafter", "length", "seconds"), [
    ("par", 1, 0.0011), ("par", 4, 0.0011), ("auto", 1, 0.0005), ("auto", 3, 0.0015),
])
def test_a_block_costs_one_pass_and_a_chain_one_pass_per_token(
    drafter: str, length: int, seconds: float, tmp_path: Path
) -> None:
    """One user: a parallel drafter takes 1.1 ms whatever the length, an autoregressive one 0.5 ms per token."""
    (run,) = World(tmp_path).runs({
        "arms": [{"name": "x", "drafter": drafter, "policy": {"name": "fixed", "length": length}}],
        "workload.arrival.concurrency": 1})
    assert column(run.steps, "draft_s") == pytest.approx(seconds)
