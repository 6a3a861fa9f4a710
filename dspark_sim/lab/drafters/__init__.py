"""Drafters: DSpark, DFlash, Eagle3-style and MTP-1, in the format of the released checkpoints."""

from __future__ import annotations

from torch import Tensor

from dspark_sim.lab.drafters.autoregressive import AutoregressiveDrafter
from dspark_sim.lab.drafters.base import Context, Drafter, State
from dspark_sim.lab.drafters.config import DrafterConfig
from dspark_sim.lab.drafters.parallel import ParallelDrafter

__all__ = ["AutoregressiveDrafter", "Context", "Drafter", "DrafterConfig", "ParallelDrafter", "State", "build"]


def build(config: DrafterConfig, draft_ids: Tensor | None = None) -> Drafter:
    """A drafter with fresh weights; ``draft_ids`` (Vd,) iff the configuration has a reduced vocabulary."""
    return (ParallelDrafter if config.parallel else AutoregressiveDrafter)(config, draft_ids)
