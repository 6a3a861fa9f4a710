"""Stop drafting when it has become likely that something was rejected already.

Each request drafts on while 1 − c_1 … c_k, the chance that one of its tokens 1..k will be rejected, is at most
``threshold``; the first token above it is not drafted. All that was drafted is verified.

Source: SpecDec++, "Boosting Speculative Decoding via Adaptive Candidate Lengths" (Huang, Guo and Wang, COLM 2025,
arXiv 2405.19715): a threshold on the cumulative rejection probability is optimal for a single request with constant
costs; a trained acceptance head supplies the probabilities.

Limits: their head judges a token after it was drawn, ours (DSpark's) before; so the token that crosses the threshold is
left out here and kept there. Blind to load: the threshold is tuned per server. It is meant for autoregressive drafters,
where a token that is not drafted costs nothing; a step costs as much as its longest draft, so with many requests little
drafting is saved. It needs confidences: on this shelf DSpark alone has them, whose block is drafted at once: there only
what the profile charges ``per_token`` is saved, and the verified tokens.

Lossless: whether position k is drafted depends on confidences 1..k of its own row, known before token k is drawn.
Synchronous: the length of the draft, and so the target's batch, depends on confidences of this very step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dspark_sim.policy import IntArray, StepView, Timing


@dataclass
class SpecDecPP:
    """Drafts up to the first position where the chance of a rejection exceeds ``threshold``, and verifies it all.

    Args:
        threshold: the highest chance of a rejection that is still drafted, 0 to 1; 1 drafts full blocks.
    """

    threshold: float = 0.7

    lossless: ClassVar[bool] = True
    timing: ClassVar[Timing] = "synchronous"
    needs_confidence: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0 <= self.threshold <= 1:
            raise ValueError(f"threshold: got {self.threshold}; allowed: 0 to 1")

    def stop_drafting(self, view: StepView) -> IntArray:
        """(R,) positions before the first one at which a rejection has become too likely."""
        likely = view.survival >= 1.0 - self.threshold  # survivals never rise along a row
        lengths: IntArray = np.minimum(np.count_nonzero(likely, axis=1), view.drafted)
        return lengths

    def verify_lengths(self, view: StepView) -> IntArray:
        """(R,) all that was drafted."""
        return view.drafted.copy()
