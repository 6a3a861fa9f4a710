"""An honest stop_drafting, but how far it got decides whether the *first* token is verified."""

from __future__ import annotations

import numpy as np

from dspark_sim.policy import IntArray, StepView


class VerifiesByStop:
    """Drafts to the first doubtful position; verifies one token of those blocks that came out long."""

    lossless, timing = True, "synchronous"

    def stop_drafting(self, view: StepView) -> IntArray:
        return np.minimum(np.cumprod(view.confidence > 0.5, axis=1).sum(axis=1), view.drafted)

    def verify_lengths(self, view: StepView) -> IntArray:
        return (view.drafted >= min(2, view.block_size)).astype(np.int64)
