"""The simulator's side of ``validate live``: ordinary files (profile, traces, requests, scenario) that `run` takes too.

A prompt is a class of requests whose domain is that prompt's own text, so the simulated request i reads what the target
wrote to prompt i. All requests are there at the start and ``max_num_seqs`` is the concurrency, as in the live run.
Each sample of texts is a trace of its own and gives one independent prediction.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dspark_sim.arms import ArmSetup, load_arms
from dspark_sim.atomic import written_aside
from dspark_sim.lab.live_plan import LiveArm, LivePlan, LivePrompt
from dspark_sim.metrics import Measured
from dspark_sim.runner import run_task
from dspark_sim.scenario import Scenario, load_scenario
from dspark_sim.trace import AcceptanceTrace

__all__ = ["class_names", "predicted", "setups_of", "split_samples", "write_requests", "write_scenario"]

PROFILE = "./profile"


def class_names(prompts: Sequence[LivePrompt]) -> list[str]:
    """Name of the class, and of the domain, of each prompt."""
    return [f"p{i}-{p.domain}" for i, p in enumerate(prompts)]


def split_samples(trace: AcceptanceTrace, prompts: Sequence[LivePrompt], samples: int) -> list[AcceptanceTrace]:
    """A trace per sample from one whose documents are all prompts' first texts, then all their second ones, …"""
    names, N, out = tuple(class_names(prompts)), len(prompts), []
    for s in range(samples):
        start = trace.document_start[s * N:(s + 1) * N + 1]
        rows = slice(int(start[0]), int(start[-1]))
        out.append(replace(
            trace, accepted=trace.accepted[rows].copy(), document_start=np.asarray(start - start[0]), domain=names,
            confidence=None if trace.confidence is None else trace.confidence[rows].copy(),
            draft_probability=None if trace.draft_probability is None else trace.draft_probability[rows].copy(),
        ))
    return out


def write_requests(path: Path, prompts: Sequence[LivePrompt], tokens: int) -> None:
    """``requests.csv``: a log of requests that all come at second 0."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["arrival_s", "prompt_tokens", "output_tokens", "class"])
    writer.writerows([0, len(p.tokens), tokens, name] for p, name in zip(prompts, class_names(prompts), strict=True))
    with written_aside(path) as aside:
        aside.write_text(text.getvalue(), encoding="utf-8")


def write_scenario(
    folder: Path, plan: LivePlan, arms: Sequence[LiveArm], prompts: Sequence[LivePrompt], concurrency: int,
    block_size: int,
) -> Path:
    """``scenario.yaml`` of one concurrency, beside ``profile/``; requests and traces lie one folder up."""
    import yaml

    names = class_names(prompts)
    data: dict[str, Any] = {
        "name": f"live-c{concurrency}",
        "description": f"{plan.target} with {plan.drafter_name}, {concurrency} at once, as `validate live` predicts it",
        "profile": PROFILE, "traces": "../traces/0", "seed": plan.seed, "replications": 1, "record": "requests",
        "engine": {"prefill": "none", "ragged": "flattened", "temperature": plan.temperature,
                   "max_num_seqs": concurrency, "max_num_batched_tokens": max(2, concurrency * (1 + block_size)),
                   "kv_blocks": "unlimited", "prefix_cache": False},
        "workload": {"arrival": {"kind": "replay", "file": "../requests.csv", "format": "csv", "spread_ticks": False},
                     "documents": "all", "classes": [{"name": name, "domain": name} for name in names]},
        "measure": {"mode": "whole_run", "requests": "all"},
        "arms": [{"name": arm.name, "policy": {"name": arm.policy, **arm.parameters}}
                 | ({"drafter": plan.drafter_name} if arm.drafts else {}) for arm in arms],
    }
    path = folder / "scenario.yaml"
    with written_aside(path) as aside:
        aside.write_text(yaml.safe_dump(data, sort_keys=False, allow_unicode=True), encoding="utf-8")
    return path


def setups_of(path: Path, sample: int = 0, profile: str = PROFILE) -> tuple[Scenario, list[ArmSetup]]:
    """The scenario with the trace of one sample, and its arms, checked."""
    scenario = load_scenario(path, {"traces": f"../traces/{sample}", "profile": profile})
    return scenario, load_arms(scenario)


def predicted(path: Path, samples: int, profile: str = PROFILE) -> dict[str, list[Measured] | str]:
    """Every figure per arm and sample, simulated; for an arm that fails in the simulator the reason."""
    out: dict[str, list[Measured] | str] = {}
    for sample in range(samples):
        scenario, setups = setups_of(path, sample, profile)
        for setup in setups:
            before = out.setdefault(setup.name, [])
            if isinstance(before, str):
                continue
            task = run_task(setup, scenario, sample)
            if task.error is not None:
                out[setup.name] = f"fails in the simulator: {task.error}"
            else:
                before.append(task.measured)
    return out
