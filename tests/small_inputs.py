"""A small, complete set of inputs that tests write to a folder and then break: scenario, profile, traces."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dspark_sim.trace import AcceptanceTrace

PROFILE = """\
description: Small and made up.
gpus: 2
measured_context: 0
max_num_seqs: 8
max_num_batched_tokens: 64
verify:
  points: [[1, 5.0], [8, 6.0], [32, 9.0], [64, 14.0]]
  unit: ms
  between: hold
drafters:
  dspark:
    kind: parallel
    seconds: {points: [[1, 0.5], [64, 1.5]], unit: ms}
    assumption: made up
  dflash:
    kind: parallel
    seconds: {file: dflash.csv}
    assumption: made up
kv: {blocks: 100, block_tokens: 16}
provenance:
  kind: synthetic
  device: none
  model: none
  software: none
  date: 2026-01-01
  source: these tests
  command: none
  assumptions: [everything]
"""

CSV = "requests,seconds\n1,0.0004\n64,0.0012\n"

SCENARIO = """\
name: small
description: A small one. It answers nothing.
profile: profile.yaml
traces: traces
seed: 1
replications: 2
engine: {host_lag: 2, prefill: none, temperature: 1.0}
workload:
  arrival: {kind: closed, concurrency: 4}
  prompt_tokens: {kind: constant, value: 16}
  output_tokens: {kind: lognormal, mean: 40, cv: 0.5, min: 2, max: 200}
  sla: {tps_user_min: 60}
  classes:
    - {name: math, share: 0.5, domain: math}
    - {name: chat, share: 0.5, domain: chat, prompt_tokens: {kind: empirical, values: [8, 9]}}
measure: {mode: steady, warmup_s: 1, duration_s: 4}
interval_s: 0.5
arms:
  - {name: plain, policy: no_spec}
  - {name: fixed-3, drafter: dspark-3, policy: {name: fixed, length: 3}}
  - {name: global, drafter: dspark-3, policy: {name: async_global, lag: 2}, belief: {step_scale: 1.2}}
  - {name: flash, drafter: dflash, policy: fixed}
"""


def small_trace(drafter: str, block_size: int = 3, *, confidence: bool = True, **changes: object) -> AcceptanceTrace:
    """Four documents of ten positions, two per domain."""
    rng = np.random.default_rng(7)
    accepted = rng.integers(0, block_size + 1, size=40).astype(np.uint8)
    table = rng.random((40, block_size), dtype=np.float32) if confidence else None
    values = {"temperature": 1.0, **changes}
    return AcceptanceTrace(
        target="small", drafter=drafter, block_size=block_size, accepted=accepted,
        document_start=np.arange(0, 41, 10), domain=("math", "math", "chat", "chat"), confidence=table,
        **values,  # type: ignore[arg-type]
    )


def write_inputs(folder: Path) -> Path:
    """Writes everything to ``folder``; the path of the scenario, which loads and runs."""
    (folder / "profile.yaml").write_text(PROFILE)
    (folder / "dflash.csv").write_text(CSV)
    for name, has_confidence in (("dspark-3", True), ("dflash", False), ("orphan", True)):
        small_trace(name, confidence=has_confidence).save(folder / "traces" / f"{name}.parquet")
    path = folder / "scenario.yaml"
    path.write_text(SCENARIO)
    return path
