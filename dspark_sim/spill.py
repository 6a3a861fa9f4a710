"""A table that grows without growing memory: beyond a size its rows go to a temporary file and are mapped back.

Pages of a mapped file count as resident once they were read. :func:`pieces` hands out such a table piece by piece and
lets go of them, so that reading a table of any length needs the memory of one piece.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Spill", "let_go", "mapped", "pieces", "roomy_folder"]

LIMIT_ROWS = 400_000  # about 60 MB of requests
PIECE_ROWS = 1 << 16
_maps: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()


def roomy_folder() -> str | None:
    """Where large temporary files go: ``TMPDIR`` if it is set, else ``/var/tmp`` where there is one.

    ``/tmp`` is memory on many systems. None: wherever :mod:`tempfile` puts them.
    """
    if any(os.environ.get(name) for name in ("TMPDIR", "TEMP", "TMP")) or tempfile.tempdir is not None:
        return None
    return "/var/tmp" if os.access("/var/tmp", os.W_OK) else None


def mapped(file: int) -> mmap.mmap:
    """An open file's contents, mapped read-only; its pages are among those that :func:`let_go` lets go."""
    found = mmap.mmap(file, 0, access=mmap.ACCESS_READ)
    _maps.add(found)
    return found


def let_go() -> None:
    """Pages of mapped files leave this process's memory; whoever needs them again reads them from the file."""
    if hasattr(mmap, "MADV_DONTNEED"):
        for found in list(_maps):
            found.madvise(mmap.MADV_DONTNEED)


def pieces(table: pa.Table, rows: int = PIECE_ROWS) -> Iterator[pa.RecordBatch]:
    """The rows of a table in order, at most ``rows`` at a time; what was read of a mapped table is let go."""
    since = 0
    for batch in table.to_batches(max_chunksize=rows):
        yield batch
        since += batch.num_rows
        if since >= rows:
            since = 0
            let_go()


class Spill:
    """Collects Arrow tables of one schema; small collections stay in memory."""

    def __init__(self) -> None:
        self._tables: list[pa.Table] = []
        self._rows = 0
        self._path: str | None = None
        self._file: Any = None

    def add(self, table: pa.Table) -> None:
        """Append rows."""
        self._tables.append(table)
        self._rows += table.num_rows
        if self._rows >= LIMIT_ROWS:
            self._write()

    def _write(self) -> None:
        import pyarrow as pa

        if self._file is None:
            handle, self._path = tempfile.mkstemp(prefix="dspark-sim-", suffix=".arrow", dir=roomy_folder())
            os.close(handle)
            self._file = pa.ipc.new_file(self._path, self._tables[0].schema)
        for table in self._tables:
            self._file.write_table(table)
        self._tables.clear()
        self._rows = 0

    def table(self) -> pa.Table | None:
        """All rows in order, None without any. Rows on disk are mapped, not read; the file vanishes with the map."""
        import pyarrow as pa

        if self._file is None:
            return pa.concat_tables(self._tables) if self._tables else None
        assert self._path is not None
        self._write()
        self._file.close()
        self._file = None
        try:
            with open(self._path, "rb") as file:
                table = pa.ipc.open_file(pa.BufferReader(pa.py_buffer(mapped(file.fileno())))).read_all()
        finally:
            os.unlink(self._path)  # the map keeps the contents until nobody uses them
        self._tables = [table]
        return table

    def __del__(self) -> None:
        if self._file is not None and self._path is not None:
            self._file.close()
            os.unlink(self._path)
