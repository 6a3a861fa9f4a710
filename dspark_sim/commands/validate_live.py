"""``dspark-sim validate live``: predictions beside a real engine on this machine."""

from __future__ import annotations

import json
import shlex
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from dspark_sim.commands.output import emit, emit_console, emit_rows, note
from dspark_sim.errors import InputError, nearest, shown

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["validate_live_command"]

SPLITS = ("held-out", "all")


def validate_live_command(
    target: str, drafter: Path, prompts: list[Path], *, arms: str, concurrency: str, tokens: int, temperature: float,
    seed: int, repeat: int, requests: int, longest: int, split: str, samples: int | None, rounds: int,
    check: tuple[int, int], calibrate: bool, replay: bool, threads: int | None, device: str, dtype: str,
    out: Path | None, docs: Path | None, form: str, quiet: bool, plots: bool,
) -> None:
    """Measure, simulate, run for real, compare; exits with 1 when an arm failed or is not lossless."""
    if split not in SPLITS:
        raise InputError(f"got {shown(split)}", key="--split", allowed=", ".join(SPLITS),
                         suggestion=nearest(split, SPLITS))
    from dspark_sim.lab.live_plan import LivePlan, parse_arms, parse_concurrency, pick_prompts, prompts_sha256

    loads = parse_concurrency(concurrency)
    parse_arms(arms)  # a wrong name is told before a model is opened
    if docs is not None:
        from dspark_sim.validate_live_page import check_page

        check_page(docs)
    from dspark_sim.lab.checkpoint import load_drafter
    from dspark_sim.lab.live_pieces import Pieces
    from dspark_sim.lab.live_texts import LiveWork
    from dspark_sim.lab.live_validate import validate_live
    from dspark_sim.lab.target import device_named, load_target, set_threads

    set_threads(threads)
    model = load_target(target, device=device_named(device), dtype=dtype, tokenizer=True)
    small = load_drafter(drafter, target=model, device=device, dtype=dtype)
    some = pick_prompts(prompts, model, requests, split=split, longest=longest)
    _check_length(model, small, max(len(p.tokens) for p in some), tokens)
    if loads[-1] > len(some):
        raise InputError(f"got {loads[-1]}, with {len(some)} requests", key="--concurrency",
                         allowed=f"1 to {len(some)}, or more --requests")
    plan = LivePlan(
        target=model.name, drafter=str(drafter.expanduser().resolve()), drafter_name=_name(drafter),
        arms=parse_arms(arms, small), concurrency=loads, tokens=tokens, temperature=temperature, seed=seed,
        repeat=repeat, samples=1 if temperature == 0 else samples or repeat, rounds=rounds, check=check,
        calibrate=calibrate, dtype=dtype, device=str(model.device), threads=threads,
        prompts_sha256=prompts_sha256(some),
    )
    folder = out if out is not None else Path("runs") / f"live-{datetime.now():%Y%m%d-%H%M%S}"
    pieces = Pieces(folder, plan)
    if not quiet:
        note(f"in {folder}; stopped, the same command with --out {folder} goes on")
    command = shlex.join(["dspark-sim", *sys.argv[1:]])[:1900]
    work = LiveWork(plan, model, small, some, pieces, command, replay, (lambda text: None) if quiet else note)
    result = validate_live(work)
    _finish(result, folder, docs, form, quiet, plots)


def _finish(result: dict[str, Any], folder: Path, docs: Path | None, form: str, quiet: bool, plots: bool) -> None:
    from dspark_sim.pictures import drawn
    from dspark_sim.validate_live import flat, sentences

    problem = drawn(folder) if plots else None
    rows = flat(result["records"])
    if form == "table":
        emit_console(lambda console: _show(console, result))
    elif form == "json":
        emit(json.dumps(result, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
    else:
        emit_rows(rows, form)
    if problem is not None and not quiet:
        note(problem)
    if docs is not None:
        from dspark_sim.validate_live_page import write_section

        write_section(docs, result, folder / "plots" / "live.png")
    if not quiet:
        note(f"\nresults in {folder}")
    failed = [arm["arm"] for load in result["loads"] for arm in load["arms"] if arm["error"] is not None]
    lossy = [g["arm"] for g in result["greedy"] if g["error"] is None and not g["lossless"]]
    if failed or lossy:
        for text, bad in sentences(result):
            if bad and form != "table":
                note(text)
        raise typer.Exit(1)


def _name(folder: Path) -> str:
    given = folder.expanduser().resolve().name
    name = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "-" for c in given)
    return name.strip(".-_") or "drafter"


def _check_length(target: Any, drafter: Any, prompt: int, tokens: int) -> None:
    longest = getattr(target.config, "max_position_embeddings", None)
    need = prompt + tokens + drafter.config.block_size + 1
    if longest is not None and need > longest:
        raise InputError(f"got {tokens}: with a prompt of {prompt} tokens and a block that makes {need} positions",
                         key="--tokens", allowed=f"at most {longest - (need - tokens)} for target {target.name}")


def _show(console: Console, result: dict[str, Any]) -> None:
    from rich.table import Table
    from rich.text import Text

    from dspark_sim.render import bullet
    from dspark_sim.validate_live import sentences, tables

    for title, header, rows in tables(result):
        console.print()
        console.print(Text(title, style="bold"))
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold cyan")
        for i, name in enumerate(header):
            table.add_column(Text(name), justify="left" if i in (0, 4) else "right")
        for row in rows:
            table.add_row(*(Text(cell, "bold red" if cell == "NO" else "") for cell in row))
        console.print(table)
    console.print()
    for text, bad in sentences(result):
        bullet(console, text, "red" if bad else "")

