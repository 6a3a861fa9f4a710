"""No speculation: the target decodes one token per request and step.

Without a drafter this is plain decoding, the baseline of every comparison. With one it is what an engine does that
drafts and then verifies nothing: it still pays the drafter and the speculative engine's overhead (K = 0 is not
no-spec), which is how those costs can be seen alone.

Lossless: the verified length is 0 whatever was drafted. Overlapped: nothing is decided.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dspark_sim.policy import IntArray, StepView, Timing


@dataclass
class NoSpec:
    """Verifies no draft token."""

    lossless: ClassVar[bool] = True
    timing: ClassVar[Timing] = "overlapped"

    def verify_lengths(self, view: StepView) -> IntArray:
        """(R,) zeros."""
        return np.zeros(view.requests, dtype=np.int64)
