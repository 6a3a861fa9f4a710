"""Sweeps on dask and ray: on clusters that the command starts, and on ones that run already."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.small_world import make
from tests.sweep_world import TABLES

COMMAND = ("--over", "workload.arrival.concurrency=2,4", "--replications", "1", "--quiet", "--no-plots", "--jobs", "2")
RAY = """\
import subprocess, sys, ray
context = ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
sys.exit(subprocess.run([*sys.argv[1:], "--address", context.address_info["address"]]).returncode)
"""


@pytest.fixture(name="scenario", scope="module")
def _scenario(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("world"))


def sweep(scenario: Path, out: Path, *more: str, before: tuple[str, ...] = ()) -> None:
    command = (*before, sys.executable, "-m", "dspark_sim", "sweep", str(scenario), *COMMAND, "--out", str(out), *more)
    done = subprocess.run(command, cwd=scenario.parent, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


@pytest.fixture(name="alone", scope="module")
def _alone(scenario: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same sweep in one process."""
    out = tmp_path_factory.mktemp("alone") / "out"
    sweep(scenario, out, "--jobs", "1")
    return out


def same(a: Path, b: Path) -> bool:
    return all((a / name).read_bytes() == (b / name).read_bytes() for name in TABLES)


def workers(out: Path) -> set[str]:
    """Who computed, by timing.csv."""
    lines = (out / "timing.csv").read_text().splitlines()
    assert lines[0].split(",")[4] == "worker"
    return {line.split(",")[4] for line in lines[1:]}


@pytest.mark.parametrize("backend", ["dask", "ray"])
def test_a_cluster_of_its_own(backend: str, scenario: Path, alone: Path, tmp_path: Path) -> None:
    sweep(scenario, tmp_path / "out", "--backend", backend)
    assert same(tmp_path / "out", alone)
    assert workers(tmp_path / "out").isdisjoint(workers(alone))


def test_a_dask_cluster_that_runs_already(scenario: Path, alone: Path, tmp_path: Path) -> None:
    from distributed import LocalCluster

    with LocalCluster(n_workers=1, threads_per_worker=1, processes=False, protocol="tcp://", host="127.0.0.1",
                      dashboard_address=None) as cluster:
        sweep(scenario, tmp_path / "out", "--backend", "dask", "--address", cluster.scheduler_address)
        assert {int(w.rpartition(":")[2]) for w in workers(tmp_path / "out")} == {os.getpid()}
    assert same(tmp_path / "out", alone)


def test_a_ray_cluster_that_runs_already(scenario: Path, alone: Path, tmp_path: Path) -> None:
    sweep(scenario, tmp_path / "out", "--backend", "ray", before=(sys.executable, "-c", RAY))
    assert same(tmp_path / "out", alone)


@pytest.mark.parametrize("backend", ["dask", "ray"])
def test_a_task_that_kills_its_worker_fails_and_nothing_hangs(backend: str, tmp_path: Path) -> None:
    from tests.sweep_world import GateWorld, cells, complete

    world = GateWorld(tmp_path / "world", deadly=True)
    code, _, err = complete(world, tmp_path / "out", "--backend", backend, "--replications", 1)
    assert code == 1, err
    assert "2 of 6 tasks failed" in err
    assert "arm deadly, replication 0: its worker process died" in err
    assert len(cells(tmp_path / "out")) == 4


@pytest.mark.parametrize(("backend", "sent", "code"), [("dask", signal.SIGINT, 130), ("ray", signal.SIGTERM, 143)])
def test_stopped_it_keeps_what_is_finished(backend: str, sent: signal.Signals, code: int, tmp_path: Path) -> None:
    """Everybody of the process group hears of it, as at a terminal; the tasks under way would never end."""
    from tests.sweep_world import GateWorld, cells, complete, finish, start, until

    world, out = GateWorld(tmp_path / "world"), tmp_path / "out"
    world.close_gate()
    child = start(world, out, "--backend", backend, "--replications", 1)
    until(child, lambda: len(world.waiting()) >= 1 and len(cells(out)) >= 1)
    os.killpg(child.pid, sent)
    status, shown, err = finish(child)
    assert status == code, err
    assert "Traceback" not in err
    assert "UserWarning" not in err
    finished = len(cells(out))
    assert f"stopped; {finished} of 4 tasks are finished and kept in {out}; the same command goes on" in err
    assert "free" in shown
    assert len((out / "tasks.csv").read_text().splitlines()) == 1 + finished
    world.open_gate()
    status, _, err = complete(world, out, "--replications", 1, jobs=1)
    assert status == 0, err
    assert f"{finished} of 4 tasks are there already" in err


def test_nobody_answers(scenario: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "dspark_sim", "sweep", str(scenario), *COMMAND, "--out", str(tmp_path / "out")]
    done = subprocess.run([*command, "--backend", "dask", "--address", "tcp://127.0.0.1:1"], capture_output=True,
                          text=True, timeout=300, check=False)
    assert done.returncode == 2, done.stderr
    assert "--address: no dask scheduler answers at tcp://127.0.0.1:1" in done.stderr
    assert "Traceback" not in done.stderr
