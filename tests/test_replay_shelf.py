"""The shelf's scenarios with replayed traffic give what their committed tables say, wherever they run."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import expected_tables  # noqa: E402

REL = 2e-3  # same seed, same numbers; a last digit of exp or log may differ between machines and tip a decision


@pytest.mark.parametrize("name", expected_tables.NAMES)
def test_a_scenario_gives_its_expected_table(name: str) -> None:
    committed = list(csv.DictReader((expected_tables.FOLDER / f"{name}.csv").read_text().splitlines()))
    now = list(csv.DictReader(expected_tables.expected(name).splitlines()))
    assert [row["arm"] for row in now] == [row["arm"] for row in committed]
    for got, want in zip(now, committed, strict=True):
        for figure in expected_tables.FIGURES:
            assert float(got[figure]) == pytest.approx(float(want[figure]), rel=REL, abs=2e-3), (got["arm"], figure)
