"""Behaves for two steps, then looks ahead."""

from __future__ import annotations

import numpy as np

from dspark_sim.policy import EngineSetup, IntArray, StepView


class AfterWarmUp:
    """From a request's third step on: nothing is verified unless the last position looks good."""

    lossless, timing = True, "synchronous"

    def start(self, setup: EngineSetup) -> None:
        self.seen = np.zeros(setup.max_num_seqs, dtype=np.int64)

    def verify_lengths(self, view: StepView) -> IntArray:
        self.seen[view.slot] += 1
        late = (self.seen[view.slot] > 2) & (view.confidence[:, -1] < 0.5)
        return np.where(late, 0, view.drafted)
