"""A ladder of draft lengths, climbed by a moving average of the accepted length.

All requests draft and verify the same number of tokens, one of a few ``rungs``. After every step the mean accepted
length of the batch enters an exponential moving average. Every ``interval`` steps (after a warm-up): while the average
is at most (the rung below − 0.5 + ``down``), step down; otherwise, while it is above (this rung − 0.5 + ``up``), step
up. So the ladder tries about one token more than is usually kept. A rung of 0 is reached like any other one (with 0.5
instead of −0.5); from there the next rung is tried again after ``interval`` steps.

Source: SGLang, adaptive speculative decoding (docs/advanced_features/adaptive_speculative_decoding.md and
python/sglang/srt/speculative/adaptive_spec_params.py): rules and defaults; its ladder is [1, 3, 7]. Newer versions keep
one ladder per range of batch sizes: ``{rungs: [0, 1, 3], down: 0.0}`` from 8 requests, ``[0, 1]`` from 32 and ``[0]``
from 64.

Limits: knows nothing of what a step costs, so load moves it only through the ladder that you give. Rungs beyond the
drafter's block are cut to it. Made for autoregressive drafters (EAGLE); runs on every trace, confidence or not.

Lossless: the length is fixed before drafting, by outcomes of earlier steps. Overlapped: known before the step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from dspark_sim.policy import BudgetView, EngineSetup, IntArray, StepOutcome, StepView, Timing


@dataclass
class EmaLadder:
    """One length for all, a rung of a ladder.

    Args:
        rungs: rising draft lengths.
        alpha: weight of a new step in the moving average, above 0, at most 1.
        interval: steps between decisions.
        warmup: steps before the first one.
        down: added to the threshold of stepping down.
        up: added to the threshold of stepping up.
    """

    rungs: tuple[int, ...] = (1, 3, 7)
    alpha: float = 0.2
    interval: int = 5
    warmup: int = 10
    down: float = -0.25
    up: float = 0.0

    lossless: ClassVar[bool] = True
    timing: ClassVar[Timing] = "overlapped"

    _ladder: list[int] = field(init=False, repr=False, compare=False)
    _at: int = field(init=False, repr=False, compare=False, default=0)
    _mean: float = field(init=False, repr=False, compare=False, default=0.0)
    _seen: int = field(init=False, repr=False, compare=False, default=0)

    def __post_init__(self) -> None:
        r = self.rungs
        if not r or list(r) != sorted(set(r)) or not 0 <= r[0] <= r[-1] <= 64:
            raise ValueError(f"rungs: got {list(r)}; allowed: rising whole numbers from 0 to 64")
        if not 0 < self.alpha <= 1:
            raise ValueError(f"alpha: got {self.alpha}; allowed: above 0, at most 1")
        if self.interval < 1:
            raise ValueError(f"interval: got {self.interval}; allowed: 1 or more")
        if self.warmup < 0:
            raise ValueError(f"warmup: got {self.warmup}; allowed: 0 or more")
        self._ladder = list(self.rungs)

    def start(self, setup: EngineSetup) -> None:
        """Back to the middle rung, with a neutral average."""
        self._ladder = sorted({min(rung, setup.block_size) for rung in self.rungs})
        self._at = len(self._ladder) // 2
        self._mean, self._seen = self._ladder[self._at] - 1.0, 0

    def draft_lengths(self, view: BudgetView) -> int:
        """This rung's length for everybody."""
        return min(self._ladder[self._at], view.block_size)

    def verify_lengths(self, view: StepView) -> IntArray:
        """(R,) all that was drafted, at most the rung's length."""
        return np.minimum(view.drafted, self._ladder[self._at])

    def observe(self, outcome: StepOutcome) -> None:
        """Moves the average; every ``interval`` steps, the rung."""
        if outcome.verified.any():
            self._mean += self.alpha * (float(outcome.accepted.mean()) - self._mean)
        self._seen += 1
        since = self._seen - self.warmup
        if since > 0 and since % self.interval == 0:
            self._move()

    def _move(self) -> None:
        ladder, at = self._ladder, self._at
        if ladder[at] == 0:  # nothing was seen from here: try the next rung
            self._at = min(at + 1, len(ladder) - 1)
            self._mean = max(self._mean, ladder[self._at] - 1.0)
            return
        while at > 0 and self._mean <= (0.5 if ladder[at - 1] == 0 else ladder[at - 1] - 0.5) + self.down:
            at -= 1
        if at == self._at:
            while at < len(ladder) - 1 and self._mean > ladder[at] - 0.5 + self.up:
                at += 1
        self._at = at
