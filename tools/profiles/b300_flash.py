# ruff: noqa: E501  (prose of the profile stands in the source as one paragraph)
"""b300x4-deepseek-v4-flash: the startup profile that vLLM itself measured, as published, point by point."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from profiles.common import COMMAND, assumptions, block, field_case, read_csv, table, write_csv

NAME = "b300x4-deepseek-v4-flash"
LAYERS, DRAFT_LAYERS, BLOCK, GRAPH_LIMIT = 43, 3, 5, 1024
SOURCE = ("vLLM blog of 2026-08-14, dspark-adaptive-verification, figure 2 (vllm-project.github.io, commit c3a01c4): "
          "read from the vector drawing; token counts snapped to the capture sizes that they stand for")

DESCRIPTION = """DeepSeek-V4-Flash with its DSpark drafter on four B300 GPUs, tensor parallel: seconds of the target's
forward pass at 88 sizes from 1 to 16,384 tokens, and of the drafter at 35 sizes from 1 to 256 requests, as vLLM measured
them when it started. CUDA graphs end at 1,024 tokens: the step jumps from 20.63 ms to 104.49 ms there. The raw values are
kept, rises and falls included; vLLM applies a running maximum before its scheduler uses them, which a profile may ask for
with `running_max: true`."""

MTP = f"""not measured. MTP is one layer of the target's kind over the 2 tokens per request that a step verifies, then one
head pass: verify(2R)/{LAYERS} + [dspark(R) - {DRAFT_LAYERS} verify({BLOCK}R)/{LAYERS}]/{BLOCK}. The first term takes the
target's own cost per layer ({LAYERS} layers); the bracket is what DSpark's measured cost leaves after its
{DRAFT_LAYERS} layers over {BLOCK}R tokens (head, sampling, Markov steps, launches), of which one drafted token of
{BLOCK} is charged. Past the graph limit verify() continues the straight line of the captured sizes from 512 on, because
the drafter runs in graphs of its own. This gives 0.22 ms at 1 request, 0.64 at 128, 1.1 at 256, where DSpark takes
0.88, 3.1 and 5.4; leaving it out altogether would raise MTP-1's throughput by 4 to 8 %."""


def extract(data: Path, folder: Path) -> None:
    """The measured points, from the data folder into the profile's own CSV files."""
    case = field_case(data, "S1")
    write_csv(folder / "verify.csv", ["batch_tokens", "ms"], case["verify_ms_by_tokens"], f"Measured. {SOURCE}")
    write_csv(folder / "dspark.csv", ["requests", "ms"], case["draft_ms_by_requests"], f"Measured. {SOURCE}")


def mtp_ms(folder: Path) -> list[tuple[int, float]]:
    """The assumed cost of MTP by requests; see ``MTP``."""
    verify = [(int(r["batch_tokens"]), float(r["ms"])) for r in read_csv(folder / "verify.csv")]
    size, ms = (np.array(column) for column in zip(*[v for v in verify if v[0] <= GRAPH_LIMIT], strict=True))
    slope, level = np.polyfit(size[size >= 512], ms[size >= 512], 1)

    def at(tokens: int) -> float:
        return float(ms[np.searchsorted(size, tokens)]) if tokens <= GRAPH_LIMIT else float(level + slope * tokens)

    rows = []
    for row in read_csv(folder / "dspark.csv"):
        r, dspark = int(row["requests"]), float(row["ms"])
        rest = (dspark - DRAFT_LAYERS * at(BLOCK * r) / LAYERS) / BLOCK
        rows.append((r, round(at(2 * r) / LAYERS + rest, 3)))
    return rows


def build(folder: Path) -> str:
    """``mtp.csv`` and ``profile.yaml`` from the measured CSV files; returns a few of its numbers for the README."""
    mtp = mtp_ms(folder)
    write_csv(folder / "mtp.csv", ["requests", "ms"], mtp, "Assumed, not measured: see profile.yaml")
    (folder / "profile.yaml").write_text(f"""\
description: {block(DESCRIPTION)}
gpus: 4
measured_context: 8192
max_num_seqs: 256
max_num_batched_tokens: 16384
verify:
  file: verify.csv
  between: hold
  graph_limit: {GRAPH_LIMIT}
drafters:
  dspark:
    kind: parallel
    seconds: {{file: dspark.csv}}
    source: {block('''the same startup profile, 1 to 256 requests. Beyond 256 nothing was measured and nothing is
      extrapolated: a step with more requests is an error.''', 6)}
  mtp:
    kind: autoregressive
    seconds: {{file: mtp.csv}}
    assumption: {block(MTP, 6)}
prefill: shared
provenance:
  kind: measured
  device: 4x NVIDIA B300, tensor parallel 4
  model: DeepSeek-V4-Flash-0731 with DSpark (block size {BLOCK})
  software: vLLM, startup profile, median of 5 replays per shape, synthetic KV context of 8,192 tokens
  date: 2026-08-14
  source: {block(SOURCE, 4)}
  command: {COMMAND}
  assumptions:
{assumptions([
    '''The curve is by tokens alone: every request is taken to have the 8,192 tokens of context that the measurement had.
    No cost per request or per KV token was published, so longer or shorter contexts cost the same here.''',
    '''Between 1,024 and 1,536 tokens nothing was measured: the value at 1,536 is held down to 1,025, where the figure puts
    the jump. Between the points above, straight lines.''',
    '''Prefill was not measured. With `prefill: chunked` its tokens enter the same pass; a chunk that lifts a step above
    1,024 tokens therefore pays the jump. Use it for shape, not for TTFT.''',
    '''Host, sampler and scheduler are not in the curve (DSpark's own head is in the drafter's). Nor is the size of the KV
    cache: it is unlimited here. The limits are the largest measured sizes: 256 requests and 16,384 tokens.''',
])}
""", newline="\n")
    verify = {int(r["batch_tokens"]): r["ms"] for r in read_csv(folder / "verify.csv")}
    dspark = {int(r["requests"]): r["ms"] for r in read_csv(folder / "dspark.csv")}
    rows = [(r, verify[r], verify[min(2 * r, GRAPH_LIMIT)], dspark[r], f"{ms:.2f}") for r, ms in mtp
            if r in (1, 8, 32, 64, 128, 256)]
    return table(["requests R", "verify(R) ms", "verify(2R) ms", "DSpark ms (measured)", "MTP ms (assumed)"], rows)
