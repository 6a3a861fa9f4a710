"""A scenario small enough to run in a tenth of a second, with its own recorded trace and profile."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dspark_sim.trace import AcceptanceTrace

SCENARIO = """\
name: small
description: Two arms on made-up hardware. It answers nothing.
profile: ./hardware
traces: ./traces
seed: 7
replications: 2
workload:
  arrival: {kind: closed, concurrency: 8}
  classes:
    - {name: math, share: 0.5, domain: math}
    - {name: chat, share: 0.5, domain: chat, sla: {tps_user_min: 150}}
  prompt_tokens: {kind: constant, value: 32}
  output_tokens: {kind: lognormal, mean: 40, cv: 0.5, min: 2, max: 100}
measure: {mode: steady, warmup_s: 1, duration_s: 3}
arms:
  - {name: no-spec, policy: no_spec}
  - {name: fixed-3, drafter: dspark, policy: {name: fixed, length: 3}}
  - {name: async, drafter: dspark, policy: async_global}
"""

PROFILE = """\
description: Made up for tests; a stair at 16 tokens.
gpus: 2
verify:
  between: hold
  extrapolate: linear
  points: [[1, 0.004], [8, 0.005], [16, 0.006], [32, 0.009], [64, 0.012], [128, 0.02]]
drafters:
  dspark: {kind: parallel, seconds: {points: [[1, 0.0005], [64, 0.001]]}, assumption: a constant of the test}
max_num_seqs: 16
max_num_batched_tokens: 128
provenance:
  {kind: synthetic, device: none, model: none, software: none, date: unknown, source: a test, command: none,
   assumptions: [everything]}
"""

BROKEN = '''\
"""Fails at its sixth step."""
from typing import ClassVar


class Broken:
    lossless: ClassVar[bool] = True
    timing: ClassVar[str] = "overlapped"
    steps = 0

    def verify_lengths(self, view):
        self.steps += 1
        return view.drafted + (self.steps > 5)
'''


def make(folder: Path, extra_arms: str = "") -> Path:
    """The scenario's path; ``extra_arms``: more YAML lines for ``arms``."""
    rng = np.random.default_rng(3)
    confidence = rng.uniform(0.3, 0.95, (4000, 3)).astype(np.float32)
    accepted = np.cumprod(rng.uniform(size=(4000, 3)) < confidence, axis=1).sum(axis=1).astype(np.uint8)
    AcceptanceTrace("made-up", "dspark", 3, accepted, np.array([0, 1000, 2000, 3000, 4000]),
                    ("math", "chat", "math", "chat"), confidence, kind="synthetic",
                    provenance={"source": "a test"}).save(folder / "traces" / "dspark.parquet")
    (folder / "hardware").mkdir(exist_ok=True)
    (folder / "hardware" / "profile.yaml").write_text(PROFILE)
    (folder / "broken.py").write_text(BROKEN)
    (folder / "small.yaml").write_text(SCENARIO + extra_arms)
    return folder / "small.yaml"
