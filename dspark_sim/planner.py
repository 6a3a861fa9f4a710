"""plan(): the highest load that each arm serves within its SLAs, the GPUs for a demand, the cost, and how sure that is.

In three parts: the search in the scenario as stated, a grid of common loads for charts and break-even loads, and the
same search in other worlds (``what_if``). All searches of a part run side by side, and their replications in parallel.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dspark_sim.errors import InputError, ScenarioError
from dspark_sim.plan_arm import ArmSearch, Asked, Capacity, mean
from dspark_sim.plan_cost import price_of, size
from dspark_sim.plan_demand import need_of
from dspark_sim.plan_judge import Seen, promises
from dspark_sim.plan_limits import limit_of
from dspark_sim.plan_load import load_axis
from dspark_sim.plan_results import ArmPlan, PlanResults, WorldPlan, load_points
from dspark_sim.plan_search import MAX_LOADS
from dspark_sim.plan_tasks import Point, Pool, World, definition_of
from dspark_sim.plan_variants import BASE, WORLDS, BreakEven, break_even_acceptance, break_even_load, winner
from dspark_sim.plan_words import answer, assumptions_of, warnings_of

if TYPE_CHECKING:
    from dspark_sim.arms import ArmSetup
    from dspark_sim.scenario import Scenario
    from dspark_sim.sweep_grid import Definition

__all__ = ["Effort", "Planner", "plan"]

CHART = (0.08, 0.2, 0.35, 0.5, 0.65, 0.8, 0.95, 1.1)  # of the largest capacity
NEAR = 0.1  # a load of the chart may move by so much, to one that is known
CHART_QUICK = (0.15, 0.4, 0.65, 0.9, 1.1)
Say = Callable[[str], None]


@dataclass(frozen=True)
class Effort:
    """How much is spent: replications and resolution of the search, of other worlds, and of the chart."""

    most: int
    resolution: float
    world_most: int
    world_resolution: float
    chart: Sequence[float]
    chart_replications: int

    @classmethod
    def of(cls, scenario: Scenario, *, quick: bool) -> Effort:
        """The scenario's, or a quick look: wider intervals, the same rules."""
        p = scenario.plan
        if quick:
            return cls(min(p.max_replications, 5), max(p.resolution, 0.1), 3, max(p.resolution, 0.4), CHART_QUICK, 2)
        return cls(p.max_replications, p.resolution, min(p.max_replications, 8), max(p.resolution, 0.1), CHART, 3)


class Planner:
    """A plan that is being made.

    Args:
        definition: of the scenario.
        quick: fewer replications, coarser search.
        price: per GPU and hour, instead of the profile's.
        sensitivity: look at other worlds too.

    Raises:
        InputError: the scenario cannot be planned: no SLA, a demand that does not fit; nothing has run.
    """

    def __init__(
        self, definition: Definition, *, quick: bool = False, price: float | None = None, sensitivity: bool = True,
        check: Callable[[Scenario], None] | None = None,
    ) -> None:
        from dspark_sim.arms import load_arms

        if price is not None and not 0 < price < 1e6:
            raise InputError(f"got {price:g}", key="--price", allowed="more than 0, per GPU and hour")
        self.definition, self.price, self.sensitivity, self.quick = definition, price, sensitivity, quick
        self.scenario = definition.scenario({})
        if check is not None:
            check(self.scenario)
        self.promised = promises(self.scenario)
        if not self.promised:
            raise self.scenario.source.error(
                "no class promises anything, so every load meets it", ("workload",), error=ScenarioError,
                allowed="sla in the workload or in a class, e.g. sla: {ttft_ms_max: 1000, tps_user_min: 30}",
            )
        self.setups: list[ArmSetup] = load_arms(self.scenario)
        self.axis = load_axis(self.scenario)
        self.need = need_of(self.scenario, self.axis)
        self.effort = Effort.of(self.scenario, quick=quick)
        self.run, self.tasks = uuid.uuid4().hex, 0
        self.base: list[ArmSearch] = []
        self.worlds: dict[str, list[ArmSearch]] = {}

    # -- computing -------------------------------------------------------------------------------------------------
    def work(self, jobs: int | None, say: Say, interrupted: Callable[[], None]) -> None:
        """All three parts; Ctrl-C in the last two keeps what there is and calls ``interrupted``."""
        e = self.effort
        with Pool(jobs) as pool:
            self.base = [self._search(s, World(), self.axis.stated, 2.0, e.most, e.resolution) for s in self.setups]
            self._drive(self.base, pool, lambda found: say(f"{self._name(found)}: {self._found(found)}"))
            try:
                self._chart(pool, say)
                if self.sensitivity:
                    self._other_worlds(pool, say)
            except KeyboardInterrupt:
                self.worlds = {}
                interrupted()

    def _name(self, found: ArmSearch) -> str:
        return self.setups[found.arm].name

    def _found(self, found: ArmSearch) -> str:
        c, unit = found.capacity(), self.axis.unit
        if found.error is not None:
            return f"failed: {found.error}"
        if c.low is None:
            return f"no load {'surely ' if c.open else ''}meets the SLAs, down to {min(found.decisions):g} {unit}"
        top = "and more" if c.high is None else f"to {c.high:g}"
        return f"{c.low:g} {top} {unit} ({len(found.decisions)} loads)"

    def _search(
        self, setup: ArmSetup, world: World, start: float, factor: float, most: int, resolution: float
    ) -> ArmSearch:
        return ArmSearch(setup.index, world, self.axis, self.scenario.plan.attainment, most, resolution, start,
                         setup.gpus, factor, MAX_LOADS if not self.quick else 9)

    def _drive(self, searches: Sequence[ArmSearch], pool: Pool, done: Callable[[ArmSearch], None]) -> None:
        """Run searches side by side: in each round, everything that they ask for."""
        asking: dict[int, tuple[Generator[Asked, Sequence[Seen], None], Asked]] = {}
        for i, found in enumerate(searches):
            steps = found.ask()
            asking[i] = steps, next(steps)
        while asking:
            points = [(i, self._point(searches[i], load, r)) for i, (_, asked) in asking.items() for load, r in asked]
            results: dict[int, dict[tuple[float, int], Seen]] = {i: {} for i in asking}
            for n, seen in pool.compute([point for _, point in points]):
                i, point = points[n]
                results[i][point.load, point.replication] = seen
                self.tasks += 1
            for i, (steps, asked) in list(asking.items()):
                try:
                    asking[i] = steps, steps.send([results[i][which] for which in asked])
                except StopIteration:
                    del asking[i]
                    done(searches[i])

    def _point(self, found: ArmSearch, load: float, replication: int) -> Point:
        return Point(self.definition, self.run, self.axis, found.world, found.arm, load, replication)

    def _chart(self, pool: Pool, say: Say) -> None:
        """A grid of loads that all arms are simulated at, for charts and break-even loads."""
        tops = [c.estimate or c.high for c in (found.capacity() for found in self.base)]
        top = max((t for t in tops if t is not None), default=self.axis.stated)
        known = [load for found in self.base for load in found.seen]
        loads = sorted({_near(self.axis.rounded(top * share), known) for share in self.effort.chart})
        points = [self._point(found, load, r) for found in self.base if found.error is None for load in loads
                  for r in range(self.effort.chart_replications)
                  if len(found.seen.get(load, ())) <= r and not found.hopeless(load)]
        say(f"{len(points)} replications at {len(loads)} common loads, for the charts")
        for found in self.base:
            for load in loads:
                found.seen.setdefault(load, [])
        gathered: dict[tuple[int, float], dict[int, Seen]] = {}
        for n, seen in pool.compute(points):
            point = points[n]
            gathered.setdefault((point.arm, point.load), {})[point.replication] = seen
            self.tasks += 1
        for (arm, load), by_replication in gathered.items():
            self.base[arm].seen[load] += [by_replication[r] for r in sorted(by_replication)]
        self.grid = loads

    def _other_worlds(self, pool: Pool, say: Say) -> None:
        e, searches = self.effort, list[ArmSearch]()
        for name, world in WORLDS.items():
            self.worlds[name] = []
            for setup, base in zip(self.setups, self.base, strict=True):
                same = world.acceptance != 1.0 and setup.drafter is None  # nothing to accept: the same world
                if same or base.error is not None:
                    self.worlds[name].append(base)
                    continue
                c = base.capacity()
                start = c.estimate or (min(base.decisions) if c.low is None else c.low)
                known = c.low is not None and c.high is not None
                found = self._search(
                    setup, world, start * (world.guess(setup.drafter is not None) if known else 1.0),
                    1.0 + 0.9 * e.world_resolution if known else 2.0, e.world_most, e.world_resolution)
                self.worlds[name].append(found)
                searches.append(found)
        say(f"sensitivity: {len(searches)} searches in {len(WORLDS)} other worlds")
        left = [len(searches)]

        def done(found: ArmSearch) -> None:
            left[0] -= 1
            world = next(name for name, found_in in self.worlds.items() if any(found is f for f in found_in))
            say(f"{world}: {self._name(found)}: {self._found(found)} ({left[0]} left)")

        self._drive(searches, pool, done)

    # -- what it means ---------------------------------------------------------------------------------------------
    def results(self, *, interrupted: bool = False) -> PlanResults:
        """Everything put together."""
        capacities = [found.capacity() for found in self.base]
        arms = [self._arm(i, capacities) for i in range(len(self.setups))]
        worlds = self._world_plans(capacities) if self.worlds else []
        lossless = {s.name: c for s, c in zip(self.setups, capacities, strict=True) if s.policy_source.lossless}
        found = PlanResults(
            name=self.scenario.name, description=self.scenario.description or "", seed=self.scenario.seed,
            axis=self.axis, need=self.need, target=self.scenario.plan.attainment, promises=self.promised, arms=arms,
            worlds=worlds, winner=winner(lossless), interrupted=interrupted, quick=self.quick, tasks=self.tasks,
            assumptions=assumptions_of(self), facts=self._facts(),
        )
        return replace(found, warnings=warnings_of(self, found), answer=answer(found, self.need))

    def _arm(self, i: int, capacities: Sequence[Capacity]) -> ArmPlan:
        setup, found, capacity, p = self.setups[i], self.base[i], capacities[i], self.scenario.plan
        price, bracket = price_of(setup, self.price), found.bracket
        assert bracket is not None
        sizing = size(capacity, self.need, price, setup.gpus, n_plus_one=p.n_plus_one, headroom=p.headroom,
                      users=self.need.unit == self.axis.unit)
        acceptance: BreakEven | None = None
        load: BreakEven | None = None
        if i > 0 and found.error is None:
            load = self._load_of(i)
            if self.worlds and setup.drafter is not None:
                acceptance = self._acceptance_of(i, capacities)
        return ArmPlan(
            setup.name, setup.policy_reference, setup.drafter, setup.policy_source.lossless, setup.gpus, capacity,
            limit_of(found, setup, self.promised), sizing, price, load_points(found), bracket.undecided,
            bracket.violations, acceptance, load, found.error,
        )

    def _acceptance_of(self, i: int, capacities: Sequence[Capacity]) -> BreakEven:
        pairs = [(1.0, capacities[i], capacities[0])]
        pairs += [(world.acceptance, self.worlds[name][i].capacity(), self.worlds[name][0].capacity())
                  for name, world in WORLDS.items() if world.acceptance != 1.0]
        known = [(f, arm.estimate, first.estimate) for f, arm, first in pairs if not (arm.open or first.open)]
        return break_even_acceptance(sorted(known, key=lambda point: point[0]))

    def _load_of(self, i: int) -> BreakEven:
        def speed(found: ArmSearch, load: float) -> float | None:
            return mean([one.figures.get("tps_user_mean") for one in found.seen.get(load, ())])

        loads = sorted(getattr(self, "grid", sorted(set(self.base[0].seen) & set(self.base[i].seen))))
        return break_even_load([(x, speed(self.base[i], x), speed(self.base[0], x)) for x in loads], self.axis.unit)

    def _world_plans(self, capacities: Sequence[Capacity]) -> list[WorldPlan]:
        names = [s.name for s in self.setups]
        lossless = {s.name for s in self.setups if s.policy_source.lossless}
        rows = [(BASE, World(), dict(zip(names, capacities, strict=True)))]
        rows += [(name, WORLDS[name], {n: f.capacity() for n, f in zip(names, found, strict=True)})
                 for name, found in self.worlds.items()]
        return [WorldPlan(name, vars(world), found, winner({n: c for n, c in found.items() if n in lossless}))
                for name, world, found in rows]

    def _facts(self) -> dict[str, Any]:
        from dspark_sim.manifest import environment, inputs

        return {**inputs(self.scenario, self.setups), "scenario_text": self.scenario.source.text,
                "scenario_file": self.definition.file, "settings": dict(self.definition.settings), **environment()}


def _near(load: float, known: Sequence[float]) -> float:
    """A load that was looked at already and is nearly ``load``, else itself: what was simulated is not done again."""
    return next((x for x in sorted(known, key=lambda x: abs(x - load)) if abs(x - load) <= NEAR * load), load)


def plan(
    scenario: str | Path | Scenario, *, overrides: Mapping[str, Any] | None = None, seed: int | None = None,
    quick: bool = False, price: float | None = None, sensitivity: bool = True, jobs: int | None = 1,
    say: Say = lambda text: None,
) -> PlanResults:
    """How much each arm of a scenario can serve within its SLAs, what the demand needs, and what that costs.

    Args:
        scenario: a name on the shelf, a path, or a loaded scenario.
        overrides, seed: dotted keys to set, and the seed.
        quick: fewer replications.
        price: per GPU and hour, instead of the profile's.
        sensitivity: look at other worlds too.
        jobs: replications at a time; None: all cores.
        say: called with a sentence now and then.

    Raises:
        InputError: the scenario cannot be planned.
        KeyboardInterrupt: before anything was known.
    """
    planner = Planner(definition_of(scenario, overrides or {}, seed), quick=quick, price=price, sensitivity=sensitivity)
    stopped: list[bool] = []
    planner.work(jobs, say, lambda: stopped.append(True))
    return planner.results(interrupted=bool(stopped))
