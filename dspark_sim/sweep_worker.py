"""What a worker does with one task. It gets references and parameters, and gives figures: plain data both ways.

A worker may be this process, another one, or one on another machine; it loads the scenario itself, and works out from
what it loaded what the task's key is made of. If that is not what it was sent, it does not see the same inputs: a file
was edited since the sweep began, or its machine has another version.
"""

from __future__ import annotations

import os
import socket
import traceback
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dspark_sim.errors import DsparkSimError

if TYPE_CHECKING:
    from dspark_sim.arms import ArmSetup
    from dspark_sim.scenario import Scenario
    from dspark_sim.sweep_grid import Definition, Point

__all__ = ["Outcome", "Task", "work"]

KEPT = 512  # grid points that a worker keeps loaded; they share traces and profiles
CHANGED = "the worker does not see what the sweep began with (edited meanwhile, or another machine has another version)"


@dataclass(frozen=True)
class Task:
    """One (grid point, arm, replication).

    Attributes:
        key: what it is, see :mod:`dspark_sim.sweep_key`.
        definition: the sweep's.
        point: values of the grid's keys.
        arm: number of the arm in the point's scenario.
        replication: 0, 1, 2, …
        parts: what its key was made of.
        run: a word that is another one in every sweep: what a process loaded for one, it does not use in the next.
    """

    key: str
    definition: Definition
    point: Point
    arm: int
    replication: int
    parts: Mapping[str, str]
    run: str


@dataclass(frozen=True)
class Outcome:
    """What came of a task.

    Attributes:
        key: the task's.
        body: figures and what belongs to them, as a cell keeps it; empty if it failed.
        error: why it failed, None if it did not.
        trace: the traceback of an error that is a mistake of ours, for the manifest.
    """

    key: str
    body: dict[str, Any] = field(default_factory=dict)
    error: str | None = None
    trace: str | None = None


class _Memory:
    """What this process has loaded for one sweep: arms by grid point, profiles and traces once for all.

    Args:
        run: of the sweep.
    """

    def __init__(self, run: str) -> None:
        from dspark_sim.arms import Inputs
        from dspark_sim.sweep_key import KeyMaker

        self.run, self.inputs, self.keys = run, Inputs(), KeyMaker()
        self.points: OrderedDict[str, tuple[Scenario, dict[int, tuple[ArmSetup, dict[str, str]]]]] = OrderedDict()

    def load(self, task: Task) -> tuple[Scenario, ArmSetup, dict[str, str]]:
        """The scenario of a task's point, the arm, and the parts of its key."""
        from dspark_sim.arms import load_arm
        from dspark_sim.sweep_grid import canonical

        name = canonical(task.point)
        if name not in self.points:
            self.points[name] = task.definition.scenario(task.point), {}
            if len(self.points) > KEPT:
                self.points.popitem(last=False)
        self.points.move_to_end(name)
        scenario, arms = self.points[name]
        if task.arm not in arms:
            setup = load_arm(scenario, task.arm, self.inputs)
            arms[task.arm] = setup, self.keys.parts(scenario, setup)
        return scenario, *arms[task.arm]


_memory: list[_Memory] = []  # one, of the latest sweep


def work(task: Task) -> Outcome:
    """Do one task. Whatever goes wrong in it is its outcome; only the end of the process can end it otherwise."""
    try:
        from dspark_sim.runner import run_task
        from dspark_sim.sweep_key import difference

        if not _memory or _memory[0].run != task.run:
            _memory[:] = [_Memory(task.run)]
        scenario, setup, parts = _memory[0].load(task)
        if parts != task.parts:
            return Outcome(task.key, error=f"{CHANGED}: {difference(parts, task.parts)}")
        done = run_task(setup, scenario, task.replication)
    except DsparkSimError as problem:
        return Outcome(task.key, error=str(problem))
    except (Exception, SystemExit) as problem:
        return Outcome(task.key, error=f"{type(problem).__name__}: {problem}", trace=traceback.format_exc())
    if done.error is not None:
        return Outcome(task.key, error=done.error)
    return Outcome(task.key, {
        "arm": setup.name, "point": dict(task.point), "replication": task.replication,
        "measured": dict(done.measured), "classes": {name: dict(v) for name, v in done.classes.items()},
        "warnings": list(done.warnings), "wall_s": round(done.wall_s, 6),
        "worker": f"{socket.gethostname()}:{os.getpid()}",
    })
