"""Pictures: every one is drawn, says what it should, and survives odd data; the child process and its failures."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import dspark_sim
from dspark_sim import pictures
from dspark_sim.pictures import PlotProcess
from dspark_sim.plots import arms, draw_profile, draw_run, engine
from dspark_sim.plots.data import RunData
from dspark_sim.profile import load_profile
from tests.small_world import make

NAMES = {"throughput", "budget", "time", "acceptance", "batch_tokens", "step_gap", "timeline",
         "positions", "drafters", "seen"}
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(name="folder", scope="module")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("world")
    dspark_sim.run(make(place, "  - {name: broken, drafter: dspark, policy: ./broken.py}\n"), place / "out")
    return place / "out"


def texts(figure: object) -> str:
    """All words on a figure."""
    from matplotlib.text import Text

    return "\n".join(t.get_text() for t in figure.findobj(Text))  # type: ignore[attr-defined]


def test_every_picture_is_drawn(folder: Path) -> None:
    made = draw_run(folder)
    assert {p.stem for p in made} == NAMES
    assert all(p.read_bytes().startswith(PNG) for p in made)
    assert not list((folder / "plots").glob(".*"))


def test_acceptance_by_position_is_the_runs_own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted by hand from a table of pairs; and the counts of a run add up to its other tables."""
    counts = np.zeros((4, 4), dtype=np.int64)
    counts[0, 0], counts[1, 0], counts[1, 1], counts[3, 0], counts[3, 1], counts[3, 3] = 7, 2, 3, 5, 1, 4
    asked, kept = arms.by_position(counts)
    assert asked.tolist() == [15, 5, 4]  # k = 1 was verified in 15 rows; k = 2 in 10, of which 5 had kept the first
    assert kept.tolist() == [8, 4, 4]
    data = RunData(folder)
    table = pq.read_table(folder / "intervals.parquet").to_pandas()
    for arm, found in data.verified().items():
        mine = table[(table["arm"] == arm) & (table["start"] >= data.warmup)]
        assert (found.sum(axis=1) * np.arange(4)).sum() == mine["verified"].sum()
        assert (found.sum(axis=0) * np.arange(4)).sum() == mine["accepted"].sum()
        assert found.sum() == mine["request_steps"].sum()
    assert sorted(data.verified()) == ["async", "fixed-3"]
    figure = arms.seen(data)
    assert figure is not None
    assert "how often kept?" in texts(figure)
    monkeypatch.setattr(RunData, "verified", lambda self: {"async": counts})
    drawn = arms.seen(data).axes  # type: ignore[union-attr]
    assert drawn[0].lines[0].get_ydata().tolist() == pytest.approx([8 / 15, 4 / 5, 1.0])
    assert drawn[1].lines[0].get_ydata().tolist() == pytest.approx([1500 / 22, 1000 / 22, 1000 / 22])


def test_pictures_ask_a_question_and_name_units_and_sources(folder: Path) -> None:
    data = RunData(folder)
    for draw, unit in ((arms.throughput, "tokens / s / GPU"), (arms.budget, "tokens per request"), (arms.time, "(ms)"),
                       (arms.acceptance, "tokens per step"), (engine.batch_tokens, "batch tokens"),
                       (engine.step_gap, "(ms)"), (engine.timeline, "(s)")):
        figure = draw(data)
        assert figure is not None
        words = texts(figure)
        assert "?" in words
        assert unit in words, draw
        assert "profile hardware (synthetic)" in words
        assert "trace made-up/dspark (synthetic)" in words
        assert "async" in words
        assert "broken" not in words  # a failed arm has nothing to draw


def test_data_is_of_the_measured_window_and_complete(folder: Path) -> None:
    data = RunData(folder)
    summary = {a["arm"]: a for a in json.loads((folder / "summary.json").read_text())["arms"]}
    counts = data.batches()
    assert set(counts) == {"no-spec", "fixed-3", "async"}
    assert abs(int(counts["no-spec"].sum()) - summary["no-spec"]["steps"]) <= 4  # steps that straddle the edge
    assert np.flatnonzero(counts["no-spec"]).tolist() == [8]
    assert np.flatnonzero(counts["fixed-3"]).tolist() == [32]
    ms, count = data.gaps()["no-spec"]
    assert ms[np.argmax(count)] == pytest.approx(5.0, rel=0.006)
    x, y = data.timeline()["no-spec"]
    assert x.tolist() == pytest.approx([0.5, 1.5, 2.5, 3.5])
    assert y == pytest.approx([800.0] * 4, rel=0.01)
    classes, lengths = data.acceptance()
    assert classes == ["math", "chat"]
    assert ("no-spec", "math") not in lengths
    assert 1.0 < lengths["fixed-3", "math"].mean() < 4.0


def test_without_steps_the_histogram_is_left_out(tmp_path: Path) -> None:
    dspark_sim.run(make(tmp_path), tmp_path / "out", overrides={"record": "requests", "replications": 1})
    assert {p.stem for p in draw_run(tmp_path / "out")} == NAMES - {"batch_tokens"}


def test_nothing_to_draw(tmp_path: Path) -> None:
    """Every arm failed: no pictures, no error."""
    scenario = make(tmp_path)
    text = scenario.read_text().partition("arms:\n")[0] + "arms:\n  - {name: b, drafter: dspark, policy: ./broken.py}\n"
    scenario.write_text(text)
    dspark_sim.run(scenario, tmp_path / "out")
    assert draw_run(tmp_path / "out") == []


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_profile_picture(tmp_path: Path, suffix: str) -> None:
    profile = load_profile("b300x4-deepseek-v4-flash")
    assert draw_profile(profile, tmp_path / f"stairs.{suffix}").stat().st_size > 5000
    from dspark_sim.plots.profile import draw

    words = texts(draw(profile))
    assert "CUDA graphs end at 1,024" in words
    assert "measured: " in words
    assert "Cost of drafter mtp: assumed" in words


def test_child_draws_what_it_is_told(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where a file of the user has the name of a library."""
    (tmp_path / "seaborn.py").write_text("raise SystemExit('taken')")
    monkeypatch.chdir(tmp_path)
    for old in (folder / "plots").glob("*.png"):
        old.unlink()
    child = PlotProcess().start()
    child.draw(folder)
    assert child.wait() is None
    assert {p.stem for p in (folder / "plots").glob("*.png")} == NAMES


def test_child_goes_home_unasked(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "dspark_sim.report"], stdin=subprocess.DEVNULL, capture_output=True,
                          cwd=tmp_path, check=False)
    assert done.returncode == 0


def test_child_that_fails_tells_why_in_one_line(tmp_path: Path) -> None:
    child = PlotProcess().start()
    child.draw(tmp_path)
    problem = child.wait()
    assert problem is not None
    assert problem.startswith("no plots: ")
    assert "manifest.json" in problem


def test_child_that_takes_too_long_is_given_up() -> None:
    child = PlotProcess().start()
    problem = child.wait(timeout=0.0)
    assert problem is not None
    assert "given up" in problem
    assert child._child is not None
    assert child._child.poll() is not None


def test_no_child_no_plots_no_crash(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(pictures.sys, "executable", str(tmp_path / "nothing"))
    child = PlotProcess().start()
    child.draw(tmp_path)
    assert (child.wait() or "").startswith("no plots: ")
    child.stop()
