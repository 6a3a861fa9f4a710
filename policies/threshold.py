"""Static confidence threshold: a request's draft is cut before its first position whose confidence is too low.

Every request decides for itself, blind to load and step time. With ``on: confidence`` (the default) position k counts
by its conditional confidence c_k, as TensorRT-LLM does (``confidence_threshold`` of llmapi/llm_args.py: a position is
dropped when sigmoid(confidence_k) is below it); with ``on: survival`` by a_k = c_1 … c_k, the chance that the token
will be kept at all.

Lossless: whether position k is verified depends on confidences 1..k of its own row, known before token k is drawn.
Synchronous: the lengths, and so the size of the target's batch, depend on confidences of this very step; the cut
itself is cheap, but the host must wait for it before it can launch the target.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from dspark_sim.policy import IntArray, StepView, Timing


@dataclass
class Threshold:
    """Verifies each draft up to the first position below ``threshold``.

    Args:
        threshold: the least confidence that is still verified, 0 to 1; 0 verifies everything.
        on: what is compared: the conditional ``confidence`` of each position, or its ``survival``.
    """

    threshold: float = 0.5
    on: Literal["confidence", "survival"] = "confidence"

    lossless: ClassVar[bool] = True
    timing: ClassVar[Timing] = "synchronous"
    needs_confidence: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0 <= self.threshold <= 1:
            raise ValueError(f"threshold: got {self.threshold}; allowed: 0 to 1")

    def verify_lengths(self, view: StepView) -> IntArray:
        """(R,) positions before the first one below the threshold, at most what was drafted."""
        score = view.confidence if self.on == "confidence" else view.survival
        R, G = score.shape
        stop = np.ones((R, G + 1), dtype=np.bool_)  # the last column stands behind the block: everything ends there
        np.less(score, self.threshold, out=stop[:, :G])
        lengths: IntArray = np.minimum(stop.argmax(axis=1), view.drafted)
        return lengths
