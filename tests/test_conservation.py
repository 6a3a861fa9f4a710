"""Nothing is lost and nothing is made: tokens, KV blocks, requests and text positions, on worlds that hypothesis draws.

A spy policy inside the engine checks the blocks at every step and writes down which trace row every request reads.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dspark_sim.batch import Batch
from dspark_sim.decide import Decider
from dspark_sim.rows import TraceRows
from dspark_sim.workload import document_pools
from tests.slow_view import SlowText
from tests.worlds import World, make_trace

SPY = '''"""Writes down the row of every request at every step; the row is coded in the first confidence."""

import json
from dataclasses import dataclass

import numpy as np


@dataclass
class Spy:
    lossless = True
    timing = "overlapped"
    needs_confidence = True
    out: str
    rows: int
    length: int
    blocks: int = 0
    block_tokens: int = 1
    vary: bool = False

    def start(self, setup):
        self.G = setup.block_size
        self.file = open(self.out, "w")

    def draft_lengths(self, view):
        return self.G if not self.vary else (view.emitted + view.step) % self.G + 1

    def verify_lengths(self, view):
        if self.blocks:
            owned = -(-(view.context + 1 + self.G) // self.block_tokens)
            assert view.kv_free_blocks == self.blocks - owned.sum() >= 0, (view.kv_free_blocks, owned)
        rows = np.rint(view.confidence[:, 0] * self.rows).astype(int)
        for prompt, emitted, row in zip(view.context - view.emitted, view.emitted, rows):
            self.file.write(json.dumps([int(prompt), int(emitted), int(row)]) + "\\n")
        self.file.flush()
        return np.minimum(view.drafted, self.length)
'''
BLOCK_TOKENS = 8


def coded_trace(drafter: str, block: int, lengths: list[int], seed: int) -> Any:
    """A trace whose first confidence is row / P, so that a policy can tell which row it was shown."""
    trace = make_trace(drafter, block, seed=seed, lengths=lengths, probability=False)
    confidence = np.array(trace.confidence)
    confidence[:, 0] = np.arange(trace.positions) / trace.positions
    return type(trace)(**{f: getattr(trace, f) for f in trace.__dataclass_fields__} | {"confidence": confidence})


@st.composite
def worlds(draw: Any) -> dict[str, Any]:
    """Engine settings, an arrival process, lengths, arms that advance by very different steps."""
    requests = draw(st.integers(1, 14))
    kv = draw(st.sampled_from([None, 12, 16, 40]))  # in blocks of 8 tokens; a request needs up to 11 of them
    arrival = draw(st.sampled_from([
        {"kind": "closed", "concurrency": 1}, {"kind": "closed", "concurrency": 6},
        {"kind": "closed", "concurrency": 9, "think_time_s": 0.03}, {"kind": "poisson", "rate_per_s": 40.0},
        {"kind": "gamma", "rate_per_s": 10.0, "cv": 3.0},
    ]))
    return {
        "requests": requests, "kv": kv, "arrival": arrival,
        "prefill": draw(st.sampled_from(["none", "chunked", "separate"])),
        "ragged": draw(st.sampled_from(["flattened", "padded"])),
        "host_lag": draw(st.integers(0, 3)), "seed": draw(st.integers(0, 10**6)),
        "seats": draw(st.integers(1, 6)),
        "outputs": draw(st.lists(st.integers(1, 40), min_size=1, max_size=5)),
        "lengths": draw(st.lists(st.integers(1, 30), min_size=2, max_size=6)),
    }


def scenario_of(world: World, drawn: dict[str, Any], rows: int) -> dict[str, Any]:
    prompts = list(range(10, 34))  # all different for a while: the prompt's length tells requests apart
    engine = {"prefill": drawn["prefill"], "ragged": drawn["ragged"], "host_lag": drawn["host_lag"],
              "max_num_seqs": drawn["seats"], "kv_block_tokens": BLOCK_TOKENS,
              "kv_blocks": drawn["kv"] or "unlimited"}
    exact = drawn["kv"] is not None and drawn["prefill"] == "none"
    arms: list[dict[str, Any]] = [{"name": "plain", "policy": "no_spec"}]
    for n, (drafter, length, vary) in enumerate((("par", 0, False), ("par", 2, True), ("par", 4, False),
                                                 ("wide", 6, False), ("wide", 1, True))):
        arms.append({"name": f"spy-{n}", "drafter": drafter, "drafter_cost": "par", "policy": {
            "name": "./spy.py:Spy", "out": str(world.folder / f"spy-{n}.jsonl"), "rows": rows, "length": length,
            "vary": vary, "blocks": drawn["kv"] if exact else 0, "block_tokens": BLOCK_TOKENS}})
    return {"engine": engine, "arms": arms, "seed": drawn["seed"], "workload.arrival": drawn["arrival"],
            "workload.prompt_tokens": {"kind": "empirical", "values": prompts},
            "workload.output_tokens": {"kind": "empirical", "values": drawn["outputs"]},
            "measure": {"mode": "whole_run", "requests": drawn["requests"]}}


def check_tokens(run: Any, drawn: dict[str, Any]) -> None:
    steps, requests = run.steps.to_pylist(), run.requests.to_pylist()
    assert sorted(r["id"] for r in requests) == list(range(drawn["requests"]))
    given_at_admission = 0
    for r in requests:
        assert r["outcome"] == "finished"
        assert r["emitted"] == r["output_tokens"]
        assert r["arrival"] <= r["admitted"] <= r["first_token"] <= r["finished"]
        assert r["accepted"] <= r["verified"] <= r["drafted"]
        given_at_admission += drawn["prefill"] == "none"
    for name in ("drafted", "verified", "accepted"):
        assert sum(s[name] for s in steps) == sum(r[name] for r in requests)
    assert sum(s["requests"] for s in steps) == sum(r["steps"] for r in requests)
    assert sum(s["emitted"] for s in steps) + given_at_admission == sum(r["emitted"] for r in requests)
    prompts = sum(r["prompt_tokens"] for r in requests)
    prefilled = sum(s["prefill_tokens"] for s in steps)
    assert prefilled == (0 if drawn["prefill"] == "none" else prefilled)
    if drawn["prefill"] != "none" and not any(r["preemptions"] for r in requests):
        assert prefilled == prompts
    assert drawn["prefill"] == "none" or prefilled >= prompts
    end = 0.0
    for s in steps:
        assert s["start"] >= end - 1e-12
        end = s["start"] + s["draft_s"] + s["schedule_s"] + s["verify_s"] + s["other_s"]
        assert s["batch_tokens"] == s["requests"] + s["verified"] + s["prefill_tokens"]
        assert s["padded_tokens"] >= s["batch_tokens"]
        assert s["requests"] <= drawn["seats"]
    for name in ("drafted", "verified", "accepted", "emitted", "prefill_tokens", "batch_tokens", "padded_tokens"):
        assert sum(s[name] for s in steps) == sum(run.intervals.column(name).to_pylist())
    assert sum(run.intervals.column("finished").to_pylist()) == drawn["requests"]
    assert sum(run.intervals.column("steps").to_pylist()) == len(steps)


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(worlds())
def test_tokens_blocks_requests_and_text_are_conserved(drawn: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        traces = [coded_trace("par", 4, drawn["lengths"], 1), coded_trace("wide", 6, drawn["lengths"], 2)]
        world = World(folder, traces=traces)
        (folder / "spy.py").write_text(SPY, encoding="utf-8")
        scenario, setups = world.arms(scenario_of(world, drawn, traces[0].positions))
        from dspark_sim.simulate import simulate

        runs = [simulate(setup, scenario, 0) for setup in setups]
        for run in runs:
            assert run.error is None, run.error
            check_tokens(run, drawn)
        check_same_requests(runs)
        issued = runs[0].requests.to_pylist()
        pools = document_pools(scenario.workload, traces[0].domain, scenario.seed, 0)
        for setup, run in zip(setups[1:], runs[1:], strict=True):
            check_text(folder / f"{setup.name}.jsonl", run, setup, scenario, pools, issued)


def check_same_requests(runs: list[Any]) -> None:
    """Common random numbers: request i is the same request in every arm."""
    def facts(run: Any) -> dict[int, tuple[Any, ...]]:
        return {r["id"]: (r["class"], r["prompt_tokens"], r["output_tokens"]) for r in run.requests.to_pylist()}

    assert all(facts(run) == facts(runs[0]) for run in runs)


def check_text(file: Path, run: Any, setup: Any, scenario: Any, pools: Any, issued: list[dict[str, Any]]) -> None:
    """Every row that an arm read is the one that the request's own chain of documents has at that position."""
    from dspark_sim.workload import RequestStream

    text, stream = SlowText(setup, pools), RequestStream(scenario.workload, scenario.seed, 0)
    stream_requests = [stream.take() for _ in issued]
    allowed: dict[tuple[int, int], set[int]] = {}
    read = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []
    for request in stream_requests:
        for position in {emitted for prompt, emitted, _ in read if prompt == request.prompt_tokens}:
            if 0 < position < request.output_tokens:
                request.emitted = position
                allowed.setdefault((request.prompt_tokens, position), set()).add(text.row_of(request))
    for prompt, emitted, row in read:
        assert row in allowed[prompt, emitted], (prompt, emitted, row)
    assert len(read) == sum(r["steps"] for r in run.requests.to_pylist())


def test_no_request_is_lost_under_preemption(tmp_path: Path) -> None:
    """Memory for two and a half requests and eight users: many preemptions, and everybody is served in full."""
    world = World(tmp_path)
    for prefill in ("none", "chunked", "separate"):
        (run,) = world.runs({
            "engine": {"prefill": prefill, "kv_blocks": 19, "kv_block_tokens": 4, "host_lag": 2},
            "workload.arrival.concurrency": 8, "workload.output_tokens": {"kind": "constant", "value": 40},
            "workload.prompt_tokens": {"kind": "constant", "value": 5},
            "measure": {"mode": "whole_run", "requests": 30},
        })
        requests = run.requests.to_pylist()
        assert sum(r["preemptions"] for r in requests) > 5
        assert sorted(r["id"] for r in requests) == list(range(30))
        assert {(r["outcome"], r["emitted"]) for r in requests} == {("finished", 40)}


def test_what_an_engine_remembers_by_batch_size_is_linear_in_it() -> None:
    """Full blocks are slices of one array: an array for every R up to 50,000 would fill ten gigabytes."""
    G, most = 3, 40
    batch, rows = Batch(most, None, []), TraceRows(Batch(most, None, []), None, calibrated=True, shift=0.0)
    rows.block_size, rows.batch = G, batch
    policy: Any = SimpleNamespace(timing="overlapped", lossless=True, verify_lengths=lambda view: view.drafted)
    setup: Any = SimpleNamespace(host_lag=0, block_size=G)
    decider = Decider(policy, setup, batch, rows)
    seen = []
    for R in range(1, most + 1):
        batch.size = R
        lengths, *_ = decider.decide(R, 0.0, 0, 0, -1, 0)
        assert lengths.tolist() == [G] * R
        assert not lengths.flags.writeable
        seen.append(lengths)
    assert all(np.shares_memory(seen[-1], one) for one in seen)
