"""What views show of a batch's draft rows: gathered from the trace when a policy asks, never before.

Shapes: R requests decoding, G block size, P trace positions. Tables that all engines of a run share are made once.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from dspark_sim.batch import DRAFTED, JOINED, LAST_DRAFT, RING, RING_DRAFT, RING_ROW, ROW, Batch
from dspark_sim.trace import AcceptanceTrace, calibrate

__all__ = ["TraceRows"]


@lru_cache(maxsize=16)
def _survivals(trace: AcceptanceTrace, calibrated: bool, shift: float) -> npt.NDArray[np.float32] | None:
    table = trace.survival(calibrated=calibrated, shift=shift)
    if table is not None:
        table.flags.writeable = False
    return table


@lru_cache(maxsize=16)
def _confidences(trace: AcceptanceTrace, calibrated: bool, shift: float) -> npt.NDArray[np.float32] | None:
    c = trace.confidence
    if c is None:
        return None
    has_sts = calibrated and (trace.sts_temperature is not None or trace.sts_bias is not None)
    if not has_sts and not shift:
        return c
    return calibrate(c, trace.sts_temperature if has_sts else None, trace.sts_bias if has_sts else None, shift)


@lru_cache(maxsize=16)
def _accepted(trace: AcceptanceTrace) -> npt.NDArray[np.int64]:
    return trace.accepted.astype(np.int64)


class TraceRows:
    """What a view shows of a batch's draft rows; gathers from the trace only what a policy asks for.

    Args:
        batch: the batch.
        trace: the arm's trace, None without a drafter.
        calibrated, shift: how the policy sees confidence (an arm's ``calibrated`` and ``belief``).
    """

    def __init__(self, batch: Batch, trace: AcceptanceTrace | None, *, calibrated: bool, shift: float) -> None:
        self.batch, self.trace = batch, trace
        self.block_size = 0 if trace is None else trace.block_size
        self._how = (calibrated, shift)
        self._accepted = None if trace is None else _accepted(trace)
        self.decode_step = 0
        self.drafted: npt.NDArray[np.int64] | None = None  # None: every row drafted a full block
        self.partial = False  # some row has drafted less than a full block: draft lengths are kept from then on

    def accepted(self) -> npt.NDArray[np.int64]:
        """(R,) draft tokens the target keeps when all are verified; (cut by nothing)."""
        assert self._accepted is not None
        return self._accepted.take(self.batch.ints[ROW, : self.batch.size])

    def oracle(self) -> npt.NDArray[np.int64]:
        """(R,) :meth:`accepted`, cut at what was drafted."""
        accepted = self.accepted()
        return accepted if self.drafted is None else np.minimum(accepted, self.drafted)

    def confidence(self) -> npt.NDArray[np.float32] | None:
        """(R, G) calibrated confidences of this step's rows, 0 where not drafted."""
        return None if self.trace is None else self._rows(_confidences(self.trace, *self._how))

    def survival(self) -> npt.NDArray[np.float32] | None:
        """(R, G) survivals of this step's rows, 0 where not drafted."""
        return None if self.trace is None else self._rows(_survivals(self.trace, *self._how))

    def draft_probability(self) -> npt.NDArray[np.float32] | None:
        """(R, G) probability of each drawn token, 0 where not drafted; None if the trace has none."""
        return None if self.trace is None else self._rows(self.trace.draft_probability)

    def _rows(self, table: npt.NDArray[np.float32] | None) -> npt.NDArray[np.float32] | None:
        if table is None:
            return None
        out = table.take(self.batch.ints[ROW, : self.batch.size], axis=0)
        if self.drafted is not None:
            out[np.arange(self.block_size) >= self.drafted[:, None]] = 0.0
        out.flags.writeable = False
        return out

    def remember(self, drafted: npt.NDArray[np.int64] | None) -> None:
        """Keep this step's rows for :meth:`past`; called once per decode step, after drafting."""
        ring, R = self.decode_step % RING, self.batch.size
        self.batch.ints[RING_ROW + ring, :R] = self.batch.ints[ROW, :R]
        if self.partial:
            self.batch.ints[RING_DRAFT + ring, :R] = self.block_size if drafted is None else drafted

    def become_partial(self) -> None:
        """A row drafts less than a full block for the first time: write down what all rows drafted until now."""
        ints, R = self.batch.ints, self.batch.size
        self.partial = True
        steps = self.decode_step - ints[JOINED, :R]
        ints[DRAFTED, :R] += steps * self.block_size
        ints[LAST_DRAFT, :R] = np.where(steps > 0, self.block_size, -1)
        ints[RING_DRAFT:, :R] = self.block_size

    def past(self, n: int) -> npt.NDArray[np.float32]:
        """(R, G) survivals ``n`` of their decode steps ago, NaN where there is none."""
        R = self.batch.size
        table = None if self.trace is None else _survivals(self.trace, *self._how)
        if table is None:
            return np.full((R, self.block_size), np.nan, dtype=np.float32)
        ring = (self.decode_step - n) % RING
        rows = self.batch.ints[RING_ROW + ring, :R]
        out = table.take(rows, axis=0, mode="clip")
        if self.decode_step - n < self.batch.last_join:  # somebody is too young to have such a past
            out[rows < 0] = np.nan
        if self.partial:
            lengths = self.batch.ints[RING_DRAFT + ring, :R]
            out[(np.arange(self.block_size) >= lengths[:, None]) & (rows >= 0)[:, None]] = np.nan
        out.flags.writeable = False
        return out
