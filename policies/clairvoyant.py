"""What one could reach in one step if one knew its outcome: a bound to measure regret against, never a policy.

It knows how many draft tokens the target would keep of each request; every one of them is worth one token (none beyond
the request's last), so it maximises (R + min(K, Σ kept)) / seconds(K) over the number K of draft tokens verified, the
smallest K among equals, with the policy's belief of the step's seconds. Kept tokens are verified first, position by
position, so that rows stay as even as they can: which of them carry K does not change this step. It goes beyond them
only where a measured curve falls, and a larger batch, filled with lost tokens, is faster than a smaller one. A padded
engine pays by its longest row, so there the longest length is chosen by the same rule.

The bound holds for one step: what a step leaves behind (which requests finish, where their text stands) is not looked
at, so a policy can beat it over a whole run and regret can be negative.

Not lossless: it looks at the outcome. Overlapped: a bound that pays for deciding would not be a bound.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from dspark_sim.policy import EngineSetup, IntArray, StepView, Timing


@dataclass
class Clairvoyant:
    """Verifies the draft tokens that will be kept, as many as pay in this step.

    Args:
        cost: seconds of the objective: of the whole ``step``, or of ``verify`` alone.
    """

    cost: Literal["step", "verify"] = "step"

    lossless: ClassVar[bool] = False
    timing: ClassVar[Timing] = "overlapped"
    needs_oracle: ClassVar[bool] = True

    _setup: EngineSetup = field(init=False, repr=False, compare=False)

    def start(self, setup: EngineSetup) -> None:
        """Remembers the belief about step times and the engine's layout."""
        self._setup = setup

    def verify_lengths(self, view: StepView) -> IntArray:
        """(R,) lengths that bring the most tokens per second in this step."""
        R, G, drafted = view.requests, view.block_size, view.drafted
        kept = np.minimum(np.minimum(view.oracle, drafted), view.remaining - 1)  # the bonus token needs a place
        at_least = R - np.bincount(kept, minlength=G + 1).cumsum()  # rows that keep more than 0, 1, …, G tokens
        by_width = np.zeros(G + 1, dtype=np.int64)  # tokens kept when no row verifies more than w
        at_least[:G].cumsum(out=by_width[1:])
        seconds = self._setup.cost.table(R, view.prefill_tokens, view.kv_tokens, part=self.cost)
        if self._setup.ragged == "padded":
            longest = int(drafted.max())
            width = int(((R + by_width) / seconds[::R])[: longest + 1].argmax())
            lengths = np.minimum(kept, width)
            if width > lengths.max():  # a wider batch is faster: one row makes it wide
                lengths[int(drafted.argmax())] = width
            return lengths
        total, most = int(by_width[G]), int(drafted.sum())
        K = int((np.minimum(np.arange(R, R + most + 1), R + total) / seconds[: most + 1]).argmax())
        more = K - total
        if more > 0:
            lost = drafted - kept
            return kept + np.clip(more - (lost.cumsum() - lost), 0, lost)
        width = int(by_width.searchsorted(K, side="right")) - 1  # every row may go so far, some one token further
        lengths = np.minimum(kept, width)
        lengths[(kept > width).nonzero()[0][: K - int(by_width[width])]] += 1
        return lengths
