"""State kept between two questions about one step: stop_drafting sees the block, verify_lengths remembers it."""

from __future__ import annotations

import numpy as np

from dspark_sim.policy import EngineSetup, IntArray, StepView


class StopMemory:
    """Verifies the first token of blocks whose last one looked good."""

    lossless, timing = True, "synchronous"

    def start(self, setup: EngineSetup) -> None:
        self.sure = np.zeros(0)

    def stop_drafting(self, view: StepView) -> IntArray:
        self.sure = view.confidence[:, -1].copy()
        return np.minimum(1, view.drafted)

    def verify_lengths(self, view: StepView) -> IntArray:
        return np.where(self.sure > 0.5, view.drafted, 0)
