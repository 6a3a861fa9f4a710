"""A profile out of timed points: nothing smoothed, spread kept, what was skipped said."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dspark_sim.errors import InputError
from dspark_sim.lab.points_file import TimedPoint
from dspark_sim.lab.step_timer import Grid
from dspark_sim.profile_write import ProfileDraft, csv_text

__all__ = ["Measured", "device_name", "profile_of"]

HEADER = ("seconds", "p25", "p75", "repeats", "mode")


@dataclass(frozen=True)
class Measured:
    """What the profile says about the measurement.

    Attributes:
        model: name and precision, with "random weights" where they are.
        device: as people know it.
        software: torch, transformers, threads.
        date: YYYY-MM-DD.
        command: that was called.
        drafters: name -> (kind, block size, what it is).
    """

    model: str
    device: str
    software: str
    date: str
    command: str
    drafters: Mapping[str, tuple[str, int, str]]


def device_name(device: torch.device) -> str:
    """The GPU's or the processor's name."""
    if device.type == "cuda":
        return f"1x {torch.cuda.get_device_name(device)}"
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        found = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    except OSError:
        found = ""
    return found or platform.processor() or platform.machine()


def profile_of(points: Sequence[TimedPoint], grid: Grid, about: Measured) -> ProfileDraft:
    """The profile.

    Raises:
        InputError: fewer than two sizes of the curve have a time.
    """
    base = grid.contexts[0]
    curve = sorted((p for p in points if p.part == "verify" and p.context == base and p.seconds is not None),
                   key=lambda p: p.tokens)
    if len(curve) < 2:
        raise InputError(f"only {len(curve)} verify steps have a time", key="--tokens", allowed="two sizes that fit")
    kappa, words = _kappa([p for p in points if p.part == "verify" and p.seconds is not None], base)
    files = {"verify.csv": csv_text(["batch_tokens", *HEADER, "requests", "context"],
                                    [(p.tokens, *_cells(p), p.requests, p.context) for p in curve])}
    verify: dict[str, Any] = {"file": "verify.csv", "between": "linear"}
    graphs = [p.tokens for p in curve if p.mode == "graph"]
    if graphs and graphs == [p.tokens for p in curve][: len(graphs)]:
        verify |= {"between": "hold", "graph_limit": graphs[-1]}
        words.append(f"CUDA graphs of {len(graphs)} sizes, {graphs[0]} to {graphs[-1]} tokens, replayed: no host time. "
                     "Larger steps were launched kernel by kernel.")
    elif (curve[-1].seconds or 0) >= (curve[-2].seconds or 0):
        verify["extrapolate"] = "linear"
        words.append("Straight lines between the sizes; beyond them the last line goes on, and results say so.")
    drafters, most = _drafters(points, about, files)
    files["points.csv"] = csv_text(["part", "tokens", "requests", "context", *HEADER],
                                   [(p.part, *p.key[1:], *_cells(p)) for p in points],
                                   ["Every point that was timed; profile.yaml is made of them."])
    skipped = [p for p in points if p.seconds is None]
    if skipped:
        words.append(f"{len(skipped)} of {len(points)} points were skipped, out of memory among them: the smallest is "
                     f"{skipped[0].part} of {skipped[0].tokens} tokens at context {skipped[0].context:,}.")
    tokens = curve[-1].tokens
    data: dict[str, Any] = {
        "description": f"{about.model} on {about.device}: verify steps at {len(curve)} sizes, medians of {grid.repeat} "
        "repetitions with quartiles beside them, as measured.",
        "gpus": 1, "measured_context": base, "max_num_seqs": min(most or tokens, tokens),
        "max_num_batched_tokens": tokens, "verify": verify,
    }
    if kappa > 0:
        data["per_kv_token"] = float(f"{kappa:.4g}")
    if drafters:
        data["drafters"] = drafters
    data |= {"prefill": "shared", "provenance": {
        "kind": "measured", "device": about.device, "model": about.model, "software": about.software,
        "date": about.date, "source": "dspark-sim profile measure; every point lies beside as points.csv",
        "command": about.command,
        "assumptions": [
            f"A step is one forward pass over {grid.width} tokens per request (fewer where that does not divide the "
            "batch) and the head over all of them, with random keys and values. Drawing tokens, acceptance and "
            "whatever else an engine does in a step are not in it.", *words,
            "Prefill was not timed: its tokens enter the same pass. The KV cache is unlimited here.",
        ],
    }}
    return ProfileDraft(data, files)


def _cells(p: TimedPoint) -> tuple[float | int | str, ...]:
    if p.seconds is None:
        return "", "", "", 0, p.skipped or "skipped"
    return p.seconds, p.low or 0.0, p.high or 0.0, p.repeats, p.mode


def _drafters(
    points: Sequence[TimedPoint], about: Measured, files: dict[str, str]
) -> tuple[dict[str, Any], int | None]:
    """The entries of ``drafters``, and the most requests at which each has a time (None without drafters)."""
    out: dict[str, Any] = {}
    reach: list[int] = []
    for name, (kind, block, what) in about.drafters.items():
        rounds = {p.requests: p for p in points if p.part == f"draft {name}" and p.seconds is not None}
        tokens = {p.requests: p for p in points if p.part == f"token {name}" and p.seconds is not None}
        if kind == "parallel":
            rounds = {r: p for r, p in rounds.items() if r in tokens}
        if not rounds:
            continue
        share = 1 if kind == "parallel" else block
        entry: dict[str, Any] = {"kind": kind, "seconds": {"file": f"{name}.csv"}}
        files[f"{name}.csv"] = _curve(rounds, share)
        if kind == "parallel":
            entry["per_token"] = {"file": f"{name}-token.csv"}
            files[f"{name}-token.csv"] = _curve({r: tokens[r] for r in rounds}, block)
        each = ("and per token, one after the other" if kind == "parallel"
                else f"a round's time divided by its {block} tokens")
        entry["source"] = (f"{what}; a round takes in {block + 1} tokens per request and drafts "
                           f"{block}; {each}; requests {min(rounds)} to {max(rounds)}")
        out[name] = entry
        reach.append(max(rounds))
    return out, min(reach) if reach else None


def _curve(points: Mapping[int, TimedPoint], share: int) -> str:
    rows = [(r, (p.seconds or 0.0) / share, (p.low or 0.0) / share, (p.high or 0.0) / share, p.repeats, p.mode)
            for r, p in sorted(points.items())]
    return csv_text(["requests", *HEADER], rows)


def _kappa(points: Sequence[TimedPoint], base: int) -> tuple[float, list[str]]:
    """Seconds per KV token beyond ``base``, from sizes timed at several contexts; and what to say."""
    first = {p.tokens: p for p in points if p.context == base}
    pairs = [(p.requests * (p.context - base), (p.seconds or 0.0) - (first[p.tokens].seconds or 0.0), p)
             for p in points if p.context != base and p.tokens in first]
    if not pairs:
        return 0.0, [f"One context only, {base:,} tokens per request: longer and shorter ones cost the same here."]
    x, y = np.array([a for a, _, _ in pairs], dtype=float), np.array([b for _, b, _ in pairs])
    slope = float(np.dot(x, y) / np.dot(x, x))
    longest = max(p.context for _, _, p in pairs)
    if slope <= 0:
        return 0.0, [f"Contexts up to {longest:,} tokens were not slower than {base:,}: context costs nothing here."]
    step = np.array([p.seconds or 0.0 for _, _, p in pairs])
    error = float(np.sqrt(np.mean(((y - slope * x) / step) ** 2)))
    return slope, [f"{slope * 1e9:.3g} ns per KV token beyond {base:,} per request: least squares on {len(pairs)} "
                   f"steps with contexts up to {longest:,} (error {error:.1%} of the step, root mean square)."]
