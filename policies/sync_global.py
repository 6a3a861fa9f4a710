"""Global search over the *current* survivals: not lossless, kept to be caught.

K maximises Θ(K) over all draft tokens of this step ordered by (−survival, row, position); the smallest K among equals.
Unlike ``early_stop`` it steps over a stair of the step-time curve, but with that it lets the confidence of a later
position decide whether an earlier one is verified. That confidence depends on the token drawn at the earlier position,
so the token leaks into its own admission and the output distribution changes: in the toy of the DSpark paper's
Appendix A (SPS 1, 0.5, 0.45, a_1 = 0.8) the first token comes out as (0.85, 0.15) instead of (0.7, 0.3).

Synchronous: the batch depends on confidences of this very step, which the host must wait for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from dspark_sim.curve import StepCost
from dspark_sim.policy import EngineSetup, IntArray, StepView, Timing, expected_tokens, top_k_lengths


@dataclass
class SyncGlobal:
    """Global search over the current survivals, without the causal barrier.

    Args:
        cost: seconds in Θ: of the whole ``step``, or of ``verify`` alone.
    """

    cost: Literal["step", "verify"] = "step"

    lossless: ClassVar[bool] = False
    timing: ClassVar[Timing] = "synchronous"
    needs_confidence: ClassVar[bool] = True

    _belief: StepCost = field(init=False, repr=False, compare=False)

    def start(self, setup: EngineSetup) -> None:
        """Remembers the belief about step times."""
        self._belief = setup.cost

    def verify_lengths(self, view: StepView) -> IntArray:
        """(R,) lengths of the K best tokens, K = argmax Θ."""
        R, survival = view.requests, view.survival
        tau = expected_tokens(survival, R)
        theta = tau / self._belief.table(R, view.prefill_tokens, view.kv_tokens, part=self.cost)[: tau.size]
        return top_k_lengths(survival, int(theta.argmax()))
