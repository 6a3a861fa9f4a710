"""A small world whose policy can be held: a gate that tests open, and a note of every engine that a task starts."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO

from tests.small_world import make

TABLES = ("tasks.parquet", "tasks.csv", "aggregate.parquet", "aggregate.csv")
OVER = ("--over", "workload.arrival.concurrency=2,4")
GATE = '''\
"""Verifies two tokens; notes that it started, and may wait at a gate or kill its own process."""
import fcntl
import os
import signal
from dataclasses import dataclass
from typing import ClassVar

import numpy as np


@dataclass
class Gate:
    lossless: ClassVar[bool] = True
    timing: ClassVar[str] = "overlapped"
    folder: str
    wait: bool = False
    deadly: bool = False

    def start(self, setup):
        self.task = int(setup.rng.integers(1 << 60))  # one for each arm and replication
        self.begun = False

    def verify_lengths(self, view):
        if not self.begun:
            self.begun = True
            self.begin(len(view.drafted))
        return np.minimum(view.drafted, 2)

    def begin(self, users):
        name = f"{self.task}.{users}-{os.getpid()}{'-waits' if self.wait else ''}"
        open(os.path.join(self.folder, name), "a").close()
        if self.deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.wait:
            with open(os.path.join(self.folder, "gate")) as gate:
                fcntl.flock(gate, fcntl.LOCK_SH)
'''


class GateWorld:
    """A scenario with the arms ``free`` and ``gated`` (and ``deadly`` if asked for), and its gate, open at first."""

    def __init__(self, folder: Path, *, deadly: bool = False) -> None:
        self.folder, self.notes = folder, folder / "notes"
        self.notes.mkdir(parents=True)
        self.gate_file = self.notes / "gate"
        self.gate_file.touch()
        policy = f"name: './gate.py:Gate', folder: {self.notes}"
        arms = [f"  - {{name: {name}, drafter: dspark, policy: {{{policy}{more}}}}}\n"
                for name, more in (("free", ""), ("gated", ", wait: true"), ("deadly", ", deadly: true"))]
        path = make(folder)
        text = path.read_text()
        path.write_text(text[: text.index("arms:\n") + 6] + "".join(arms[: 3 if deadly else 2]))
        (folder / "gate.py").write_text(GATE)
        self.scenario = path
        self._held: IO[str] | None = None

    def close_gate(self) -> None:
        self._held = self.gate_file.open()
        fcntl.flock(self._held, fcntl.LOCK_EX)

    def open_gate(self) -> None:
        assert self._held is not None
        self._held.close()

    def started(self) -> list[tuple[str, int]]:
        """(task, process) of every engine that was started, in no order."""
        names = [p.name.split("-") for p in self.notes.iterdir() if p.name != "gate"]
        return [(name[0], int(name[1])) for name in names]

    def waiting(self) -> list[int]:
        """Processes that came to the gate, the dead ones included."""
        return [int(p.name.split("-")[1]) for p in self.notes.glob("*-waits")]


def start(world: GateWorld, out: Path, *more: object, jobs: int = 2) -> subprocess.Popen[str]:
    """``dspark-sim sweep`` in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "dspark_sim", "sweep", str(world.scenario), *OVER, "--no-plots", "--jobs", str(jobs),
         "--out", str(out), *map(str, more)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, cwd=world.folder,
    )


def until(child: subprocess.Popen[str], happened: Callable[[], bool]) -> None:
    """Look again and again, as long as the process lives."""
    for _ in range(6000):
        if happened():
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(0.02)
            break
    raise AssertionError(finish(child, kill=True))


def finish(child: subprocess.Popen[str], *, kill: bool = False) -> tuple[int, str, str]:
    """(exit code, stdout, stderr); whatever happens, nobody of its group is left."""
    try:
        if kill:
            child.kill()
        out, err = child.communicate(timeout=300)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
    return child.returncode, out, err


def complete(world: GateWorld, out: Path, *more: object, jobs: int = 2) -> tuple[int, str, str]:
    return finish(start(world, out, *more, jobs=jobs))


def cells(out: Path) -> list[Path]:
    return list((out / "cells").glob("*.json"))


def tables(out: Path) -> dict[str, bytes]:
    return {name: (out / name).read_bytes() for name in TABLES}
