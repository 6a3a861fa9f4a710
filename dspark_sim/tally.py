"""How many draft tokens were verified for a request in a step and how many of them were kept: a count of each pair.

The engine adds a step's rows at once; they are only written down then, and counted when the sheet is full.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dspark_sim.policy import IntArray

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["LengthTally"]

SHEET = 1 << 16


class LengthTally:
    """Counts of (verified, accepted), apart for the warm-up and for what is measured.

    Args:
        block_size: G, the largest verification length; 0 without a drafter.
        measured_from: steps that end after this moment are measured.

    Attributes:
        counts: (2, G + 1, G + 1) rows by measured or not, draft tokens verified, draft tokens kept.
    """

    def __init__(self, block_size: int, measured_from: float) -> None:
        self._base, self._until = block_size + 1, measured_from
        self._measured = 0
        self._sheet = np.empty(SHEET, dtype=np.int64)
        self._used = 0
        self.counts = np.zeros((2, self._base, self._base), dtype=np.int64)

    def add(self, end: float, lengths: IntArray, accepted: IntArray) -> None:
        """The rows of one step: ``lengths`` (R,) verified, ``accepted`` (R,) kept; steps come in the order of time."""
        if end > self._until:
            self.flush()
            self._measured, self._until = 1, np.inf
        used = self._used
        self._used = stop = used + lengths.size
        if stop > self._sheet.size:
            self._used = used
            self.flush()
            if lengths.size > self._sheet.size:
                self._sheet = np.empty(lengths.size, dtype=np.int64)
            used, self._used = 0, lengths.size
            stop = self._used
        rows = self._sheet[used:stop]
        np.multiply(lengths, self._base, out=rows)
        np.add(rows, accepted, out=rows)

    def flush(self) -> None:
        """Count what is written down."""
        base = self._base
        found = np.bincount(self._sheet[: self._used], minlength=base * base)
        self.counts[self._measured] += found.reshape(base, base)
        self._used = 0

    def table(self, arm: str, replication: int) -> pa.Table:
        """The table ``lengths``: a row for each pair that occurred."""
        import pyarrow as pa

        self.flush()
        measured, verified, accepted = np.nonzero(self.counts)
        n = measured.size
        return pa.table({
            "arm": pa.array([arm] * n, pa.string()),
            "replication": pa.array(np.full(n, replication, dtype=np.int16)),
            "measured": pa.array(measured.astype(bool)),
            "verified": pa.array(verified.astype(np.int16)),
            "accepted": pa.array(accepted.astype(np.int16)),
            "request_steps": pa.array(self.counts[measured, verified, accepted]),
        })
