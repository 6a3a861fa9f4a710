"""dspark-sim scenario list | show | check, and dspark-sim schema."""

from __future__ import annotations

import json
from collections.abc import Sequence

import typer

from dspark_sim.commands.output import emit, emit_rows, note
from dspark_sim.commands.run import overrides_of, refuse_local
from dspark_sim.errors import InputError

__all__ = ["check_command", "list_command", "print_schema", "show_command"]


def list_command(form: str) -> None:
    """Names and first sentences of the scenarios on the shelf."""
    from dspark_sim.scenario import list_scenarios

    rows = [{"name": name, "description": text} for name, text in list_scenarios()]
    emit_rows(rows, form, {"name": "scenario", "description": "question"})


def show_command(reference: str, form: str, settings: Sequence[str], seed: int | None) -> None:
    """The text as written, or (json) the validated scenario with its defaults; csv is refused."""
    from dspark_sim.scenario import load_scenario

    overrides = overrides_of(settings)
    scenario = load_scenario(reference, overrides, seed=seed)
    if form == "csv":
        raise InputError("a scenario is no table", key="--format", allowed="table, json")
    if form == "json":
        emit(json.dumps(scenario.resolved(), indent=2, ensure_ascii=False) + "\n")
        return
    if overrides or seed is not None:
        note("note: the text as written; --format json shows it with --set and --seed applied")
    emit(scenario.source.text if scenario.source.text.endswith("\n") else scenario.source.text + "\n")


def check_command(references: Sequence[str], settings: Sequence[str], *, local_policies: bool) -> None:
    """Load scenarios with their profiles, traces and policies; a line for each, exit code 2 if one is wrong."""
    from dspark_sim.arms import load_arms
    from dspark_sim.scenario import load_scenario

    overrides, wrong = overrides_of(settings), 0
    for reference in references:
        try:
            scenario = load_scenario(reference, overrides)
            refuse_local(scenario, not local_policies, quiet=False)
            setups = load_arms(scenario)
        except InputError as problem:
            wrong += 1
            note(f"error: {problem}")
            continue
        runs = f"{len(setups)} arm{'s' if len(setups) > 1 else ''} × {scenario.replications}"
        emit(f"{reference}: fine ({runs} replication{'s' if scenario.replications > 1 else ''})\n")
        for warning in scenario.warnings():
            note(f"warning: {reference}: {warning}")
    if wrong:
        raise typer.Exit(2)


def print_schema() -> None:
    """The JSON schema of scenarios."""
    from dspark_sim.scenario import json_schema

    emit(json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n")
