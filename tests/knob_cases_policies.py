"""One case per parameter of a shipped policy: values before and after, between which a result changes.

``WORLDS`` says where: most policies choose on a slope, where every token costs; ``clairvoyant`` wastes nothing and is
moved by a stair only; those that learn need more steps.
"""

from __future__ import annotations

from typing import Any

__all__ = ["POLICY_KNOBS", "world_of"]

Values = dict[str, Any]

POLICY_KNOBS: dict[str, tuple[Values, Values]] = {  # policy.parameter: (before, after)
    "fixed.length": ({"length": 1}, {"length": 2}),
    "threshold.threshold": ({"threshold": 0.3}, {"threshold": 0.6}),
    "threshold.on": ({"on": "confidence"}, {"on": "survival"}),
    "async_global.lag": ({"lag": 2}, {"lag": 4}),
    "async_global.min_gain": ({"min_gain": 0.0}, {"min_gain": 0.9}),
    "async_global.new_request_survival": ({"new_request_survival": 1.0}, {"new_request_survival": 0.0}),
    "async_global.otherwise": ({"min_gain": 5.0, "otherwise": "none"}, {"min_gain": 5.0, "otherwise": "all"}),
    **{f"{name}.cost": ({"cost": "step"}, {"cost": "verify"})
       for name in ("async_global", "sync_global", "early_stop", "clairvoyant")},
    "batch_schedule.ranges": ({"ranges": [[1, 8, 3]]}, {"ranges": [[1, 2, 3], [3, 8, 1]]}),
    "dcut.ratios": ({"ratios": [[1, 0.5]]}, {"ratios": [[1, 0.75]]}),
    "ema_ladder.rungs": ({"rungs": [1, 2]}, {"rungs": [1, 3]}),
    "ema_ladder.alpha": ({"rungs": [1, 2, 3, 4], "alpha": 0.1}, {"rungs": [1, 2, 3, 4], "alpha": 0.9}),
    "ema_ladder.interval": ({"rungs": [1, 2, 3, 4], "interval": 2}, {"rungs": [1, 2, 3, 4], "interval": 7}),
    "ema_ladder.warmup": ({"rungs": [1, 2, 3, 4], "warmup": 3}, {"rungs": [1, 2, 3, 4], "warmup": 20}),
    "ema_ladder.down": ({"rungs": [1, 2, 3, 4], "down": -0.25}, {"rungs": [1, 2, 3, 4], "down": 1.0}),
    "ema_ladder.up": ({"rungs": [1, 2, 3, 4], "up": 0.0}, {"rungs": [1, 2, 3, 4], "up": -2.0}),
    "goodput.prior": ({"prior": 0.7}, {"prior": 0.1}),
    "goodput.memory": ({"memory": 0.95}, {"memory": 0.3}),
    "goodput.probe": ({"prior": 0.05, "probe": 50}, {"prior": 0.05, "probe": 2}),
    "renewal.lag": ({"lag": 2}, {"lag": 5}),
    "renewal.memory": ({"memory": 8}, {"memory": 500}),
    "renewal.learn": ({"learn": "none"}, {"learn": "both"}),
    "renewal.draft": ({"draft": "none"}, {"draft": "rows"}),
    "renewal.probe": ({"probe": 3}, {"probe": 40}),
    "renewal.slo_weight": ({"slo_weight": 0.0}, {"slo_weight": 8.0}),
    "slo_aware.slack": ({"slack": 0.5}, {"slack": 1.5}),
    "specdec_pp.threshold": ({"threshold": 0.7}, {"threshold": 0.4}),
    "tetris.per_request": ({"per_request": 3.0}, {"per_request": 1.0}),
    "tetris.capacity": ({"capacity": 3}, {"capacity": 6}),
    "throughput_aware.candidates": ({"candidates": [1, 2, 3]}, {"candidates": [1, 4]}),
    "throughput_aware.window": ({"candidates": [1, 2, 3, 4], "window": 2, "interval": 2},
                                {"candidates": [1, 2, 3, 4], "window": 12, "interval": 2}),
    "throughput_aware.interval": ({"candidates": [1, 2, 3, 4], "window": 3, "interval": 3},
                                  {"candidates": [1, 2, 3, 4], "window": 3, "interval": 11}),
}


def world_of(knob: str) -> Values:
    """Dotted changes to the toy world in which ``policy.parameter`` matters."""
    policy = knob.split(".")[0]
    world: Values = {"profile:drafters.par.seconds": {"points": [[1, 0.004], [64, 0.02]]}}
    if policy != "clairvoyant":
        world["profile:verify"] = {"points": [[1, 0.004], [128, 0.131]]}
    if policy == "renewal":  # a slope where budgets move, beliefs that are off, and time to learn
        world["profile:verify"] = {"points": [[1, 0.004], [128, 0.258]]}
        world["measure"] = {"mode": "whole_run", "requests": 250}
        if knob != "renewal.memory":
            world["arms.0.belief"] = {"confidence_shift": 2.0, "step_scale": 0.5}
    if policy in ("slo_aware", "renewal"):
        world["workload.sla"] = {"tpot_ms_max": 20.0}
    if policy in ("ema_ladder", "goodput", "throughput_aware"):
        world["measure"] = {"mode": "whole_run", "requests": 25}
    if policy == "goodput":  # a drafter so cheap that the best length lies between none and all
        world["profile:drafters.par.seconds"] = {"points": [[1, 0.0002], [64, 0.001]]}
    return world
