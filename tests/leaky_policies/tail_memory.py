"""Not leaky: what was left unverified in the *previous* step may be remembered (see dspark_sim.lossless)."""

from __future__ import annotations

import numpy as np

from dspark_sim.policy import EngineSetup, IntArray, StepView


class TailMemory:
    """Verifies everything after a block whose tail looked good, whether or not that tail was verified."""

    lossless, timing = True, "synchronous"

    def start(self, setup: EngineSetup) -> None:
        self.good = np.zeros(setup.max_num_seqs, dtype=np.bool_)

    def verify_lengths(self, view: StepView) -> IntArray:
        lengths = np.where(self.good[view.slot], view.drafted, 0)
        self.good[view.slot] = view.confidence[:, -1] > 0.5
        return lengths
