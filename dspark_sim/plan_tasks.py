"""Tasks of a plan and who computes them: references and parameters go to workers, plain data comes back.

A worker loads the scenario itself, once per variant of the world (``what_if``), and sets the load in what it loaded.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dspark_sim.errors import DsparkSimError, InputError
from dspark_sim.plan_judge import Seen, judge
from dspark_sim.plan_load import LoadAxis

if TYPE_CHECKING:
    from dspark_sim.arms import ArmSetup, Inputs
    from dspark_sim.scenario import Scenario
    from dspark_sim.sweep_grid import Definition

__all__ = ["Point", "Pool", "World", "definition_of", "work"]

GIVES = 0.5  # share of a change of acceptance that reaches the throughput of an arm that drafts, roughly
KEYS = ("acceptance", "step_time", "output_tokens")


@dataclass(frozen=True)
class World:
    """Factors on the scenario's own ``what_if``; all 1 is the scenario as it stands."""

    acceptance: float = 1.0
    step_time: float = 1.0
    output_tokens: float = 1.0

    def guess(self, drafts: bool) -> float:
        """About how much of the stated world's capacity is left: where a search begins, never what it finds."""
        speed = 1.0 + GIVES * (self.acceptance - 1.0) if drafts else 1.0
        return max(speed, 0.1) / (self.step_time * self.output_tokens)


@dataclass(frozen=True)
class Point:
    """One (world, arm, load, replication).

    Attributes:
        definition: how to load the scenario.
        run: a word that is another one in every plan: what a process loaded for one, it does not use in the next.
        axis: what load means.
        world, arm, load, replication: which.
    """

    definition: Definition
    run: str
    axis: LoadAxis
    world: World
    arm: int
    load: float
    replication: int


@dataclass
class _Memory:
    """What this process has loaded for one plan."""

    run: str
    inputs: Inputs
    scenarios: dict[World, Scenario] = field(default_factory=dict)
    arms: dict[tuple[World, int], ArmSetup] = field(default_factory=dict)


_memory: list[_Memory] = []  # one, of the latest plan


def scenario_of(definition: Definition, world: World) -> Scenario:
    """The scenario in another world; the factors multiply those that it states."""
    scenario = definition.scenario({})
    point = {f"what_if.{key}": getattr(scenario.what_if, key) * getattr(world, key)
             for key in KEYS if getattr(world, key) != 1.0}
    return definition.scenario(point) if point else scenario


def work(point: Point) -> Seen:
    """Simulate and judge one point; a failure of the arm is a result, not an exception."""
    from dspark_sim.arms import Inputs, load_arm
    from dspark_sim.simulate import simulate

    if not _memory or _memory[0].run != point.run:
        _memory[:] = [_Memory(point.run, Inputs())]
    memory = _memory[0]
    try:
        if point.world not in memory.scenarios:
            memory.scenarios[point.world] = scenario_of(point.definition, point.world)
        scenario, which = memory.scenarios[point.world], (point.world, point.arm)
        if which not in memory.arms:
            memory.arms[which] = load_arm(scenario, point.arm, memory.inputs)
        setup, loaded = memory.arms[which], point.axis.at(scenario, point.load)
        run = simulate(setup, loaded, point.replication)
        if run.error is not None:
            return Seen({}, {}, error=run.error, wall_s=run.wall_s)
        return judge(run, loaded, setup)
    except InputError:
        raise
    except DsparkSimError as problem:
        return Seen({}, {}, error=str(problem))


def definition_of(scenario: str | Path | Scenario, settings: Mapping[str, Any], seed: int | None) -> Definition:
    """How workers load the scenario: its text and what is set in it."""
    from dspark_sim.scenario import read_scenario
    from dspark_sim.sweep_grid import Definition

    settings = dict(settings) | ({} if seed is None else {"seed": seed})
    if isinstance(scenario, (str, Path)):
        document = read_scenario(scenario)
        assert document.file is not None
        return Definition(document.text, str(document.file), str(document.file.resolve().parent), settings)
    file = scenario.source.file
    return Definition(json.dumps(scenario.source.data), "" if file is None else str(file), str(scenario.base), settings)


class Pool:
    """Computes points, here or in other processes; a context manager.

    Args:
        jobs: points at a time; None: all cores.
    """

    def __init__(self, jobs: int | None = None) -> None:
        from dspark_sim.sweep_backends import Backend

        self._backend = Backend("loky", jobs)

    def __enter__(self) -> Pool:
        self._backend.__enter__()
        return self

    def __exit__(self, *args: Any) -> None:
        self._backend.__exit__(*args)

    @property
    def jobs(self) -> int:
        """Points at a time."""
        return self._backend.jobs

    def compute(self, points: Sequence[Point]) -> Iterator[tuple[int, Seen]]:
        """(number of the point, what came of it), in the order in which they are done."""
        yield from self._backend.call(_numbered, list(enumerate(points)))


def _numbered(item: tuple[int, Point]) -> tuple[int, Seen]:
    return item[0], work(item[1])
