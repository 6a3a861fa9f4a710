"""Sweeps in this process: tables, going on, damaged cells, wider grids, failures."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import dspark_sim
from dspark_sim.cli import app
from dspark_sim.errors import InputError
from dspark_sim.sweep_lock import FolderLock
from dspark_sim.sweeper import SweepResults
from tests.small_world import make
from tests.sweep_world import cells, tables

OVER = {"workload.arrival.concurrency": [2, 8], "engine.host_lag": [0, 2]}


@pytest.fixture(name="path", scope="module")
def _path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("world"))


def swept(path: Path, out: Path, over: dict[str, list[int]] | None = None, **more: object) -> SweepResults:
    return dspark_sim.sweep(path, OVER if over is None else over, jobs=1, out=out, **more)  # type: ignore[arg-type]


@pytest.fixture(name="done", scope="module")
def _done(path: Path, tmp_path_factory: pytest.TempPathFactory) -> SweepResults:
    return swept(path, tmp_path_factory.mktemp("done") / "out")


def test_the_tables_are_tidy(done: SweepResults) -> None:
    tasks, rows = done.tasks(), done.aggregate()
    assert len(tasks) == done.total == 2 * 2 * 3 * 2
    assert list(tasks.columns[:8]) == ["point", *OVER, "arm", "policy", "drafter", "lossless", "replication"]
    assert tasks["workload.arrival.concurrency"].dtype == "int64"
    assert list(zip(tasks["point"], tasks["arm"], tasks["replication"], strict=True)) == [
        (p, a, r) for p in range(4) for a in ("no-spec", "fixed-3", "async") for r in range(2)]
    assert list(rows["workload.arrival.concurrency"]) == [2] * 6 + [8] * 6
    assert list(rows["engine.host_lag"]) == ([0] * 3 + [2] * 3) * 2
    assert list(rows["replications"]) == [2] * 12
    for folder in (dspark_sim.open_sweep(done.folder), done):
        assert folder.tasks().equals(tasks)
        assert folder.aggregate().equals(rows)
    for name, frame in (("tasks", tasks), ("aggregate", rows)):
        read = pd.read_csv(done.folder / f"{name}.csv")
        assert list(read.columns) == list(frame.columns)
        pd.testing.assert_series_equal(read["throughput_tok_s_gpu"], frame["throughput_tok_s_gpu"])
        assert "nan" not in (done.folder / f"{name}.csv").read_text().lower()


def test_a_point_says_what_run_says(path: Path, done: SweepResults) -> None:
    alone = dspark_sim.run(path, overrides={"workload.arrival.concurrency": 8, "engine.host_lag": 0})
    assert [a.to_dict() for a in done.results[2].arms] == [a.to_dict() for a in alone.arms]
    rows = done.aggregate()
    rows = rows[rows["point"] == 2].to_dict("records")
    for row, flat in zip(rows, alone.to_rows(), strict=True):
        for name, value in flat.items():
            assert row[name] == value or (value is None and (row[name] is None or math.isnan(row[name]))), name


def test_differences_are_paired(done: SweepResults) -> None:
    tasks = done.tasks().set_index(["point", "arm", "replication"])
    rows = done.aggregate().set_index(["point", "arm"])
    for name, column in (("throughput_tok_s_gpu", "throughput_vs_first_pct"),
                         ("tps_user_mean", "tps_user_mean_vs_first_pct")):
        ratio = tasks[name].unstack("arm")
        expected = 100 * (ratio["async"] / ratio["no-spec"] - 1)
        assert tasks[column].unstack("arm")["async"].to_list() == pytest.approx(expected.to_list())
        means = rows[column].unstack("arm")
        assert means["async"].to_list() == pytest.approx(expected.groupby("point").mean().to_list())
        assert (means["no-spec"] == 0).all()


def test_a_narrower_sweep_goes_on_in_a_wider_one(path: Path, done: SweepResults, tmp_path: Path) -> None:
    out, said = tmp_path / "out", list[str]()
    narrow = {"engine.host_lag": [2], "workload.arrival.concurrency": [2]}
    first = swept(path, out, narrow, replications=1)
    assert first.computed == 3
    whole = swept(path, out, say=said.append)
    assert (len(whole.found.cells), whole.computed) == (3, 21)
    assert "3 of 24 tasks are there already" in said
    assert tables(out) == tables(done.folder)
    again = swept(path, out, narrow, say=said.append)
    assert again.computed == 0
    assert any(s.startswith("18 cells in this folder belong to other grids") for s in said)


@pytest.mark.parametrize("harm", ["cut", "flipped", "empty", "swapped", "not text"])
def test_a_damaged_cell_is_noticed_and_done_again(harm: str, path: Path, done: SweepResults, tmp_path: Path) -> None:
    out, said = tmp_path / "out", list[str]()
    (out / "cells").mkdir(parents=True)
    for cell in cells(done.folder):
        (out / "cells" / cell.name).write_bytes(cell.read_bytes())
    victim, other = sorted(cells(out))[:2]
    data = victim.read_bytes()
    victim.write_bytes({
        "cut": data[: len(data) // 2], "flipped": data.replace(b'"wall_s":0.', b'"wall_s":1.'),
        "empty": b"", "swapped": other.read_bytes(), "not text": b"\xff" + data,
    }[harm])
    (out / "cells" / f".{victim.name}.1.tmp").write_bytes(data[:100])
    found = swept(path, out, say=said.append)
    assert list(found.found.damaged) == [victim.stem]
    assert found.computed == 1
    assert f"warning: the cell {victim.stem[:12]}… is damaged; its task is done again" in said
    assert tables(out) == tables(done.folder)
    assert not list((out / "cells").glob(".*"))


def test_a_failing_arm_is_reported_and_the_rest_is_kept(path: Path, tmp_path: Path) -> None:
    text = path.read_text() + "  - {name: broken, drafter: dspark, policy: './broken.py:Broken'}\n"
    scenario = path.with_name("with-broken.yaml")
    scenario.write_text(text)
    command = ["sweep", str(scenario), "--over", "workload.arrival.concurrency=2,8", "--jobs", "1", "--no-plots",
               "--out", str(tmp_path / "out"), "--format", "json"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 1
    assert "error: 4 of 16 tasks failed" in done.stderr
    assert "  concurrency=8: arm broken, replications 0–1: " in done.stderr
    data = json.loads(done.stdout)
    assert len(data["failures"]) == 4
    assert [row["error"] is None for row in data["rows"]] == [True, True, True, False] * 2
    tasks = pq.read_table(tmp_path / "out" / "tasks.parquet").to_pandas()
    assert tasks["throughput_tok_s_gpu"].isna().to_list() == (tasks["arm"] == "broken").to_list()
    assert len(cells(tmp_path / "out")) == 12
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["status"] == "failed"
    again = CliRunner().invoke(app, command)  # the failed ones are tried again, the others are not
    assert "12 of 16 tasks are there already" in again.stderr
    assert again.stdout == done.stdout


def test_an_input_that_changes_under_way_is_not_mixed_in(path: Path, tmp_path: Path) -> None:
    from dspark_sim.sweep_define import define, load_grid
    from dspark_sim.sweeper import execute

    (tmp_path / "w").mkdir()
    own = make(tmp_path / "w")
    definition = define(own, {"seed": [1]})
    points = load_grid(definition)
    profile = own.parent / "hardware" / "profile.yaml"
    profile.write_text(profile.read_text().replace("[1, 0.004]", "[1, 0.0041]"))
    found = execute(definition, points, jobs=1, out=tmp_path / "out")
    assert len(found.failures) == 6
    assert "edited meanwhile" in found.failures[0].error
    assert "the arm's profile, trace or policy" in found.failures[0].error


def test_places_that_are_no_sweep(path: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="is a file"):
        swept(path, tmp_path / "file")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    with pytest.raises(InputError, match="holds other files"):
        swept(path, tmp_path / "mine")
    with pytest.raises(InputError, match="is no folder of a sweep"):
        dspark_sim.open_sweep(tmp_path / "mine")


def test_a_folder_where_a_cell_belongs(path: Path, done: SweepResults, tmp_path: Path) -> None:
    name = cells(done.folder)[0].name
    (tmp_path / "out" / "cells" / name).mkdir(parents=True)
    with pytest.raises(InputError, match=f"{name}: is a folder where the result of a task belongs; .*remove"):
        swept(path, tmp_path / "out")


def test_nothing_to_vary_is_said(path: Path, tmp_path: Path) -> None:
    """Replications on all cores are a use of it, so it is no mistake."""
    said: list[str] = []
    swept(path, tmp_path / "one", {}, replications=1, say=said.append)
    assert said[0].startswith("note: nothing varies, so this is one point; --over ")
    said.clear()
    swept(path, tmp_path / "two", {"seed": [1]}, replications=1, say=said.append)
    assert said == []


def test_the_report_is_written_at_the_end(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["sweep", str(path), "--over", "workload.arrival.concurrency=2,8", "--jobs", "1", "--replications", "1",
               "--out", "out"]
    first = CliRunner().invoke(app, [*command, "--no-plots"])
    assert "results in out; as pictures: dspark-sim report out" in first.stderr
    assert not (tmp_path / "out" / "report.html").exists()
    again = CliRunner().invoke(app, command)
    assert "results in out; to read: out/report.html" in again.stderr
    assert "data:image/png" in (tmp_path / "out" / "report.html").read_text()
    assert again.stdout == first.stdout


def test_the_lock_is_held_and_a_stale_one_is_told(tmp_path: Path) -> None:
    with FolderLock(tmp_path) as lock:
        assert lock.stale is None
        with pytest.raises(InputError, match="another sweep writes to this folder"):
            FolderLock(tmp_path).__enter__()
    assert (tmp_path / ".lock").read_text() == ""
    (tmp_path / ".lock").write_text('{"pid": 999999, "host": "h", "since": "s"}')
    with FolderLock(tmp_path) as lock:
        assert lock.stale == {"pid": 999999, "host": "h", "since": "s"}


def test_the_default_folder_is_found_again(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first = dspark_sim.sweep(path, {"seed": "1:2:1"}, jobs=1, replications=1)
    again = dspark_sim.sweep(dspark_sim.load_scenario(path), {"seed": [1, 2]}, jobs=1, replications=1)
    assert first.folder.parent == Path("sweeps")
    assert first.folder.name.startswith("small-")
    assert again.folder == first.folder
    assert (len(again.found.cells), again.computed) == (6, 0)


def test_what_is_on_screen(path: Path, done: SweepResults) -> None:
    command = ["sweep", str(path), "--over", "workload.arrival.concurrency=2,8", "--over", "engine.host_lag=0,2",
               "--jobs", "1", "--no-plots", "--out", str(done.folder)]
    shown = CliRunner().invoke(app, command, env={"COLUMNS": "200"})
    assert shown.exit_code == 0
    assert "24 of 24 tasks are there already" in shown.stderr
    lines = shown.stdout.splitlines()
    assert lines[0].startswith("small  4 grid points, 2 replications, seed 7")
    assert lines[2].split()[:3] == ["concurrency", "host_lag", "arm"]
    assert [line.split()[:3] for line in lines[3:6]] == [["2", "0", a] for a in ("no-spec", "fixed-3", "async")]
    assert "first arm" in lines[3]
    assert "synthetic" in shown.stdout
    narrow = CliRunner().invoke(app, command, env={"COLUMNS": "60"}).stdout.splitlines()
    assert max(map(len, narrow[:14])) <= 60
