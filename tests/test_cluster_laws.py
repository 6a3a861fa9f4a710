"""Several servers against queueing theory, and a cluster of one against an engine."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.test_closed_form import FLAT, NO_SPEC, column
from tests.worlds import World

STEP = 0.004
FAST = {"points": [[1, STEP], [4096, STEP]]}
REPLICATIONS = 8


def waits(world: World, changes: dict[str, Any], requests: int = 2000) -> tuple[float, float]:
    """Mean wait between arrival and admission over replications, and its standard error."""
    changes = {"arms": NO_SPEC, "record": "requests", "interval_s": 100.0, "replications": REPLICATIONS,
               "measure": {"mode": "whole_run", "requests": requests}} | changes
    means = []
    for replication in range(REPLICATIONS):
        (run,) = world.runs(changes, replication)
        wait = column(run.requests, "admitted") - column(run.requests, "arrival")
        means.append(wait[requests // 10 :].mean())
    return float(np.mean(means)), float(np.std(means, ddof=1)) / math.sqrt(REPLICATIONS)


@pytest.mark.parametrize(("servers", "load"), [(2, 0.7), (4, 0.8)])
def test_m_m_c(servers: int, load: float, tmp_path: Path) -> None:
    """Poisson arrivals, c seats, exponential service of mean s: Erlang's C. W = C / (c / s − λ).

    Steps of 4 ms and outputs of 25 steps on average make service nearly continuous; the request that arrives while a
    step runs waits for its end, at most 4 ms more.
    """
    mean = 25
    quantiles = -np.log(1 - (np.arange(2000) + 0.5) / 2000) * mean
    lengths = [int(max(1, round(q))) + 1 for q in quantiles]
    s = STEP * (float(np.mean(lengths)) - 1)
    world = World(tmp_path, {"verify": FAST})
    rate = load * servers / s
    found, error = waits(world, {
        "workload.arrival": {"kind": "poisson", "rate_per_s": rate}, "engine.max_num_seqs": servers,
        "workload.output_tokens": {"kind": "empirical", "values": lengths},
    })
    a = load * servers
    last = a**servers / math.factorial(servers) / (1 - load)
    erlang = last / (sum(a**k / math.factorial(k) for k in range(servers)) + last)
    expected = erlang / (servers / s - rate)
    assert error < 0.15 * expected
    assert expected - 4 * error < found < expected + 4 * error + STEP


@pytest.mark.parametrize(("servers", "load"), [(2, 0.7), (3, 0.85)])
def test_m_d_c(servers: int, load: float, tmp_path: Path) -> None:
    """Constant service s: what is there after s is what arrived meanwhile and what did not fit before (Crommelin).

    N' = max(N − c, 0) + Poisson(λ s); its stationary law gives the queue L = E max(N − c, 0) and W = L / λ.
    """
    s = 50 * STEP
    rate, size = load * servers / s, 200
    arrivals = np.array([math.exp(-rate * s + k * math.log(rate * s) - math.lgamma(k + 1)) for k in range(size)])
    law = np.zeros(size)
    law[0] = 1.0
    for _ in range(4000):
        kept = np.zeros(size)
        kept[0] = law[: servers + 1].sum()
        kept[1 : size - servers] = law[servers + 1 :]
        law = np.convolve(kept, arrivals)[:size]
    expected = float((np.maximum(np.arange(size) - servers, 0) * law).sum()) / rate
    world = World(tmp_path, {"verify": FAST})
    found, error = waits(world, {
        "workload.arrival": {"kind": "poisson", "rate_per_s": rate}, "engine.max_num_seqs": servers,
        "workload.output_tokens": {"kind": "constant", "value": 51},
    })
    assert error < 0.1 * expected
    assert expected - 4 * error < found < expected + 4 * error + STEP


def test_random_routing_splits_a_poisson_stream(tmp_path: Path) -> None:
    """Three engines of one seat, a router that draws one at random: each is an M/D/1 queue of a third of the load."""
    (tmp_path / "mine.py").write_text(
        "def route(request, loads, state):\n    return int(state.rng.integers(len(loads)))\n"
    )
    s, load = 0.02, 0.6
    world = World(tmp_path, {"verify": FLAT})
    found, error = waits(world, {
        "workload.arrival": {"kind": "poisson", "rate_per_s": 3 * load / s}, "engine.max_num_seqs": 1,
        "workload.output_tokens": {"kind": "constant", "value": 3},
        "cluster": {"engines": [{"name": "a", "count": 3}], "router": "./mine.py:route"},
    }, 4500)
    expected = load * s / (2 * (1 - load))
    assert error < 0.1 * expected
    assert abs(found - expected) < 4 * error


@pytest.mark.parametrize("prefill", ["none", "chunked", "separate"])
@pytest.mark.parametrize("router", ["round_robin", "power_of_two", "session_affinity", "prefix_affinity"])
def test_a_cluster_of_one_is_an_engine(prefill: str, router: str, tmp_path: Path) -> None:
    world = World(tmp_path)
    changes = {"engine.prefill": prefill, "engine.kv_blocks": 40, "engine.kv_block_tokens": 4}
    alone = world.runs(changes)
    routed = world.runs(changes | {"cluster": {"engines": [{"name": "only", "count": 1}], "router": router}})
    for a, b in zip(alone, routed, strict=True):
        assert a.requests.equals(b.requests)
        assert a.intervals.equals(b.intervals)
        assert a.steps is not None
        assert a.steps.equals(b.steps)
