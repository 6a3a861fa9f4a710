"""The decoding requests of one engine as a struct of arrays, in admission order.

Shapes: R requests decoding, G block size, P trace positions. One int64 matrix holds a field per row and a request per
column; a request that leaves is one shift of the matrix, and every view a policy sees is a slice of it: no copying.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from dspark_sim.errors import IntegrityError
from dspark_sim.policy import MAX_LAG
from dspark_sim.request import Request, document_of
from dspark_sim.trace import AcceptanceTrace, calibrate

__all__ = ["Batch", "TraceRows"]

RING = MAX_LAG + 1
FAR = 1 << 60
# Fields of the int matrix. The first three advance together, by one addition over a block of rows.
(ROW, EMITTED, CONTEXT, REMAINING, SEGMENT_END, VERIFIED, ACCEPTED, DRAFTED, BLOCKS, RANK, SLOT, CLASS, JOINED,
 LAST_DRAFT, SHARED) = range(15)
RING_ROW = 15  # trace rows of the last 9 decode steps, -1 where none
RING_DRAFT = RING_ROW + RING  # draft lengths of those steps
FIELDS = RING_DRAFT + RING
# Fields of the float matrix.
ARRIVAL, FIRST_TOKEN, SLOWEST, LAST_EMIT, TPOT_SLA = range(5)


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


class Batch:
    """The decode rows of an engine.

    Args:
        capacity: most requests at once (``max_num_seqs``).
        trace: what the drafter did, None for an arm without a drafter.
        pools: per class, the documents that its requests may read.
    """

    def __init__(self, capacity: int, trace: AcceptanceTrace | None, pools: list[npt.NDArray[np.int64]]) -> None:
        self.size = 0
        self.ints = np.zeros((FIELDS, capacity), dtype=np.int64)
        self.floats = np.zeros((5, capacity), dtype=np.float64)
        self.requests: list[Request] = []
        self.chain: list[int] = []  # how far along its chain of documents each request is
        self.pools = [pool.tolist() for pool in pools]
        self.start: list[int] | None = None if trace is None else trace.document_start.tolist()
        self._bundles: dict[int, tuple[Any, ...]] = {}
        # Bounds that spare most steps a look at every row: they fall by the most that a step can move.
        self.room = FAR  # tokens until some row may leave its document
        self.left = FAR  # tokens until some request may end
        self.last_join = 0  # decode step at which somebody joined last

    # -- text --------------------------------------------------------------------------------------------------
    def _locate(self, request: Request, index: int) -> tuple[int, int, int]:
        """(n, row, end) of output token ``index``: n-th document of the chain, trace row, end of that document."""
        assert self.start is not None
        pool, n = self.pools[request.class_index], 0
        while True:
            document = document_of(request.text, n, pool)
            first, end = self.start[document], self.start[document + 1]
            if first + index < end:
                return n, first + index, end
            index -= end - first
            n += 1

    def cross_documents(self, width: int) -> None:
        """After a step of at most ``width`` tokens each: move rows that ran past their document's end on into the next
        one of their chain."""
        self.room -= width
        if self.room > 0:
            return
        assert self.start is not None
        R = self.size
        row, end = self.ints[ROW, :R], self.ints[SEGMENT_END, :R]
        for i in np.flatnonzero(row >= end).tolist():
            request, rest, n = self.requests[i], int(row[i] - end[i]), self.chain[i]
            pool = self.pools[request.class_index]
            while True:
                n += 1
                document = document_of(request.text, n, pool)
                first, last = self.start[document], self.start[document + 1]
                if first + rest < last:
                    break
                rest -= last - first
            self.chain[i], row[i], end[i] = n, first + rest, last
        self.room = int((end - row).min()) if R else FAR

    def ended(self, width: int) -> list[int]:
        """After a step of at most ``width`` tokens each: columns whose request is complete, rising."""
        self.left -= width
        if self.left > 0:
            return []
        remaining = self.ints[REMAINING, : self.size]
        gone = np.flatnonzero(remaining <= 0).tolist()
        if len(gone) < self.size:
            self.left = int(remaining[remaining > 0].min()) if gone else int(remaining.min())
        else:
            self.left = FAR
        return gone

    # -- membership --------------------------------------------------------------------------------------------
    def join(
        self, request: Request, rank: int, slot: int, blocks: int, shared: int, decode_step: int, tpot_sla: float
    ) -> bool:
        """Add a request behind all others; True if it had to be put before a later-admitted one."""
        i = self.size
        n, row, end = (0, 0, 0) if self.start is None else self._locate(request, request.emitted)
        self.ints[:RING_ROW, i] = (
            row, request.emitted, request.prompt_tokens + request.emitted, request.output_tokens - request.emitted,
            end, request.verified, request.accepted, request.drafted, blocks, rank, slot, request.class_index,
            decode_step, -1, shared,
        )
        self.ints[RING_ROW:RING_DRAFT, i] = -1
        self.floats[:, i] = (
            request.arrival, request.first_token, -1.0 if request.slowest_gap is None else request.slowest_gap,
            request.last_emit, tpot_sla,
        )
        self.requests.append(request)
        self.chain.append(n)
        self.size += 1
        self.room, self.left = min(self.room, end - row), min(self.left, request.output_tokens - request.emitted)
        self.last_join = decode_step
        if i and self.ints[RANK, i - 1] > rank:
            self._reorder()
            return True
        return False

    def _reorder(self) -> None:
        R = self.size
        order = np.argsort(self.ints[RANK, :R], kind="stable")
        self.ints[:, :R] = self.ints[:, order]
        self.floats[:, :R] = self.floats[:, order]
        self.requests = [self.requests[i] for i in order.tolist()]
        self.chain = [self.chain[i] for i in order.tolist()]

    def leave(self, i: int) -> Request:
        """Remove column ``i``, write its sums back to the request and return it. Ask highest columns first."""
        R, request = self.size, self.requests.pop(i)
        ints = self.ints
        request.emitted, request.verified, request.accepted, request.drafted = (
            int(ints[EMITTED, i]), int(ints[VERIFIED, i]), int(ints[ACCEPTED, i]), int(ints[DRAFTED, i]),
        )
        slowest = float(self.floats[SLOWEST, i])
        request.slowest_gap = None if slowest < 0 else slowest
        del self.chain[i]
        if i < R - 1:
            ints[:, i : R - 1] = ints[:, i + 1 : R]
            self.floats[:, i : R - 1] = self.floats[:, i + 1 : R]
        self.size = R - 1
        return request

    # -- slices ------------------------------------------------------------------------------------------------
    def bundle(self) -> tuple[Any, ...]:
        """Slices for the present R: (advance block, row, remaining, segment end, verified, accepted, drafted, blocks,
        slowest, and a tuple of read-only ones for the views). Same memory at every call, so they are made once."""
        R = self.size
        found = self._bundles.get(R)
        if found is None:
            ints, floats = self.ints[:, :R], self.floats[:, :R]
            frozen, frozen_floats = ints.view(), floats.view()
            frozen.flags.writeable = frozen_floats.flags.writeable = False
            public = (
                frozen[SLOT], frozen[CLASS], frozen[CONTEXT], frozen[EMITTED], frozen[REMAINING],
                frozen_floats[ARRIVAL], frozen_floats[FIRST_TOKEN], frozen_floats[TPOT_SLA],
            )
            found = (
                ints[ROW : CONTEXT + 1], ints[ROW], ints[REMAINING], ints[SEGMENT_END], ints[VERIFIED], ints[ACCEPTED],
                ints[DRAFTED], ints[BLOCKS], floats[SLOWEST], public,
            )
            self._bundles[R] = found
        return found

    def check(self) -> None:
        """No column may be lost or counted twice."""
        if not (self.size == len(self.requests) == len(self.chain)):
            raise IntegrityError(f"batch: {self.size} columns, {len(self.requests)} requests, {len(self.chain)} chains")


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
