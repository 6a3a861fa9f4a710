"""From what a user asked for to a checked grid: the definition, and every point of it loaded with all its arms."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dspark_sim.errors import InputError, ScenarioError
from dspark_sim.sweep_grid import MAX_TASKS, Definition, axes_of, where
from dspark_sim.sweep_tables import GridPoint

if TYPE_CHECKING:
    from dspark_sim.scenario import Scenario

__all__ = ["define", "load_grid"]


def define(
    scenario: str | Path | Scenario, over: Mapping[str, Any] | None = None, *, replications: int | None = None,
    seed: int | None = None, overrides: Mapping[str, Any] | None = None, label: str = "over",
) -> Definition:
    """What to sweep: arguments first, the scenario's ``sweep`` section where they are silent.

    Raises:
        InputError: no such scenario, or a grid that makes no sense; points are not looked at yet.
    """
    from dspark_sim.scenario import read_scenario
    from dspark_sim.scenario_schema import Sweep
    from dspark_sim.yamlio import apply_overrides, validated

    settings = dict(overrides or {})
    if isinstance(scenario, (str, Path)):
        document = read_scenario(scenario)
        assert document.file is not None
        text, base = document.text, document.file.resolve().parent
    else:
        document, base = scenario.source, scenario.base
        text = json.dumps(document.data)  # what was set in it is in its data, not in its text
    document = apply_overrides(document, settings, ScenarioError)
    section = Sweep()
    if isinstance(document.data, dict) and document.data.get("sweep") is not None:
        section = validated(Sweep, document, ScenarioError, at=("sweep",))
    if over:
        axes = axes_of(over, label)
    else:
        axes, label = axes_of(section.over, "sweep.over"), "sweep.over"
    if replications is None and "replications" not in settings:
        replications = section.replications
    settings |= {k: v for k, v in (("seed", seed), ("replications", replications)) if v is not None}
    definition = Definition(text, "" if document.file is None else str(document.file), str(base), settings, axes, label)
    definition.check()
    return definition


def load_grid(definition: Definition, check: Callable[[Scenario], None] | None = None) -> list[GridPoint]:
    """Every point of the grid, loaded and checked with all its arms; nothing runs.

    Args:
        definition: from :func:`define`.
        check: called with each point's scenario before its policies are loaded, to refuse it.

    Raises:
        InputError: the first point that does not work; says which.
    """
    from dspark_sim.arms import Inputs, load_arms
    from dspark_sim.sweep_key import KeyMaker

    inputs, keys, points, total = Inputs(), KeyMaker(), list[GridPoint](), 0
    for number, values in enumerate(definition.points()):
        try:
            scenario = definition.scenario(values)
            if check is not None:
                check(scenario)
            setups = load_arms(scenario, inputs)
        except InputError as problem:
            if definition.size == 1:
                raise
            raise type(problem)(f"{problem.problem} (at the grid point {where(values)})", file=problem.file,
                                line=problem.line, key=problem.key, allowed=problem.allowed,
                                suggestion=problem.suggestion) from None
        total += len(setups) * scenario.replications
        if total > MAX_TASKS:
            raise InputError(f"the sweep has more than {MAX_TASKS} tasks", key=definition.label,
                             allowed="fewer grid points, arms or replications")
        points.append(GridPoint(number, values, scenario, setups, [keys.parts(scenario, setup) for setup in setups]))
    return points
