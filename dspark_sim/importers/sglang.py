"""SGLang's benchmarks: JSON lines of ``sglang.bench_one_batch`` (steps, timed) and ``sglang.bench_serving``.

Sources: python/sglang/bench_one_batch.py and bench_serving.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from dspark_sim.importers.points import Point
from dspark_sim.importers.records import Record, read_records, recognised, wrong_tool
from dspark_sim.importers.serving import Dialect, said, served
from dspark_sim.importers.vllm import Reading

__all__ = ["read_sglang"]

ONE_BATCH, SERVING = "sglang.bench_one_batch", "sglang.bench_serving"
SGLANG = Dialect(SERVING, "accept_length", None, False)


def read_sglang(files: Sequence[Path], *, time: Literal["tpot", "itl"] = "tpot",
                draft_tokens: int | None = None) -> Reading:
    """All lines of all files, which must be of one kind.

    Args:
        files: JSON lines.
        time: which figure of bench_serving is a step.
        draft_tokens: see :func:`~dspark_sim.importers.serving.served`.

    Raises:
        ProfileError: a file of another tool, a missing field, a value that cannot be.
    """
    records = [record for file in files for record in read_records(Path(file))]
    kinds = [recognised(record) for record in records]
    for record, kind in zip(records, kinds, strict=True):
        if kind not in (ONE_BATCH, SERVING):
            raise wrong_tool(record, SERVING if SERVING in kinds else ONE_BATCH)
        if kind != kinds[0]:
            raise wrong_tool(record, str(kinds[0]))
    if kinds[0] == SERVING:
        found = [served(record, SGLANG, time, draft_tokens) for record in records]
        words, drafted = said(found, SGLANG, time)
        return Reading([s.point for s in found], "derived", SERVING, words, drafted)
    words = ["A step is the median decode latency that the tool printed: one token per request, the device waited for "
             "after each step. Scheduler, batching and network of a server are not in it.",
             "Context is the prompt and half of the output."]
    return Reading([_one_batch(record) for record in records], "measured", ONE_BATCH, words)


def _one_batch(record: Record) -> Point:
    batch, step = record.whole("batch_size"), record.number("median_decode_latency")
    context = record.whole("input_len") + record.whole("output_len") / 2
    rate = record.optional("median_decode_throughput")
    if rate is not None and not 0.9 < rate * step / batch < 1.1:
        raise record.refuse(f"{batch} tokens in {step:g} s are {batch / step:,.1f} tokens/s, but "
                            "median_decode_throughput is "
                            f"{rate:,.1f}: a unit cannot be right", "median_decode_latency", "seconds, as the tool "
                                                                                             "writes")
    return Point(batch, batch, context, step, record.file, record.line)
