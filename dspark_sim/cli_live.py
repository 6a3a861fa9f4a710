"""``dspark-sim validate live``: its options, and how ``validate`` finds it among its cases."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from dspark_sim.cli_options import Form, Format, Quiet
from dspark_sim.commands.output import guarded

__all__ = ["CasesOrLive"]

WORD = "live"
_live = typer.Typer(add_completion=False, context_settings={"help_option_names": ["-h", "--help"]})


@_live.command(WORD)
@guarded
def validate_live(
    drafter: Annotated[Path, typer.Option("--drafter", metavar="FOLDER", help="A drafter's checkpoint.")],
    prompts: Annotated[
        list[Path], typer.Option("--prompts", metavar="PATH", help="The drafter's corpus (a folder of trace sample), "
                                 "or JSONL files with domain and prompt; may be repeated.")
    ],
    target: Annotated[
        str, typer.Option("--target", help="gemma-3-270m, or the folder of a Hugging Face causal LM.")
    ] = "gemma-3-270m",
    arms: Annotated[
        str, typer.Option("--arms", help="Policies with their parameters: fixed:3, threshold:0.5:on=survival, "
                          "./mine.py:Mine.")
    ] = "no_spec,fixed:3,threshold:0.5,early_stop,async_global",
    concurrency: Annotated[str, typer.Option("--concurrency", help="Requests at once, such as 4,8.")] = "4,8",
    tokens: Annotated[int, typer.Option("--tokens", min=2, max=100_000, help="Output tokens of every request.")] = 64,
    temperature: Annotated[float, typer.Option("--temperature", min=0, max=10, help="0 is greedy.")] = 1.0,
    seed: Annotated[int, typer.Option("--seed", min=0, max=2**32, help="Of everything random.")] = 1,
    repeat: Annotated[
        int, typer.Option("--repeat", min=1, max=1000, help="Times that every arm serves all requests.")
    ] = 3,
    requests: Annotated[int, typer.Option("--requests", min=1, max=1000, help="Prompts, the domains in turn.")] = 32,
    max_prompt_tokens: Annotated[
        int, typer.Option("--max-prompt-tokens", min=2, help="Longer ones are left out.")
    ] = 256,
    split: Annotated[
        str, typer.Option("--split", help="held-out: prompts of the file that training never saw; all.")
    ] = "held-out",
    samples: Annotated[
        int | None, typer.Option("--samples", min=1, max=1000, help="Texts per prompt that predictions are made of. "
                                 "Default: as many as repeats.")
    ] = None,
    rounds: Annotated[int, typer.Option("--rounds", min=1, max=10_000, help="Timings of each size of step.")] = 8,
    check_requests: Annotated[
        int, typer.Option("--check-requests", min=0, help="Requests of the greedy comparison; 0: none.")
    ] = 8,
    check_tokens: Annotated[int, typer.Option("--check-tokens", min=2, help="Tokens of each of them.")] = 32,
    calibrate: Annotated[
        bool, typer.Option("--calibrate/--no-calibrate", help="Fit scale and bias of confidences on the texts of "
                           "the prediction, for both worlds.")
    ] = True,
    replay: Annotated[
        bool, typer.Option("--replay/--no-replay", help="Also replay every arm on its own texts.")
    ] = True,
    threads: Annotated[int | None, typer.Option("--threads", min=1, help="CPU threads. Default: all cores.")] = None,
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda, cuda:0, …")] = "auto",
    dtype: Annotated[str, typer.Option("--dtype", help="float32, bfloat16 or float16.")] = "float32",
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder; one that was begun goes on. Default: runs/live-TIME.")
    ] = None,
    write_docs: Annotated[
        Path | None, typer.Option("--write-docs", metavar="PAGE", help="Also write the section of results into a page.")
    ] = None,
    form: Form = Format.table,
    quiet: Quiet = False,
    no_plots: Annotated[bool, typer.Option("--no-plots", help="Draw no picture.")] = False,
) -> None:
    """Lay predictions beside a real engine on this machine: the same policies over real models, step times measured
    just before; exit code 1 when an arm fails or changes the text."""
    from dspark_sim.commands.lab_output import lab_needed
    from dspark_sim.commands.validate_live import validate_live_command

    lab_needed("validate live")
    validate_live_command(
        target, drafter, prompts, arms=arms, concurrency=concurrency, tokens=tokens, temperature=temperature, seed=seed,
        repeat=repeat, requests=requests, longest=max_prompt_tokens, split=split, samples=samples, rounds=rounds,
        check=(check_requests, check_tokens), calibrate=calibrate, replay=replay, threads=threads, device=device,
        dtype=dtype, out=out, docs=write_docs, form=form.value, quiet=quiet, plots=not no_plots,
    )


class CasesOrLive(TyperCommand):
    """``validate CASE…``, but for a first word ``live``, which has options of its own."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """The context of whichever command is meant."""
        if args[:1] == [WORD]:
            return typer.main.get_command(_live).make_context(f"{info_name} {WORD}", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)
