"""The run folder: streamed Parquet, atomic names, refusals, interrupts."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dspark_sim import rundir
from dspark_sim.errors import InputError
from dspark_sim.rundir import RunFolder
from dspark_sim.stopping import undisturbed
from tests.synthetic_run import interval, request, run


def steps(n: int) -> pa.Table:
    return pa.table({"step": np.arange(n), "batch_tokens": np.ones(n, dtype=np.int32)})


def test_nothing_has_the_final_name_before_finish(tmp_path: Path) -> None:
    with RunFolder("demo", runs=tmp_path / "runs") as folder:
        folder.write("summary.json", "{}")
        seen = list((tmp_path / "runs").iterdir())
        assert [p.name.startswith(".demo-") for p in seen] == [True]
        folder.close_tables()
        final = folder.finish()
    assert (final / "summary.json").read_text() == "{}"
    assert final.name.startswith("demo-")
    assert list((tmp_path / "runs").iterdir()) == [final]


def test_an_error_leaves_nothing(tmp_path: Path) -> None:
    folder = RunFolder("demo", tmp_path / "out")
    folder.steps(steps(3))
    assert len(list(tmp_path.iterdir())) == 1
    folder.__exit__(RuntimeError, RuntimeError(), None)
    assert list(tmp_path.iterdir()) == []


def test_names_that_exist_get_a_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Frozen(rundir.datetime):  # type: ignore[misc]
        @classmethod
        def now(cls, tz: object = None) -> rundir.datetime:
            return rundir.datetime(2026, 1, 2, 3, 4, 5)

    monkeypatch.setattr(rundir, "datetime", Frozen)
    names = []
    for _ in range(3):
        with RunFolder("a b/c", runs=tmp_path) as folder:
            names.append(folder.finish().name)
    assert names == ["a-b-c-20260102-030405", "a-b-c-20260102-030405-2", "a-b-c-20260102-030405-3"]


def test_out_must_be_new_or_empty(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with RunFolder("x", tmp_path / "empty") as folder:
        folder.write("a", "1")
        assert folder.finish() == tmp_path / "empty"
    assert (tmp_path / "empty" / "a").read_text() == "1"
    with pytest.raises(InputError, match="is not empty"):
        RunFolder("x", tmp_path / "empty")
    with pytest.raises(InputError, match="is a file"):
        RunFolder("x", tmp_path / "empty" / "a")
    with RunFolder("x", tmp_path / "deep" / "er") as folder:
        assert folder.finish().is_dir()


def test_somebody_else_fills_the_folder_meanwhile(tmp_path: Path) -> None:
    with RunFolder("x", tmp_path / "out") as folder:
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "theirs").write_text("keep me")
        folder.write("ours", "keep me too")
        with pytest.raises(InputError, match=r"is not empty.*; the results are kept in .*\.out\.partial-"):
            folder.finish()
    assert (tmp_path / "out" / "theirs").read_text() == "keep me"
    assert [p.read_text() for p in tmp_path.glob(".out.partial-*/ours")] == ["keep me too"]


def test_an_empty_folder_stays_the_one_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mounted volume, the place where the user stands, a link to it: filled, never replaced; the manifest last."""
    (tmp_path / "here").mkdir()
    (tmp_path / "link").symlink_to("here")
    before = (tmp_path / "here").stat().st_ino
    moved: list[str] = []
    real = os.rename
    monkeypatch.setattr(rundir.os, "rename", lambda a, b: (moved.append(Path(b).name), real(a, b))[1])
    for out in (".", str(tmp_path / "link")):
        monkeypatch.chdir(tmp_path / "here")
        with RunFolder("x", out) as folder:
            for name in ("manifest.json", "summary.json", "a"):
                folder.write(name, name)
            assert [p.name[:9] for p in (tmp_path / "here").iterdir()] == [".here.par"]
            monkeypatch.chdir(tmp_path)
            folder.finish()
        assert sorted(os.listdir(tmp_path / "here")) == ["a", "manifest.json", "summary.json"]
        assert (tmp_path / "here").stat().st_ino == before
        assert moved.pop() == "manifest.json"
        for path in (tmp_path / "here").iterdir():
            path.unlink()


def test_names_that_no_file_system_takes(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    for name in ("n" * 300, "n\0", "loop/out"):
        with pytest.raises(InputError, match="cannot be written"):
            RunFolder("x", tmp_path / name)
    with RunFolder("x", tmp_path / ("ä" * 120)) as folder:  # 240 bytes: a name for it, but not for a longer one
        assert folder.finish().is_dir()


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        RunFolder("x", tmp_path / "file" / "below" / "out")


def test_steps_are_streamed_in_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """40 pieces of 10 rows, groups of 100: no more than 100 rows are ever held."""
    monkeypatch.setattr(rundir, "ROW_GROUP", 100)
    with RunFolder("x", tmp_path / "out") as folder:
        held = 0
        for _ in range(40):
            folder.steps(steps(10))
            held = max(held, folder._steps._count)
        folder.close_tables()
        folder.finish()
    assert held < 100
    file = pq.ParquetFile(tmp_path / "out" / "steps.parquet")
    assert file.metadata.num_rows == 400
    assert file.metadata.num_row_groups == 4


def test_each_run_adds_intervals_and_requests(tmp_path: Path) -> None:
    with RunFolder("x", tmp_path / "out") as folder:
        for _ in range(3):
            folder.add(run([interval(0.0), interval(1.0)], [request(0.5)]))
        folder.close_tables()
        folder.finish()
    assert pq.read_table(tmp_path / "out" / "intervals.parquet").num_rows == 6
    assert pq.read_table(tmp_path / "out" / "requests.parquet").num_rows == 3
    assert not (tmp_path / "out" / "steps.parquet").exists()


def test_an_empty_first_table_still_gives_a_schema(tmp_path: Path) -> None:
    with RunFolder("x", tmp_path / "out") as folder:
        folder.add(run([interval(0.0)], []))
        folder.close_tables()
        folder.finish()
    assert "tpot" not in pq.read_schema(tmp_path / "out" / "requests.parquet").names
    assert "finished" in pq.read_schema(tmp_path / "out" / "requests.parquet").names


def test_interrupts_wait_for_the_end_of_a_write() -> None:
    done = []

    def write() -> None:
        with undisturbed():
            os.kill(os.getpid(), signal.SIGINT)
            done.append("all of it")

    with pytest.raises(KeyboardInterrupt):
        write()
    assert done == ["all of it"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
