"""dspark-sim profile list | show."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dspark_sim.commands.output import emit, emit_console, emit_rows, note
from dspark_sim.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from dspark_sim.profile import HardwareProfile

__all__ = ["describe", "list_command", "show_command"]


def list_command(form: str) -> None:
    """The profiles of the shelf with their provenance."""
    from dspark_sim.profile import list_profiles, load_profile

    rows = [_row(load_profile(name)) for name in list_profiles()]
    if form == "table":
        rows = [row | {"what": f"{row['model']}, {row['device']}; drafters: {', '.join(row['drafters']) or 'none'}"}
                for row in rows]
    emit_rows(rows, form, {"name": "profile", "kind": "kind", "gpus": "GPUs", "what": "model, device, drafters"})


def show_command(reference: str, form: str, plot: Path | None) -> None:
    """One profile; ``plot``: also draw its staircase into a file."""
    from dspark_sim.profile import load_profile

    profile = load_profile(reference)
    if plot is not None:
        if plot.suffix.lower() not in (".png", ".svg", ".pdf"):
            raise InputError(f"got {str(plot)!r}", key="--plot", allowed="a file ending in .png, .svg or .pdf")
        from dspark_sim.plots import draw_profile

        draw_profile(profile, plot)
        note(f"staircase drawn into {plot}")
    if form == "json":
        import json

        emit(json.dumps(_row(profile) | _curve(profile), indent=2, ensure_ascii=False) + "\n")
    elif form == "csv":
        curve = profile.verify
        pairs = zip(curve.batch_tokens.tolist(), curve.seconds.tolist(), strict=True)
        emit_rows([{"batch_tokens": b, "seconds": s} for b, s in pairs], form)
    else:
        emit_console(lambda console: describe(console, profile))


def _row(profile: HardwareProfile) -> dict[str, Any]:
    p = profile.provenance
    return {
        "name": profile.name, "kind": p.kind, "gpus": profile.gpus, "device": p.device, "model": p.model,
        "software": p.software, "date": p.date, "source": p.source, "drafters": list(profile.drafters),
        "max_num_seqs": profile.max_num_seqs, "max_num_batched_tokens": profile.max_num_batched_tokens,
        "sha256": profile.sha256,
    }


def _curve(profile: HardwareProfile) -> dict[str, Any]:
    curve = profile.verify
    return {
        "description": profile.description, "assumptions": list(profile.provenance.assumptions),
        "drafter_notes": dict(profile.drafter_notes),
        "verify": {"batch_tokens": curve.batch_tokens.tolist(), "seconds": curve.seconds.tolist(),
                   "between": curve.between, "graph_limit": curve.graph_limit, "extrapolate": curve.extrapolate},
    }


def describe(console: Console, profile: HardwareProfile) -> None:
    """Everything that a reader should know of a profile, with its staircase drawn in characters."""
    from rich.text import Text

    from dspark_sim.commands.chart import staircase

    p, gpus = profile.provenance, f"{profile.gpus} GPU{'s' * (profile.gpus != 1)}"
    console.print(Text.assemble((profile.name, "bold"), f"  {p.kind}, {p.system} ({gpus})"))
    console.print(Text(profile.description))
    console.print()
    console.print(Text("Seconds of one forward pass of the target, by batch tokens (logarithmic):", style="bold"))
    console.print(Text(staircase(profile.verify, width=min(console.width, 110)), no_wrap=True))
    console.print()
    blocks = profile.kv_blocks
    kv = "no limit" if blocks is None else f"{blocks:,} blocks of {profile.kv_block_tokens} tokens"
    facts = [
        ("limits", f"{profile.max_num_seqs} requests, {profile.max_num_batched_tokens:,} batch tokens, KV {kv}"),
        ("beyond the curve", "extrapolated on the last segment" if profile.verify.extrapolate else "refused"),
        ("prefill", "shares the target's pass" if profile.prefill is None else "has a curve of its own"),
        ("context in curve", f"{profile.measured_context:,} tokens per request"),
        ("software", f"{p.software} ({p.date})"), ("source", p.source), ("made by", p.command),
        ("sha256", profile.sha256),
    ]
    if profile.price_per_gpu_hour is not None:
        facts.insert(1, ("price", f"{profile.price_per_gpu_hour:g} {profile.currency} per GPU and hour"))
    for name, text in facts:
        _fact(console, name, text)
    for name, cost in profile.drafters.items():
        r = [n for n in (1, 32, 256) if cost.seconds.first <= n <= cost.seconds.last] or [cost.seconds.first]
        times = ", ".join(f"{1e3 * float(cost.seconds.at(n)):.2f} ms at {n}" for n in r)
        per = " per token" if cost.kind == "autoregressive" else ""
        _fact(console, f"drafter {name}", f"{cost.kind}, {times} requests{per}; {profile.drafter_notes.get(name, '')}")
    for text in p.assumptions:
        _fact(console, "assumes", text)


def _fact(console: Console, name: str, text: str) -> None:
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(width=18)
    grid.add_column(overflow="fold")
    grid.add_row(Text(name, style="cyan"), Text(" ".join(text.split())))
    console.print(grid)
