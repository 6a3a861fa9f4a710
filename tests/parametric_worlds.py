"""A toy specification of parametric traces, and what tests do with it."""

from __future__ import annotations

import copy
from typing import Any

from dspark_sim.parametric import Spec, generate
from dspark_sim.trace import AcceptanceTrace

SPEC: dict[str, Any] = {
    "format": "dspark-sim parametric traces 1", "target": "toy", "description": "A toy.", "kind": "synthetic",
    "temperature": 1.0, "seed": 7, "document_rows": 20,
    "domains": [{"name": "math", "documents": 30}, {"name": "chat", "documents": 25}],
    "difficulty": {"document_share": 0.3, "correlation": 0.5, "skew": 0.4, "unseen_correlation": 0.6},
    "drafters": {
        "with": {
            "block_size": 3, "levels": {"math": [2.0, 1.8, 1.6], "chat": [1.0, 0.9, 0.8]}, "spread": [1.0, 1.1, 1.2],
            "unseen": 0.3,
            "confidence": {"shift": [0.3, 0.2, 0.1], "gain": [1.0, 1.1, 1.2], "noise": [0.2, 0.3, 0.4],
                           "sts_temperature": [1.2, 1.1, 1.0]},
        },
        "without": {"block_size": 2, "levels": {"math": [1.0, 1.0], "chat": [0.5, 0.5]}, "spread": [1.0, 1.0]},
    },
    "provenance": {"source": ["nobody"], "date": "today"},
}


def changed(**keys: Any) -> dict[str, Any]:
    """SPEC with dotted keys (``a__b``) set; None removes."""
    data = copy.deepcopy(SPEC)
    for key, value in keys.items():
        here: Any = data
        *parents, last = key.split("__")
        for part in parents:
            here = here[int(part) if part.isdecimal() else part]
        if value is None:
            del here[last]
        else:
            here[int(last) if last.isdecimal() else last] = value
    return data


def made(name: str = "with", **keys: Any) -> AcceptanceTrace:
    return generate(Spec.model_validate(changed(**keys)), name)


def same(a: AcceptanceTrace, b: AcceptanceTrace) -> bool:
    return a.accepted.tobytes() == b.accepted.tobytes() and (
        (a.confidence is None and b.confidence is None)
        or (a.confidence is not None and b.confidence is not None and a.confidence.tobytes() == b.confidence.tobytes())
    )


