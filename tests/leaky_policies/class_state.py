"""State that outlives the object: kept on the class, so a second run starts where the first one ended."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from dspark_sim.policy import IntArray, StepView


class ClassState:
    """Every third question ever asked is answered by 1."""

    lossless, timing = True, "overlapped"
    asked: ClassVar[list[Any]] = []

    def verify_lengths(self, view: StepView) -> IntArray:
        self.asked.append(None)
        return np.minimum(view.drafted, int(len(self.asked) % 3 == 0))
