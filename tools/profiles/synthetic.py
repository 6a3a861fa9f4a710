# ruff: noqa: E501  (prose of the profile stands in the source as one paragraph)
"""synthetic-roofline: an invented engine with every optional key of a profile, for teaching and for tests."""

from __future__ import annotations

import math
from pathlib import Path

from profiles.common import COMMAND, assumptions, block, write_csv

NAME = "synthetic-roofline"
FLOOR_MS, TILE_MS, TILE, GRAPH_LIMIT = 6.0, 0.9, 64, 1024
CAPTURED = [1, 2, 4, *range(8, 257, 8), *range(272, GRAPH_LIMIT + 1, 16)]
EAGER = [1025, 1536, 2048, 4096, 8192, 16384]

DESCRIPTION = """Invented numbers, for teaching. A memory-bound floor of 6 ms, then 0.9 ms per tile of 64 tokens, with every
third tile a little cheaper than the one before it (so the curve falls in places, as real ones do), CUDA graphs up to 1,024
tokens and a jump of 60 % above. It uses every optional key that a profile may have: copy it to write your own."""


def verify_ms(tokens: int) -> float:
    """The invented roofline: floor, tiles, jags, and the price of leaving the graphs."""
    tiles = math.ceil(tokens / TILE)
    ms = FLOOR_MS + TILE_MS * (tiles - 1) + 0.05 * math.log2(tokens) + (1.2 if tiles % 3 == 2 else 0.0)
    return round(ms * (1.6 if tokens > GRAPH_LIMIT else 1.0), 3)


def extract(data: Path, folder: Path) -> None:
    """Nothing to take from anywhere."""


def build(folder: Path) -> str:
    """All files, from the formulae above; there is nothing to check them against."""
    write_csv(folder / "verify.csv", ["batch_tokens", "ms"], [(b, verify_ms(b)) for b in [*CAPTURED, *EAGER]],
              "Synthetic: made by tools/profiles/synthetic.py")
    (folder / "profile.yaml").write_text(f"""\
description: {block(DESCRIPTION)}
gpus: 2
price_per_gpu_hour: 2.5        # assumed, not a quotation
currency: USD
measured_context: 1024
max_num_seqs: 1024
max_num_batched_tokens: 16384
verify:
  file: verify.csv             # columns batch_tokens and seconds or ms; more columns are ignored
  between: hold                # pad up to the next captured size ...
  graph_limit: {GRAPH_LIMIT}            # ... up to here; straight lines above
  extrapolate: linear          # continue the last segment beyond the last point (the result says so)
  running_max: false           # true: make the curve monotone, as vLLM does
drafters:
  dspark:
    kind: parallel             # one pass for the whole block
    seconds:
      points: [[1, 0.8], [64, 1.6], [256, 4.0], [1024, 13.0]]
      unit: ms
    per_token: {{points: [[1, 0.02], [1024, 0.05]], unit: ms}}         # a sequential head on top, per draft token
    catch_up:                  # requests that were not drafted for must refill the drafter's KV
      points: [[1, 0.1], [1024, 4.0]]
      unit: ms
    assumption: invented
  dflash:
    kind: parallel
    seconds: {{points: [[1, 0.7], [64, 1.4], [256, 3.5], [1024, 11.5]], unit: ms}}
    assumption: invented
  eagle3:
    kind: autoregressive       # per drafted token
    seconds: {{points: [[1, 0.35], [256, 0.6], [1024, 1.6]], unit: ms}}
    assumption: invented
  mtp:
    kind: autoregressive
    seconds: {{points: [[1, 0.3], [256, 0.9], [1024, 3.0]], unit: ms}}
    assumption: invented
speculation_overhead: {{points: [[1, 0.3], [1024, 2.0]], unit: ms}}   # a speculative engine pays it even without drafts
prefill:                       # own pass; `prefill: shared` puts prefill tokens into the target's pass
  points: [[1, 4.0], [512, 9.0], [4096, 60.0], [16384, 250.0]]
  unit: ms
schedule:                      # paid when the policy decides while the step waits (timing: synchronous)
  points: [[1, 0.15], [256, 0.45], [512, 0.4], [1024, 1.4]]
  unit: ms
  running_max: true
fixed: {{points: [[1, 0.4], [1024, 1.0]], unit: ms}}                  # sampler and host, every step
per_request: 1.0e-6            # seconds per decoding request
per_kv_token: 2.0e-10          # seconds per KV token read beyond measured_context
kv:
  blocks: 40000
  block_tokens: 64
provenance:
  kind: synthetic
  device: none
  model: none
  software: none
  date: unknown
  source: tools/profiles/synthetic.py
  command: {COMMAND}
  assumptions:
{assumptions(['every number is invented; nothing here describes a device or a model'])}
""", newline="\n")
    return ""
