"""Bins that leave memory while the run goes on: the same rows and figures, in memory that does not grow with time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dspark_sim import bins, record
from dspark_sim.bins import FLOAT_SUMS, INT_SUMS, Intervals
from dspark_sim.metrics import measure
from tests.worlds import World

BUSY = {"workload.arrival": {"kind": "poisson", "rate_per_s": 60.0}, "interval_s": 0.05, "cluster": {
    "engines": [{"name": "a", "count": 3}], "failures": [{"engine": 1, "at_s": 0.3, "down_s": 0.4}]},
    "measure": {"mode": "steady", "warmup_s": 0.5, "duration_s": 2.0}}


def ordered(run: Any) -> list[dict[str, Any]]:
    return sorted(run.intervals.to_pylist(), key=lambda row: (row["engine"], row["start"]))


def test_rows_are_the_same_when_bins_leave_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path)
    (whole,) = world.runs(BUSY)
    monkeypatch.setattr(bins, "MOST_CELLS", 12)
    monkeypatch.setattr(record, "CHUNK", 20)
    (cut,) = world.runs(BUSY)
    assert cut.intervals["start"].to_pylist() != whole.intervals["start"].to_pylist()  # it was cut
    rows, others = ordered(whole), ordered(cut)
    assert len(rows) == len(others) == 3 * 50
    gaps = [sum(sum(row["gap_count"]) for row in side) for side in (rows, others)]
    assert gaps[0] == gaps[1] > 0
    for row, other in zip(rows, others, strict=True):
        assert all(other[k] == (pytest.approx(v) if isinstance(v, float) else v) for k, v in row.items())
    scenario, (setup,) = world.arms(BUSY)
    one, two = measure(whole, scenario, setup), measure(cut, scenario, setup)
    assert one["throughput_tok_s_gpu"]
    assert two == pytest.approx(one)


def test_memory_does_not_grow_with_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """20 engines for 2,000 bins: what is in memory stays as it is after the first few hundred."""
    monkeypatch.setattr(bins, "MOST_CELLS", 1000)
    made = Intervals("a", 0, 1.0, 20)
    for engine in range(20):
        made.span(engine, 0.0, up=True, paid=True)
    who, one = np.arange(20), np.ones(20)
    held = []
    for now in range(1, 2001, 5):
        made.add(who, np.full(20, float(now)), dict.fromkeys(FLOAT_SUMS, one), dict.fromkeys(INT_SUMS, one))
        made.add_gaps(np.full(20, float(now)), np.full(20, 0.01), who * 0 + 1)
        made.pass_on(float(now))
        held.append(made._floats.shape[2] + len(made._histogram))
    assert max(held[100:]) <= max(held[:100]) < 300
    table = made.table(2000.0)
    assert table.num_rows == 2000 * 20
    assert sum(table["steps"].to_pylist()) == 400 * 20
    assert sum(table["up_s"].to_pylist()) == 2000 * 20
