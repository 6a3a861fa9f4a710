"""Verifies a token if the drafter gave *that token* enough probability: known only after it is drawn."""

from __future__ import annotations

import numpy as np

from dspark_sim.policy import IntArray, StepView


class OwnProbability:
    """Stops before the first token that the drafter found unlikely itself."""

    lossless, timing = True, "synchronous"

    def verify_lengths(self, view: StepView) -> IntArray:
        assert view.draft_probability is not None
        likely = view.draft_probability >= 0.5
        return np.minimum(np.cumprod(likely, axis=1).sum(axis=1), view.drafted)
