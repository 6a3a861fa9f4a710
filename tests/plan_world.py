"""A queue whose capacity can be computed: one request at a time, every one takes the same time, arrivals at random."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.worlds import PROVENANCE, changed

__all__ = ["SERVICE", "write_queue"]

STEP = 0.01  # seconds of any step
TOKENS = 3  # the first one with the prompt's step, then two more
SERVICE = STEP * TOKENS

PROFILE: dict[str, Any] = {
    "description": "every step takes 10 ms, whatever is in it", "gpus": 2, "max_num_seqs": 1,
    "max_num_batched_tokens": 64, "verify": {"points": [[1, STEP], [64, STEP]]}, "provenance": PROVENANCE,
    "price_per_gpu_hour": 3.0, "currency": "EUR",
}
SCENARIO: dict[str, Any] = {
    "name": "queue", "profile": "./queue", "seed": 3, "replications": 3, "engine": {"prefill": "chunked"},
    "workload": {
        "arrival": {"kind": "poisson", "rate_per_s": 10.0},
        "prompt_tokens": {"kind": "constant", "value": 8}, "output_tokens": {"kind": "constant", "value": TOKENS},
        "classes": [{"name": "all", "domain": "math"}], "sla": {"ttft_ms_max": 60.0},
    },
    "measure": {"mode": "steady", "warmup_s": 5, "duration_s": 60}, "record": "requests",
    "arms": [{"name": "plain", "policy": "no_spec"}],
    "plan": {"attainment": 0.9, "resolution": 0.1, "max_replications": 8},
}


def write_queue(folder: Path, changes: dict[str, Any] | None = None, profile: dict[str, Any] | None = None) -> Path:
    """The scenario's path."""
    (folder / "queue").mkdir(exist_ok=True)
    (folder / "queue" / "profile.yaml").write_text(json.dumps(changed(PROFILE, profile)))
    path = folder / "queue.yaml"
    path.write_text(json.dumps(changed(SCENARIO, changes)))
    return path
