"""A coin that looks random and is a function of the whole row."""

from __future__ import annotations

import numpy as np

from dspark_sim.policy import IntArray, StepView


class SeededCoin:
    """Verifies everything or nothing by a coin seeded with this step's confidences."""

    lossless, timing = True, "synchronous"

    def verify_lengths(self, view: StepView) -> IntArray:
        coin = np.random.default_rng(int(view.confidence.sum(dtype=np.float64) * 1e6))
        return np.where(coin.random(view.requests) < 0.5, view.drafted, 0)
