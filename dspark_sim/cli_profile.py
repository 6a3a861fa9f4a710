"""``dspark-sim profile …``: the options of its commands; :mod:`dspark_sim.cli` registers the group.

A command's work is imported inside the command, so that ``--help`` stays quick and torch stays optional.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dspark_sim.cli_options import Form, Format, Quiet
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


@profiles.command("measure")
@guarded
def profile_measure(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="qwen3-4b, qwen3-8b, qwen3-14b (random weights), gemma-3-270m, the "
                            "folder of a Hugging Face model, or a config.json (random weights).")
    ],
    out: Annotated[
        Path, typer.Option("--out", metavar="FOLDER", help="The profile's folder. Points are kept beside it until it "
                                                           "is "
                           "whole: the same command goes on with a measurement that was stopped.")
    ],
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda, cuda:0, …")] = "auto",
    dtype: Annotated[str, typer.Option("--dtype", help="float32, bfloat16 or float16.")] = "float32",
    threads: Annotated[int | None, typer.Option("--threads", min=1, help="CPU threads. Default: PyTorch's.")] = None,
    tokens: Annotated[
        list[str], typer.Option("--tokens", metavar="1,2,4,…", help="Batch tokens of verify steps. Default: 1 to 64; "
                                                                    "on "
                                "CUDA vLLM's sizes to 512, and six above.")
    ] = [],  # noqa: B006 - typer reads it, nobody writes it
    context: Annotated[
        list[str], typer.Option("--context", metavar="128,512", help="Tokens of KV cache per request; the curve is at "
                                                                     "the "
                                "first. Default: 128,512; on CUDA 512,4096.")
    ] = [],  # noqa: B006
    width: Annotated[int, typer.Option("--width", min=1, max=64, help="Tokens per request of a verify step.")] = 8,
    requests: Annotated[
        list[str], typer.Option("--requests", metavar="1,2,4,…", help="Requests of drafters' rounds. Default: 1 to 8; "
                                                                      "on "
                                "CUDA 1 to 256.")
    ] = [],  # noqa: B006
    drafter: Annotated[
        list[str], typer.Option("--drafter", metavar="KIND|NAME=FOLDER", help="dspark, dflash, eagle3, mtp (random "
                                                                              "weights) "
                                "or a checkpoint; may be repeated; none. Default: the first three.")
    ] = ["dspark", "dflash", "eagle3"],  # noqa: B006
    block: Annotated[int, typer.Option("--block", min=1, max=16, help="Draft tokens of drafters without "
                                                                      "checkpoint.")] = 7,
    layers: Annotated[
        int, typer.Option("--draft-layers", min=1, max=16, help="Of dspark and dflash without checkpoint.")
    ] = 5,
    repeat: Annotated[int, typer.Option("--repeat", min=3, max=10_000, help="Repetitions of each point.")] = 15,
    graph_limit: Annotated[
        int, typer.Option("--graph-limit", min=1, max=8192, help="On CUDA: larger steps are timed without graphs.")
    ] = 512,
    force: Annotated[bool, typer.Option("--force", help="Replace the profile that the folder holds.")] = False,
    quiet: Quiet = False,
) -> None:
    """Time a model's verify steps and its drafters on this machine (extra lab)."""
    from dspark_sim.commands.profile_measure import measure_command

    measure_command(model, out, device=device, dtype=dtype, threads=threads, tokens=tokens, contexts=context,
                    width=width, requests=requests, drafters=drafter, block=block, layers=layers, repeat=repeat,
                    graph_limit=graph_limit, force=force, quiet=quiet)
