"""The key of a task: everything that changes its figures changes it, and nothing else does."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from dspark_sim.arms import load_arms
from dspark_sim.scenario import load_scenario
from dspark_sim.sweep_key import KeyMaker, code_modules, difference, task_key
from tests.small_world import make

OWN = "\n  - {name: own, drafter: dspark, policy: './own.py:Own'}\n"
POLICY = '''\
from typing import ClassVar
class Own:
    lossless: ClassVar[bool] = True
    timing: ClassVar[str] = "overlapped"
    def verify_lengths(self, view):
        return view.drafted
'''


@pytest.fixture(name="path")
def _path(tmp_path: Path) -> Path:
    (tmp_path / "own.py").write_text(POLICY)
    (tmp_path / "lengths.csv").write_text("tokens\n30\n40\n")
    return make(tmp_path, OWN.lstrip("\n"))


LENGTHS = {"workload.output_tokens": {"kind": "empirical", "file": "lengths.csv"}}


def parts(path: Path, changes: dict[str, Any] | None = None, arm: str = "own") -> dict[str, str]:
    scenario = load_scenario(path, {**LENGTHS, **(changes or {})})
    (setup,) = [s for s in load_arms(scenario) if s.name == arm]
    return KeyMaker().parts(scenario, setup)


def replaced(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


@pytest.mark.parametrize("changes", [
    {"workload.arrival.concurrency": 9}, {"seed": 8}, {"measure.duration_s": 4}, {"interval_s": 0.5},
    {"engine.host_lag": 1}, {"arms.own.engine": {"host_lag": 1}}, {"arms.own.calibrated": False},
    {"arms.own.belief": {"step_scale": 2.0}}, {"arms.own.name": "other"}, {"workload.classes.chat.share": 0.5000001},
    {"workload.documents": "all"},
])
def test_what_is_set_matters(changes: dict[str, Any], path: Path) -> None:
    if "workload.classes.chat.share" in changes:
        changes = {"workload.classes.chat.share": 0.4, "workload.classes.math.share": 0.6}
    assert parts(path, changes, "other" if "arms.own.name" in changes else "own") != parts(path)


@pytest.mark.parametrize("changes", [
    {"name": "x"}, {"description": "x"}, {"replications": 9}, {"record": "requests"}, {"arms.own.label": "x"},
    {"arms.fixed-3.policy.length": 1}, {"sweep": {"over": {"seed": [1, 2]}}}, {"profile": "hardware/profile.yaml"},
])
def test_what_does_not_change_figures_does_not_matter(changes: dict[str, Any], path: Path) -> None:
    assert parts(path, changes) == parts(path)


def test_the_place_among_the_arms_matters(path: Path) -> None:
    before = parts(path)
    replaced(path, "  - {name: no-spec, policy: no_spec}\n", "")
    assert difference(parts(path), before) == "the arm's profile, trace or policy"


@pytest.mark.parametrize(("file", "old", "new", "said"), [
    ("own.py", "return view.drafted", "return view.drafted - 0", "the arm's profile, trace or policy"),
    ("hardware/profile.yaml", "[1, 0.004]", "[1, 0.0041]", "the arm's profile, trace or policy"),
    ("lengths.csv", "40", "41", "files that the scenario names"),
])
def test_a_changed_file_matters(file: str, old: str, new: str, said: str, path: Path) -> None:
    before = parts(path)
    replaced(path.parent / file, old, new)
    assert difference(before, parts(path)) == said


def test_a_changed_trace_matters(path: Path) -> None:
    from dataclasses import replace

    from dspark_sim.trace import load_trace

    before, file = parts(path), path.parent / "traces" / "dspark.parquet"
    trace = load_trace(file)
    accepted = trace.accepted.copy()
    accepted[0] = (accepted[0] + 1) % 4
    os.unlink(file)
    replace(trace, accepted=accepted).save(file)
    assert difference(before, parts(path)) == "the arm's profile, trace or policy"


def test_a_folder_that_moves_keeps_its_keys(path: Path, tmp_path: Path) -> None:
    before = parts(path)
    moved = tmp_path.parent / f"{tmp_path.name}-moved"
    tmp_path.rename(moved)
    assert parts(moved / path.name) == before


def test_replications_have_keys_of_their_own(path: Path) -> None:
    one = parts(path)
    assert len({task_key(one, r) for r in range(100)}) == 100
    assert task_key(one, 3) == task_key(dict(reversed(one.items())), 3)


def test_the_code_that_simulates_is_in_the_key_and_the_code_that_prints_is_not() -> None:
    modules = set(code_modules())
    assert {"engine", "simulate", "record", "metrics", "userview", "curve", "policy", "workload", "kv"} <= modules
    assert not modules & {"cli", "commands", "plots", "report", "render", "sweeper", "results", "runner"}
