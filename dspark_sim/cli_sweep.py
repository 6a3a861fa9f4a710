"""``dspark-sim sweep``: its options; :mod:`dspark_sim.cli` registers it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dspark_sim.cli_options import DecisionTimeout, Form, Format, NoLocal, Quiet, ScenarioName, Seed, Settings
from dspark_sim.commands.output import guarded

__all__ = ["sweep"]


@guarded
def sweep(
    scenario: ScenarioName,
    over: Annotated[
        list[str], typer.Option("--over", metavar="KEY=VALUES", help="Vary a dotted key: a=1,2,4 or a=1:256:*2; "
                                "repeated, the keys make a grid. Default: the scenario's section sweep.")
    ] = [],  # noqa: B006 - typer reads it, nobody writes it
    replications: Annotated[
        int | None, typer.Option("--replications", min=1, help="Instead of the scenario's.")
    ] = None,
    seed: Seed = None,
    settings: Settings = [],  # noqa: B006
    jobs: Annotated[
        int | None, typer.Option("--jobs", "-j", min=1, help="Tasks at a time. Default: all cores.")
    ] = None,
    backend: Annotated[
        str, typer.Option("--backend", help="Where to compute: loky (this machine), dask, ray.")
    ] = "loky",
    address: Annotated[
        str | None, typer.Option("--address", help="A running dask or ray cluster. Default: a local one is started.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder, new or of an earlier sweep, which goes on. Default: "
                                  "sweeps/NAME-DEFINITION, so the same command goes on by itself.")
    ] = None,
    form: Form = Format.table,
    quiet: Quiet = False,
    no_plots: Annotated[bool, typer.Option("--no-plots", help="Draw no pictures, write no report.html.")] = False,
    no_local_policies: NoLocal = False,
    decision_timeout: DecisionTimeout = None,
) -> None:
    """Compare the arms over a grid of settings, on all cores; survives being killed."""
    from dspark_sim.commands.sweep import sweep_command
    from dspark_sim.guard import limited

    with limited(decision_timeout):
        sweep_command(scenario, over=over, replications=replications, seed=seed, settings=settings, jobs=jobs,
                      backend=backend, address=address, out=out, form=form.value, quiet=quiet,
                      local_policies=not no_local_policies, plots=not no_plots)
