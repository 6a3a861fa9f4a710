"""One case per knob of a scenario and of a profile: what to turn, and from where, so that a result changes.

A knob is ``Model.field`` of the pydantic models that read the two kinds of files. Each case says what the world looks
like before (``base``: dotted changes to the toy world of worlds.py) and what the turn adds (``turned``). Keys that
begin with ``profile:`` change the hardware profile, all others the scenario.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.knob_cases_cluster import CLUSTER_CASES, CLUSTER_SAID
from tests.knob_cases_plan import PLANNED, WHAT_IF_CASES
from tests.knob_cases_traffic import TRAFFIC_CASES, TRAFFIC_REFUSED

__all__ = ["CASES", "DRAWN", "REFUSED", "SAID", "SWEPT", "Case"]


@dataclass(frozen=True)
class Case:
    """``turned`` is put on top of ``base``."""

    turned: dict[str, Any]
    base: dict[str, Any] = field(default_factory=dict)


def constant(n: int) -> dict[str, Any]:
    return {"kind": "constant", "value": n}


SPREAD = {"kind": "lognormal", "mean": 24, "cv": 0.6, "min": 4, "max": 50}
POISSON = {"kind": "poisson", "rate_per_s": 6.0}
GAMMA = {"kind": "gamma", "rate_per_s": 6.0, "cv": 2.0}
STEADY = {"mode": "steady", "warmup_s": 0.5, "duration_s": 1.0}
COUNTED = {"mode": "steady", "warmup_s": 0.5, "duration_requests": 5}
TIGHT = {"engine.kv_blocks": 40, "engine.kv_block_tokens": 4}
SEARCH = {"arms.0.policy": {"name": "sync_global"}}
FULL = {"arms.0.policy": {"name": "fixed", "length": 4}}
AUTO = {"arms.0": {"name": "spec", "drafter": "auto", "policy": {"name": "./nosy.py:Nosy", "rest": 2}}}
LINE = {"points": [[1, 0.01], [16, 0.013], [17, 0.02], [128, 0.05]]}
SHORT = {"points": [[1, 0.01], [12, 0.012]]}
SLOW = {"points": [[1, 0.003], [64, 0.004]]}
KV = {"blocks": 40, "block_tokens": 4}
KAPPA = {"profile:per_kv_token": 1e-6}
TWO = [{"name": "easy", "share": 0.9, "domain": "math"}, {"name": "hard", "share": 0.1, "domain": "chat"}]

CASES: dict[str, Case] = {
    "ScenarioModel.profile": Case({"profile": "./other"}),
    "ScenarioModel.traces": Case({"traces": "./other-traces"}),
    "ScenarioModel.seed": Case({"seed": 6}),
    "ScenarioModel.replications": Case({"replications": 2}),
    "ScenarioModel.engine": Case({"engine": {"max_num_seqs": 2}}),
    "ScenarioModel.workload": Case({"workload.arrival": POISSON}),
    "ScenarioModel.measure": Case({"measure": STEADY}),
    "ScenarioModel.record": Case({"record": "requests"}),
    "ScenarioModel.interval_s": Case({"interval_s": 0.5}),
    "ScenarioModel.arms": Case(FULL),
    "Engine.host_lag": Case({"engine.host_lag": 0}),
    "Engine.prefill": Case({"engine.prefill": "separate"}, {"engine.prefill": "chunked"}),
    "Engine.ragged": Case({"engine.ragged": "padded"}),
    "Engine.max_num_seqs": Case({"engine.max_num_seqs": 3}),
    "Engine.max_num_batched_tokens": Case({"engine.max_num_batched_tokens": 12}, FULL),
    "Engine.kv_blocks": Case({"engine.kv_blocks": 30}, TIGHT),
    "Engine.kv_block_tokens": Case({"engine.kv_block_tokens": 3}, TIGHT),
    "Workload.arrival": Case({"workload.arrival": POISSON}),
    "Workload.classes": Case({"workload.classes": TWO}),
    "Workload.prompt_tokens": Case({"workload.prompt_tokens": constant(21)}, {"engine.prefill": "chunked"}),
    "Workload.output_tokens": Case({"workload.output_tokens": constant(21)}),
    "Workload.sla": Case({"workload.sla": {"tpot_ms_max": 3.0}}, FULL),
    "Workload.documents": Case({"workload.documents": "all"}, FULL),
    "RequestClass.name": Case({"workload.classes.0.name": "simple"}),
    "RequestClass.share": Case({"workload.classes.0.share": 0.1, "workload.classes.1.share": 0.9}),
    "RequestClass.domain": Case({"workload.classes.0.domain": "chat"}, FULL),
    "RequestClass.prompt_tokens": Case({"workload.classes.0.prompt_tokens": constant(31)},
                                       {"engine.prefill": "separate"}),
    "RequestClass.output_tokens": Case({"workload.classes.0.output_tokens": constant(31)}),
    "RequestClass.sla": Case({"workload.classes.0.sla": {"tpot_ms_max": 3.0}}, FULL),
    "Closed.kind": Case({"workload.arrival": POISSON}, {"workload.arrival": {"kind": "closed", "concurrency": 6}}),
    "Closed.concurrency": Case({"workload.arrival.concurrency": 5}),
    "Closed.think_time_s": Case({"workload.arrival.think_time_s": 0.01}),
    "Closed.think_steps": Case({"workload.arrival.think_steps": 3.0}),
    "Poisson.kind": Case({"workload.arrival": GAMMA}, {"workload.arrival": POISSON}),
    "Poisson.rate_per_s": Case({"workload.arrival.rate_per_s": 7.0}, {"workload.arrival": POISSON}),
    "Poisson.exact_after": Case({"workload.arrival.exact_after": 9}, {"workload.arrival": POISSON}),
    "Gamma.exact_after": Case({"workload.arrival.exact_after": 9}, {"workload.arrival": GAMMA}),
    "Gamma.kind": Case({"workload.arrival": POISSON}, {"workload.arrival": GAMMA}),
    "Gamma.rate_per_s": Case({"workload.arrival.rate_per_s": 7.0}, {"workload.arrival": GAMMA}),
    "Gamma.cv": Case({"workload.arrival.cv": 0.5}, {"workload.arrival": GAMMA}),
    "Sla.tps_user_min": Case({"workload.sla": {"tps_user_min": 1e5}}, FULL),
    "Sla.tpot_ms_max": Case({"workload.sla": {"tpot_ms_max": 1e-3}}, FULL),
    "Sla.ttft_ms_max": Case({"workload.sla": {"ttft_ms_max": 1e-3}}, FULL | {"engine.prefill": "chunked"}),
    "Sla.e2e_s_max": Case({"workload.sla": {"e2e_s_max": 1e-3}}, FULL),
    "Steady.mode": Case({"measure": {"mode": "whole_run", "requests": 12}}, {"measure": STEADY}),
    "Steady.warmup_s": Case({"measure.warmup_s": 0.25}, {"measure": STEADY}),
    "Steady.duration_s": Case({"measure.duration_s": 1.25}, {"measure": STEADY}),
    "Steady.duration_requests": Case({"measure.duration_requests": 6}, {"measure": COUNTED}),
    "WholeRun.mode": Case({"measure": COUNTED}),
    "WholeRun.requests": Case({"measure.requests": 13}),
    "PolicyChoice.name": Case({"arms.0.policy.name": "early_stop"}, {"arms.0.policy": {"name": "sync_global"}}),
    "Belief.profile": Case({"arms.0.belief": {"profile": "./steep"}}, SEARCH),
    "Belief.step_scale": Case({"arms.0.belief": {"step_scale": 4.0}}, SEARCH),
    "Belief.confidence_shift": Case({"arms.0.belief": {"confidence_shift": -2.0}}, SEARCH),
    "Arm.name": Case({"arms.0.name": "other"}),
    "Arm.drafter": Case({"arms.0.drafter": "auto"}, SEARCH),
    "Arm.policy": Case({"arms.0.policy": {"name": "fixed", "length": 3}}, FULL),
    "Arm.calibrated": Case({"arms.0.calibrated": False}, SEARCH),
    "Arm.drafter_cost": Case({"arms.0.drafter_cost": "auto"}, FULL),
    "Arm.belief": Case({"arms.0.belief": {"confidence_shift": -2.0}}, SEARCH),
    "Arm.engine": Case({"arms.0.engine": {"max_num_seqs": 2}}),
    "ConstantLengths.kind": Case({"workload.output_tokens": {"kind": "empirical", "values": [20, 30]}},
                                 {"workload.output_tokens": constant(30)}),
    "ConstantLengths.value": Case({"workload.output_tokens.value": 31}, {"workload.output_tokens": constant(30)}),
    "LognormalLengths.kind": Case({"workload.output_tokens": constant(24)}, {"workload.output_tokens": SPREAD}),
    "LognormalLengths.mean": Case({"workload.output_tokens.mean": 26}, {"workload.output_tokens": SPREAD}),
    "LognormalLengths.cv": Case({"workload.output_tokens.cv": 0.5}, {"workload.output_tokens": SPREAD}),
    "LognormalLengths.min": Case({"workload.output_tokens.min": 20}, {"workload.output_tokens": SPREAD}),
    "LognormalLengths.max": Case({"workload.output_tokens.max": 26}, {"workload.output_tokens": SPREAD}),
    "EmpiricalLengths.kind": Case({"workload.output_tokens": constant(20)},
                                  {"workload.output_tokens": {"kind": "empirical", "values": [20, 30]}}),
    "EmpiricalLengths.file": Case({"workload.output_tokens": {"kind": "empirical", "file": "b.csv"}},
                                  {"workload.output_tokens": {"kind": "empirical", "file": "a.csv"}}),
    "EmpiricalLengths.order": Case({"workload.output_tokens.order": "listed"},
                                   {"workload.output_tokens": {"kind": "empirical", "values": [20, 30]}}),
    "EmpiricalLengths.values": Case({"workload.output_tokens": {"kind": "empirical", "values": [20, 31]}},
                                    {"workload.output_tokens": {"kind": "empirical", "values": [20, 30]}}),
    "ProfileSpec.gpus": Case({"profile:gpus": 4}),
    "ProfileSpec.measured_context": Case({"profile:measured_context": 10}, KAPPA),
    "ProfileSpec.max_num_seqs": Case({"profile:max_num_seqs": 3}),
    "ProfileSpec.max_num_batched_tokens": Case({"profile:max_num_batched_tokens": 12}, FULL),
    "ProfileSpec.verify": Case({"profile:verify": LINE}),
    "ProfileSpec.drafters": Case({"profile:drafters.par.seconds": SLOW}),
    "ProfileSpec.speculation_overhead": Case({"profile:speculation_overhead": SLOW}, FULL),
    "ProfileSpec.prefill": Case({"profile:prefill": SLOW}, FULL | {"engine.prefill": "chunked"}),
    "ProfileSpec.schedule": Case({"profile:schedule": SLOW}),
    "ProfileSpec.fixed": Case({"profile:fixed": SLOW}, FULL),
    "ProfileSpec.per_request": Case({"profile:per_request": 1e-4}, FULL),
    "ProfileSpec.per_kv_token": Case(KAPPA, FULL),
    "ProfileSpec.kv": Case({"profile:kv": KV}, FULL),
    "KvSpec.blocks": Case({"profile:kv.blocks": 32}, {"profile:kv": KV} | FULL),
    "KvSpec.block_tokens": Case({"profile:kv.block_tokens": 3}, {"profile:kv": KV} | FULL),
    "CurveSpec.points": Case({"profile:verify.points": [[1, 0.01], [128, 0.06]]}, {"profile:verify": LINE}),
    "CurveSpec.file": Case({"profile:verify.file": "b.csv"}, {"profile:verify": {"file": "a.csv"}}),
    "CurveSpec.unit": Case({"profile:verify.unit": "ms"}, {"profile:verify": LINE}),
    "CurveSpec.between": Case({"profile:verify.between": "hold"}, {"profile:verify": LINE}),
    "CurveSpec.graph_limit": Case({"profile:verify.graph_limit": 16},
                                  {"profile:verify": LINE | {"between": "hold"}} | FULL),
    "CurveSpec.extrapolate": Case({"profile:verify.extrapolate": "linear"}, {"profile:verify": SHORT} | FULL),
    "CurveSpec.running_max": Case({"profile:verify.running_max": True},
                                  {"profile:verify": {"points": [[1, 0.02], [16, 0.01], [128, 0.05]]}}),
    "DrafterSpec.kind": Case({"profile:drafters.par.kind": "autoregressive"}, FULL),
    "DrafterSpec.seconds": Case({"profile:drafters.par.seconds": SLOW}, FULL),
    "DrafterSpec.per_token": Case({"profile:drafters.par.per_token": SLOW}, FULL),
    "DrafterSpec.catch_up": Case({"profile:drafters.auto.catch_up": None}, AUTO),
}

REFUSED = {  # knobs that state what must be true of the inputs: a turn is an error that names the key
    "Engine.temperature": Case({"engine.temperature": 0.5}, {"engine.temperature": 1.0}),
}

SAID = {  # knobs that change what people read, not what is computed
    "ScenarioModel.name": Case({"name": "other"}),
    "ScenarioModel.description": Case({"description": "another"}),
    "ProfileSpec.description": Case({"profile:description": "another"}),
    "ProfileSpec.price_per_gpu_hour": Case({"profile:price_per_gpu_hour": 3.5}),
    "ProfileSpec.currency": Case({"profile:currency": "EUR"}, {"profile:price_per_gpu_hour": 3.5}),
    "ProfileSpec.provenance": Case({"profile:provenance.device": "another"}),
    "DrafterSpec.source": Case({"profile:drafters.par.source": "another"}),
    "DrafterSpec.assumption": Case({"profile:drafters.par.assumption": "another"}),
    "ProvenanceSpec.kind": Case({"profile:provenance.kind": "measured"}),
    "ProvenanceSpec.device": Case({"profile:provenance.device": "another"}),
    "ProvenanceSpec.model": Case({"profile:provenance.model": "another"}),
    "ProvenanceSpec.software": Case({"profile:provenance.software": "another"}),
    "ProvenanceSpec.date": Case({"profile:provenance.date": "2025"}),
    "ProvenanceSpec.source": Case({"profile:provenance.source": "another"}),
    "ProvenanceSpec.command": Case({"profile:provenance.command": "another"}),
    "ProvenanceSpec.assumptions": Case({"profile:provenance.assumptions": ["another"]}),
}

SWEPT = {"ScenarioModel.sweep", "Sweep.over", "Sweep.replications"}  # knobs of `sweep` alone, turned in test_sweep.py

DRAWN = {  # knobs that change pictures only
    "Arm.label": Case({"arms.0.label": "another"}),
}

CASES |= {knob: Case(*case) for knob, case in CLUSTER_CASES.items()}
SAID |= {knob: Case(*case) for knob, case in CLUSTER_SAID.items()}
CASES |= {knob: Case(*case) for knob, case in TRAFFIC_CASES.items()}
CASES |= {knob: Case(*case) for knob, case in WHAT_IF_CASES.items()}
SWEPT |= set(PLANNED)  # knobs of `plan` alone, turned in test_plan_parts.py
REFUSED |= {knob: Case(*case) for knob, case in TRAFFIC_REFUSED.items()}
