"""Ranks by survival, as async_global does, but breaks ties by what comes after the token."""

from __future__ import annotations

import numpy as np

from dspark_sim.policy import IntArray, StepView


class Ties:
    """The best R tokens; of equal ones those first whose successor looks better."""

    lossless, timing = True, "overlapped"

    def verify_lengths(self, view: StepView) -> IntArray:
        a = view.survival
        R = view.requests
        follows = np.hstack([a[:, 1:], np.zeros((R, 1))])
        order = sorted((-a[r, k], -follows[r, k], r, k) for r in range(R) for k in range(view.drafted[r]))
        lengths = np.zeros(R, dtype=np.int64)
        for *_, r, k in order[:R]:
            lengths[r] = max(lengths[r], k + 1)
        return lengths
