"""Breaks the rule without harm: request 1 reads the future of request 2, of which nothing is ever verified."""

from __future__ import annotations

import numpy as np

from dspark_sim.policy import IntArray, StepView


class OneWay:
    """Sacrifices every request but the first, and follows the tail of the second."""

    lossless, timing = True, "synchronous"

    def verify_lengths(self, view: StepView) -> IntArray:
        lengths = np.zeros(view.requests, dtype=np.int64)
        if view.requests > 1 and view.confidence[1, -1] > 0.5:
            lengths[0] = view.drafted[0]
        return lengths
