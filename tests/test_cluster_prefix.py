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


def test_a_later_turn_finds_the_answer_too(tmp_path: Path) -> None:
    """Turns of 600 new tokens and answers of 500, slowly: turn 2's prompt begins with 600 + 500 known tokens, of
    which the last one's KV was never computed: two whole blocks of 512 (the first prompt alone has one). Turn 3's with
    2,200: four."""
    changes = {
        "cluster": {"engines": [{"name": "a", "count": 1}]}, "measure": {"mode": "whole_run", "requests": 9},
        "engine": {"prefill": "chunked", "kv_blocks": 2000, "kv_block_tokens": 16, "max_num_seqs": 6},
        "workload.arrival": {"kind": "sessions", "rate_per_s": 0.2, "turns": {"kind": "constant", "value": 3},
                             "think_time_s": {"mean": 0.05}, "max_context": 9000},
        "workload.prompt_tokens": {"kind": "constant", "value": 600},
        "workload.output_tokens": {"kind": "constant", "value": 500},
    }
    (run,) = World(tmp_path, LARGE).runs(changes)
    done = sorted(run.requests.to_pylist(), key=lambda r: r["id"])
    assert [r["prompt_tokens"] for r in done[:3]] == [600, 1700, 2800]
    assert [r["cached_tokens"] for r in done] == [0, 1024, 2048] * 3
    (cold,) = World(tmp_path, LARGE).runs(changes | {"engine.prefix_cache": False})
    assert not any(r["cached_tokens"] for r in cold.requests.to_pylist())


def test_a_session_ends_with_a_turn_that_was_refused(tmp_path: Path) -> None:
    """One place and a queue of one: most sessions are turned away, and none of them goes on as if it had an answer."""
    changes = {
        "cluster": {"engines": [{"name": "a", "count": 1}], "admission": {"max_queue": 1}},
        "measure": {"mode": "whole_run", "requests": 60},
        "engine": {"prefill": "chunked", "max_num_seqs": 1},
        "workload.arrival": {"kind": "sessions", "rate_per_s": 20.0, "turns": {"kind": "constant", "value": 4},
                             "think_time_s": {"mean": 0.05}, "max_context": 9000},
    }
    (run,) = World(tmp_path, LARGE).runs(changes)
    done = {r["id"]: r["outcome"] for r in run.requests.to_pylist()}
    refused = [i for i, outcome in done.items() if outcome == "refused"]
    assert refused
    assert set(done.values()) == {"finished", "refused"}
    for i in refused:
        assert not any(later in done for later in range(i + 1, 4 * (i // 4) + 4))
    (said,) = [w for w in run.warnings if "never sent" in w]
    assert said.startswith(f"{60 - len(done)} turns")
