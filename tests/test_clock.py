"""A simulated clock that cannot move, or that would have to move too far, ends the arm with one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dspark_sim import roster
from dspark_sim.simulate import simulate
from tests.worlds import World

NO_SPEC = [{"name": "plain", "policy": "no_spec"}]
ONE_TOKEN = {"kind": "constant", "value": 1}


def error(world: World, changes: dict[str, Any]) -> str:
    scenario, (arm,) = world.arms({"arms": NO_SPEC} | changes)
    run = simulate(arm, scenario, 0)
    assert run.error is not None
    return run.error


def test_a_step_of_negative_time(tmp_path: Path) -> None:
    """The curve claims 8,192 tokens of context per request at 10 ms each, and requests have far fewer."""
    world = World(tmp_path, {"measured_context": 8192, "per_kv_token": 0.01})
    said = error(world, {})
    assert "requests would take -" in said
    assert "after per_kv_token took" in said


def test_requests_without_duration_in_a_loop_that_hardly_pauses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pause that the clock cannot resolve is none: 5,000 requests in a row end at second 0."""
    monkeypatch.setattr(roster, "MAX_INSTANT", 1000)
    loop = {"workload.output_tokens": ONE_TOKEN, "workload.arrival": {
        "kind": "closed", "concurrency": 4, "think_time_s": 1e-300}, "measure": {"mode": "whole_run", "requests": 5000}}
    assert "1001 requests in a row were complete when they were admitted" in error(World(tmp_path), loop)
    (run,) = World(tmp_path / "b").runs({"arms": NO_SPEC} | loop | {"workload.arrival.think_time_s": 1e-3})
    assert run.error is None


def test_requests_that_hardly_ever_come(tmp_path: Path) -> None:
    """One in eleven days: the table of intervals would have five million rows, all but five of them idle."""
    rare = {"kind": "poisson", "rate_per_s": 1e-6}
    for measure in ({"mode": "whole_run", "requests": 5}, {"mode": "steady", "duration_requests": 5}):
        said = error(World(tmp_path / measure["mode"]), {"workload.arrival": rare, "measure": measure,
                                                         "interval_s": 1.0})
        assert "not over after 1,000,000 simulated seconds" in said
        assert "interval_s" in said
