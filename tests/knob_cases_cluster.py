"""The cases of knob_cases.py for several engines: what stands under ``cluster:``."""

from __future__ import annotations

from typing import Any


def group(name: str = "a", count: int = 2, **more: Any) -> dict[str, Any]:
    return {"name": name, "count": count, **more}


OPEN = {"workload.arrival": {"kind": "poisson", "rate_per_s": 40.0}}
BUSY = {"workload.arrival": {"kind": "poisson", "rate_per_s": 400.0}, "engine.max_num_seqs": 2}
TWO = {"cluster": {"engines": [group()]}}
MOVE = {"kv_bytes_per_token": 1000.0, "bandwidth_gb_s": 0.001}
APART = {
    "cluster": {"engines": [group("p", 1, role="prefill"), group("d", 1, role="decode")], "transfer": MOVE},
    "engine.prefill": "chunked",
}
OUT = {"cluster": {"engines": [group()], "failures": [{"engine": 1, "at_s": 0.05, "down_s": 0.1}]}}
SHAKY = {"cluster": {"engines": [group()], "random_failures": {"mtbf_s": 0.1, "mttr_s": 0.05}}}
DOOR = {"cluster": {"engines": [group(count=1)], "admission": {"max_queue": 1, "retry_s": 0.05}}}
SCALE = {"min_engines": 1, "target_outstanding": 2.0, "interval_s": 0.02, "startup_s": 0.03, "cooldown_s": 0.02}
GROWS = {"cluster": {"engines": [group(count=4)], "autoscale": SCALE}}
QUEUES = {"min_engines": 1, "target_queue": 0.5, "interval_s": 0.02, "startup_s": 0.01, "cooldown_s": 0.02}
MANY = {"measure": {"mode": "whole_run", "requests": 60}}
TALKS = {
    "workload.arrival": {
        "kind": "sessions", "rate_per_s": 4.0, "turns": {"kind": "constant", "value": 3},
        "think_time_s": {"mean": 0.1}, "shared_tokens": 1024,
    },
    "workload.prompt_tokens": {"kind": "constant", "value": 600}, "engine.prefill": "chunked",
    "profile:max_num_batched_tokens": 96,
}

CLUSTER_CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {  # knob: (what is turned, from where)
    "ScenarioModel.cluster": (TWO, {}),
    "RequestClass.priority": ({"workload.classes.1.priority": 1}, BUSY),
    "Engine.prefix_cache": ({"engine.prefix_cache": False}, TALKS),
    "Cluster.engines": ({"cluster.engines": [group(count=3)]}, TWO),
    "Cluster.router": ({"cluster.router": "round_robin"}, OPEN | MANY | TWO),
    "Cluster.transfer": ({"cluster.transfer": MOVE | {"latency_ms": 3.0}}, APART),
    "Cluster.admission": ({"cluster.admission": {"max_queue": 1}}, BUSY | TWO),
    "Cluster.failures": ({"cluster.failures": [{"engine": 0, "at_s": 0.02, "down_s": 0.5}]}, TWO),
    "Cluster.random_failures": ({"cluster.random_failures": {"mtbf_s": 0.05, "mttr_s": 0.5}}, TWO),
    "Cluster.autoscale": ({"cluster.autoscale": SCALE}, MANY | {"cluster": {"engines": [group(count=4)]}}),
    "EngineGroup.count": ({"cluster.engines.0.count": 3}, TWO),
    "EngineGroup.profile": ({"cluster.engines.0.profile": "./steep"}, TWO),
    "EngineGroup.role": (APART, {"cluster": {"engines": [group("p", 1), group("d", 1)]}, "engine.prefill": "chunked"}),
    "Transfer.kv_bytes_per_token": ({"cluster.transfer.kv_bytes_per_token": 9000.0}, APART),
    "Transfer.bandwidth_gb_s": ({"cluster.transfer.bandwidth_gb_s": 0.0001}, APART),
    "Transfer.latency_ms": ({"cluster.transfer.latency_ms": 9.0}, APART),
    "Admission.max_queue": ({"cluster.admission.max_queue": 30}, BUSY | DOOR),
    "Admission.timeout_s": ({"cluster.admission.timeout_s": 0.01}, BUSY | TWO),
    "Admission.retry_s": ({"cluster.admission.retry_s": 0.4}, {"workload.arrival.concurrency": 6} | MANY | DOOR),
    "Outage.engine": ({"cluster.failures.0.engine": 0}, OPEN | MANY | OUT),
    "Outage.at_s": ({"cluster.failures.0.at_s": 0.07}, OUT),
    "Outage.down_s": ({"cluster.failures.0.down_s": 0.3}, OUT),
    "RandomOutages.mtbf_s": ({"cluster.random_failures.mtbf_s": 0.3}, SHAKY),
    "RandomOutages.mttr_s": ({"cluster.random_failures.mttr_s": 0.3}, SHAKY),
    "Autoscale.min_engines": ({"cluster.autoscale.min_engines": 2}, MANY | GROWS),
    "Autoscale.target_outstanding": ({"cluster.autoscale.target_outstanding": 1.0}, MANY | GROWS),
    "Autoscale.target_queue": (
        {"cluster.autoscale.target_queue": 40.0}, MANY | BUSY | {"cluster": {"engines": [group(count=4)],
                                                                            "autoscale": QUEUES}},
    ),
    "Autoscale.interval_s": ({"cluster.autoscale.interval_s": 0.05}, MANY | GROWS),
    "Autoscale.startup_s": ({"cluster.autoscale.startup_s": 0.2}, MANY | GROWS),
    "Autoscale.cooldown_s": (
        {"cluster.autoscale.cooldown_s": 0.5},
        MANY | GROWS | {"workload.arrival": {"kind": "gamma", "rate_per_s": 60.0, "cv": 4.0}},
    ),
}
CLUSTER_SAID: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "EngineGroup.name": ({"cluster.engines.0.name": "b"}, TWO),
}
