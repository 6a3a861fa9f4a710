"""Every knob does something: turning it alone changes a result, and a knob that nobody turned here fails the suite.

Simulators are known for options that are parsed and ignored. The cases stand in knob_cases.py; this file turns them,
and walks the models that read scenarios and profiles, and the policies' parameters, to find knobs without a case.
"""

from __future__ import annotations

import typing
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from dspark_sim.errors import InputError
from dspark_sim.profile_schema import ProfileSpec
from dspark_sim.registry import list_policies
from dspark_sim.scenario_schema import ScenarioModel
from tests.knob_cases import CASES, DRAWN, REFUSED, SAID, SWEPT, Case
from tests.knob_cases_policies import POLICY_KNOBS, world_of
from tests.knob_cases_traffic import write_logs
from tests.worlds import World, make_trace

STEEP = {"verify": {"points": [[1, 0.001], [128, 0.128]]}}


def turned(folder: Path, *layers: dict[str, Any]) -> World:
    """The toy world with dotted changes, and beside it what the cases refer to."""
    changes = {key: value for layer in layers for key, value in layer.items()}
    profile = {key.removeprefix("profile:"): value for key, value in changes.items() if key.startswith("profile:")}
    world = World(folder, traces=[make_trace("par", 4, sts=True), make_trace("auto", 3)])
    for name, second in (("a.csv", 0.011), ("b.csv", 0.012)):
        (folder / "profile" / name).write_text(f"batch_tokens,seconds\n1,0.01\n64,{second}\n128,0.05\n")
        (folder / name).write_text("tokens\n20\n" + ("30\n" if name == "a.csv" else "31\n"))
    write_logs(folder)
    world.profile("profile", profile)
    world.profile("other", {"verify.points.0": [1, 0.0099]})
    world.profile("steep", STEEP)
    for trace in (make_trace("par", 4, seed=9, sts=True), make_trace("auto", 3, seed=9)):
        trace.save(folder / "other-traces" / f"{trace.drafter}.parquet")
    world.changes = {key: value for key, value in changes.items() if not key.startswith("profile:")}
    return world


def result(world: World) -> tuple[Any, Any]:
    """(what was computed: every table and figure, what was said: the report's words)."""
    from dspark_sim.runner import run

    results = run(world.scenario(world.changes))
    computed = [
        [None if run.steps is None else run.steps.to_pylist(), run.intervals.to_pylist(), run.requests.to_pylist(),
         run.window, run.error]
        for run in results.runs
    ]
    figures = [(arm.error, {name: figure.to_dict() for name, figure in arm.figures.items()}) for arm in results.arms]
    return (computed, figures), results


def words(world: World, results: Any) -> str:
    """What people read of a run and its inputs, without hashes (they change with every byte of a file)."""
    from typer.testing import CliRunner

    from dspark_sim.cli import app

    shown = CliRunner().invoke(app, ["profile", "show", str(world.folder / "profile")]).output
    lines = (results.to_json() + shown.replace(str(world.folder), "")).splitlines()
    return "\n".join(line for line in lines if "sha256" not in line)


@pytest.mark.parametrize("knob", CASES)
def test_turning_a_knob_changes_what_is_computed(knob: str, tmp_path: Path) -> None:
    case = CASES[knob]
    before, _ = result(turned(tmp_path / "a", case.base))
    after, _ = result(turned(tmp_path / "b", case.base, case.turned))
    assert before != after, f"{knob}: {case.turned} changed nothing"


@pytest.mark.parametrize("knob", SAID)
def test_turning_a_knob_changes_what_is_said(knob: str, tmp_path: Path) -> None:
    case: Case = SAID[knob]
    a, b = turned(tmp_path / "a", case.base), turned(tmp_path / "b", case.base, case.turned)
    (before, said), (after, said_after) = result(a), result(b)
    assert before == after, f"{knob} is in the list of words, but it changes numbers"
    assert words(a, said) != words(b, said_after), f"{knob}: {case.turned} is said nowhere"


def test_the_label_of_an_arm_stands_in_the_pictures(tmp_path: Path) -> None:
    from matplotlib.text import Text

    from dspark_sim.plots.arms import throughput
    from dspark_sim.plots.data import RunData
    from dspark_sim.runner import run

    world = turned(tmp_path / "a", DRAWN["Arm.label"].turned)
    run(world.scenario(world.changes), out=tmp_path / "out")
    figure = throughput(RunData(tmp_path / "out"))
    assert figure is not None
    assert any("another" in text.get_text() for text in figure.findobj(Text))


@pytest.mark.parametrize("knob", REFUSED)
def test_turning_a_stated_fact_is_refused(knob: str, tmp_path: Path) -> None:
    case = REFUSED[knob]
    result(turned(tmp_path / "a", case.base))
    with pytest.raises(InputError, match=next(iter(case.turned))):
        result(turned(tmp_path / "b", case.base, case.turned))


@pytest.mark.parametrize("knob", POLICY_KNOBS)
def test_turning_a_parameter_of_a_policy_changes_what_is_computed(knob: str, tmp_path: Path) -> None:
    name = knob.split(".")[0]
    before, after = (
        result(turned(tmp_path / str(i), world_of(knob), {"arms.0.policy": {"name": name, **parameters}}))[0]
        for i, parameters in enumerate(POLICY_KNOBS[knob])
    )
    assert before != after, f"{knob} changed nothing"


def models_in(annotation: Any) -> set[type[BaseModel]]:
    """The pydantic models inside a type, however nested."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return {annotation}
    return {model for part in typing.get_args(annotation) for model in models_in(part)}


def knobs(model: type[BaseModel], seen: set[type[BaseModel]]) -> set[str]:
    """``Model.field`` of a model and of every model in it."""
    if model in seen:
        return set()
    seen.add(model)
    found = set()
    for name, info in model.model_fields.items():
        found.add(f"{model.__name__}.{name}")
        for inner in models_in(info.annotation):
            found |= knobs(inner, seen)
    return found


def test_no_knob_is_without_a_case() -> None:
    existing = knobs(ScenarioModel, set()) | knobs(ProfileSpec, set())
    covered = [*CASES, *SAID, *REFUSED, *DRAWN, *SWEPT]
    assert len(covered) == len(set(covered)), "a knob stands in two lists"
    assert existing - set(covered) == set(), "knobs that no case turns: add them to tests/knob_cases.py"
    assert set(covered) - existing == set(), "cases of knobs that do not exist"


def test_no_parameter_of_a_shipped_policy_is_without_a_case() -> None:
    existing = {f"{source.name}.{name}" for source in list_policies() for name in source.parameters}
    assert existing == set(POLICY_KNOBS)


def test_the_walk_finds_knobs_in_unions_and_lists() -> None:
    found = knobs(ScenarioModel, set()) | knobs(ProfileSpec, set())
    assert {"Gamma.cv", "EmpiricalLengths.values", "Belief.step_scale", "CurveSpec.unit", "KvSpec.blocks"} <= found
