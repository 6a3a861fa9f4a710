"""Rows beyond the limit go through a file and come back in order; nothing stays behind."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from dspark_sim import spill


@pytest.mark.parametrize("limit", [1, 7, 10, 1000])
def test_rows_come_back_in_order(limit: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spill, "LIMIT_ROWS", limit)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    rows = spill.Spill()
    for i in range(9):
        rows.add(pa.table({"i": list(range(3 * i, 3 * i + 3)), "name": ["a", "b", None]}))
    table = rows.table()
    assert table is not None
    assert table["i"].to_pylist() == list(range(27))
    assert table["name"].to_pylist() == ["a", "b", None] * 9
    assert list(tmp_path.iterdir()) == []
    assert rows.table() is not None


def test_a_run_that_is_given_up_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spill, "LIMIT_ROWS", 1)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    rows = spill.Spill()
    rows.add(pa.table({"i": [1, 2]}))
    assert len(list(tmp_path.iterdir())) == 1
    del rows
    assert list(tmp_path.iterdir()) == []


def test_what_was_read_piece_by_piece_is_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """24 MB of rows, read in full: the pages of the map do not stay in this process."""
    monkeypatch.setattr(spill, "LIMIT_ROWS", 1)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    rows, numbers = spill.Spill(), np.arange(100_000, dtype=np.int64)
    for i in range(30):
        rows.add(pa.table({"i": numbers + i * numbers.size}))
    table = rows.table()
    assert table is not None
    total = 0
    for batch in spill.pieces(table):
        assert batch.num_rows <= spill.PIECE_ROWS
        total += int(np.asarray(batch.column("i")).sum())
        assert mapped_kb() < 6_000
    assert total == 3_000_000 * 2_999_999 // 2
    assert int(np.asarray(table["i"]).sum()) == total
    assert mapped_kb() > 20_000  # what pieces() spares


def mapped_kb() -> int:
    """Resident kB of our temporary files, as the kernel tells."""
    if not Path("/proc/self/smaps").exists():
        pytest.skip("this system does not tell")
    found, inside = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split(" ")[0]:
            inside = "dspark-sim-" in line
        elif inside and line.startswith("Rss:"):
            found += int(line.split()[1])
    return found


def test_nothing_is_nothing() -> None:
    assert spill.Spill().table() is None
