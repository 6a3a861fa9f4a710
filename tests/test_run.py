"""The Python API: run() gives what the command line gives, and tasks stand alone."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

import dspark_sim
from dspark_sim import runner
from dspark_sim.arms import load_arms
from dspark_sim.errors import InputError
from dspark_sim.runner import run_task, summarise
from dspark_sim.scenario import load_scenario
from tests.small_world import make


@pytest.fixture(name="world", scope="module")
def _world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("world"))


def test_run_in_memory_keeps_the_tables(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    results = dspark_sim.run(world, overrides={"replications": 1}, seed=3)
    assert results.folder is None
    assert list(tmp_path.iterdir()) == []
    assert results.seed == 3
    assert [(r.arm, r.replication) for r in results.runs] == [("no-spec", 0), ("fixed-3", 0), ("async", 0)]
    steps = results.runs[0].steps
    assert steps is not None
    assert steps.num_rows > 600
    assert results["no-spec"].figures["throughput_tok_s_gpu"].ci95_low is None
    assert any("one replication" in w for w in results.warnings)


def test_run_with_a_folder_gives_the_same_results(world: Path, tmp_path: Path) -> None:
    in_memory = dspark_sim.run(world, keep=False)
    written = dspark_sim.run(dspark_sim.load_scenario(world), tmp_path / "out")
    assert written.to_dict() == in_memory.to_dict()
    assert written.folder == tmp_path / "out"
    assert (tmp_path / "out" / "summary.json").read_text() == in_memory.to_json()
    assert in_memory.runs == ()


def test_a_loaded_scenario_is_fixed(world: Path) -> None:
    with pytest.raises(InputError, match="a loaded scenario is fixed"):
        dspark_sim.run(load_scenario(world), seed=2)


def test_a_task_depends_on_nothing_but_its_arm_and_replication(world: Path) -> None:
    scenario = load_scenario(world)
    setups = load_arms(scenario)
    alone = run_task(setups[2], scenario, 1)
    everything = dspark_sim.run(scenario)
    among = [r for r in everything.runs if (r.arm, r.replication) == ("async", 1)]
    assert alone.tables is not None
    assert alone.tables.requests.equals(among[0].requests)
    assert alone.tables.intervals.equals(among[0].intervals)


def test_all_arms_serve_the_same_requests(world: Path) -> None:
    """Common random numbers: the request with number n has the same class and sizes in every arm."""
    runs = dspark_sim.run(world, overrides={"replications": 1}).runs

    def sizes(run: object) -> dict[int, tuple[str, int, int]]:
        t = run.requests  # type: ignore[attr-defined]
        columns = (t[c].to_pylist() for c in ("id", "class", "prompt_tokens", "output_tokens"))
        return {i: (c, p, o) for i, c, p, o in zip(*columns, strict=True)}

    first, *others = map(sizes, runs)
    for other in others:
        shared = first.keys() & other.keys()
        assert len(shared) > 100
        assert {i: first[i] for i in shared} == {i: other[i] for i in shared}


def test_interrupt_finishes_the_folder_and_is_raised(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = []

    def stop_at_the_fifth(*args: object, **kwargs: object) -> object:
        done.append(args)
        if len(done) == 5:
            raise KeyboardInterrupt
        return run_task(*args, **kwargs)  # type: ignore[arg-type]

    def pressed_again(*args: object, **kwargs: object) -> object:
        os.kill(os.getpid(), signal.SIGINT)
        return summarise(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(runner, "run_task", stop_at_the_fifth)
    monkeypatch.setattr(runner, "summarise", pressed_again)  # the impatient press twice, and lose nothing by it
    with pytest.raises(KeyboardInterrupt):
        dspark_sim.run(world, tmp_path / "out")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    text = (tmp_path / "out" / "manifest.json").read_text()
    assert '"status": "interrupted"' in text
    assert "the run was interrupted" in (tmp_path / "out" / "summary.json").read_text()


def test_public_names_exist_and_unknown_ones_do_not() -> None:
    for name in dspark_sim.__all__:
        assert getattr(dspark_sim, name) is not None, name
    assert "run" in dir(dspark_sim)
    assert callable(dspark_sim.run)  # no module of that name may take its place
    with pytest.raises(AttributeError, match="no attribute 'runn'"):
        dspark_sim.runn  # noqa: B018
