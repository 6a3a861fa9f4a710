"""Columns that leave memory, and logs that are read and drawn from in pieces."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dspark_sim import growing
from dspark_sim.growing import Growing, slices
from dspark_sim.workload import random_stream


@pytest.mark.parametrize("limit", [1, 100, 1 << 20])
def test_values_come_back_in_order(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growing, "LIMIT", limit)
    column = Growing(np.int64)
    for i in range(0, 90, 9):
        column.add(np.arange(i, i + 9))
        column.add(np.zeros(0))
    found = column.array()
    assert found.tolist() == list(range(90))
    assert found.dtype == np.int64
    with pytest.raises(ValueError, match="read-only"):
        found[0] = 1


def test_nothing_is_an_empty_column() -> None:
    assert Growing(np.float64).array().tolist() == []


def test_slices_cover_all_rows_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growing, "ROWS", 7)
    assert [i for part in slices(23) for i in range(part.start, part.stop)] == list(range(23))
    assert list(slices(0)) == []


def test_a_window_of_a_log_draws_what_the_whole_log_would(tmp_path: Path) -> None:
    """Draws belong to rows of the file: streams are skipped ahead, not drawn and thrown away."""
    whole = random_stream(1, 0, "replay", 1).random(1000)
    rng = random_stream(1, 0, "replay", 1)
    rng.bit_generator.advance(700)
    assert np.array_equal(rng.random(300), whole[700:])
    text = random_stream(1, 0, "text").integers(0, 1 << 64, size=1000, dtype=np.uint64)
    rng = random_stream(1, 0, "text")
    rng.bit_generator.advance(700)
    assert np.array_equal(rng.integers(0, 1 << 64, size=300, dtype=np.uint64), text[700:])


def test_reading_needs_the_memory_of_a_piece(tmp_path: Path) -> None:
    """A log of 400,000 rows (12 MB of text, 16 MB of columns) after one of 200,000: no more than a few MB are new."""
    script = (
        "import sys, resource; from pathlib import Path; from dspark_sim import growing, replay_csv\n"
        "growing.LIMIT, replay_csv.BLOCK = 1 << 16, 1 << 18\n"
        "from dspark_sim.replay_read import read_log\n"
        "def anonymous():\n"
        "    return int(Path('/proc/self/status').read_text().split('RssAnon:')[1].split()[0])\n"
        "seen = []\n"
        "for name in sys.argv[1:]:\n"
        "    log = read_log(Path(name)); seen.append(anonymous())\n"
        "print(log.rows, seen[-1] - seen[-2])\n"
    )
    if not Path("/proc/self/status").exists():
        pytest.skip("this system does not tell")
    names = []
    for rows in (1000, 200_000, 400_000):
        names.append(str(tmp_path / f"{rows}.csv"))
        with open(names[-1], "w") as file:
            file.write("arrival_s,prompt_tokens,output_tokens\n")
            file.writelines(f"{i / 100:.3f},{100 + i % 900},{1 + i % 70}\n" for i in range(rows))
    done = subprocess.run([sys.executable, "-c", script, *names], capture_output=True, text=True, check=True)
    rows, grown = map(int, done.stdout.split())
    assert rows == 400_000
    assert grown < 6_000  # kB; columns in memory would take 12,800 and their pieces as much again
