"""A fixed number of draft tokens per request: drafts ``length`` and verifies them all, whatever the load.

``length: 1`` with an MTP drafter is MTP-1, the baseline of the DSpark paper; vLLM (``num_speculative_tokens`` in
vllm/config/speculative.py) and SGLang (``speculative_num_steps`` in sglang/srt/server_args.py) serve so by default.
``length: 0`` drafts nothing and pays only what the speculative engine adds to every step.

Lossless: the length depends on nothing. Overlapped: nothing is decided.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dspark_sim.policy import BudgetView, EngineSetup, IntArray, StepView, Timing


@dataclass
class Fixed:
    """Drafts and verifies ``length`` tokens per request.

    Args:
        length: draft tokens, 0 to the drafter's block size.
    """

    length: int = 1

    lossless: ClassVar[bool] = True
    timing: ClassVar[Timing] = "overlapped"

    def __post_init__(self) -> None:
        if not 0 <= self.length <= 64:
            raise ValueError(f"length: got {self.length}; allowed: 0 to 64")

    def start(self, setup: EngineSetup) -> None:
        """Refuses a drafter that proposes fewer tokens than ``length``."""
        if self.length > setup.block_size:
            raise ValueError(
                f"length: got {self.length}, but the drafter proposes at most {setup.block_size}; "
                f"allowed: 0 to {setup.block_size}"
            )

    def draft_lengths(self, view: BudgetView) -> int:
        """``length`` for everybody: an autoregressive drafter is not asked for more."""
        return self.length

    def verify_lengths(self, view: StepView) -> IntArray:
        """(R,) ``length``, or what was drafted where that is less."""
        return np.minimum(view.drafted, self.length)
