"""A budget fixed in advance, given out request by request in an order that looks at whole rows."""

from __future__ import annotations

import numpy as np

from dspark_sim.policy import IntArray, StepView


class RequestOrder:
    """The request with the best block goes first."""

    lossless, timing = True, "synchronous"

    def verify_lengths(self, view: StepView) -> IntArray:
        budget, lengths = view.requests, np.zeros(view.requests, dtype=np.int64)
        for r in np.argsort(-view.survival.sum(axis=1), kind="stable"):
            lengths[r] = min(budget, view.drafted[r])
            budget -= lengths[r]
        return lengths
