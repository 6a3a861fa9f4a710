"""Sweeps as real processes: killed, interrupted, robbed of their workers, started twice; in step by files and locks.

Nothing sleeps: tests wait for cell files and notes to appear, workers for a lock that the test holds.
"""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from tests.sweep_world import GateWorld, cells, complete, finish, start, tables, until

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and locks")
TASKS = 8  # 2 grid points × 2 arms × 2 replications


@pytest.fixture(name="undisturbed", scope="module")
def _undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    world = GateWorld(tmp_path_factory.mktemp("calm"))
    code, _, err = complete(world, world.folder / "out")
    assert code == 0, err
    assert len(world.started()) == TASKS
    return tables(world.folder / "out")


def test_killed_again_and_again_nothing_is_lost_or_done_twice(tmp_path: Path, undisturbed: dict[str, bytes]) -> None:
    world, out = GateWorld(tmp_path / "world"), tmp_path / "out"
    world.close_gate()
    child = start(world, out)
    until(child, lambda: len(world.waiting()) >= 2 and len(cells(out)) >= 1)  # both workers stand at the gate
    finished = len(cells(out))
    under_way = set(world.waiting())
    os.kill(child.pid, signal.SIGKILL)
    finish(child)
    assert len(cells(out)) == finished
    assert json.loads((out / "manifest.json").read_text())["status"] == "running"
    world.open_gate()

    child = start(world, out)
    until(child, lambda: len(cells(out)) >= finished + 2)  # killed at work
    os.killpg(child.pid, signal.SIGKILL)
    _, _, err = finish(child)
    assert f"{finished} of {TASKS} tasks are there already" in err
    assert "was killed; going on from it" in err
    kept = len(cells(out))

    code, _, err = complete(world, out)
    assert code == 0, err
    assert f"{kept} of {TASKS} tasks are there already" in err
    assert tables(out) == undisturbed
    assert len(cells(out)) == TASKS
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["status"] == "finished"
    assert manifest["tasks"]["found"] == kept
    assert manifest["tasks"]["computed"] == TASKS - kept
    starts = Counter(task for task, _ in world.started())
    assert len(starts) == TASKS
    assert sum(starts.values()) <= TASKS + len(under_way) + 2 * 2  # what was under way at two kills, and no more

    before = {path: path.stat().st_mtime_ns for path in cells(out)}
    code, _, _ = complete(world, out)  # nothing left to do: nothing is done
    assert code == 0
    assert {path: path.stat().st_mtime_ns for path in cells(out)} == before
    assert sum(Counter(task for task, _ in world.started()).values()) == sum(starts.values())
    assert tables(out) == undisturbed


def test_a_killed_worker_is_replaced(tmp_path: Path, undisturbed: dict[str, bytes]) -> None:
    world, out = GateWorld(tmp_path / "world"), tmp_path / "out"
    world.close_gate()
    child = start(world, out)
    until(child, lambda: len(world.waiting()) >= 2)
    os.kill(world.waiting()[0], signal.SIGKILL)
    world.open_gate()
    code, _, err = finish(child)
    assert code == 0, err
    assert "Traceback" not in err
    assert tables(out) == undisturbed


def test_a_task_that_kills_its_workers_fails_alone(tmp_path: Path) -> None:
    world, out = GateWorld(tmp_path / "world", deadly=True), tmp_path / "out"
    code, shown, err = complete(world, out, "--replications", 1, "--format", "json")
    assert code == 1, err
    assert "2 of 6 tasks failed" in err
    assert "concurrency=2: arm deadly, replication 0: its worker process died each of three times" in err
    assert "Traceback" not in err
    data = json.loads(shown)
    assert [(f["arm"], f["values"]) for f in data["failures"]] == [
        ("deadly", {"workload.arrival.concurrency": n}) for n in (2, 4)
    ]
    assert all((row["throughput_tok_s_gpu"] is None) == (row["arm"] == "deadly") for row in data["rows"])
    assert len(cells(out)) == 4


def test_interrupted_it_says_how_to_go_on(tmp_path: Path, undisturbed: dict[str, bytes]) -> None:
    world, out = GateWorld(tmp_path / "world"), tmp_path / "out"
    world.close_gate()
    child = start(world, out)
    until(child, lambda: len(world.waiting()) >= 2 and len(cells(out)) >= 1)
    finished = len(cells(out))
    os.killpg(child.pid, signal.SIGINT)  # as a terminal does: workers get it too
    code, shown, err = finish(child)
    assert code == 130
    assert "Traceback" not in err
    assert f"stopped; {finished} of {TASKS} tasks are finished and kept in {out}; the same command goes on" in err
    assert "free" in shown
    assert json.loads((out / "manifest.json").read_text())["status"] == "interrupted"
    assert len((out / "tasks.csv").read_text().splitlines()) == 1 + finished
    world.open_gate()
    code, _, err = complete(world, out)
    assert code == 0, err
    assert "was killed" not in err
    assert tables(out) == undisturbed


def test_two_at_once_in_one_folder(tmp_path: Path) -> None:
    world, out = GateWorld(tmp_path / "world"), tmp_path / "out"
    world.close_gate()
    first = start(world, out, "--replications", 1)
    until(first, lambda: len(world.waiting()) >= 1)
    code, shown, err = complete(world, out)
    assert code == 2
    assert shown == ""
    assert f"another sweep writes to this folder (process {first.pid} on " in err
    assert first.poll() is None
    world.open_gate()
    assert finish(first)[0] == 0
