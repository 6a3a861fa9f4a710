"""Each request looks at the other one's future: exact marginals, a wrong joint law."""

from __future__ import annotations

import numpy as np

from dspark_sim.policy import IntArray, StepView


class JointPair:
    """Verifies one token of a request if c_2 of its neighbour is high."""

    lossless, timing = True, "synchronous"

    def verify_lengths(self, view: StepView) -> IntArray:
        if view.requests < 2 or view.block_size < 2:
            return np.zeros(view.requests, dtype=np.int64)
        high = view.confidence[:, 1] > 0.5
        return np.minimum(np.roll(high, 1).astype(np.int64), view.drafted)
