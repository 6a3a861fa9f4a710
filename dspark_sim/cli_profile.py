"""``dspark-sim profile …``: the options of its commands; :mod:`dspark_sim.cli` registers the group.

A command's work is imported inside the command, so that ``--help`` stays quick and torch stays optional.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dspark_sim.cli_options import Form, Format
from dspark_sim.cli_profile_import import imports
from dspark_sim.commands.output import guarded

__all__ = ["profiles"]

profiles = typer.Typer(
    help="Hardware profiles: what an engine's steps cost, and how that is known.", no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
profiles.add_typer(imports, name="import")


@profiles.command("list")
@guarded
def profile_list(form: Form = Format.table) -> None:
    """Hardware profiles on the shelf."""
    from dspark_sim.commands.profile import list_command

    list_command(form.value)


@profiles.command("show")
@guarded
def profile_show(
    profile: Annotated[str, typer.Argument(metavar="PROFILE", help="A name on the shelf, or a path.")],
    form: Form = Format.table,
    plot: Annotated[Path | None, typer.Option("--plot", help="Draw the staircase into this PNG, SVG or PDF.")] = None,
) -> None:
    """A profile: its step times as a picture, its costs, and where they come from."""
    from dspark_sim.commands.profile import show_command

    show_command(profile, form.value, plot)
