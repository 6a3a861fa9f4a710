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


class Kind(StrEnum):
    """What imported rows may be called: drawn or filled in, they are no measurement."""

    derived = "derived"
    published = "published"
    synthetic = "synthetic"


class Given(StrEnum):
    """Which rates they are."""

    conditional = "conditional"
    unconditional = "unconditional"


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


@traces.command("import")
@guarded
def trace_import(
    files: Annotated[
        list[str], typer.Argument(metavar="[FILE]...", help="What was counted; DOMAIN=FILE names the kind of text.")
    ] = [],  # noqa: B006
    out: Annotated[
        Path | None, typer.Option("--out", metavar="PATH", help="Needed. From rates: a .yaml; from a log of rounds: a "
                                  "folder.")
    ] = None,
    target: Annotated[str | None, typer.Option("--target", help="The served model, where no file says it.")] = None,
    drafter: Annotated[str | None, typer.Option("--drafter", help="Its drafter, where no file says it.")] = None,
    temperature: Annotated[float | None, typer.Option("--temperature", min=0, max=10, help="Of sampling.")] = None,
    domain: Annotated[str | None, typer.Option("--domain", help="Of files that name none. Default: all.")] = None,
    form_from: Annotated[
        str, typer.Option("--from", metavar="FORMAT", help="auto, rates, vllm-metrics, vllm-log, vllm-bench, "
                          "vllm-requests, sglang-requests, deepspec or rounds.")
    ] = "auto",
    since: Annotated[
        Path | None, typer.Option("--since", metavar="FILE", help="An earlier /metrics page; its counts are taken off.")
    ] = None,
    model: Annotated[str | None, typer.Option("--model", help="Which model_name of a /metrics page.")] = None,
    rates: Annotated[
        str | None, typer.Option("--rates", metavar="A,B,…", help="Acceptance rates by position, instead of a file.")
    ] = None,
    given: Annotated[
        Given | None, typer.Option("--given", help="What --rates are: of the rounds that reached the position, or of "
                                   "all rounds (as engines print them).")
    ] = None,
    acceptance_length: Annotated[
        float | None, typer.Option("--acceptance-length", metavar="N", help="Only the mean is known, bonus included; "
                                   "with --block-size.")
    ] = None,
    block_size: Annotated[
        int | None, typer.Option("--block-size", min=1, help="Draft tokens per round, where the source does not say.")
    ] = None,
    spread_from: Annotated[
        str | None, typer.Option("--spread-from", metavar="TARGET/DRAFTER", help="Borrow how acceptance varies over "
                                 "the text. Default: independent rounds.")
    ] = None,
    confidence: Annotated[
        bool, typer.Option("--confidence", help="With --spread-from: borrow its confidence too.")
    ] = False,
    kind: Annotated[Kind, typer.Option("--kind", help="What the rows may be called.")] = Kind.derived,
    source: Annotated[str | None, typer.Option("--source", help="A sentence for the provenance.")] = None,
    documents: Annotated[int, typer.Option("--documents", min=2, max=5000, help="Per domain, drawn from rates.")] = 400,
    seed: Annotated[int, typer.Option("--seed", min=0, max=2**32, help="Of the rows drawn from rates.")] = 1,
    force: Annotated[bool, typer.Option("--force", help="Overwrite.")] = False,
    form: Form = Format.table,
) -> None:
    """A trace from acceptance rates, an engine's counters, or a log of rounds; says what it assumes."""
    from dspark_sim.commands.trace_import import import_command
    from dspark_sim.errors import InputError
    from dspark_sim.trace_import.make import Names

    if out is None:
        raise InputError("is missing", key="--out", allowed="a .yaml (from rates) or a folder (from a log of rounds)")
    names = Names(target, drafter, temperature, domain, kind.value, source)
    import_command(files, names=names, form_from=form_from, since=since, model=model, rates=rates,
                   given=None if given is None else given.value, acceptance_length=acceptance_length,
                   block_size=block_size, spread_from=spread_from, confidence=confidence, seed=seed,
                   documents=documents, out=out, force=force, form=form.value)
