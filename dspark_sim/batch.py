"""The decoding requests of one engine as a struct of arrays, in admission order.

Shapes: R requests decoding, G block size, P trace positions. One int64 matrix holds a field per row and a request per
column; a request that leaves is one shift of the matrix, and every view a policy sees is a slice of it: no copying.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dspark_sim.errors import IntegrityError
from dspark_sim.policy import MAX_LAG
from dspark_sim.request import Request, document_of
from dspark_sim.trace import AcceptanceTrace

__all__ = ["Batch", "Slices"]

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


class Slices(NamedTuple):
    """What an engine changes in a batch of R requests; views of one memory.

    ``moving`` holds rows, emitted and context, which advance together; ``public`` is what policies see, read-only.
    """

    moving: npt.NDArray[np.int64]
    context: npt.NDArray[np.int64]
    remaining: npt.NDArray[np.int64]
    verified: npt.NDArray[np.int64]
    accepted: npt.NDArray[np.int64]
    drafted: npt.NDArray[np.int64]
    blocks: npt.NDArray[np.int64]
    slowest: npt.NDArray[np.float64]
    public: tuple[Any, ...]


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
        self._bundles: dict[int, Slices] = {}
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
    def bundle(self) -> Slices:
        """Slices for the present R. Same memory at every call, so they are made once."""
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
            found = Slices(
                ints[ROW : CONTEXT + 1], ints[CONTEXT], ints[REMAINING], ints[VERIFIED], ints[ACCEPTED], ints[DRAFTED],
                ints[BLOCKS], floats[SLOWEST], public,
            )
            self._bundles[R] = found
        return found

    def check(self) -> None:
        """No column may be lost or counted twice."""
        if not (self.size == len(self.requests) == len(self.chain)):
            raise IntegrityError(f"batch: {self.size} columns, {len(self.requests)} requests, {len(self.chain)} chains")
