"""One of a few draft lengths, chosen by expected tokens over the step's time, with acceptance known by position.

For each candidate length S the expected tokens of a request are 1 + a_1 + … + a_S, a_k being the share of requests
whose k-th token was kept among those that verified k tokens, over the last ``window`` steps; the cost is the believed
seconds of a step at this R and S. Every ``interval`` steps, once every position in use has a full window, the best
score wins; between decisions the length stays.

Source: SGLang, ``throughput_aware`` strategy of adaptive speculative decoding (pull request 28045;
python/sglang/srt/speculative/throughput_aware_controller.py): score, windows, interval and candidates. Theirs profiles
the cost of each (batch size, length) at start; ours asks the belief. Positions beyond the present length have no fresh
window; theirs then judges them by what is left in it, ours prolongs the last ratio a_k / a_{k−1}.

Limits: one length for all requests, blind to their texts. Never 0: speculation is not switched off. Made for
autoregressive drafters and DFlash; runs on every trace, confidence or not.

Lossless: the length is fixed before drafting, by outcomes of earlier steps. Overlapped: known before the step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from dspark_sim.curve import FloatArray, StepCost
from dspark_sim.policy import BudgetView, EngineSetup, IntArray, StepOutcome, StepView, Timing


@dataclass
class ThroughputAware:
    """Drafts and verifies the candidate length of the best score.

    Args:
        candidates: rising draft lengths, 1 or more; those beyond the drafter's block are cut to it.
        window: steps that the acceptance of a position is averaged over.
        interval: steps between decisions.
    """

    candidates: tuple[int, ...] = (1, 3, 5, 7)
    window: int = 20
    interval: int = 10

    lossless: ClassVar[bool] = True
    timing: ClassVar[Timing] = "overlapped"

    _belief: StepCost = field(init=False, repr=False, compare=False)
    _lengths: list[int] = field(init=False, repr=False, compare=False)
    _length: int = field(init=False, repr=False, compare=False, default=64)
    _shares: FloatArray = field(init=False, repr=False, compare=False)
    _filled: IntArray = field(init=False, repr=False, compare=False)
    _seen: int = field(init=False, repr=False, compare=False, default=0)
    _due: bool = field(init=False, repr=False, compare=False, default=False)

    def __post_init__(self) -> None:
        c = self.candidates
        if not c or list(c) != sorted(set(c)) or not 1 <= c[0] <= c[-1] <= 64:
            raise ValueError(f"candidates: got {list(c)}; allowed: rising whole numbers from 1 to 64")
        for name, value in (("window", self.window), ("interval", self.interval)):
            if value < 1:
                raise ValueError(f"{name}: got {value}; allowed: 1 or more")

    def start(self, setup: EngineSetup) -> None:
        """Begins in the middle of the candidates, with empty windows."""
        self._belief = setup.cost
        self._lengths = sorted({min(c, setup.block_size) for c in self.candidates})
        self._length = self._lengths[len(self._lengths) // 2]
        self._shares = np.zeros((self.window, setup.block_size))
        self._filled, self._seen, self._due = np.zeros(setup.block_size, dtype=np.int64), 0, False

    def draft_lengths(self, view: BudgetView) -> int:
        """The present length for everybody; a new one when a decision is due."""
        if self._due and self._filled[: self._length].min() >= self.window:
            self._length = self._best(view)
            self._filled[self._length :] = 0  # what was seen beyond it grows old
        self._due = False
        return min(self._length, view.block_size)

    def _best(self, view: BudgetView) -> int:
        R, cost, known = view.requests, self._belief, int(np.count_nonzero(self._filled >= self.window))
        kept = self._shares.mean(axis=0)
        for k in range(known, kept.size):
            kept[k] = kept[k - 1] * (kept[k - 1] / kept[k - 2] if k > 1 and kept[k - 2] > 0 else kept[k - 1])
        tokens = 1.0 + kept.cumsum()
        extra = cost.other_seconds(R, view.kv_tokens)
        scores = [
            tokens[S - 1] / (cost.draft_seconds(R, S) + cost.verify_seconds(R * (1 + S), view.prefill_tokens) + extra)
            for S in self._lengths
        ]
        return self._lengths[int(np.argmax(scores))]

    def verify_lengths(self, view: StepView) -> IntArray:
        """(R,) all that was drafted, at most the present length."""
        return np.minimum(view.drafted, self._length)

    def observe(self, outcome: StepOutcome) -> None:
        """Enters a step into the windows of the positions that it verified."""
        length = int(outcome.verified.min()) if outcome.verified.size else 0
        if length == 0:
            return
        at_least = (outcome.accepted[:, None] > np.arange(length)).mean(axis=0)
        self._shares[self._seen % self.window, :length] = at_least
        self._filled[:length] += 1
        self._seen += 1
        self._due = self._due or self._seen % self.interval == 0
