"""Cases of the knobs of ``what_if``, which every command knows, and of ``plan``, which ``plan`` alone reads."""

from __future__ import annotations

from typing import Any

__all__ = ["PLANNED", "WHAT_IF_CASES"]

FULL = {"arms.0.policy": {"name": "fixed", "length": 4}}

WHAT_IF_CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {  # knob: (what is turned, from where)
    "ScenarioModel.what_if": ({"what_if": {"acceptance": 0.5}}, FULL),
    "WhatIf.acceptance": ({"what_if.acceptance": 1.3}, FULL),
    "WhatIf.step_time": ({"what_if.step_time": 1.1}, FULL),
    "WhatIf.output_tokens": ({"what_if.output_tokens": 1.5}, FULL),
}

PLANNED: dict[str, dict[str, Any]] = {  # knob: what is turned, in the world of test_plan_parts.py
    "ScenarioModel.plan": {"plan": {"max_replications": 3, "resolution": 0.5}},
    "Plan.attainment": {"plan.attainment": 0.5},
    "Plan.resolution": {"plan.resolution": 0.5},
    "Plan.max_replications": {"plan.max_replications": 3},
    "Plan.max_load": {"plan.max_load": 25.0},
    "Plan.demand": {"plan.demand": {"peak_per_s": 500.0}},
    "Plan.n_plus_one": {"plan.n_plus_one": True},
    "Plan.headroom": {"plan.headroom": 0.5},
    "Demand.peak_per_s": {"plan.demand.peak_per_s": 700.0},
    "Demand.peak_users": {"plan.demand": {"peak_users": 90}},
    "Demand.hours": {"plan.demand.hours": [1.0] * 12 + [0.1] * 12},
}
