"""SGLang's table of steps per second, which its DSpark scheduler reads (``--speculative-dspark-sps-table-path``).

Two forms (python/sglang/srt/speculative/dspark_components/dspark_sps.py): ``sample_batch_tokens`` with
``sample_steps_per_sec``; and, where batches were measured off the diagonal, ``bias_seconds`` + alpha by requests
(``bs_probes``, ``alpha_seconds``) + theta by tokens (``m_probes``, ``theta_seconds``).
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from dspark_sim.errors import shown
from dspark_sim.importers.points import LONGEST, SHORTEST, About
from dspark_sim.importers.records import Record, read_records, recognised, wrong_tool
from dspark_sim.profile_write import ProfileDraft, csv_text

__all__ = ["SPS", "read_sps"]

SPS = "SGLang's SPS table"
INSIDE = ("inside the table: it holds whole steps of an engine that drafted; the cost of another drafter, or of none, "
          "cannot be told")
FLOOR = ("SGLang's own scheduler takes the value of the next smaller size; here straight lines join the sizes. "
         "Whatever padding the engine did is inside.")


def read_sps(file: Path, about: About) -> ProfileDraft:
    """The profile of one table.

    Raises:
        ProfileError: no such table, sizes that do not rise, times that cannot be, or SGLang's placeholder.
    """
    records = read_records(file)
    if len(records) > 1 or recognised(records[0]) != SPS:
        raise wrong_tool(records[-1], SPS)
    record = records[0]
    data: dict[str, Any] = {
        "description": f"{about.model} on {about.device}: the step times by which SGLang's DSpark scheduler plans.",
        "gpus": about.gpus, "measured_context": 0, "max_num_seqs": 1, "max_num_batched_tokens": 1,
        "verify": {"file": "verify.csv", "between": "linear"},
    }
    if "bias_seconds" in record.data:
        sizes, seconds, requests = _additive(record, data)
        words = ["A step of R requests and B tokens is bias + alpha(R) + theta(B), as the table says: bias is in "
                 "verify, alpha is the key fixed. Below the first probe of each the first value holds, as in SGLang."]
    else:
        sizes, seconds = _diagonal(record)
        requests = sizes[-1]
        words = ["Seconds of a step = 1 / steps per second. SGLang measures such a table with every draft token "
                 "verified, so each size has the fewest requests possible; steps of the same size with more requests "
                 "read more context and draft more."]
    data["max_num_batched_tokens"] = sizes[-1]
    data["max_num_seqs"] = max(1, min(about.max_num_seqs or requests, sizes[-1]))
    if about.drafter is not None:
        zero = {"points": [[1, 0.0], [data["max_num_seqs"] + 1, 0.0]], "unit": "ms"}
        data["drafters"] = {about.drafter: {"kind": "parallel", "seconds": zero, "assumption": INSIDE}}
    for place in (data["verify"], data.get("fixed")):
        _hold_down(place)
    data |= {"prefill": "shared", "provenance": {
        "kind": "derived", "device": about.device, "model": about.model, "software": about.software, "date": about.date,
        "source": about.source, "command": about.command, "assumptions": [
            *about.assumptions, *words, FLOOR,
            "SGLang profiles with prompts of 16 tokens unless told otherwise: context costs nothing here. Sizes "
            "beyond the largest are refused.",
            "Prefill was not measured: its tokens enter the same pass. The KV cache is unlimited here.",
        ],
    }}
    if sizes[0] > 1:
        sizes, seconds = [1, *sizes], [seconds[0], *seconds]
        data["provenance"]["assumptions"].append(f"Below {sizes[1]} tokens the first value holds, as in SGLang.")
    return ProfileDraft(data, {"verify.csv": csv_text(["batch_tokens", "seconds"], zip(sizes, seconds, strict=True))})


def _hold_down(place: Any) -> None:
    """A written-out curve starts at 1 request: the first value holds below the first probe."""
    if isinstance(place, dict) and "points" in place and place["points"][0][0] > 1:
        place["points"].insert(0, [1, place["points"][0][1]])


def _diagonal(record: Record) -> tuple[list[int], list[float]]:
    sizes = _rising(record, "sample_batch_tokens")
    rates = _numbers(record, "sample_steps_per_sec", len(sizes))
    if len(sizes) == 1:
        raise record.refuse("holds one size: SGLang's placeholder for a table that was never measured, or nearly so",
                            "sample_batch_tokens", "two or more sizes, as sglang.benchmark.dspark_sps_profiler writes")
    for size, rate in zip(sizes, rates, strict=True):
        if rate <= 0 or not SHORTEST <= 1 / rate <= LONGEST:
            raise record.refuse(f"got {rate:g} steps per second at {size} tokens: the unit cannot be right",
                                "sample_steps_per_sec", f"{1 / LONGEST:.3g} to {1 / SHORTEST:,.0f}")
    return sizes, [1 / rate for rate in rates]


def _additive(record: Record, data: dict[str, Any]) -> tuple[list[int], list[float], int]:
    bias = record.number("bias_seconds")
    requests, sizes = _rising(record, "bs_probes"), _rising(record, "m_probes")
    alpha = _numbers(record, "alpha_seconds", len(requests))
    theta = _numbers(record, "theta_seconds", len(sizes))
    if len(sizes) == 1:
        raise record.refuse("holds one size", "m_probes", "two or more")
    base = min(0.0, *alpha)  # one of the terms may be counted from anywhere: keep fixed from going below 0
    seconds = [bias + base + value for value in theta]
    for size, s in zip(sizes, seconds, strict=True):
        if not SHORTEST <= s <= LONGEST:
            raise record.refuse(f"bias and theta make {s:.3g} s at {size} tokens: the unit cannot be right",
                                "theta_seconds", f"{SHORTEST:g} to {LONGEST:g} s with the bias")
    points = [[n, float(f"{a - base:.6g}")] for n, a in zip(requests, alpha, strict=True)]
    data["fixed"] = {"points": points, "unit": "s"}
    return sizes, seconds, requests[-1]


def _rising(record: Record, field: str) -> list[int]:
    values = record.data.get(field)
    if not isinstance(values, list) or not values or not all(type(v) is int and v >= 1 for v in values):
        raise record.refuse(f"got {shown(values)}", field, "whole numbers ≥ 1")
    for before, after in itertools.pairwise(values):
        if after <= before:
            raise record.refuse(f"{after} stands {'twice' if after == before else f'after {before}'}", field,
                                "rising sizes, each once")
    return values


def _numbers(record: Record, field: str, wanted: int) -> list[float]:
    values = record.data.get(field)
    good = isinstance(values, list) and all(
        isinstance(v, (int, float)) and not isinstance(v, bool) and abs(v) < 1e9 for v in values)
    if not good or values is None:
        raise record.refuse(f"got {shown(values)}", field, "numbers")
    if len(values) != wanted:
        raise record.refuse(f"has {len(values)} values for {wanted} sizes", field, "as many values as sizes")
    return [float(v) for v in values]
