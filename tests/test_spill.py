"""Rows beyond the limit go through a file and come back in order; nothing stays behind."""

from __future__ import annotations

import tempfile
from pathlib import Path

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


def test_nothing_is_nothing() -> None:
    assert spill.Spill().table() is None
