"""Draft length by batch size: a table of ranges, drawn up by hand before the server starts.

Each entry is ``[first, last, length]``: with first ≤ R ≤ last requests decoding, every request drafts and verifies
``length`` tokens (cut at the drafter's block). A batch size in a gap, or beyond the last range, takes the length of the
range below it; below the first range, the first one's.

Source: vLLM, dynamic speculative decoding (``num_speculative_tokens_per_batch_size`` in vllm/config/speculative.py,
pull request 32374): inclusive ranges, gaps inherit the entry before. Its authors give no default, for the best table
depends on hardware and texts; ours is the example of that pull request. TensorRT-LLM has the same idea
(``draft_len_schedule``, pull request 10860) with 0 beyond the last range: its example ``{4: 4, 8: 2, 32: 1}`` is
``{ranges: [[1, 4, 4], [5, 8, 2], [9, 32, 1], [33, 100000, 0]]}``.

Limits: blind to the text and to what a step costs here. Runs on every trace, confidence or not.

Lossless: the length depends on the number of requests alone. Overlapped: that number is known before the step.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from dspark_sim.policy import BudgetView, EngineSetup, IntArray, StepView, Timing


def _example() -> list[list[int]]:
    return [[1, 16, 3], [64, 128, 2], [256, 4096, 0]]


@dataclass
class BatchSchedule:
    """Drafts and verifies the length that a table gives for R.

    Args:
        ranges: rising, disjoint ``[first, last, length]`` of requests and draft tokens.
    """

    ranges: list[list[int]] = field(default_factory=_example)

    lossless: ClassVar[bool] = True
    timing: ClassVar[Timing] = "overlapped"

    _firsts: list[int] = field(init=False, repr=False, compare=False)
    _block: int = field(init=False, repr=False, compare=False, default=64)

    def __post_init__(self) -> None:
        end = 0
        for entry in self.ranges:
            if len(entry) != 3 or not end < entry[0] <= entry[1] or not 0 <= entry[2] <= 64:
                raise ValueError(f"ranges: got {entry}; allowed: rising [first, last, length] with length 0 to 64")
            end = entry[1]
        if not self.ranges:
            raise ValueError("ranges: got none; allowed: one range or more")
        self._firsts = [entry[0] for entry in self.ranges]

    def start(self, setup: EngineSetup) -> None:
        """Remembers the drafter's block size."""
        self._block = setup.block_size

    def draft_lengths(self, view: BudgetView) -> int:
        """The table's length for everybody."""
        entry = self.ranges[max(0, bisect_right(self._firsts, view.requests) - 1)]
        return min(entry[2], self._block, view.block_size)

    def verify_lengths(self, view: StepView) -> IntArray:
        """(R,) all that was drafted, at most the table's length."""
        return np.minimum(view.drafted, self.draft_lengths(view))
