"""stop_drafting that has seen the whole block: stops after the last position that is still good."""

from __future__ import annotations

import numpy as np

from dspark_sim.policy import IntArray, StepView


class StopsLate:
    """Drafts up to the last confident position and verifies all of it."""

    lossless, timing = True, "synchronous"

    def stop_drafting(self, view: StepView) -> IntArray:
        good = view.confidence > 0.5
        last = view.block_size - good[:, ::-1].argmax(axis=1)
        return np.minimum(np.where(good.any(axis=1), last, 0), view.drafted)

    def verify_lengths(self, view: StepView) -> IntArray:
        return view.drafted.copy()
