"""A profile out of measured steps: points of batch tokens, requests, context and seconds, from whatever tool."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dspark_sim.errors import ProfileError
from dspark_sim.profile_write import ProfileDraft, csv_text

__all__ = ["About", "Point", "from_points"]

SHORTEST, LONGEST = 2e-5, 60.0  # seconds of a step; what is outside was given in another unit
SAME = 0.02  # contexts closer than this count as one


@dataclass(frozen=True)
class Point:
    """One measured step time.

    Attributes:
        batch_tokens: tokens of the target's pass.
        requests: decoding at once.
        context: KV tokens per request, on average over the measurement.
        seconds: of a step.
        file, line: where it stands.
    """

    batch_tokens: int
    requests: float
    context: float
    seconds: float
    file: Path
    line: int | None = None

    @property
    def place(self) -> str:
        """``file`` or ``file:line``."""
        return f"{self.file.name}" + (f":{self.line}" if self.line is not None else "")


@dataclass(frozen=True)
class About:
    """What the user says about the measurement, and how it was read.

    Attributes:
        model, device, gpus, software, date: of the provenance.
        kind: ``measured`` where a step was timed, ``derived`` where it was computed.
        source: tool and files.
        command: how the profile was made.
        max_num_seqs: None: the most requests measured.
        drafter: name of the drafter whose cost is inside the steps, None for none.
        assumptions: of the reader.
    """

    model: str
    device: str
    gpus: int
    software: str
    date: str
    kind: Literal["measured", "derived"]
    source: str
    command: str
    max_num_seqs: int | None = None
    drafter: str | None = None
    assumptions: tuple[str, ...] = ()


def from_points(points: Sequence[Point], about: About) -> ProfileDraft:
    """The profile.

    Raises:
        ProfileError: fewer than two sizes, one measured twice, or a time that is no step's.
    """
    for p in points:
        if not SHORTEST <= p.seconds <= LONGEST:
            raise ProfileError(f"a step of {p.seconds:.3g} s at {p.batch_tokens} tokens: the unit cannot be right",
                               file=p.file, line=p.line, allowed=f"{SHORTEST:g} to {LONGEST:g} s")
    groups: dict[int, list[Point]] = {}
    for p in sorted(points, key=lambda p: (p.batch_tokens, p.context)):
        group = groups.setdefault(p.batch_tokens, [])
        if group and p.context <= group[-1].context * (1 + SAME):
            raise ProfileError(f"{p.batch_tokens} batch tokens stand twice, in {group[-1].place} and "
                               f"{p.place}", file=p.file,
                               line=p.line, allowed="each batch once (per context); remove one of them")
        group.append(p)
    if len(groups) < 2:
        raise ProfileError(f"one size only, {points[0].batch_tokens} batch tokens", file=points[0].file,
                           allowed="results at two or more batch sizes or concurrencies")
    kappa, words = _kappa(groups)
    context = float(np.median([p.context for p in points]))
    sizes = list(groups)
    seconds = [float(np.mean([p.seconds - kappa * p.requests * (p.context - context) for p in g]))
               for g in groups.values()]
    most = about.max_num_seqs or max(1, math.floor(max(p.requests for p in points) + 1e-9))
    data: dict[str, Any] = {
        "description": f"{about.model} on {about.device}: step times out of {about.source.partition(';')[0]}.",
        "gpus": about.gpus, "measured_context": round(context),
        "max_num_seqs": min(most, sizes[-1]), "max_num_batched_tokens": sizes[-1],
        "verify": {"file": "verify.csv", "between": "linear"},
    }
    if kappa > 0:
        data["per_kv_token"] = float(f"{kappa:.4g}")
    if about.drafter is not None:
        zero = {"points": [[1, 0.0], [data["max_num_seqs"] + 1, 0.0]], "unit": "ms"}
        data["drafters"] = {about.drafter: {"kind": "parallel", "seconds": zero, "assumption": "inside the measured "
                                                                                               "steps, "
                                            "which drafted; the cost of another drafter, or of none, cannot be told"}}
    words += _ends(sizes, seconds, data["verify"])
    words.append("Prefill was not taken from the measurement: its tokens enter the same pass. Nor is the size of the "
                 "KV cache known: it is unlimited here.")
    data |= {"prefill": "shared", "provenance": {
        "kind": about.kind, "device": about.device, "model": about.model, "software": about.software,
        "date": about.date, "source": about.source, "command": about.command,
        "assumptions": [*about.assumptions, *words],
    }}
    rows = [(b, s, len(groups[b]), " ".join(p.place for p in groups[b])) for b, s in zip(sizes, seconds, strict=True)]
    return ProfileDraft(data, {"verify.csv": csv_text(["batch_tokens", "seconds", "results", "from"], rows)})


def _kappa(groups: dict[int, list[Point]]) -> tuple[float, list[str]]:
    """Seconds per KV token, from sizes that were measured at several contexts; and what to say."""
    x, y = [], []
    for group in groups.values():
        kv = np.array([p.requests * p.context for p in group])
        s = np.array([p.seconds for p in group])
        x += list(kv - kv.mean())
        y += list(s - s.mean())
    several = sum(len(g) > 1 for g in groups.values())
    everything = [p.context for g in groups.values() for p in g]
    if not several:
        spread = f"{min(everything):,.0f} to {max(everything):,.0f}"
        return 0.0, [f"Context was {spread} tokens per request; longer or shorter contexts cost the same here, for no "
                     "size was measured at two."]
    slope = float(np.dot(x, y) / np.dot(x, x))
    if slope <= 0:
        return 0.0, [f"{several} sizes were measured at several contexts, and longer ones were not slower: context "
                     "costs nothing here, times are means over contexts."]
    left = np.array(y) - slope * np.array(x)
    return slope, [f"{slope * 1e9:.3g} ns per KV token, from {several} sizes that were measured at several contexts "
                   f"(error {1e3 * float(np.sqrt(np.mean(left**2))):.2g} ms, root mean square); verify is at the "
                   "median context."]


def _ends(sizes: list[int], seconds: list[float], verify: dict[str, Any]) -> list[str]:
    """Beyond the measured sizes: the first and last segments go on where they can, and what to say."""
    start = seconds[0] - (sizes[0] - 1) * (seconds[1] - seconds[0]) / (sizes[1] - sizes[0])
    text = (f"{len(sizes)} sizes were measured, {sizes[0]} to {sizes[-1]:,} batch tokens; straight lines between "
            "them, and whatever padding the engine did is inside. ")
    if seconds[-1] >= seconds[-2] and start > SHORTEST:
        verify["extrapolate"] = "linear"
        return [text + "Outside them the first and last lines go on, and results say so."]
    return [text + "Outside them steps are refused, for the first or last line cannot be continued."]
