"""The command line as a shell sees it: real processes, interrupts, pipes, and what ``--help`` imports."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.small_world import make


@pytest.fixture(name="world", scope="module")
def _world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("world"))


def start(*args: object, cwd: Path, **more: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "dspark_sim", *map(str, args)], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, **more,  # type: ignore[call-overload]
    )


def test_help_imports_nothing_heavy() -> None:
    probe = "import sys, dspark_sim.cli; print(' '.join(sorted(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True).stdout.split()
    for name in ("numpy", "pyarrow", "pandas", "scipy", "pydantic", "yaml", "simpy", "matplotlib", "rich.table"):
        assert name not in loaded, name


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_interrupt_leaves_what_is_finished(sent: signal.Signals, code: int, world: Path, tmp_path: Path) -> None:
    """Stopped once the folder exists and half a row group of work is done, long before 10,000 replications are."""
    child = start("run", world, "--no-plots", "--out", "out", "--set", "replications=10000", cwd=tmp_path)
    try:
        while not any(p.stat().st_size > 20_000 for p in tmp_path.glob(".out.partial-*/requests.parquet")):
            assert child.poll() is None
        child.send_signal(sent)
        out, err = child.communicate(timeout=60)
    finally:
        child.kill()
    assert child.returncode == code
    assert "Traceback" not in err
    assert "stopped; what had finished is in out" in err
    assert "no-spec" in out
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["status"] == "interrupted"
    finished = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert finished["interrupted"] is True
    assert finished["arms"][0]["requests"] > 0
    assert pq.read_table(tmp_path / "out" / "requests.parquet").num_rows > 0
    assert pq.read_table(tmp_path / "out" / "steps.parquet").num_rows > 0
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


@pytest.mark.skipif(os.name != "posix", reason="pipes")
def test_a_reader_that_goes_away_is_no_error(world: Path, tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    child = subprocess.run([sys.executable, "-m", "dspark_sim", "run", str(world), "--no-plots", "--out", "o"],
                           cwd=tmp_path, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert child.returncode == 0
    assert "Broken" not in child.stderr
    assert (tmp_path / "o" / "summary.csv").exists()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device that is always full")
def test_a_table_that_cannot_be_printed_costs_no_result(world: Path, tmp_path: Path) -> None:
    """The disk behind stdout is full, stdout is closed, its encoding lacks a letter: the run folder is complete."""
    for out, redirect, code in (("full", ">/dev/full", 1), ("closed", ">&-", 0), ("ascii", "", 0)):
        done = subprocess.run(
            ["sh", "-c", f'exec "$0" -m dspark_sim run "$1" --no-plots --out {out} {redirect}', sys.executable, world],
            cwd=tmp_path, capture_output=True, text=True, env={**os.environ, "PYTHONIOENCODING": "ascii"},
        )
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
        assert f"in {out}" in done.stderr
        assert json.loads((tmp_path / out / "manifest.json").read_text())["status"] == "finished"
        assert ("\nno-spec" in done.stdout) == (out == "ascii")


def test_control_characters_reach_no_terminal(tmp_path: Path) -> None:
    """A file may be named, and may hold, what a terminal would obey: messages show it as an escape."""
    (tmp_path / "evil.yaml").write_text('"\\e[31mkey": 1\n')
    for name in ("\x1b]0;title\x07.yaml", "evil.yaml"):
        child = start("scenario", "check", name, cwd=tmp_path)
        _, err = child.communicate(timeout=60)
        assert child.returncode == 2
        assert "\\x1b" in err
        assert "\x1b" not in err


def limited(size: int, *args: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """``dspark-sim`` where no file can grow beyond ``size`` bytes, as on a disk that is full."""
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, {size}))"
    start = "import runpy; runpy.run_module('dspark_sim', run_name='__main__', alter_sys=True)"
    return subprocess.run([sys.executable, "-c", f"{limit}; {start}", *map(str, args)], cwd=cwd, capture_output=True,
                          text=True, check=False)


@pytest.mark.skipif(os.name != "posix", reason="a limit on the size of files")
def test_a_full_disk_keeps_what_had_finished(world: Path, tmp_path: Path) -> None:
    """The largest table does not fit: the run stops, says what is lost, and the figures of the rest are there."""
    done = limited(50_000, "run", world, "--no-plots", "--quiet", "--out", "out", cwd=tmp_path)
    assert done.returncode == 1
    assert re.fullmatch(r"error: requests.parquet: File too large; there is no requests.parquet; [1-5] of 6 "
                        r"replications had finished, and what there is of them is in out\n", done.stderr)
    assert "no-spec" in done.stdout
    out = tmp_path / "out"
    assert sorted(p.name for p in out.iterdir()) == [
        "intervals.parquet", "lengths.parquet", "manifest.json", "steps.parquet", "summary.csv", "summary.json"]
    assert json.loads((out / "manifest.json").read_text())["status"] == "interrupted"
    warnings = json.loads((out / "summary.json").read_text())["warnings"]
    assert warnings[0] == "requests.parquet: File too large; there is no requests.parquet"
    assert pq.read_table(out / "intervals.parquet").num_rows > 0
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


@pytest.mark.skipif(os.name != "posix", reason="a limit on the size of files")
def test_a_disk_without_any_room_keeps_nothing_and_says_so(world: Path, tmp_path: Path) -> None:
    """Not a byte more than 1 KB fits into a file: the table is on screen, and nothing half-made is left."""
    done = limited(1000, "run", world, "--no-plots", "--quiet", "--out", "out", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr == "error: summary.json: File too large; nothing could be kept\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.name != "posix", reason="a limit on the size of files")
def test_a_sweep_on_a_full_disk_says_how_to_go_on(world: Path, tmp_path: Path) -> None:
    """Cells fit and the tables do not; with room again, nothing is done twice."""
    args = ("sweep", world, "--over", "seed=1,2,3", "--jobs", 1, "--no-plots", "--out", "out")
    done = limited(10_000, *args, "--quiet", cwd=tmp_path)
    assert done.returncode == 1
    assert re.fullmatch(r"error: \S+: File too large; 18 of 18 tasks are finished and kept in out, and the same "
                        r"command goes on from there\n", done.stderr)
    again = limited(10_000_000, *args, cwd=tmp_path)
    assert again.returncode == 0
    assert "18 of 18 tasks are there already" in again.stderr
