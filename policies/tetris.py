"""A fixed verification capacity, filled with the draft tokens of the batch that are most likely to be kept.

The target verifies ``capacity`` draft tokens per step over all requests; without one, ``per_request`` · R. The drafter
proposes full blocks, more than fit, and the best of all requests are chosen greedily by survival, so easy requests get
long drafts and hard ones short ones.

Source: TETRIS, "Optimal Draft Token Selection for Batch Speculative Decoding" (Wu et al., ACL 2025, arXiv 2502.15197):
extra draft tokens, greedy selection under a capacity that the server's operator sets; the choice is optimal for the
tokens of this step at a given capacity. The paper gives baseline and TETRIS the same capacity, draft length · requests.

Limits: says nothing of how large the capacity should be. The paper ranks by the draft model's probability of the drawn
token; under sampling that is known only after the draw, so here the confidence head's value, known before, ranks: needs
a trace with confidence.

Lossless: the capacity does not depend on confidences, and ranking by survival is a joint stopping rule. Overlapped: the
size of the batch is known before drafting; filling it is a ranking on the device.
"""

from __future__ import annotations

from dataclasses import dataclass

from dspark_sim.policy import BudgetPolicy, BudgetView


@dataclass
class Tetris(BudgetPolicy):
    """Verifies the best draft tokens under a capacity.

    Args:
        per_request: draft tokens per request that the capacity holds, 0 or more.
        capacity: draft tokens per step in all, instead; null for none.
    """

    per_request: float = 3.0
    capacity: int | None = None

    def __post_init__(self) -> None:
        if not self.per_request >= 0:
            raise ValueError(f"per_request: got {self.per_request}; allowed: 0 or more")
        if self.capacity is not None and self.capacity < 0:
            raise ValueError(f"capacity: got {self.capacity}; allowed: 0 or more, or null")

    def token_budget(self, view: BudgetView) -> int:
        """The capacity, at most all that is drafted."""
        wanted = int(self.per_request * view.requests) if self.capacity is None else self.capacity
        return min(wanted, view.requests * view.block_size)
