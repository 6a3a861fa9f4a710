"""One draft length for the whole batch, chosen by goodput: expected tokens over the expected time of the step.

A moving average α of the chance that one draft token is kept, the same at every position, gives the expected tokens of
a request that drafts k: (1 − α^(k+1)) / (1 − α). The length 0..G with the most expected tokens per believed second
wins, the shorter one among equals. Where drafting does not pay, nothing is drafted (length 0).

Source: SmartSpec, "Optimizing Speculative Decoding for Serving Large Language Models Using Goodput" (Liu et al., 2024,
arXiv 2406.14066), later TurboSpec: goodput, the geometric formula, the moving average. Theirs predicts the batch's
time by a line fitted to profiled steps; ours asks the belief, stairs included. Theirs also lets some requests differ
in length for prompt lookup; with a model that drafts, one length serves all, as here.

Limits: one α for all positions and requests. While nothing is drafted nothing is learned, so at length 0 every
``probe``-th step drafts one token (theirs keeps the old average). Runs on every trace; made for autoregressive
drafters, a parallel one saves only what its profile charges per token, and everything at length 0.

Lossless: the length is fixed before drafting, by outcomes of earlier steps. Overlapped: known before the step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from dspark_sim.curve import StepCost
from dspark_sim.policy import BudgetView, EngineSetup, IntArray, StepOutcome, StepView, Timing


@dataclass
class Goodput:
    """Drafts and verifies the length of the best estimated goodput.

    Args:
        prior: α before anything was seen, 0 to 1 (exclusive).
        memory: share of the old average that one step keeps, 0 to 1 (exclusive).
        probe: at length 0, draft one token in every so many steps.
    """

    prior: float = 0.7
    memory: float = 0.95
    probe: int = 50

    lossless: ClassVar[bool] = True
    timing: ClassVar[Timing] = "overlapped"

    _belief: StepCost = field(init=False, repr=False, compare=False)
    _kept: float = field(init=False, repr=False, compare=False, default=0.0)
    _tried: float = field(init=False, repr=False, compare=False, default=0.0)
    _length: int = field(init=False, repr=False, compare=False, default=64)

    def __post_init__(self) -> None:
        for name, value in (("prior", self.prior), ("memory", self.memory)):
            if not 0 < value < 1:
                raise ValueError(f"{name}: got {value}; allowed: above 0 and below 1")
        if self.probe < 1:
            raise ValueError(f"probe: got {self.probe}; allowed: 1 or more")

    def start(self, setup: EngineSetup) -> None:
        """Forgets what was learned; the prior counts as ten tokens."""
        self._belief = setup.cost
        self._kept, self._tried, self._length = 10 * self.prior, 10.0, setup.block_size

    def draft_lengths(self, view: BudgetView) -> int:
        """The length of the best goodput, for everybody."""
        R, cost = view.requests, self._belief
        alpha = min(self._kept / self._tried, 0.999)
        extra = cost.other_seconds(R, view.kv_tokens)
        best, tokens, self._length = 0.0, 0.0, 0
        for k in range(view.block_size + 1):
            tokens += alpha**k
            seconds = cost.draft_seconds(R, k) + cost.verify_seconds(R * (1 + k), view.prefill_tokens) + extra
            if tokens / seconds > best:
                best, self._length = tokens / seconds, k
        if self._length == 0 and view.step % self.probe == 0:
            self._length = min(1, view.block_size)
        return self._length

    def verify_lengths(self, view: StepView) -> IntArray:
        """(R,) all that was drafted."""
        return np.minimum(view.drafted, self._length)

    def observe(self, outcome: StepOutcome) -> None:
        """Counts tokens that were kept, and tokens whose fate was decided: the kept ones and one refusal per row."""
        kept = int(outcome.accepted.sum())
        tried = kept + int(np.count_nonzero(outcome.accepted < outcome.verified))
        if tried:
            self._kept = self.memory * self._kept + kept
            self._tried = self.memory * self._tried + tried
