"""Hand-made runs whose figures are known by arithmetic: tables, scenario and setup of one arm."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa

from dspark_sim.scenario_plan import WhatIf
from dspark_sim.simulate import ArmRun

SUMS = (
    "busy_s", "draft_s", "schedule_s", "verify_s", "other_s", "request_seconds", "waiting_seconds", "steps",
    "request_steps", "drafted", "verified", "accepted", "emitted", "prefill_tokens", "batch_tokens", "padded_tokens",
    "extrapolated_steps", "finished",
)


def interval(start: float, seconds: float = 1.0, gaps: dict[int, int] | None = None, **sums: float) -> dict[str, Any]:
    unknown = set(sums) - set(SUMS) - {"engine", "up_s", "paid_s"}
    assert not unknown, unknown
    return {"arm": "a", "replication": 0, "engine": 0, "start": start, "seconds": seconds, "up_s": seconds,
            "paid_s": seconds,
            **dict.fromkeys(SUMS, 0.0), "gap_bin": list(gaps or {}), "gap_count": list((gaps or {}).values()), **sums}


def request(finished: float | None, **fields: Any) -> dict[str, Any]:
    row = {"arm": "a", "replication": 0, "engine": 0, "id": 0, "class": "c", "arrival": 0.0, "admitted": 0.0,
           "first_token": 0.0, "finished": finished, "prompt_tokens": 10, "output_tokens": 11, "skipped": 0,
           "emitted": 11, "steps": 5, "drafted": 0, "verified": 0, "accepted": 0, "preemptions": 0, "slowest_gap": None,
           "requeued": 0, "cached_tokens": 0, "recomputed_tokens": 0,
           "outcome": "finished" if finished is not None else "unfinished"}
    assert not set(fields) - set(row), fields
    return row | fields


def table(rows: list[dict[str, Any]], template: dict[str, Any]) -> pa.Table:
    kinds = {str: pa.string(), int: pa.int64(), float: pa.float64(), list: pa.list_(pa.int64())}
    kinds[type(None)] = pa.float64()
    floats = {"finished", "first_token", "admitted", "arrival"} if "class" in template else set(SUMS)
    return pa.table({
        k: pa.array([r[k] for r in rows], pa.float64() if k in floats else kinds[type(v)]) for k, v in template.items()
    })


def run(
    intervals: list[dict[str, Any]], requests: list[dict[str, Any]], window: tuple[float, float] = (0.0, 1.0),
    **more: Any,
) -> ArmRun:
    return ArmRun("a", 0, None, table(intervals, interval(0.0)), table(requests, request(1.0)), window, **more)


def scenario(mode: str = "steady", arrival: str = "closed", **slas: dict[str, float] | None) -> Any:
    """Classes by name with their limits; one class ``c`` without an SLA by default."""
    limits = ("tps_user_min", "tpot_ms_max", "ttft_ms_max", "e2e_s_max")
    classes = [
        SimpleNamespace(
            name=name, priority=0,
            sla=None if sla is None else SimpleNamespace(**{k: sla.get(k) for k in limits}),
        )
        for name, sla in (slas or {"c": None}).items()
    ]
    return SimpleNamespace(
        name="made-up", description="", seed=1, replications=2, what_if=WhatIf(),
        warnings=lambda: ["a class is odd"], measure=SimpleNamespace(mode=mode),
        workload=SimpleNamespace(classes=classes, arrival=SimpleNamespace(kind=arrival)),
    )


def setup(name: str = "a", gpus: int = 1, drafter: str | None = "d", **fields: Any) -> Any:
    provenance = SimpleNamespace(kind=fields.pop("kind", "measured"), model=fields.pop("model", "none"))
    profile = SimpleNamespace(name="p", gpus=gpus, provenance=provenance,
                              statements=lambda drafters: [f"profile p: measured; drafters {sorted(set(drafters))}"])
    trace = None if drafter is None else SimpleNamespace(
        target="t", drafter=drafter, kind="derived", block_size=5, temperature=1.0, positions=10, documents=1,
        provenance={"source": "somewhere"},
    )
    made = SimpleNamespace(**{
        "name": name, "gpus": gpus, "engine_gpus": [gpus] * 16, "drafter": drafter, "drafter_cost": drafter,
        "trace": trace, "profile": profile, "belief_profile": profile,
        "step_scale": 1.0, "confidence_shift": 0.0, "calibrated": True, "policy_reference": "fixed",
        "policy_parameters": {"length": 5}, "groups": (),
        "policy_source": SimpleNamespace(name="fixed", lossless=True, hides=()), **fields,
    })
    made.engines = (SimpleNamespace(setup=made),)
    return made


def gap_bin(seconds: float) -> int:
    return int(np.floor(np.log(seconds) * 100))
