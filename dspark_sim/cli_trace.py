"""``dspark-sim trace …``: the options of its commands; :mod:`dspark_sim.cli` registers the group.

A command's work is imported inside the command, so that ``--help`` stays quick and torch stays optional.
"""

from __future__ import annotations

from typing import Annotated

import typer

from dspark_sim.cli_options import Form, Format
from dspark_sim.commands.output import guarded

__all__ = ["traces"]

traces = typer.Typer(
    help="Acceptance traces: what drafters' tokens did against a target.", no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@traces.command("list")
@guarded
def trace_list(form: Form = Format.table) -> None:
    """Targets on the shelf and their drafters."""
    from dspark_sim.commands.trace import list_command

    list_command(form.value)


@traces.command("show")
@guarded
def trace_show(
    target: Annotated[str, typer.Argument(metavar="TARGET", help="A target on the shelf, or a path.")],
    drafter: Annotated[str | None, typer.Argument(metavar="[DRAFTER]", help="One drafter; all without it.")] = None,
    form: Form = Format.table,
) -> None:
    """Acceptance by domain and position, and where it comes from."""
    from dspark_sim.commands.trace import show_command

    show_command(target, drafter, form.value)
