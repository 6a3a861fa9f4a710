"""draft_lengths that reads the confidences of the block it is about to draft."""

from __future__ import annotations

import numpy as np

from dspark_sim.policy import BudgetView, IntArray, StepView


class DraftByFuture:
    """Drafts as many tokens as will turn out well, and verifies them all."""

    lossless, timing = True, "overlapped"

    def draft_lengths(self, view: BudgetView) -> IntArray:
        return (view.survival > 0.3).sum(axis=1) * (view.confidence[:, -1] > 0.5)  # type: ignore[attr-defined]

    def verify_lengths(self, view: StepView) -> IntArray:
        return np.minimum(view.drafted, view.block_size)
