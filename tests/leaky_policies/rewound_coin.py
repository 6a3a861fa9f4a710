"""Random numbers that are used again: how many coins are thrown away depends on later confidences."""

from __future__ import annotations

import copy

import numpy as np

from dspark_sim.policy import EngineSetup, IntArray, StepView


class RewoundCoin:
    """Every step starts from the same state of the stream and skips a coin for each good position."""

    lossless, timing = True, "synchronous"

    def start(self, setup: EngineSetup) -> None:
        self.rng = setup.rng

    def verify_lengths(self, view: StepView) -> IntArray:
        coins = copy.deepcopy(self.rng)
        coins.random(int((view.confidence > 0.5).sum()))
        return np.where(coins.random() < 0.5, view.drafted, 0)
