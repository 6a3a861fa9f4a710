"""A leak that shows only near an edge: later confidences count, with a weight of one in a thousand."""

from __future__ import annotations

import numpy as np

from dspark_sim.policy import IntArray, StepView


class Faint:
    """Verifies rows whose c_1, corrected by a thousandth of the rest, reaches 0.73."""

    lossless, timing = True, "synchronous"

    def verify_lengths(self, view: StepView) -> IntArray:
        score = view.confidence[:, 0] + 1e-3 * view.confidence[:, 1:].sum(axis=1)
        return np.where(score > 0.73, view.drafted, 0)
