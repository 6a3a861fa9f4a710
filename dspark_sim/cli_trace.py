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


Device = Annotated[str, typer.Option("--device", help="auto, cpu, cuda, cuda:0, …")]
Threads = Annotated[int | None, typer.Option("--threads", min=1, help="CPU threads. Default: all cores.")]


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


@traces.command("sample")
@guarded
def trace_sample(
    target: Annotated[str, typer.Argument(metavar="TARGET", help="gemma-3-270m, or a Hugging Face model's folder.")],
    prompts: Annotated[
        list[Path], typer.Argument(metavar="PROMPTS...", help="JSONL files with keys domain and prompt.")
    ],
    out: Annotated[Path, typer.Option("--out", metavar="CORPUS", help="Folder of the responses.")],
    responses: Annotated[int, typer.Option("--responses", min=1, help="Per prompt.")] = 2,
    tokens: Annotated[int, typer.Option("--tokens", min=1, help="Longest response.")] = 384,
    temperature: Annotated[float, typer.Option("--temperature", min=0, max=10, help="0 is greedy.")] = 1.0,
    held_out: Annotated[
        float, typer.Option("--held-out", help="Share of each domain's prompts kept from training.")
    ] = 0.2,
    split: Annotated[str | None, typer.Option("--split", help="Only train or held-out prompts.")] = None,
    split_seed: Annotated[
        int, typer.Option("--split-seed", min=0, max=2**32,
                          help="Which prompts are held out; one for all corpora of a study.")
    ] = 0,
    seed: Annotated[int, typer.Option("--seed", min=0, max=2**32, help="Of the responses.")] = 0,
    batch: Annotated[int, typer.Option("--batch", min=1, help="Responses decoded together.")] = 64,
    shard: Annotated[
        str, typer.Option("--shard", metavar="I/N", help="Every n-th part: for several processes.")
    ] = "0/1",
    device: Device = "auto",
    dtype: Annotated[str, typer.Option("--dtype", help="float32, bfloat16 or float16.")] = "float32",
    threads: Threads = None,
) -> None:
    """Responses that a target writes itself: what drafters are trained on and traces are collected from."""
    from dspark_sim.commands.lab_output import lab_needed
    from dspark_sim.commands.trace_sample import sample_command

    lab_needed("trace sample")
    sample_command(target, prompts, out=out, responses=responses, tokens=tokens, temperature=temperature,
                   held_out=held_out, split=split, split_seed=split_seed, seed=seed, batch=batch, shard=shard,
                   device=device, dtype=dtype, threads=threads)


@traces.command("train")
@guarded
def trace_train(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="dspark, dflash, eagle3 or mtp.")],
    target: Annotated[str, typer.Option("--target", help="gemma-3-270m, or a Hugging Face model's folder.")],
    corpus: Annotated[
        Path, typer.Option("--corpus", help="Folder that `trace sample` wrote; features are kept in it.")
    ],
    out: Annotated[Path, typer.Option("--out", metavar="FOLDER", help="The drafter's checkpoint and log.")],
    block_size: Annotated[int, typer.Option("--block-size", min=1, max=63, help="Draft tokens per round.")] = 7,
    layers: Annotated[int, typer.Option("--layers", min=1, help="Draft layers.")] = 1,
    head: Annotated[str, typer.Option("--head", help="dspark: vanilla, gated or rnn.")] = "vanilla",
    rank: Annotated[int, typer.Option("--rank", min=0, help="dspark: of the Markov head; 0 for none.")] = 256,
    confidence: Annotated[bool, typer.Option(help="dspark: train a confidence head.")] = True,
    draft_vocabulary: Annotated[
        int, typer.Option("--draft-vocabulary", min=1, help="Likeliest tokens that the drafter can propose.")
    ] = 8192,
    target_layers: Annotated[
        str | None, typer.Option("--target-layers", metavar="A,B,…", help="Layers to fuse. Default: five, spread.")
    ] = None,
    steps: Annotated[int, typer.Option("--steps", min=1, help="Optimiser steps.")] = 1500,
    sequences: Annotated[int, typer.Option("--sequences", min=1, help="Responses per step.")] = 8,
    anchors: Annotated[int, typer.Option("--anchors", min=1, help="Blocks per response.")] = 16,
    learning_rate: Annotated[float, typer.Option("--learning-rate", min=1e-9, max=1, help="Peak of the rate.")] = 5e-4,
    seed: Annotated[int, typer.Option("--seed", min=0, max=2**32, help="Of weights and batches.")] = 0,
    precision: Annotated[str, typer.Option("--precision", help="float32 or bfloat16.")] = "bfloat16",
    validation: Annotated[
        Path | None, typer.Option("--validation", metavar="CORPUS", help="Held-out responses, for the curves.")
    ] = None,
    device: Device = "auto",
    threads: Threads = None,
    plot: Annotated[bool, typer.Option("--plot/--no-plots", help="Draw the loss curve.")] = True,
    warm: Annotated[
        bool, typer.Option("--warm-start/--cold-start", help="Begin with a linear prediction of the target's state.")
    ] = True,
) -> None:
    """Train a drafter; a run that was stopped or killed goes on where it was."""
    from dspark_sim.commands.lab_output import lab_needed
    from dspark_sim.commands.trace_train import layers_of, train_command

    lab_needed("trace train")
    train_command(kind, target=target, corpus=corpus, out=out, block_size=block_size, layers=layers, head=head,
                  rank=rank, confidence=confidence, draft_vocabulary=draft_vocabulary,
                  layer_ids=layers_of(target_layers), steps=steps, sequences=sequences, anchors=anchors,
                  learning_rate=learning_rate, seed=seed, precision=precision, validation=validation, device=device,
                  threads=threads, plot=plot, warm=warm)


@traces.command("collect")
@guarded
def trace_collect(
    target: Annotated[str, typer.Argument(metavar="TARGET", help="gemma-3-270m, or a Hugging Face model's folder.")],
    drafters: Annotated[
        list[str], typer.Option("--drafters", metavar="[NAME=]FOLDER", help="A drafter's checkpoint; may be repeated.")
    ],
    corpus: Annotated[Path, typer.Option("--corpus", help="Folder that `trace sample` wrote.")],
    out: Annotated[Path, typer.Option("--out", metavar="FOLDER", help="The traces: a NAME.parquet per drafter.")],
    temperature: Annotated[
        float | None, typer.Option("--temperature", min=0, max=10, help="Default, and allowed: the corpus's own.")
    ] = None,
    split: Annotated[str, typer.Option("--split", help="held-out, train or all.")] = "held-out",
    documents: Annotated[
        int | None, typer.Option("--documents", min=1, help="At most so many, of each domain its share. Default: all.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, max=2**32, help="Of drawing tokens.")] = 0,
    shard: Annotated[
        str, typer.Option("--shard", metavar="I/N", help="Every n-th part: for several processes.")
    ] = "0/1",
    device: Device = "auto",
    dtype: Annotated[str, typer.Option("--dtype", help="Of the target: float32, bfloat16 or float16.")] = "float32",
    threads: Threads = None,
    form: Form = Format.table,
) -> None:
    """Exact acceptance traces of several drafters over the same responses; a killed run goes on where it was."""
    from dspark_sim.commands.lab_output import lab_needed
    from dspark_sim.commands.trace_collect import collect_command

    lab_needed("trace collect")
    collect_command(target, drafters, corpus=corpus, out=out, temperature=temperature, split=split, documents=documents,
                    seed=seed, shard=shard, device=device, dtype=dtype, threads=threads, form=form.value)


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
    seed: Annotated[int, typer.Option("--seed", min=0, max=2**32, help="Which documents go where.")] = 0,
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
