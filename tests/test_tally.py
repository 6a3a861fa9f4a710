"""Counts of (verified, accepted): against counting one by one, on sheets that fill up, around the end of warm-up."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from dspark_sim.tally import LengthTally


@pytest.mark.parametrize("sheet", [1, 5, 64, 1 << 16])
def test_each_pair_is_counted(sheet: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dspark_sim.tally.SHEET", sheet)
    rng, G, expected = np.random.default_rng(1), 5, Counter[tuple[bool, int, int]]()
    tally = LengthTally(G, measured_from=3.0)
    for end in np.arange(0.0, 6.0, 0.125).tolist():
        lengths = rng.integers(0, G + 1, rng.integers(1, 40))
        accepted = np.minimum(lengths, rng.integers(0, G + 1, lengths.size))
        tally.add(end, lengths, accepted)
        expected.update((end > 3.0, int(v), int(a)) for v, a in zip(lengths, accepted, strict=True))
    rows = tally.table("x", 2).to_pylist()
    assert {(r["measured"], r["verified"], r["accepted"]): r["request_steps"] for r in rows} == expected
    assert {(r["arm"], r["replication"]) for r in rows} == {("x", 2)}
    assert rows == tally.table("x", 2).to_pylist()  # looking changes nothing


def test_without_a_drafter_there_is_nothing() -> None:
    table = LengthTally(0, 0.0).table("x", 0)
    assert table.num_rows == 0
    assert table.column_names == ["arm", "replication", "measured", "verified", "accepted", "request_steps"]
