"""dspark-sim plan."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from dspark_sim.commands.output import emit, emit_console, note
from dspark_sim.commands.run import overrides_of, refuse_local
from dspark_sim.stopping import exit_code

if TYPE_CHECKING:
    from dspark_sim.plan_results import PlanResults
    from dspark_sim.scenario import Scenario

__all__ = ["plan_command"]


def plan_command(
    reference: str, *, quick: bool, price: float | None, jobs: int | None, sensitivity: bool, seed: int | None,
    settings: Sequence[str], out: Path | None, form: str, quiet: bool, plots: bool, local_policies: bool,
) -> None:
    """Plan a scenario and print the answer; exits with 1 when an arm failed, 130 after Ctrl-C."""
    from dspark_sim.plan_folder import PLANS, write_plan
    from dspark_sim.plan_tasks import definition_of
    from dspark_sim.planner import Planner
    from dspark_sim.rundir import RunFolder

    def check(scenario: Scenario) -> None:
        refuse_local(scenario, not local_policies, quiet)

    definition = definition_of(reference, overrides_of(settings), seed)
    planner = Planner(definition, quick=quick, price=price, sensitivity=sensitivity, check=check)
    stopped: list[bool] = []
    with RunFolder(planner.scenario.name, out, PLANS) as folder:
        try:
            planner.work(jobs, (lambda text: None) if quiet else note, lambda: stopped.append(True))
        except KeyboardInterrupt:
            note("stopped before the capacities were known; nothing was written")
            raise typer.Exit(exit_code()) from None
        results = planner.results(interrupted=bool(stopped))
        show(results, form)
        problem = write_plan(results, folder, command=sys.argv, plots=plots)
        path = folder.finish()
    if problem is not None:
        note(problem)
    if not quiet:
        note(f"\nresults in {path}" + (f"; to read or print: {path / 'capacity.html'}"
                                       if (path / "capacity.html").is_file() else ""))
    if stopped:
        note("stopped: the capacities are complete; charts or sensitivity are missing")
        raise typer.Exit(exit_code())
    for arm in results.arms:
        if arm.error is not None:
            note(f"error: arm {arm.arm} failed: {arm.error}")
    if results.failed:
        raise typer.Exit(1)


def show(results: PlanResults, form: str) -> None:
    """Print to stdout in one of the three forms."""
    if form == "json":
        emit(results.to_json())
    elif form == "csv":
        emit(results.to_csv())
    else:
        from dspark_sim.plan_render import show as draw

        emit_console(lambda console: draw(results, console))
