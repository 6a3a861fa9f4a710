"""The production scheduler of the DSpark paper: confidences of some steps ago set the budget, current ones fill it.

For every request that decodes now take its survivals of ``lag`` of its own decode steps ago; a request that has none
(new, or preempted since) counts with ``new_request_survival`` in all positions. Sort all draft tokens by these
survivals, best first, and let K be the number of them that maximises Θ(K) = (R + Σ of the K best) / seconds(K), with
the current R, prefill and KV tokens; among equal Θ the smallest K wins. The best K draft tokens by *current* survival,
in the order (−survival, row, position), are verified. Tokens with survival 0 are no candidates, in either ranking. A
position that was not drafted then counts with ``new_request_survival`` too, but never above the position before it.

Source: DSpark (DeepSeek-AI and Peking University, 2026), section 5: a global search instead of an early stop, which
the lag makes safe. What engines do, as presets:

* SGLang, and the paper: ``{lag: 2}``, the defaults (dspark_components/dspark_scheduler.py: argmax, rows without a
  fresh confidence count as ones; its cost has terms by requests and by tokens: ``per_request`` of a profile).
* vLLM: ``{lag: 1}`` (v1/worker/gpu/spec_decode/adaptive_verification.py: argmax over drafter + verify time, new
  requests at confidence 1; its running maximum over the measured curve is a profile's ``running_max``).
* TensorRT-LLM: ``{lag: 1, min_gain: 0.04, otherwise: all}`` (``confidence_min_predicted_gain`` of llmapi/llm_args.py,
  default 0.04; _torch/speculative/dspark_confidence.py: trims only where Θ beats full verification by that much. Its
  planner reads this step's own confidences, over a ladder of captured sizes, for greedy decoding; the lag is ours).

Lossless: the budget is fixed before this step's confidences exist, and ranking by survival is a joint stopping rule.
Overlapped: the budget, and so the size of the batch, is known while the previous step still runs; filling it is a
ranking on the device that nobody waits for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isnan
from typing import Literal

import numpy as np
import numpy.typing as npt

from dspark_sim.curve import StepCost
from dspark_sim.policy import MAX_LAG, BudgetPolicy, BudgetView, EngineSetup, expected_tokens


@dataclass
class AsyncGlobal(BudgetPolicy):
    """Budget by global search over lagged survivals.

    Args:
        lag: decode steps between the confidences that set the budget and the step, the engine's ``host_lag`` to 8.
        min_gain: the best K counts only if Θ(K) ≥ (1 + min_gain) · Θ of the alternative; 0 always takes it.
        otherwise: that alternative: verify ``none`` of the drafts (K = 0), or ``all``.
        new_request_survival: survival of every position of a request without a past, 0 to 1.
        cost: seconds in Θ: of the whole ``step``, or of ``verify`` alone.
    """

    lag: int = 2
    min_gain: float = 0.0
    new_request_survival: float = 1.0
    cost: Literal["step", "verify"] = "step"
    otherwise: Literal["none", "all"] = "none"

    _belief: StepCost = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not 1 <= self.lag <= MAX_LAG:
            raise ValueError(f"lag: got {self.lag}; allowed: 1 to {MAX_LAG}")
        if not self.min_gain >= 0:
            raise ValueError(f"min_gain: got {self.min_gain}; allowed: a number ≥ 0")
        if not 0 <= self.new_request_survival <= 1:
            raise ValueError(f"new_request_survival: got {self.new_request_survival}; allowed: 0 to 1")

    def start(self, setup: EngineSetup) -> None:
        """Remembers the belief about step times.

        Raises:
            ValueError: confidences reach the host later than ``lag``.
        """
        if self.lag < setup.host_lag:
            raise ValueError(
                f"lag: got {self.lag}, but confidences reach the host after {setup.host_lag} steps (host_lag); "
                f"allowed: {setup.host_lag} to {MAX_LAG}"
            )
        self._belief, self._budget = setup.cost, 0

    def token_budget(self, view: BudgetView) -> int:
        """K by global search; see the module."""
        R = view.requests
        past = view.past(self.lag)
        flat = past.ravel()
        if isnan(flat.dot(flat)):  # the fastest way to learn that none is missing
            past = self._filled(past)
        tau = expected_tokens(past, R)
        seconds = self._belief.table(R, view.prefill_tokens, view.kv_tokens, part=self.cost)
        theta = tau / seconds[: tau.size]
        K = int(theta.argmax())
        if self.min_gain:
            other = theta[0] if self.otherwise == "none" else tau[-1] / seconds[-1]
            if not theta[K] >= (1.0 + self.min_gain) * other:
                return 0 if self.otherwise == "none" else past.size
        return K

    def _filled(self, past: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """(R, G) ``past`` with what is missing replaced, no row rising."""
        missing = np.isnan(past)
        filled = np.where(missing, np.float32(self.new_request_survival), past)
        if np.count_nonzero(missing) != past.shape[1] * np.count_nonzero(missing[:, 0]):  # a row drafted less than G
            np.minimum.accumulate(filled, axis=1, out=filled)
        return filled
