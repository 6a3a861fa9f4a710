"""Clusters: routing, hand-over, failures, the door, autoscaling; nobody is lost and nothing is made up."""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dspark_sim.errors import InputError
from dspark_sim.line import Line
from dspark_sim.request import Request
from dspark_sim.simulate import simulate
from tests.worlds import World

OPEN = {"workload.arrival": {"kind": "poisson", "rate_per_s": 60.0}, "measure": {"mode": "whole_run", "requests": 40}}


def rows(world: World, changes: dict[str, Any]) -> list[dict[str, Any]]:
    (run,) = world.runs(changes)
    return run.requests.to_pylist()


def group(name: str = "a", count: int = 2, **more: Any) -> dict[str, Any]:
    return {"name": name, "count": count, **more}


def test_round_robin_takes_turns(tmp_path: Path) -> None:
    done = rows(World(tmp_path), OPEN | {"cluster": {"engines": [group(count=3)], "router": "round_robin"}})
    assert [r["engine"] for r in sorted(done, key=lambda r: r["id"])] == [i % 3 for i in range(40)]


def test_prompts_are_computed_on_one_kind_and_decoded_on_the_other(tmp_path: Path) -> None:
    """A prompt of 20 tokens and its first token move 21 · 1000 bytes at 10^6 bytes/s and 2 ms: 23 ms, at least."""
    world = World(tmp_path)
    outputs = {"kind": "constant", "value": 9}
    changes = OPEN | {"engine.prefill": "chunked", "workload.output_tokens": outputs, "cluster": {
        "engines": [group("p", 1, role="prefill"), group("d", 2, role="decode")],
        "transfer": {"kv_bytes_per_token": 1000.0, "bandwidth_gb_s": 0.001, "latency_ms": 2.0},
    }}
    (run,) = world.runs(changes)
    done, steps = run.requests.to_pylist(), run.steps.to_pylist()
    assert all(r["engine"] in (1, 2) and r["outcome"] == "finished" for r in done)
    assert all(r["slowest_gap"] >= 0.023 for r in done)
    assert all(s["requests"] == 0 for s in steps if s["engine"] == 0)
    assert all(s["prefill_tokens"] == 0 for s in steps if s["engine"] != 0)
    assert sum(s["prefill_tokens"] for s in steps) == 40 * 20


def test_an_engine_that_fails_gives_its_requests_to_others(tmp_path: Path) -> None:
    world = World(tmp_path)
    changes = OPEN | {"engine.prefill": "chunked", "cluster": {
        "engines": [group()], "failures": [{"engine": 0, "at_s": 0.2, "down_s": 0.3}],
    }}
    (run,) = world.runs(changes)
    done = run.requests.to_pylist()
    moved = [r for r in done if r["requeued"]]
    assert moved
    assert all(r["outcome"] == "finished" and r["emitted"] == r["output_tokens"] for r in done)
    assert all(r["recomputed_tokens"] >= 20 for r in moved)
    assert not [s for s in run.steps.to_pylist() if s["engine"] == 0 and 0.2 < s["start"] < 0.5]
    up = sum(i["up_s"] for i in run.intervals.to_pylist() if i["engine"] == 0)
    whole = sum(i["seconds"] for i in run.intervals.to_pylist() if i["engine"] == 0)
    assert whole - up == pytest.approx(0.3)
    assert sum(i["paid_s"] for i in run.intervals.to_pylist() if i["engine"] == 0) == pytest.approx(whole)


def test_with_every_engine_down_requests_wait_and_are_served(tmp_path: Path) -> None:
    done = rows(World(tmp_path), OPEN | {"cluster": {
        "engines": [group(count=1)], "failures": [{"engine": 0, "at_s": 0.1, "down_s": 1.0}],
    }})
    assert Counter(r["outcome"] for r in done) == {"finished": 40}
    assert all(r["admitted"] >= 1.1 for r in done if 0.1 < r["arrival"] < 1.1)


FOR_EVER = {"engines": [group(count=2)],
            "failures": [{"engine": i, "at_s": 0.1 + i / 10, "down_s": 1e9} for i in (0, 1)]}


def test_with_every_engine_down_for_ever_the_run_says_so(tmp_path: Path) -> None:
    scenario, (arm,) = World(tmp_path).arms(OPEN | {"cluster": FOR_EVER})
    run = simulate(arm, scenario, 0)
    assert run.error is not None
    assert run.intervals.num_rows < 100  # not all the time in which nothing happens
    assert "no engine has been in service since second 0.2" in run.error
    assert re.search(r"and \d\d requests wait", run.error)
    assert "down_s" in run.error


def test_a_window_that_ends_without_any_engine_says_so(tmp_path: Path) -> None:
    (run,) = World(tmp_path).runs(OPEN | {"cluster": FOR_EVER, "measure": {"mode": "steady", "warmup_s": 0.0,
                                                                           "duration_s": 2.0}})
    assert run.error is None
    (said,) = [w for w in run.warnings if "no engine" in w]
    assert "since second 0.2" in said


def test_an_engine_may_be_scaled_away_the_moment_it_is_back(tmp_path: Path) -> None:
    """It is marked as no longer needed while it is down, and it comes back at a look of the autoscaler."""
    changes = {"workload.arrival": {"kind": "poisson", "rate_per_s": 4.0}, "engine.max_num_seqs": 1,
               "measure": {"mode": "steady", "warmup_s": 0.0, "duration_s": 6.0}, "cluster": {
        "engines": [group(count=2)],
        "failures": [{"engine": 1, "at_s": 1.25, "down_s": 1.0}, {"engine": 1, "at_s": 3.0, "down_s": 1.5}],
        "autoscale": {"min_engines": 1, "target_queue": 0.5, "interval_s": 0.25, "startup_s": 0.0, "cooldown_s": 0.0},
    }}
    done = rows(World(tmp_path), changes)
    assert {r["outcome"] for r in done} <= {"finished", "unfinished"}


def test_who_is_parked_gives_up_too(tmp_path: Path) -> None:
    """The only engine is away: users with 0.2 s of patience are sent off before it is back."""
    done = rows(World(tmp_path), OPEN | {"cluster": {
        "engines": [group(count=1)], "failures": [{"engine": 0, "at_s": 0.0, "down_s": 1e6}],
        "admission": {"timeout_s": 0.2},
    }})
    assert Counter(r["outcome"] for r in done) == {"timed_out": 40}


def test_patience_counts_from_the_arrival_wherever_one_stands() -> None:
    """Those of a failed engine stand behind younger ones elsewhere, and give up before them."""
    def one(number: int, deadline: float, admitted: float | None = None) -> Request:
        return Request(number, 0, 0.0, 1, 1, 0, deadline=deadline, admitted=admitted)

    line = Line()
    for request in (one(0, 5.0), one(1, 3.0), one(2, 2.0, admitted=1.0), one(3, 6.0)):
        line.append(request)
    assert [r.id for r in line.expire(4.0)] == [1]
    assert [r.id for r in line] == [0, 2, 3]
    assert [r.id for r in line.expire(5.5)] == [0]
    assert len(line) == 2
    assert line.head().id == 2


def test_the_door(tmp_path: Path) -> None:
    """One seat, a line of two, patience of 30 ms: some are refused, some give up, all are in the table once."""
    changes = OPEN | {"engine.max_num_seqs": 1, "cluster": {
        "engines": [group(count=1)], "admission": {"max_queue": 2, "timeout_s": 0.03},
    }}
    done = rows(World(tmp_path), changes)
    outcomes = Counter(r["outcome"] for r in done)
    assert set(outcomes) == {"finished", "refused", "timed_out"}
    assert sorted(r["id"] for r in done) == list(range(40))
    assert all(r["admitted"] is None and r["finished"] is None for r in done if r["outcome"] != "finished")
    assert all(r["admitted"] - r["arrival"] <= 0.03 for r in done if r["outcome"] == "finished")


def test_priority_goes_first(tmp_path: Path) -> None:
    """Both classes queue for one seat; the class of higher priority waits less."""
    changes = OPEN | {"engine.max_num_seqs": 1, "workload.classes.1.priority": 1}
    done = rows(World(tmp_path), changes)
    mean = {name: sum(r["admitted"] - r["arrival"] for r in done if r["class"] == name)
            / sum(r["class"] == name for r in done) for name in ("easy", "hard")}
    assert mean["hard"] < 0.5 * mean["easy"]


def test_autoscaling_follows_the_load(tmp_path: Path) -> None:
    world = World(tmp_path)
    changes = {"workload.arrival": {"kind": "piecewise", "rates": [[0, 5.0], [2, 150.0], [4, 2.0]]},
               "measure": {"mode": "steady", "warmup_s": 0.0, "duration_s": 12.0}, "cluster": {
        "engines": [group(count=6)],
        "autoscale": {"min_engines": 1, "target_outstanding": 4.0, "interval_s": 0.1, "startup_s": 0.2,
                      "cooldown_s": 0.4},
    }}
    (run,) = world.runs(changes)
    up, paid = Counter(), Counter()
    for row in run.intervals.to_pylist():
        up[int(row["start"])] += row["up_s"]
        paid[int(row["start"])] += row["paid_s"]
    assert up[0] < 1.6
    assert max(up[3], up[4]) > 3.0
    assert up[11] < 1.1
    assert paid[11] == pytest.approx(up[11])
    assert sum(paid.values()) - sum(up.values()) > 0.2  # engines cost from the decision on, 0.2 s before they serve
    lost = [r for r in run.requests.to_pylist() if r["outcome"] not in ("finished", "unfinished")]
    assert not lost


def test_shared_prompts_are_computed_once(tmp_path: Path) -> None:
    """Sessions of one class begin with 1,024 shared tokens: later prompts find two blocks of 512 in the cache."""
    talks = {"kind": "sessions", "rate_per_s": 4.0, "turns": {"kind": "constant", "value": 2},
             "think_time_s": {"mean": 0.5}, "shared_tokens": 1024, "max_context": 8000}
    changes = {"workload.arrival": talks, "engine.prefill": "chunked", "engine.kv_blocks": 3000,
               "engine.kv_block_tokens": 16, "workload.prompt_tokens": {"kind": "constant", "value": 600},
               "measure": {"mode": "whole_run", "requests": 16}}
    world = World(tmp_path, {"max_num_batched_tokens": 2048, "verify": {"points": [[1, 0.01], [2048, 0.2]]}})
    world_changes = changes | {"profile": "./profile"}
    (run,) = world.runs(world_changes)
    (without,) = world.runs(world_changes | {"engine.prefix_cache": False})
    cached = [r["cached_tokens"] for r in sorted(run.requests.to_pylist(), key=lambda r: r["id"])]
    assert cached[0] == 0
    assert sum(c >= 1024 for c in cached) >= len(cached) - 3
    assert sum(r["cached_tokens"] for r in without.requests.to_pylist()) == 0
    prefilled, all_of_it = (sum(s["prefill_tokens"] for s in which.steps.to_pylist()) for which in (run, without))
    assert all_of_it - prefilled == sum(cached)


@pytest.mark.parametrize(("source", "message"), [
    ("def route(request, loads, state):\n    return 7\n", "the router answered 7"),
    ("def route(request, loads, state):\n    return 1 / 0\n", "the router raised ZeroDivisionError"),
])
def test_a_router_that_misbehaves_ends_its_arm_in_words(source: str, message: str, tmp_path: Path) -> None:
    from dspark_sim.simulate import simulate

    world = World(tmp_path)
    (tmp_path / "mine.py").write_text(source)
    scenario, arms = world.arms({"cluster": {"engines": [group()], "router": "./mine.py:route"}})
    assert message in str(simulate(arms[0], scenario, 0).error)


@pytest.mark.parametrize(("cluster", "message"), [
    ({"engines": []}, "cluster.engines"),
    ({"engines": [group(count=0)]}, "cluster.engines[0].count"),
    ({"engines": [group()], "router": "rond_robin"}, "round_robin"),
    ({"engines": [group()], "router": "./gone.py:route"}, "no such file"),
    ({"engines": [group(role="prefill")]}, "need each other"),
    ({"engines": [group("p", role="prefill"), group("d", role="decode")]}, "transfer"),
    ({"engines": [group(), group()]}, "same name"),
    ({"engines": [group()], "failures": [{"engine": 2, "at_s": 1, "down_s": 1}]}, "0 to 1"),
    ({"engines": [group()], "autoscale": {"min_engines": 1}}, "target_outstanding or target_queue"),
    ({"engines": [group()], "autoscale": {"min_engines": 3, "target_queue": 1.0}}, "1 to 2"),
    ({"engines": [group()], "admission": {"max_queue": 0}}, "cluster.admission.max_queue"),
    ({"engines": [group(profile="./nowhere")]}, "cluster.engines[0].profile"),
    ({"engines": [group()], "transfer": {"kv_bytes_per_token": 1.0, "bandwidth_gb_s": 1.0}}, "no effect"),
])
def test_bad_clusters(cluster: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        World(tmp_path).arms({"cluster": cluster})
    assert message in str(caught.value)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_every_request_ends_once_whatever_happens(data: st.DataObject) -> None:
    """Failures, preemption, impatience, refusals and scaling at once: every id once, every token accounted for.

    The cluster checks itself too: blocks, slots and rows of every idle engine, and that nobody vanished.
    """
    draw = data.draw
    count = draw(st.integers(1, 4))
    cluster: dict[str, Any] = {
        "engines": [group(count=count)],
        "router": draw(st.sampled_from(["round_robin", "least_outstanding", "most_free_kv", "power_of_two"])),
        "admission": draw(st.sampled_from([
            {}, {"max_queue": 3}, {"timeout_s": 0.05}, {"max_queue": 9, "timeout_s": 0.2},
        ])),
        "failures": draw(st.lists(st.fixed_dictionaries({
            "engine": st.integers(0, count - 1), "at_s": st.floats(0, 1), "down_s": st.floats(0.01, 0.5),
        }), max_size=3)),
    }
    if draw(st.booleans()):
        cluster["random_failures"] = {"mtbf_s": draw(st.floats(0.05, 1)), "mttr_s": draw(st.floats(0.01, 0.2))}
    if draw(st.booleans()):
        cluster["autoscale"] = {"min_engines": 1, "target_outstanding": 2.0, "interval_s": 0.05,
                                "startup_s": draw(st.floats(0, 0.1)), "cooldown_s": 0.1}
    changes = {
        "cluster": cluster, "engine.prefill": draw(st.sampled_from(["none", "chunked", "separate"])),
        "engine.kv_blocks": draw(st.sampled_from([40, 60, "unlimited"])), "engine.kv_block_tokens": 4,
        "engine.max_num_seqs": draw(st.integers(1, 6)), "workload.classes.1.priority": draw(st.integers(0, 1)),
        "workload.arrival": draw(st.sampled_from([
            {"kind": "poisson", "rate_per_s": 60.0}, {"kind": "gamma", "rate_per_s": 100.0, "cv": 3.0},
            {"kind": "closed", "concurrency": 7}, {"kind": "closed", "concurrency": 3, "think_time_s": 0.02},
        ])),
        "measure": {"mode": "whole_run", "requests": 25}, "seed": draw(st.integers(0, 10_000)),
    }
    with tempfile.TemporaryDirectory() as folder:
        (run,) = World(Path(folder)).runs(changes)
    done = run.requests.to_pylist()
    assert sorted(r["id"] for r in done) == list(range(25))
    for r in done:
        if r["outcome"] == "finished":
            assert r["emitted"] == r["output_tokens"]
            assert r["arrival"] <= r["admitted"] <= r["first_token"] <= r["finished"]
        else:
            assert r["outcome"] in ("refused", "timed_out")
            assert r["emitted"] == 0
    free = sum(1 for r in done if r["outcome"] == "finished") if changes["engine.prefill"] == "none" else 0
    emitted = sum(s["emitted"] for s in run.steps.to_pylist()) if run.steps is not None else 0
    assert emitted + free == sum(r["emitted"] for r in done)
