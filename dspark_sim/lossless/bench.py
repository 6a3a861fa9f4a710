"""What a policy is shown in a check: the engine it believes to be in, and the draft rows of single steps.

Shapes: R requests, G block size.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from dspark_sim.curve import StepCost, StepCurve
from dspark_sim.policy import EngineSetup, IntArray

__all__ = ["F32", "Bench", "Decision", "Rows", "frozen"]

F32: TypeAlias = npt.NDArray[np.float32]


def frozen(values: npt.ArrayLike, dtype: Any) -> Any:
    """A read-only copy."""
    array = np.array(values, dtype=dtype)
    array.flags.writeable = False
    return array


@dataclass(frozen=True, eq=False)
class Bench:
    """The engine that a policy believes to be in.

    Attributes:
        block_size: G.
        curve: seconds of the target's forward pass.
        most: the largest R that will be shown.
        host_lag, temperature, ragged: as in :class:`~dspark_sim.policy.EngineSetup`.
        seed: of the policy's random stream.
    """

    block_size: int
    curve: StepCurve
    most: int
    host_lag: int = 2
    temperature: float = 1.0
    ragged: Literal["flattened", "padded"] = "flattened"
    seed: int = 0
    _cost: list[StepCost] = field(default_factory=list, repr=False)

    def cost(self) -> StepCost:
        """What steps cost; made once."""
        if not self._cost:
            self._cost.append(StepCost(self.curve, block_size=self.block_size, max_requests=self.most,
                                       max_tokens=self.most * (1 + self.block_size) + 64, ragged=self.ragged))
        return self._cost[0]

    def setup(self) -> EngineSetup:
        """A fresh setup, its random stream at the start."""
        return EngineSetup(
            drafter="toy", block_size=self.block_size, temperature=self.temperature, max_num_seqs=self.most,
            max_num_batched_tokens=self.cost().max_tokens, host_lag=self.host_lag, cost=self.cost(),
            rng=np.random.default_rng(self.seed), ragged=self.ragged,
        )


@dataclass(frozen=True, eq=False)
class Rows:
    """The draft rows of one step, in admission order.

    Attributes:
        ids: who runs; an id that leaves and comes back counts as a new request.
        confidence: (R, G) c_k.
        kept: (R,) draft tokens that the target would keep.
        draft_probability: (R, G), None if not recorded.
        limit: (R,) the most that may be drafted, None for G.
        prefill_tokens: prompt tokens that share the step.
    """

    ids: tuple[int, ...]
    confidence: F32
    kept: IntArray
    draft_probability: F32 | None = None
    limit: IntArray | None = None
    prefill_tokens: int = 0

    def survival(self) -> F32:
        """(R, G) a_k, with the bits that a trace has."""
        return np.asarray(np.cumprod(self.confidence, axis=1, dtype=np.float64), dtype=np.float32)


@dataclass(frozen=True, eq=False)
class Decision:
    """(R,) each: what ``draft_lengths`` asked for, where drafting stopped, how much is verified."""

    asked: IntArray
    drafted: IntArray
    lengths: IntArray
