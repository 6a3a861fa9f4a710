"""Responses of SGLang: ``meta_info`` holds a histogram of accepted draft tokens per verification step.

Fields as in sglang/srt/managers/tokenizer_manager_components/spec_decoding_meta.py: entry j of
``spec_correct_drafts_histogram`` (older: ``spec_accept_histogram``) counts the steps that kept j draft tokens, bonus
excluded; ``spec_verify_ct`` steps; ``spec_num_proposed_drafts`` (older: ``spec_proposed_drafts``) draft tokens.
/metrics and the results of SGLang's benchmark have the mean acceptance length only.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dspark_sim.errors import TraceError, shown
from dspark_sim.trace_import.rates import Rates, from_histograms
from dspark_sim.trace_import.read import LARGEST, whole

__all__ = ["from_responses", "meta"]

_HISTOGRAM = ("spec_correct_drafts_histogram", "spec_accept_histogram")
_PROPOSED = ("spec_num_proposed_drafts", "spec_proposed_drafts", "spec_draft_token_num")


def meta(value: Any) -> dict[str, Any] | None:
    """The ``meta_info`` of a response of /generate or of the OpenAI-like API, or the value itself if it is one."""
    if not isinstance(value, dict):
        return None
    choices = value.get("choices")
    inner = value.get("meta_info")
    if inner is None and isinstance(choices, list) and choices and isinstance(choices[0], dict):
        inner = choices[0].get("meta_info")
    inner = value if inner is None else inner
    return inner if isinstance(inner, dict) and any(str(key).startswith("spec_") for key in inner) else None


def from_responses(path: Path, values: Sequence[tuple[int, Any]], block_size: int | None = None) -> Rates:
    """Histograms of many responses, summed.

    Args:
        block_size: draft tokens per step; None: proposed drafts / steps, which must then be whole and the same in all.

    Raises:
        TraceError: no histogram (an older SGLang, or speculation off), or counts that contradict each other.
    """
    total = list[int]()
    lacking, widths = 0, set[int]()
    for line, value in values:
        info = meta(value)
        name = next((n for n in _HISTOGRAM if info is not None and n in info), None)
        if info is None or name is None:
            lacking += 1
            continue
        counts = info[name]
        if not isinstance(counts, list) or not all(isinstance(n, int) and not isinstance(n, bool) and 0 <= n <= LARGEST
                                                   for n in counts):
            raise TraceError(f"got {shown(counts)}", file=path, line=line, key=name, allowed="a list of counts")
        steps = whole(info, "spec_verify_ct", path, line)
        if sum(counts) != steps:
            raise TraceError(f"the histogram counts {sum(counts):,} steps, spec_verify_ct {steps:,}", file=path,
                             line=line, key=name)
        proposed = next((whole(info, n, path, line) for n in _PROPOSED if n in info), None)
        if block_size is None and steps:
            if proposed is None or proposed % steps:
                got = "is not said" if proposed is None else f"{proposed / steps:.2f} draft tokens per step"
                raise TraceError(got, file=path, line=line, key="--block-size",
                                 allowed="the number of draft tokens per step (speculative_num_draft_tokens - 1)")
            widths.add(proposed // steps)
        total += [0] * (len(counts) - len(total))
        for j, n in enumerate(counts):
            total[j] += n
    if not total:
        raise TraceError(f"none of {len(values):,} responses has {_HISTOGRAM[0]}: speculation was off, or an SGLang "
                         "that does not report it", file=path,
                         allowed="responses with it; or --acceptance-length (spec_accept_length) and --block-size")
    if not sum(total):
        raise TraceError("counts no steps: nothing was decoded speculatively", file=path, key=_HISTOGRAM[0])
    if len(widths) > 1:
        raise TraceError(f"responses with {', '.join(map(str, sorted(widths)))} draft tokens per step", file=path,
                         key="--block-size", allowed="responses of one speculative configuration")
    G = block_size or widths.pop()
    kept = max((j for j, n in enumerate(total) if n), default=0)
    if kept > G:
        raise TraceError(f"a step kept {kept} draft tokens of {G}", file=path, key="--block-size")
    rates = from_histograms({G: total[: G + 1]}, file=path)
    notes = [f"{len(values) - lacking:,} requests, {sum(total):,} steps",
             f"every step verified a chain of {G} draft tokens (no tree, no adaptive length)"]
    if lacking:
        notes.append(f"{lacking:,} responses without the histogram were left out")
    return Rates(rates.conditional, rates.rounds, (*rates.assumptions, *notes))
