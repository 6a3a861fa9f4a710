"""A table that grows without growing memory: beyond a size its rows go to a temporary file and are mapped back."""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Spill"]

LIMIT_ROWS = 400_000  # about 60 MB of requests


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
            handle, self._path = tempfile.mkstemp(prefix="dspark-sim-", suffix=".arrow")
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
            mapped = pa.ipc.open_file(pa.memory_map(self._path)).read_all()
        finally:
            os.unlink(self._path)  # the map keeps the contents until nobody uses them
        self._tables = [mapped]
        return mapped

    def __del__(self) -> None:
        if self._file is not None and self._path is not None:
            self._file.close()
            os.unlink(self._path)
