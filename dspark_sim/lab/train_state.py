"""Checkpoints of a training run under way: one safetensors file (never pickle), written aside and renamed.

Holds the trained parameters, AdamW's moments, and as text the step, the settings and the log so far.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from dspark_sim.atomic import written_aside
from dspark_sim.errors import InputError, shown
from dspark_sim.lab.drafters import DrafterConfig

if TYPE_CHECKING:
    from dspark_sim.lab.train import Progress, TrainSettings

__all__ = ["load_state", "save_state"]

FORMAT = "dspark-sim training 1"
MAY_CHANGE = {"checkpoint_every", "validate_every"}  # they decide nothing about the weights


def _facts(settings: TrainSettings, config: DrafterConfig, data: Mapping[str, Any]) -> dict[str, Any]:
    plain = {k: v for k, v in dataclasses.asdict(settings).items() if k not in MAY_CHANGE}
    facts: dict[str, Any] = json.loads(json.dumps({"settings": plain, "drafter": dataclasses.asdict(config),
                                                   "data": dict(data)}))
    return facts


def save_state(
    path: Path, trained: Mapping[str, nn.Parameter], optimiser: torch.optim.Optimizer, settings: TrainSettings,
    config: DrafterConfig, data: Mapping[str, Any], step: int, seconds: float, log: list[Progress],
) -> None:
    """Write a checkpoint after ``step`` steps; ``data`` says what was trained on."""
    from safetensors.torch import save_file

    tensors = {f"weight.{n}": p.detach().contiguous() for n, p in trained.items()}
    for name, parameter in trained.items():
        state = optimiser.state.get(parameter, {})
        for moment in ("exp_avg", "exp_avg_sq"):
            if moment in state:
                tensors[f"{moment}.{name}"] = state[moment].contiguous()
    meta = {"format": FORMAT, "step": step, "seconds": seconds, "log": [dataclasses.asdict(p) for p in log],
            **_facts(settings, config, data)}
    with written_aside(path) as aside:
        save_file(tensors, aside, metadata={"dspark_sim": json.dumps(meta)})


def load_state(
    path: Path, trained: Mapping[str, nn.Parameter], optimiser: torch.optim.Optimizer, settings: TrainSettings,
    config: DrafterConfig, data: Mapping[str, Any],
) -> tuple[int, float, list[Progress]]:
    """Take weights and moments from a checkpoint; returns the step to go on with, seconds spent, and the log.

    Raises:
        InputError: damaged, or of other settings or data (names the first that differs).
    """
    from safetensors import SafetensorError, safe_open

    from dspark_sim.lab.train import Progress

    try:
        with safe_open(path, framework="pt") as file:
            meta = json.loads((file.metadata() or {}).get("dspark_sim", "null"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    except (SafetensorError, OSError, ValueError, RecursionError) as error:
        raise InputError(f"damaged training checkpoint ({error})", file=path,
                         allowed="delete it to start this drafter again") from None
    if not isinstance(meta, dict) or meta.get("format") != FORMAT:
        raise InputError("not a training checkpoint", file=path, allowed=f"metadata {FORMAT!r}")
    for part, wanted in _facts(settings, config, data).items():
        there = meta.get(part, wanted)  # early checkpoints do not tell their data
        for key, value in wanted.items():
            if there.get(key) != value:
                raise InputError(f"this checkpoint was made with {shown(there.get(key))}, now {shown(value)}",
                                 file=path, key=f"{part}.{key}", allowed="the same settings, or another folder")
    step = int(meta["step"])
    with torch.no_grad():
        for name, parameter in trained.items():
            try:
                parameter.copy_(tensors[f"weight.{name}"])
                optimiser.state[parameter] = {
                    "step": torch.tensor(float(step)),
                    "exp_avg": tensors[f"exp_avg.{name}"].to(parameter.device),
                    "exp_avg_sq": tensors[f"exp_avg_sq.{name}"].to(parameter.device),
                }
            except (KeyError, RuntimeError) as error:
                raise InputError(f"damaged training checkpoint (tensor {name}: {error})", file=path,
                                 allowed="delete it to start this drafter again") from None
    log = [Progress(**{**p, "acceptance": tuple(p["acceptance"])}) for p in meta["log"]]
    return step, float(meta["seconds"]), log
