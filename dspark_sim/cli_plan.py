"""``dspark-sim plan``: its options; :mod:`dspark_sim.cli` registers it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dspark_sim.cli_options import Form, Format, NoLocal, Quiet, ScenarioName, Seed, Settings
from dspark_sim.commands.output import guarded

__all__ = ["plan"]


@guarded
def plan(
    scenario: ScenarioName,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer replications and a coarser search.")] = False,
    price: Annotated[
        float | None, typer.Option("--price", help="Per GPU and hour, instead of the profile's (an assumption).")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", "-j", min=1, help="Replications at a time. Default: all cores.")
    ] = None,
    no_sensitivity: Annotated[
        bool, typer.Option("--no-sensitivity", help="Do not ask again at other acceptance, step times, lengths.")
    ] = False,
    seed: Seed = None,
    settings: Settings = [],  # noqa: B006 - typer reads it, nobody writes it
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder to make; must be new or empty. Default: plans/NAME-TIME.")
    ] = None,
    form: Form = Format.table,
    quiet: Quiet = False,
    no_plots: Annotated[bool, typer.Option("--no-plots", help="Draw no pictures, write no capacity.html.")] = False,
    no_local_policies: NoLocal = False,
) -> None:
    """Capacity: the highest load within the SLAs, GPUs for a demand, cost, with intervals; and a report to print."""
    from dspark_sim.commands.plan import plan_command

    plan_command(scenario, quick=quick, price=price, jobs=jobs, sensitivity=not no_sensitivity, seed=seed,
                 settings=settings, out=out, form=form.value, quiet=quiet, plots=not no_plots,
                 local_policies=not no_local_policies)
