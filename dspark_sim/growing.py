"""A column that grows piece by piece: in memory while it is small, beyond that in a file without a name, mapped back.

Readers of traffic logs append to such columns, so that a log of any length needs the memory of a piece.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from dspark_sim.spill import let_go, mapped, roomy_folder

__all__ = ["Growing", "slices"]

LIMIT = 1 << 22  # bytes of a column that stay in memory
ROWS = 1 << 18


class Growing:
    """A column of one type.

    Args:
        dtype: of the values.
    """

    def __init__(self, dtype: Any) -> None:
        self._dtype = np.dtype(dtype)
        self._parts: list[npt.NDArray[Any]] = []
        self._held = 0
        self._file: Any = None

    def add(self, values: npt.NDArray[Any]) -> None:
        """Append; values are converted to the column's type."""
        part = np.ascontiguousarray(values, dtype=self._dtype)
        if not part.size:
            return
        self._parts.append(part)
        self._held += part.nbytes
        if self._held >= LIMIT:
            self._write()

    def _write(self) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="dspark-sim-", dir=roomy_folder())  # noqa: SIM115
        for part in self._parts:
            self._file.write(part.data.cast("B"))
        self._parts, self._held = [], 0

    def array(self) -> npt.NDArray[Any]:
        """All values in order, read-only; the column takes nothing more."""
        if self._file is None:
            whole = np.concatenate([np.zeros(0, dtype=self._dtype), *self._parts])
            whole.flags.writeable = False
            return whole
        self._write()
        self._file.flush()
        whole = np.frombuffer(mapped(self._file.fileno()), dtype=self._dtype)
        self._file.close()  # the map keeps the contents
        self._file = None
        return whole


def slices(rows: int) -> Iterator[slice]:
    """0 .. ``rows`` in pieces; pages of mapped columns that were read are let go after each."""
    for start in range(0, rows, ROWS):
        yield slice(start, min(start + ROWS, rows))
        if rows > ROWS:
            let_go()
