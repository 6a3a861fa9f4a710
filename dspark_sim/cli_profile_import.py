"""``dspark-sim profile import …``: a profile out of what other tools measured."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from dspark_sim.commands.output import guarded

__all__ = ["imports"]

imports = typer.Typer(
    help="Make a profile out of what other tools measured.", no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Out = Annotated[Path, typer.Option("--out", metavar="FOLDER", help="The profile's folder; its name is the profile's.")]
Force = Annotated[bool, typer.Option("--force", help="Replace the profile that the folder holds.")]
Files = Annotated[list[Path], typer.Argument(metavar="FILE...", help="Results, in any order.")]
Model = Annotated[str, typer.Option("--model", help="What was served, for the provenance.")]
Device = Annotated[str, typer.Option("--device", help="On what, e.g. '2x NVIDIA H100', for the provenance.")]
Gpus = Annotated[int, typer.Option("--gpus", min=1, help="GPUs of the engine that was measured.")]
Software = Annotated[str | None, typer.Option("--software", help="Engine and version. Default: what the files say.")]
Date = Annotated[str | None, typer.Option("--date", help="YYYY-MM-DD of the measurement. Default: what the files say.")]
Seqs = Annotated[
    int | None, typer.Option("--max-num-seqs", min=1, help="Requests at once. Default: the most that was measured.")
]
DraftTokens = Annotated[
    int | None, typer.Option("--draft-tokens", min=0, metavar="K", help="Draft tokens per request and step, where the "
                             "files do not say.")
]


class Time(StrEnum):
    """Which figure of a serving benchmark is a step."""

    tpot = "tpot"
    itl = "itl"


class Weights(StrEnum):
    """Precision of the weights."""

    bf16 = "bf16"
    fp8 = "fp8"
    fp8_block = "fp8_block"


@imports.command("aiconfigurator")
@guarded
def import_aiconfigurator(
    out: Out,
    model: Annotated[str, typer.Option("--model", help="As on Hugging Face, e.g. Qwen/Qwen3-8B.")],
    gpu: Annotated[str, typer.Option("--gpu", help="e.g. h100, h200, b200.")],
    tp: Annotated[int, typer.Option("--tp", min=1, help="Tensor-parallel GPUs.")] = 1,
    backend: Annotated[str, typer.Option("--backend", help="Whose kernels: vllm, sglang or trtllm.")] = "vllm",
    version: Annotated[
        str | None, typer.Option("--backend-version", help="Default: the one that the package calls current.")
    ] = None,
    weights: Annotated[Weights, typer.Option("--weights", help="Precision of the weights.")] = Weights.bf16,
    host_ms: Annotated[
        float, typer.Option("--host-ms", min=0, max=1000, help="Host and sampler, added to every step: kernels know "
                                                               "none.")
    ] = 1.0,
    graphs: Annotated[
        str, typer.Option("--graph-sizes", help="Sizes that batches are padded up to: vllm, vllm:LIMIT, none, or "
                                                "1,2,4,8.")
    ] = "vllm",
    eager_ms: Annotated[
        float, typer.Option("--eager-ms", min=0, max=10_000, help="Added to steps above the largest graph.")
    ] = 0.0,
    blocks: Annotated[
        str, typer.Option("--draft-blocks", help="Block sizes of DSpark and DFlash to price, or none.")
    ] = "7,5",
    draft_context: Annotated[
        int, typer.Option("--draft-context", min=1, max=131_072, help="Context at which a drafter's attention is "
                                                                      "priced.")
    ] = 1024,
    memory_share: Annotated[
        float, typer.Option("--memory-share", min=0.05, max=1, help="Of the GPU's memory that the engine may use.")
    ] = 0.9,
    max_num_seqs: Annotated[int, typer.Option("--max-num-seqs", min=1, max=256, help="Requests at once.")] = 256,
    max_num_batched_tokens: Annotated[
        int, typer.Option("--max-num-batched-tokens", min=1, max=8192, help="Tokens of a step.")
    ] = 8192,
    force: Force = False,
) -> None:
    """From NVIDIA's measured operator tables (extra aiconfigurator): any of its GPUs, without the GPU."""
    from dspark_sim.commands.profile_import import aiconfigurator_command

    aiconfigurator_command(
        out, model=model, gpu=gpu, tp=tp, backend=backend, version=version, weights=weights.value, host_ms=host_ms,
        graphs=graphs, eager_ms=eager_ms, blocks=blocks, draft_context=draft_context, memory_share=memory_share,
        max_num_seqs=max_num_seqs, max_num_batched_tokens=max_num_batched_tokens, force=force,
    )


@imports.command("vllm")
@guarded
def import_vllm(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE...", help="Results of vllm bench serve at several concurrencies; or "
                                  "of vllm bench latency as FILE=BATCH or FILE=BATCH/OUTPUT_TOKENS.")
    ],
    out: Out, model: Model, device: Device, gpus: Gpus = 1, time: Annotated[
        Time, typer.Option("--time", help="tpot: mean TPOT times acceptance length; itl: median ITL, a step's gap.")
    ] = Time.tpot,
    draft_tokens: DraftTokens = None, output_len: Annotated[
        int | None, typer.Option("--output-len", min=2, help="Of bench latency, where FILE=BATCH does not say.")
    ] = None,
    software: Software = None, date: Date = None, max_num_seqs: Seqs = None, force: Force = False,
) -> None:
    """From results of vllm bench serve --save-result, or of vllm bench latency --output-json."""
    from dspark_sim.commands.profile_import import vllm_command

    vllm_command(files, out, model=model, device=device, gpus=gpus, time=time.value, draft_tokens=draft_tokens,
                 output_len=output_len, software=software, date=date, max_num_seqs=max_num_seqs, force=force)


@imports.command("sglang")
@guarded
def import_sglang(
    files: Files, out: Out, model: Model, device: Device, gpus: Gpus = 1,
    time: Annotated[
        Time, typer.Option("--time", help="Of bench_serving: tpot, or itl; either times the acceptance length.")
    ] = Time.tpot,
    draft_tokens: DraftTokens = None, software: Software = None, date: Date = None, max_num_seqs: Seqs = None,
    force: Force = False,
) -> None:
    """From JSON lines of sglang.bench_one_batch or sglang.bench_serving."""
    from dspark_sim.commands.profile_import import sglang_command

    sglang_command(files, out, model=model, device=device, gpus=gpus, time=time.value, draft_tokens=draft_tokens,
                   software=software, date=date, max_num_seqs=max_num_seqs, force=force)


@imports.command("sps")
@guarded
def import_sps(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What --speculative-dspark-sps-table-path takes.")],
    out: Out, model: Model, device: Device, gpus: Gpus = 1,
    drafter: Annotated[
        str, typer.Option("--drafter", help="Whose cost is inside the table; none: of a server without drafts.")
    ] = "dspark",
    software: Software = None, date: Date = None, max_num_seqs: Seqs = None, force: Force = False,
) -> None:
    """From the table of steps per second that SGLang's DSpark scheduler uses."""
    from dspark_sim.commands.profile_import import sps_command

    sps_command(file, out, model=model, device=device, gpus=gpus, drafter=drafter, software=software, date=date,
                max_num_seqs=max_num_seqs, force=force)
