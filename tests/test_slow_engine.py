"""The fast engine against the slow one: every cell of every table equal, bit for bit, on scenarios drawn at random.

The draws cover policies (with a nosy one that looks at everything a policy may see), drafters of both kinds, the
three kinds of prefill, memory pressure, both layouts, host lags, every kind of curve and cost, all arrivals, both
ways to measure. A failure prints the seed of its world; ``compare(seed)`` repeats it.
"""

from __future__ import annotations

import functools
import math
import random
import tempfile
from pathlib import Path
from typing import Any

import pytest

from dspark_sim.simulate import simulate
from tests.slow_run import SlowRun, slow_simulate
from tests.worlds import World, make_trace

WORLDS = 60
POLICIES: list[tuple[str, dict[str, Any]]] = [
    ("./nosy.py:Nosy", {}),
    ("./nosy.py:Nosy", {"salt": 3, "rest": 3}),
    ("./nosy.py:Nosy", {"salt": 4, "stop": False, "rest": 2}),
    ("fixed", {"length": 2}),
    ("fixed", {"length": 0}),
    ("threshold", {"threshold": 0.6}),
    ("early_stop", {}),
    ("async_global", {"lag": 1}),
    ("async_global", {"lag": 3}),
    ("async_global", {"lag": 8, "new_request_survival": 0.5, "min_gain": 0.05}),
    ("sync_global", {}),
    ("clairvoyant", {}),
]


def curve(rng: random.Random, top: int, base: float, slope: float, first: int = 1) -> dict[str, Any]:
    """A jagged curve over 1..top, of any kind."""
    sizes = sorted({first, top, *(rng.randint(first, top) for _ in range(rng.randint(2, 7)))})
    points = [[n, round(base + slope * n * rng.uniform(0.6, 1.4), 7)] for n in sizes]
    out: dict[str, Any] = {"points": points, "between": rng.choice(["linear", "hold"])}
    if out["between"] == "hold" and rng.random() < 0.5:
        out["graph_limit"] = rng.choice(sizes)
    if rng.random() < 0.3:
        out["running_max"] = True
    return out


def random_profile(rng: random.Random) -> dict[str, Any]:
    out: dict[str, Any] = {
        "max_num_seqs": rng.choice([1, 2, 5, 8, 12]),
        "verify": curve(rng, 256, 0.008, 0.0004),
        "drafters.par.seconds": curve(rng, 16, 0.0006, 0.0002),
        "drafters.auto.seconds": curve(rng, 16, 0.0003, 0.0001),
    }
    out["max_num_batched_tokens"] = rng.choice([60, 96, 200])
    if rng.random() < 0.3:  # a curve that ends early and goes on along its last segment
        out["verify"] = {**curve(rng, 24, 0.008, 0.0004), "between": "linear", "extrapolate": "linear"}
        out["verify"].pop("graph_limit", None)
        out["verify"]["running_max"] = True
    if rng.random() < 0.5:
        out["drafters.auto.catch_up"] = None
    if rng.random() < 0.4:
        out["drafters.par.per_token"] = curve(rng, 16, 0.0002, 0.00003)
    for key, base in (("speculation_overhead", 0.0007), ("schedule", 0.0004), ("fixed", 0.0011)):
        if rng.random() < 0.5:
            out[key] = curve(rng, 16, base, base / 9)
    if rng.random() < 0.5:
        out["prefill"] = curve(rng, 256, 0.003, 0.0002)
    if rng.random() < 0.5:
        out["per_request"] = 0.00013
    if rng.random() < 0.5:
        out |= {"per_kv_token": 1.7e-6, "measured_context": rng.choice([0, 30])}
    return out


def random_scenario(rng: random.Random) -> dict[str, Any]:
    engine: dict[str, Any] = {
        "host_lag": rng.randint(0, 3), "prefill": rng.choice(["none", "none", "chunked", "separate"]),
        "ragged": rng.choice(["flattened", "padded"]),
    }
    if rng.random() < 0.5:  # memory for about two or three requests
        engine |= {"kv_block_tokens": rng.choice([1, 4, 16])}
        engine["kv_blocks"] = math.ceil(rng.choice([125, 170, 260]) / engine["kv_block_tokens"]) + 1
    closed = rng.random() < 0.6
    arrival: dict[str, Any] = {"kind": "closed", "concurrency": rng.choice([1, 3, 6, 14]),
                               "think_time_s": rng.choice([0, 0, 0.05]), "think_steps": rng.choice([0, 0, 1.5])}
    if not closed:
        arrival = {"kind": "poisson", "rate_per_s": rng.choice([2.0, 9.0, 30.0])}
        if rng.random() < 0.5:
            arrival = arrival | {"kind": "gamma", "cv": rng.choice([0.4, 2.0])}
    lengths = rng.choice([
        {"kind": "lognormal", "mean": 20, "cv": 0.8, "min": 1, "max": 70},
        {"kind": "constant", "value": 17},
        {"kind": "empirical", "values": [1, 1, 2, 5, 40]},
    ])
    prompts = rng.choice([{"kind": "constant", "value": 20}, {"kind": "empirical", "values": [1, 33, 40]}])
    measure: dict[str, Any] = rng.choice([
        {"mode": "whole_run", "requests": 15},
        {"mode": "steady", "warmup_s": 0.5, "duration_s": 1.5},
        {"mode": "steady", "warmup_s": 0.25, "duration_requests": 9},
    ])
    arms = []
    for n in range(3):
        name, parameters = rng.choice(POLICIES)
        if name == "async_global":
            parameters = parameters | {"lag": max(parameters["lag"], engine["host_lag"])}
        drafter = rng.choice(["par", "auto"])
        if name == "fixed":
            drafter = rng.choice(["par", "auto", "blind"])
        arm: dict[str, Any] = {"name": f"arm-{n}", "drafter": drafter, "policy": {"name": name, **parameters}}
        if drafter == "blind":
            arm["drafter_cost"] = "par"
        if rng.random() < 0.3:
            arm["calibrated"] = False
        if rng.random() < 0.3:
            arm["belief"] = {"step_scale": 1.4, "profile": "./other"} | (
                {} if drafter == "blind" else {"confidence_shift": -0.3})
        arms.append(arm)
    if rng.random() < 0.4:
        arms[0] = {"name": "plain", "policy": "no_spec"}
    out = {"engine": engine, "measure": measure, "arms": arms, "seed": rng.randint(0, 10**6),
           "workload.arrival": arrival, "workload.output_tokens": lengths, "workload.prompt_tokens": prompts,
           "workload.documents": rng.choice(["bootstrap", "all"])}
    if rng.random() < 0.5:
        out["workload.classes.0.sla"] = {"tpot_ms_max": 31.0}
    return out


def same(fast: Any, slow: list[dict[str, Any]], what: str) -> None:
    """Equal columns, equal rows in the same order, every value identical (no tolerance)."""
    rows = fast.to_pylist()
    assert not slow or set(fast.column_names) == set(slow[0]), what
    for n, (a, b) in enumerate(zip(rows, slow, strict=False)):
        wrong = {k: (a[k], b[k]) for k in b if a[k] != b[k]}
        assert not wrong, f"{what}, row {n} (fast, slow): {wrong}"
    assert len(rows) == len(slow), f"{what}: {len(rows)} rows, the slow engine has {len(slow)}"


def compare_arm(setup: Any, scenario: Any, replication: int) -> SlowRun:
    fast = simulate(setup, scenario, replication)
    assert fast.error is None, fast.error
    slow = slow_simulate(setup, scenario, replication)
    same(fast.steps, [{k: v for k, v in s.items() if k not in ("end", "seconds")} for s in slow.steps], "steps")
    same(fast.requests, slow.requests, "requests")
    same(fast.intervals, slow.intervals, "intervals")
    same(fast.lengths, slow.lengths, "lengths")
    assert fast.window == slow.window
    return slow


@functools.cache
def compare(seed: int) -> list[SlowRun]:
    """One random world, all its arms, two replications."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder), random_profile(rng), [
            make_trace("par", 4, seed=seed, sts=rng.random() < 0.5, probability=rng.random() < 0.5),
            make_trace("auto", 3, seed=seed),
            make_trace("blind", 5, seed=seed, confidence=False, probability=False),
        ])
        world.profile("other", random_profile(rng))
        scenario, arms = world.arms(random_scenario(rng))
        return [compare_arm(arm, scenario, replication) for replication in (0, 1) for arm in arms]


@pytest.mark.parametrize("seed", range(WORLDS))
def test_both_engines_fill_the_same_tables(seed: int) -> None:
    compare(seed)


def test_the_random_worlds_reach_every_corner() -> None:
    """The comparison proves nothing about what never happens: each corner must occur somewhere in the worlds."""
    seen = {name for seed in range(WORLDS) for run in compare(seed) for name, happened in corners(run).items()
            if happened}
    assert seen == set(corners(SlowRun([], [], [], (0.0, 0.0), {})))


def test_tables_do_not_depend_on_how_often_the_recorder_flushes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums and histograms go on from one batch of steps to the next, in the order of time."""
    monkeypatch.setattr("dspark_sim.record.CHUNK", 7)
    monkeypatch.setattr("dspark_sim.tally.SHEET", 3)
    for seed in range(8):
        compare.__wrapped__(seed)


def corners(run: SlowRun) -> dict[str, bool]:
    steps, requests = run.steps, run.requests
    return {
        "preempted": any(r["preemptions"] for r in requests),
        "preempted twice": any(r["preemptions"] > 1 for r in requests),
        "unfinished": any(r["outcome"] == "unfinished" for r in requests),
        "never admitted": any(r["admitted"] is None for r in requests),
        "one-token output": any(r["output_tokens"] == 1 for r in requests),
        "finished without a step": any(r["steps"] == 0 and r["finished"] is not None for r in requests),
        "residual": any(r["skipped"] for r in requests),
        "prefill beside decoding": any(s["prefill_tokens"] and s["requests"] for s in steps),
        "prefill alone": any(s["prefill_tokens"] and not s["requests"] for s in steps),
        "padded": any(s["padded_tokens"] > s["batch_tokens"] for s in steps),
        "extrapolated": any(i["extrapolated_steps"] for i in run.intervals),
        "idle": any(i["busy_s"] < 0.9 * i["seconds"] for i in run.intervals),
        "drafted nothing": any(not s["drafted"] and s["requests"] for s in steps),
        "trimmed": any(s["verified"] < s["drafted"] for s in steps),
        "waiting": any(s["waiting"] for s in steps),
        "schedule": any(s["schedule_s"] for s in steps),
    }
