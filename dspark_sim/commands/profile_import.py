"""dspark-sim profile import aiconfigurator | vllm | sglang | sps."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dspark_sim.commands.output import emit_console, note
from dspark_sim.errors import InputError, shown

if TYPE_CHECKING:
    from dspark_sim.importers.vllm import Reading
    from dspark_sim.profile_write import ProfileDraft

__all__ = ["aiconfigurator_command", "sglang_command", "sps_command", "vllm_command"]

Time = Literal["tpot", "itl"]


def aiconfigurator_command(out: Path, *, model: str, gpu: str, tp: int, backend: str, version: str | None, weights: str,
                           blocks: str, force: bool, **rest: Any) -> None:
    """Ask the package and write what :func:`~dspark_sim.importers.derive.derive` makes of the answers."""
    from dspark_sim.importers.derive import Options, derive, target_sizes
    from dspark_sim.importers.operators import ask, connect

    options = Options(blocks=_blocks(blocks), command=_command(), **rest)
    sizes = target_sizes(options)
    engine, about = connect(model, gpu, tp=tp, backend=backend, version=version, weights=weights)
    _write(derive(ask(engine, about, sizes, options.blocks or (1,)), options), out, force)


def vllm_command(files: Sequence[str], out: Path, *, time: Time, draft_tokens: int | None, output_len: int | None,
                 **rest: Any) -> None:
    """Results of vLLM's benchmarks."""
    from dspark_sim.importers.vllm import read_vllm

    reading = read_vllm(files, time=time, draft_tokens=draft_tokens, output_len=output_len)
    _from_reading(reading, [Path(f).name for f in files], "vLLM", out, **rest)


def sglang_command(files: Sequence[Path], out: Path, *, time: Time, draft_tokens: int | None, **rest: Any) -> None:
    """Results of SGLang's benchmarks."""
    from dspark_sim.importers.sglang import read_sglang

    reading = read_sglang(files, time=time, draft_tokens=draft_tokens)
    _from_reading(reading, [f.name for f in files], "SGLang", out, **rest)


def sps_command(file: Path, out: Path, *, model: str, device: str, gpus: int, drafter: str, software: str | None,
                date: str | None, max_num_seqs: int | None, force: bool) -> None:
    """SGLang's SPS table."""
    from dspark_sim.importers.points import About
    from dspark_sim.importers.sps import SPS, read_sps

    about = About(model, device, gpus, software or "SGLang (version not stated)", date or "unknown", "derived",
                  f"{SPS}; {file.name}", _command(), max_num_seqs, None if drafter == "none" else drafter)
    _write(read_sps(file, about), out, force)


def _from_reading(reading: Reading, files: list[str], engine: str, out: Path, *, model: str, device: str, gpus: int,
                  software: str | None, date: str | None, max_num_seqs: int | None, force: bool) -> None:
    from dspark_sim.importers.points import About, from_points

    listed = ", ".join(files[:6]) + (f" and {len(files) - 6} more" if len(files) > 6 else "")
    about = About(model, device, gpus, software or f"{engine} (version not stated)", date or reading.date, reading.kind,
                  f"{reading.tool}; {listed}", _command(), max_num_seqs, "drafter" if reading.drafted else None,
                  tuple(reading.assumptions))
    _write(from_points(reading.points, about), out, force)


def _blocks(text: str) -> tuple[int, ...]:
    if text.strip() == "none":
        return ()
    parts = [p.strip() for p in text.split(",")]
    if not all(p.isdecimal() and 1 <= int(p) <= 16 for p in parts) or len(set(parts)) != len(parts):
        raise InputError(f"got {shown(text)}", key="--draft-blocks", allowed="none, or sizes from 1 to 16, as 7,5")
    return tuple(sorted(map(int, parts), reverse=True))


def _command() -> str:
    """The command line, as the provenance keeps it."""
    words = ["dspark-sim", *sys.argv[1:]]
    text = shlex.join(words)
    return text if len(text) <= 1500 else text[:1500] + " …"


def _write(draft: ProfileDraft, out: Path, force: bool) -> None:
    """Write, say everything that was assumed, and how to use it."""
    from dspark_sim.commands.profile import describe
    from dspark_sim.profile_write import write_profile

    profile = write_profile(draft, out, force=force)
    emit_console(lambda console: describe(console, profile))
    note(f"written to {out}; use it with  profile: {out if '/' in str(out) else f'./{out}'}")
