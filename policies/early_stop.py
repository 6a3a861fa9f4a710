"""Algorithm 1 of the DSpark paper, literally: admit the best draft tokens one by one, stop when Θ stops rising.

All draft tokens with a survival a_{r,j} > 0 are sorted by (−survival, row, position) and admitted in this order; the
search stops at the first token that does not raise Θ = τ / seconds (Θ ≤ Θ_best), where τ = R + Σ of the admitted
survivals and the step's seconds are the policy's belief at B = R + admitted (+ prefill tokens). The search is optimal
only where Θ has a single peak. On a real staircase it often returns zero drafts: where R sits on the edge of a graph
bucket the first extra token jumps a stair, Θ falls, and the drafter was paid for nothing.

Source: DSpark (DeepSeek-AI and Peking University, 2026), section 4, Algorithm 1 and Appendix A.

Lossless: a token's admission looks only at the survivals of tokens admitted before it and at its own, which are known
before the token is drawn; merging sorted rows looks only at their frontiers, so the lengths are a joint stopping rule.
Synchronous: the target's batch depends on confidences of this very step, so the step waits until the drafter's
confidences are on the host and the search is done.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from dspark_sim.curve import StepCost
from dspark_sim.policy import EngineSetup, IntArray, StepView, Timing, expected_tokens, top_k_lengths


@dataclass
class EarlyStop:
    """Greedy search over the current survivals with early stop.

    Args:
        cost: seconds in Θ: of the whole ``step``, or of ``verify`` alone (Appendix A's SPS; engines that leave the
            drafter out).
    """

    cost: Literal["step", "verify"] = "step"

    lossless: ClassVar[bool] = True
    timing: ClassVar[Timing] = "synchronous"
    needs_confidence: ClassVar[bool] = True

    _belief: StepCost = field(init=False, repr=False, compare=False)

    def start(self, setup: EngineSetup) -> None:
        """Remembers the belief about step times."""
        self._belief = setup.cost

    def verify_lengths(self, view: StepView) -> IntArray:
        """(R,) lengths at which the search stopped."""
        R, survival = view.requests, view.survival
        tau = expected_tokens(survival, R)
        theta = tau / self._belief.table(R, view.prefill_tokens, view.kv_tokens, part=self.cost)[: tau.size]
        stops = theta[1:] <= theta[:-1]  # as long as the search runs, the previous Θ is the best so far
        K = int(stops.argmax()) if stops.any() else stops.size
        return top_k_lengths(survival, K)
