"""``dspark-sim rank``: its options; :mod:`dspark_sim.cli` registers it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dspark_sim.cli_options import Form, Format, NoLocal, Quiet, Seed, Settings
from dspark_sim.commands.output import guarded

__all__ = ["rank"]


@guarded
def rank(
    scenario: Annotated[list[str], typer.Argument(metavar="SCENARIO...", help="Names on the shelf, or paths.")],
    policies: Annotated[
        str | None, typer.Option("--policies", metavar="A,B(x=1),C@drafter", help="Who takes part; the first is the "
                                 "baseline. Default: async_global and every lossless policy of the shelf.")
    ] = None,
    loads: Annotated[
        str, typer.Option("--loads", metavar="8,32,128", help="Concurrency (closed loops) or requests per second (open "
                          "ones). Default: as the scenario has it.")
    ] = "",
    replications: Annotated[
        int | None, typer.Option("--replications", min=1, help="Of every cell, instead of the scenario's.")
    ] = None,
    robustness: Annotated[
        bool, typer.Option("--robustness", help="Also with wrong confidences and step times, lower acceptance, spikes.")
    ] = False,
    drafter: Annotated[
        str | None, typer.Option("--drafter", help="For all policies that name none. Default: the scenario's first one "
                                 "with confidences.")
    ] = None,
    jobs: Annotated[int | None, typer.Option("--jobs", "-j", min=1, help="Processes. Default: all cores.")] = None,
    limit: Annotated[
        float, typer.Option("--time-limit", min=1.0, help="Seconds that one replication of one policy may take.")
    ] = 300.0,
    markdown: Annotated[Path | None, typer.Option("--markdown", help="Write the tables into this file.")] = None,
    picture: Annotated[Path | None, typer.Option("--picture", help="Draw into this PNG, SVG or PDF.")] = None,
    settings: Settings = [],  # noqa: B006 - typer reads it, nobody writes it
    seed: Seed = None,
    form: Form = Format.table,
    quiet: Quiet = False,
    no_local_policies: NoLocal = False,
) -> None:
    """A leaderboard of policies over scenarios and loads, with paired intervals."""
    from dspark_sim.commands.rank import rank_command

    rank_command(scenario, policies=policies, loads=loads, replications=replications, robustness=robustness,
                 drafter=drafter, jobs=jobs, limit=limit, markdown=markdown, picture=picture, settings=settings,
                 seed=seed, form=form.value, quiet=quiet, local_policies=not no_local_policies)
