"""Prefix caches when memory is short: sessions, preemption, failures and scaling at once, and every block comes back.

Every idle engine checks its own books (:meth:`dspark_sim.roster.Roster.check_integrity`); a leak is an IntegrityError.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from tests.worlds import World

LARGE = {"max_num_batched_tokens": 2048, "verify": {"points": [[1, 0.01], [4096, 0.2]]}}


def drawn(seed: int) -> dict[str, Any]:
    """A cluster of one to three engines, each with memory for one or two long conversations."""
    rng = random.Random(seed)
    shared, block, count = rng.choice([0, 512, 1200]), rng.choice([1, 16, 64, 100, 512, 700]), rng.randint(1, 3)
    most = shared + 900
    failures = [{"engine": rng.randrange(count), "at_s": rng.uniform(0, 3), "down_s": rng.uniform(0.1, 1)}
                for _ in range(rng.randint(0, 3))]
    cluster: dict[str, Any] = {"engines": [{"name": "a", "count": count}], "failures": failures,
                               "router": rng.choice(["prefix_affinity", "session_affinity", "most_free_kv"])}
    if rng.random() < 0.4:
        cluster["autoscale"] = {"min_engines": 1, "target_outstanding": 2.0, "interval_s": 0.25, "startup_s": 0.1,
                                "cooldown_s": 0.0}
    return {
        "cluster": cluster, "seed": seed, "measure": {"mode": "whole_run", "requests": 40},
        "engine": {"prefill": rng.choice(["chunked", "separate"]), "kv_block_tokens": block,
                   "kv_blocks": int(-(-(most + 5) // block) * rng.choice([1.0, 1.4, 2.2])), "max_num_seqs": 6},
        "workload.arrival": {"kind": "sessions", "rate_per_s": 20.0, "turns": {"kind": "constant", "value": 3},
                             "think_time_s": {"mean": 0.05}, "shared_tokens": shared, "max_context": most},
        "workload.prompt_tokens": {"kind": "lognormal", "mean": 150, "cv": 1.0, "min": 1, "max": 450},
        "workload.output_tokens": {"kind": "lognormal", "mean": 120, "cv": 0.6, "min": 1, "max": 300},
    }


def test_every_block_comes_back_and_every_prompt_is_computed_or_found(tmp_path: Path) -> None:
    world = World(tmp_path, LARGE)
    hits = preempted = 0
    for seed in range(10):
        (run,) = world.runs(drawn(seed))
        done = run.requests.to_pylist()
        assert [(r["outcome"], r["emitted"]) for r in done] == [("finished", r["output_tokens"]) for r in done]
        assert sorted(r["id"] for r in done) == list(range(40))
        again = sum(r["preemptions"] + r["requeued"] for r in done)
        if not again:
            computed = sum(step["prefill_tokens"] for step in run.steps.to_pylist())
            assert computed + sum(r["cached_tokens"] for r in done) == sum(r["prompt_tokens"] for r in done)
        hits += sum(r["cached_tokens"] > 0 for r in done)
        preempted += sum(r["preemptions"] for r in done)
    assert hits > 50
    assert preempted > 10
