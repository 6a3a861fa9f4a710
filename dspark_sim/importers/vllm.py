"""vLLM's benchmarks: ``vllm bench serve --save-result`` and ``vllm bench latency --output-json``.

Sources: vllm/benchmarks/serve.py and latency.py. The second kind says neither batch nor lengths: they come with the
file's name, ``FILE=BATCH`` or ``FILE=BATCH/OUTPUT_TOKENS``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dspark_sim.errors import InputError, ProfileError, shown
from dspark_sim.importers.points import Point
from dspark_sim.importers.records import LARGEST, Record, read_records, recognised, wrong_tool
from dspark_sim.importers.serving import Dialect, said, served

__all__ = ["Reading", "read_vllm"]

SERVE, LATENCY = "vllm bench serve", "vllm bench latency"
VLLM = Dialect(SERVE, "spec_decode_acceptance_length", ("spec_decode_draft_tokens", "spec_decode_num_drafts"), True)
NAMED = re.compile(r"(?P<file>.+)=(?P<batch>\d+)(/(?P<output>\d+))?")


@dataclass(frozen=True)
class Reading:
    """What a reader found: points, how a step was got from them, whether it was timed or computed, and words.

    Attributes:
        points: in the order of the files.
        kind: of the provenance.
        tool: that measured.
        assumptions: of the reading.
        drafted: whether a drafter's cost is inside the steps.
        date: of the files, ``unknown`` if they do not say.
    """

    points: list[Point]
    kind: Literal["measured", "derived"]
    tool: str
    assumptions: list[str]
    drafted: bool = False
    date: str = "unknown"


def read_vllm(files: Sequence[str], *, time: Literal["tpot", "itl"] = "tpot", draft_tokens: int | None = None,
              output_len: int | None = None) -> Reading:
    """All files, which must be of one kind.

    Args:
        files: paths; with ``=BATCH`` or ``=BATCH/OUTPUT_TOKENS`` for results of bench latency.
        time: which figure of bench serve is a step.
        draft_tokens: see :func:`~dspark_sim.importers.serving.served`.
        output_len: output tokens of bench latency, where the name does not say.

    Raises:
        InputError: a file of another tool, a missing field, a value that cannot be.
    """
    named = [NAMED.fullmatch(f) if not Path(f).exists() else None for f in files]
    if any(named):
        plain = next((f for f, m in zip(files, named, strict=True) if m is None), None)
        if plain is not None:
            raise InputError(f"{plain!r} stands among results of bench latency", key="FILE", allowed="FILE=BATCH for "
                                                                                                     "all "
                             "files (bench latency), or for none (bench serve)")
        return _latency([_item(m, output_len) for m in named if m is not None])
    records = [record for file in files for record in read_records(Path(file))]
    for record in records:
        if recognised(record) != SERVE:
            raise wrong_tool(record, SERVE)
    found = [served(record, VLLM, time, draft_tokens) for record in records]
    words, drafted = said(found, VLLM, time)
    dates = {str(r.data["date"])[:8] for r in records if re.fullmatch(r"\d{8}-\d{6}", str(r.data.get("date")))}
    date = "unknown" if len(dates) != 1 else "-".join(re.fullmatch(r"(\d{4})(\d\d)(\d\d)", dates.pop()).groups())  # type: ignore[union-attr]
    return Reading([s.point for s in found], "derived", SERVE, words, drafted, date)


@dataclass(frozen=True)
class _Run:
    record: Record
    batch: int
    output: int
    seconds: float


def _item(match: re.Match[str], output_len: int | None) -> _Run:
    file, batch = Path(match["file"]), int(match["batch"])
    output = int(match["output"]) if match["output"] else output_len
    if output is None:
        raise InputError(f"{match[0]!r} does not say how many tokens each request got", key="FILE=BATCH",
                         allowed="FILE=BATCH/OUTPUT_TOKENS, or --output-len")
    if batch < 1 or output < 2:
        raise InputError(f"got {shown(match[0])}", key="FILE=BATCH/OUTPUT_TOKENS", allowed="a batch ≥ 1, 2 or more "
                                                                                           "tokens")
    records = read_records(file)
    if len(records) > 1 or recognised(records[0]) != LATENCY:
        raise wrong_tool(records[-1], LATENCY)
    listed = records[0].data["latencies"]
    average = records[0].number("avg_latency")
    numbers = isinstance(listed, list) and bool(listed) and all(type(v) in (int, float) and 0 < v <= LARGEST
                                                                for v in listed)
    if not numbers or abs(sum(listed) / len(listed) - average) > 0.01 * average:
        raise records[0].refuse(f"got {shown(average)}, which is not the mean of latencies", "avg_latency",
                                "a file as vllm bench latency wrote it")
    return _Run(records[0], batch, output, float(sorted(listed)[len(listed) // 2]))


def _latency(runs: list[_Run]) -> Reading:
    """Steps from whole generations: differences of two lengths where there are two, else latency / tokens."""
    points: list[Point] = []
    alone = 0
    for batch in sorted({run.batch for run in runs}):
        mine = sorted((r for r in runs if r.batch == batch), key=lambda r: r.output)
        a, b = mine[0], mine[-1]
        if len(mine) > 2 or (len(mine) == 2 and a.output == b.output):
            raise ProfileError(f"batch {batch} stands {len(mine)} times, in "
                               + " and ".join(r.record.file.name for r in mine), file=b.record.file,
                               allowed="one result per batch, or two with other output lengths")
        if len(mine) == 1:
            step, alone = a.seconds / a.output, alone + 1
        else:
            step = (b.seconds - a.seconds) / (b.output - a.output)
            if step <= 0:
                raise b.record.refuse(f"{b.output} tokens took {b.seconds:g} s, {a.output} tokens {a.seconds:g} s "
                                      f"({a.record.file.name}): more tokens cannot take less", "latencies")
        points.append(Point(batch, batch, b.output / 2, step, b.record.file))
    words = ["Latencies are medians of the file's iterations. Neither batch nor lengths stand in the files: they are "
             "as the command line said, and the context is taken as half of the output, for the prompt's length is "
             "unknown."]
    if alone:
        words.append(f"{alone} batch sizes have one output length: a step is latency / output tokens, as if prefill "
                     "took one step; longer prompts make it too slow. Two lengths of a batch would remove prefill "
                     "exactly.")
    if alone < len(points):
        words.append("Where a batch has two output lengths, a step is the difference of latencies per token between "
                     "them.")
    words.append("vllm bench latency runs the engine in-process: network and front end are not in its steps.")
    return Reading(points, "derived", LATENCY, words)
