"""Same seed, same bytes of every table, in this process and in another; another seed, other tables."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.worlds import World

CHANGES: dict[str, Any] = {
    "arms": [
        {"name": "plain", "policy": "no_spec"},
        {"name": "nosy", "drafter": "auto", "policy": {"name": "./nosy.py:Nosy", "rest": 3}},
        {"name": "search", "drafter": "par", "policy": "async_global"},
    ],
    "engine.kv_blocks": 60, "engine.kv_block_tokens": 4, "engine.prefill": "chunked",
    "workload.arrival": {"kind": "gamma", "rate_per_s": 8.0, "cv": 1.5},
    "measure": {"mode": "steady", "warmup_s": 0.5, "duration_s": 2.0},
}
AGAIN = """
import sys
from pathlib import Path
from tests.test_determinism import digest
from dspark_sim.arms import load_arms
from dspark_sim.scenario import load_scenario
from dspark_sim.simulate import simulate
scenario = load_scenario(Path(sys.argv[1]))
print(digest([simulate(arm, scenario, 0) for arm in load_arms(scenario)]))
"""


def digest(runs: list[Any]) -> str:
    """Of the tables as Arrow writes them: every bit of every column, and the schema."""
    whole = hashlib.sha256()
    for run in runs:
        for table in (run.steps, run.intervals, run.requests):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table.combine_chunks())
            whole.update(sink.getvalue())
    return whole.hexdigest()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_the_same_seed_gives_the_same_bytes(world: World) -> None:
    assert digest(world.runs(CHANGES)) == digest(world.runs(CHANGES))


def test_the_same_seed_gives_the_same_bytes_in_another_process(world: World) -> None:
    here = digest(world.runs(CHANGES))
    path = world.folder / f"scenario-{world.written}.yaml"
    root = Path(__file__).resolve().parent.parent
    for salt in ("0", "4711"):
        env = os.environ | {"PYTHONHASHSEED": salt, "PYTHONPATH": str(root)}
        there = subprocess.run([sys.executable, "-c", AGAIN, str(path)], env=env, cwd=world.folder, check=True,
                               capture_output=True, text=True)
        assert there.stdout.strip() == here


def test_another_seed_or_replication_gives_other_tables(world: World) -> None:
    tables = {digest(world.runs(CHANGES)), digest(world.runs(CHANGES, 1)), digest(world.runs(CHANGES, seed=6)),
              digest(world.runs(CHANGES, seed=7))}
    assert len(tables) == 4


def test_an_arm_does_not_depend_on_the_others_beside_it(world: World) -> None:
    """Common random numbers come from seed, replication and purpose: an arm alone and in company are the same."""
    together = world.runs(CHANGES)
    for n in (0, 2):  # the policies of these draw no random numbers of their own, whose stream is numbered by arm
        (alone,) = world.runs(CHANGES | {"arms": [CHANGES["arms"][n]]})
        assert digest([alone]) == digest([together[n]])


def test_an_engine_leaves_nothing_behind(world: World) -> None:
    """The same setup simulated twice, and replications in any order: no state survives a run."""
    from dspark_sim.simulate import simulate

    scenario, arms = world.arms(CHANGES)
    forth = [digest([simulate(arm, scenario, r)]) for arm in arms for r in (0, 1)]
    back = [digest([simulate(arm, scenario, r)]) for arm in reversed(arms) for r in (1, 0)]
    assert forth == back[::-1]
