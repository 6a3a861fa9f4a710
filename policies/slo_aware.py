"""Requests behind their latency target get their tokens first, the rest of the budget goes to the likeliest tokens.

A request with a limit of T seconds per output token, ``emitted`` tokens after t seconds, needs (t + step) / T − emitted
tokens from this step to be on time at its end (at least 0; at most what its block promises). Its first draft tokens, as
many as it takes until 1 + a_1 + … + a_k reaches the need, come before everything else; then all others follow by
survival, until the budget is used up. Requests without a limit need nothing. The budget is the largest number of
draft tokens with which a step takes at most (1 + ``slack``) times what it takes without any, by the belief.

Source: AdaServe, "SLO-Customized LLM Serving with Fine-Grained Speculative Decoding" (Li et al., 2025, arXiv
2501.12162): customised selection for the targets first, then throughput-optimised selection, within a budget that
hardware profiling sets. **The chain version**: AdaServe builds and prunes token *trees*, and admits the neediest
requests first; here each request has one chain, and needy requests share by survival where the budget is short.

Limits: it sees limits on the time per token only (``sla: {tpot_ms_max: …}``), not ``tps_user_min``; the budget looks
at step times, not at acceptance. Needs a trace with confidence.

Lossless: whether a token counts as needed depends on the survivals of its row before it, a row's rank never rises along
the row, and the budget looks at no confidence; so the lengths are a joint stopping rule. Overlapped: the size of the
batch is known before drafting; filling it is a ranking on the device.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from dspark_sim.curve import FloatArray, StepCost
from dspark_sim.policy import BudgetView, EngineSetup, IntArray, StepView, Timing, top_k_lengths


@dataclass
class SloAware:
    """Needed tokens first, then the likeliest, within a budget of step time.

    Args:
        slack: how much longer than a step without draft tokens a step may take, 0 or more (0.5: half as long again).
    """

    slack: float = 0.5

    lossless: ClassVar[bool] = True
    timing: ClassVar[Timing] = "overlapped"
    needs_confidence: ClassVar[bool] = True

    _belief: StepCost = field(init=False, repr=False, compare=False)
    _budget: int = field(init=False, repr=False, compare=False, default=0)
    _need: FloatArray | None = field(init=False, repr=False, compare=False, default=None)

    def __post_init__(self) -> None:
        if not self.slack >= 0:
            raise ValueError(f"slack: got {self.slack}; allowed: 0 or more")

    def start(self, setup: EngineSetup) -> None:
        """Remembers the belief about step times."""
        self._belief, self._budget, self._need = setup.cost, 0, None

    def draft_lengths(self, view: BudgetView) -> int:
        """Full blocks; fixes the budget and what each request needs."""
        seconds = self._belief.table(view.requests, view.prefill_tokens, view.kv_tokens)
        self._budget = int(np.flatnonzero(seconds <= (1.0 + self.slack) * seconds[0])[-1])
        limit = view.tpot_sla
        if np.isfinite(limit).any():
            late = view.now - view.first_token + seconds[self._budget]  # at the end of this step
            self._need = late / limit - (view.emitted - 1)
        else:
            self._need = None
        return view.block_size

    def verify_lengths(self, view: StepView) -> IntArray:
        """(R,) the best tokens of the budget, needed ones first."""
        rank = survival = view.survival
        if self._need is not None:
            reached = 1.0 + survival.cumsum(axis=1) - survival  # expected tokens before each position
            needed = (reached < self._need[:, None]) & (survival > 0)
            rank = survival + needed  # along a row: needed ones, then the others, each falling
        return top_k_lengths(rank, self._budget)
