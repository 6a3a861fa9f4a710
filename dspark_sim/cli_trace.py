"""``dspark-sim trace …``: the options of its commands; :mod:`dspark_sim.cli` registers the group.

A command's work is imported inside the command, so that ``--help`` stays quick and torch stays optional.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from dspark_sim.cli_options import Form, Format
from dspark_sim.commands.output import guarded

__all__ = ["traces"]

traces = typer.Typer(
    help="Acceptance traces: what drafters' tokens did against a target.", no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Method(StrEnum):
    """How confidences are calibrated."""

    sts = "sts"
    scale_bias = "scale-bias"


class Rows(StrEnum):
    """What a calibration is fitted on."""

    walked = "walked"
    all = "all"


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


@traces.command("calibrate")
@guarded
def trace_calibrate(
    reference: Annotated[
        str, typer.Argument(metavar="TARGET", help="A target on the shelf, a folder of recordings, or one .parquet.")
    ],
    drafter: Annotated[str | None, typer.Argument(metavar="[DRAFTER]", help="Needed where there are several.")] = None,
    method: Annotated[
        Method, typer.Option("--method", help="sts: a temperature per position, as in the DSpark paper; scale-bias: "
                             "slope and shift, for errors that cross 0.5.")
    ] = Method.sts,
    fit_share: Annotated[
        float, typer.Option("--fit-share", help="Share of each domain's documents to fit on; the others measure.")
    ] = 0.5,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Which documents go where.")] = 0,
    domain: Annotated[
        list[str], typer.Option("--domain", help="Only documents of this domain; may be repeated.")
    ] = [],  # noqa: B006 - typer reads it, nobody writes it
    rows: Annotated[
        Rows, typer.Option("--fit-on", help="walked: rounds as a server meets them; all: every text position.")
    ] = Rows.walked,
    bins: Annotated[int, typer.Option("--bins", min=2, max=1000, help="Of the ECE and of the picture.")] = 20,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write the trace with its calibration: a new .parquet.")
    ] = None,
    in_place: Annotated[bool, typer.Option("--in-place", help="Write it into the file that was read.")] = False,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="Draw reliability before and after (PNG, SVG, PDF).")
    ] = None,
    form: Form = Format.table,
) -> None:
    """Make confidences true: fit on some documents, measure on the others, attach to the trace."""
    from dspark_sim.commands.trace_calibrate import calibrate_command

    calibrate_command(reference, drafter, method=method.value, share=fit_share, seed=seed, domains=domain,
                      fit_on=rows.value, bins=bins, out=out, in_place=in_place, plot=plot, form=form.value)
