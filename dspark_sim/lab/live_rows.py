"""What a policy sees of drafts that are really made: the views of the simulator, filled by the models.

A block is drafted at the first moment that the policy or the engine needs it: after ``draft_lengths``, before anything
that may look at confidences. A policy that stops inside the block (``stop_drafting``) sees whole blocks here: the time
of drafting is not saved, what it stopped at is never verified.

Shapes: R requests decoding, G block size.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from dspark_sim.batch import RING, SLOT, Batch
from dspark_sim.lab.live_model import LiveModel
from dspark_sim.lab.live_sampling import Block
from dspark_sim.rows import TraceRows
from dspark_sim.trace import AcceptanceTrace, calibrate

__all__ = ["LiveRows"]

Float32Array = npt.NDArray[np.float32]


class LiveRows(TraceRows):
    """The draft rows of a live batch.

    Args:
        batch: the decoding requests.
        model: what drafts for them.
        place: (R,) model row of each request, kept up to date by the engine.
        trace: whose calibration is applied to confidences, None for raw ones.
        settle: waits for the device.

    Attributes:
        block: drafted in this step, None if not (yet).
        draft_seconds: that drafting took in this step.
    """

    def __init__(
        self, batch: Batch, model: LiveModel, place: list[int], trace: AcceptanceTrace | None,
        settle: Callable[[], None],
    ) -> None:
        super().__init__(batch, None, calibrated=False, shift=0.0)
        self.model, self.place, self.settle = model, place, settle
        self.block_size = model.G
        self._sts = None if trace is None else (trace.sts_temperature, trace.sts_bias)
        if self._sts == (None, None):
            self._sts = None
        self._past = np.full((RING, batch.ints.shape[1], model.G), np.nan, dtype=np.float32)
        self.block: Block | None = None
        self.draft_seconds = 0.0
        self._confidence: Float32Array | None = None
        self._survival: Float32Array | None = None

    def begin(self) -> None:
        """A new step: nothing is drafted."""
        self.block, self.draft_seconds, self._confidence, self._survival = None, 0.0, None, None

    def joined(self, slot: int) -> None:
        """Another request has the slot now: it has no past."""
        self._past[:, slot] = np.nan

    def _ready(self) -> Block:
        """The step's block, drafted now if it is not there."""
        if self.block is None:
            began = time.perf_counter()
            R = self.batch.size
            lengths = np.full(R, self.block_size, dtype=np.int64) if self.drafted is None else self.drafted
            self.block = self.model.draft(self.place, lengths)
            if self.block.confidence is not None:
                raw = self.block.confidence.cpu().numpy()
                self._confidence = raw if self._sts is None else calibrate(raw, *self._sts)
                self._survival = np.cumprod(self._confidence, axis=1, dtype=np.float64).astype(np.float32)
            self.settle()
            self.draft_seconds = time.perf_counter() - began
        return self.block

    def confidence(self) -> Float32Array | None:
        """(R, G) calibrated, 0 where not drafted."""
        self._ready()
        return self._cut(self._confidence)

    def survival(self) -> Float32Array | None:
        """(R, G), 0 where not drafted."""
        self._ready()
        return self._cut(self._survival)

    def draft_probability(self) -> Float32Array | None:
        """(R, G) of the drawn tokens, 0 where not drafted; None when greedy."""
        chance = self._ready().probability
        return None if chance is None else self._cut(chance.cpu().numpy())

    def _cut(self, table: Float32Array | None, what: float = 0.0) -> Float32Array | None:
        if table is None:
            return None
        out = table.copy()
        if self.drafted is not None:
            out[np.arange(self.block_size) >= self.drafted[:, None]] = what
        out.flags.writeable = False
        return out

    def accepted(self) -> npt.NDArray[np.int64]:
        """Nobody knows before the target has spoken."""
        raise ValueError("the live engine has no oracle")

    oracle = accepted

    def remember(self, drafted: npt.NDArray[np.int64] | None) -> None:
        """Drafting is over: keep this step's survivals for :meth:`past`."""
        self._ready()
        survival = self._cut(self._survival, np.nan)
        if survival is not None:
            self._past[self.decode_step % RING, self.batch.ints[SLOT, : self.batch.size]] = survival

    def past(self, n: int) -> Float32Array:
        """(R, G) survivals ``n`` of their decode steps ago, NaN where there is none."""
        out: Float32Array = self._past[(self.decode_step - n) % RING, self.batch.ints[SLOT, : self.batch.size]]
        out.flags.writeable = False
        return out
