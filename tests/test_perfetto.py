"""The Perfetto trace: the format's rules, every step and request in it, and what happens where it is cut."""

from __future__ import annotations

import gzip
import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import dspark_sim
from dspark_sim import cli
from dspark_sim.errors import InputError
from dspark_sim.perfetto import _life, _Track, check_target, write_trace
from dspark_sim.scenario import load_scenario
from tests.small_world import BROKEN, make

Trace = dict[str, Any]


@pytest.fixture(name="folder", scope="module")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Open loop with prefill, so that requests wait, prefill and decode; names that need escaping."""
    place = tmp_path_factory.mktemp("world")
    scenario = make(place)
    scenario.write_text(scenario.read_text().replace("name: math,", 'name: "mäth \\"<b>",', 1))
    dspark_sim.run(scenario, place / "out", overrides={
        "workload.arrival": {"kind": "poisson", "rate_per_s": 40}, "engine": {"prefill": "chunked"}})
    return place / "out"


@pytest.fixture(name="trace", scope="module")
def _trace(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Trace:
    path = tmp_path_factory.mktemp("trace") / "trace.json"
    said = write_trace(folder, path)
    assert "replication 1 of 2" in said
    loaded: Trace = json.loads(path.read_text(encoding="utf-8"))
    return loaded


def of(trace: Trace, *kinds: str) -> list[dict[str, Any]]:
    return [e for e in trace["traceEvents"] if e["ph"] in kinds]


def table(folder: Path, name: str) -> dict[str, Any]:
    read = pq.read_table(folder / f"{name}.parquet")
    return {c: np.asarray(read[c].to_pylist(), dtype=object) for c in read.column_names}


def check_format(trace: Trace) -> None:
    """What the Trace Event Format asks of every event."""
    assert set(trace) == {"traceEvents", "displayTimeUnit", "otherData"}
    assert trace["displayTimeUnit"] in ("ms", "ns")
    last = 0.0
    open_phases: dict[tuple[Any, ...], list[tuple[str, float]]] = defaultdict(list)
    for e in trace["traceEvents"]:
        assert e["ph"] in {"M", "X", "C", "b", "e"}
        assert {"name", "pid", "tid", "ts"} <= set(e)
        assert isinstance(e["pid"], int)
        assert isinstance(e["tid"], int)
        assert e["ts"] >= last, "times must not fall"
        last = e["ts"]
        if e["ph"] == "X":
            assert e["dur"] >= 0
        elif e["ph"] == "C":
            assert e["args"]
            assert all(isinstance(v, int) for v in e["args"].values())
        elif e["ph"] in "be":
            stack = open_phases[e["pid"], e["cat"], e["id"]]
            if e["ph"] == "b":
                stack.append((e["name"], e["ts"]))
            else:
                name, began = stack.pop()
                assert (name, began <= e["ts"]) == (e["name"], True), "ends match the innermost begin"
        elif e["ph"] == "M":
            assert e["name"] in {"process_name", "process_labels", "process_sort_index", "thread_name"}
    assert not any(open_phases.values()), "every begin has its end"


def check_nesting(trace: Trace) -> None:
    """Slices of one track lie one after another or one inside the other."""
    tracks: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    for e in of(trace, "X"):
        stack = tracks[e["pid"], e["tid"]]
        begin, end = round(e["ts"] * 1000), round((e["ts"] + e["dur"]) * 1000)
        while stack and stack[-1][1] <= begin:
            stack.pop()
        assert not stack or end <= stack[-1][1], e
        stack.append((begin, end))


def test_format(trace: Trace) -> None:
    check_format(trace)
    check_nesting(trace)
    assert trace["otherData"]["scenario"] == "small"
    assert trace["otherData"]["simulated"] == "true"


def test_every_step_is_there_in_microseconds(folder: Path, trace: Trace) -> None:
    steps = table(folder, "steps")
    names = {e["pid"]: e["args"]["name"] for e in of(trace, "M") if e["name"] == "process_name"}
    assert list(names.values()) == ["no-spec", "fixed-3", "async"]
    for pid, arm in names.items():
        rows = (steps["arm"] == arm) & (steps["replication"] == 0)
        whole = [e for e in of(trace, "X") if e["pid"] == pid and "args" in e]
        assert len(whole) == rows.sum() > 100
        assert [e["ts"] for e in whole] == pytest.approx(steps["start"][rows].astype(float) * 1e6, abs=0.01)
        assert [e["args"]["batch_tokens"] for e in whole] == steps["batch_tokens"][rows].tolist()
        for part in ("draft", "verify"):
            seconds = steps[f"{part}_s"][rows].astype(float)
            drawn = [e["dur"] for e in of(trace, "X") if e["pid"] == pid and e["name"] == part]
            assert drawn == pytest.approx(seconds[seconds > 0] * 1e6, abs=0.002)
        counted = [e["args"]["tokens"] for e in of(trace, "C") if e["pid"] == pid and e["name"] == "batch tokens"]
        assert counted == steps["batch_tokens"][rows].tolist()
        queue = [e["args"]["waiting"] for e in of(trace, "C") if e["pid"] == pid and e["name"] == "requests"]
        assert queue == steps["waiting"][rows].tolist()
    assert not [e for e in of(trace, "X") if e["pid"] == 1 and e["name"] == "draft"]  # no-spec drafts nothing


def test_every_request_is_there_with_its_phases(folder: Path, trace: Trace) -> None:
    requests = table(folder, "requests")
    rows = (requests["arm"] == "async") & (requests["replication"] == 0)
    begins = {e["args"]["id"]: e for e in of(trace, "b") if e["pid"] == 3 and "args" in e}
    assert len(begins) == rows.sum()
    assert {e["name"] for e in begins.values()} == {'mäth "<b>', "chat"}
    phases = {(e["id"], e["name"]): e["ts"] for e in of(trace, "b") if e["pid"] == 3 and "args" not in e}
    ends = {(e["id"], e["name"]): e["ts"] for e in of(trace, "e") if e["pid"] == 3}
    prefilled = 0
    for i in np.flatnonzero(rows & (requests["outcome"] == "finished")):
        key = f"3.{requests['id'][i]}"
        assert begins[requests["id"][i]]["ts"] == pytest.approx(requests["arrival"][i] * 1e6, abs=0.001)
        assert ends[key, requests["class"][i]] == pytest.approx(requests["finished"][i] * 1e6, abs=0.001)
        if (key, "prefill") in phases:
            prefilled += 1
            assert phases[key, "prefill"] == pytest.approx(requests["admitted"][i] * 1e6, abs=0.001)
            assert ends[key, "prefill"] == pytest.approx(requests["first_token"][i] * 1e6, abs=0.001)
    assert prefilled > 20
    assert any(name == "waiting" for _, name in phases)


def test_a_long_run_is_cut_and_says_so(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    said = write_trace(folder, path, max_steps=90)
    with gzip.open(path, "rt", encoding="utf-8") as file:
        trace = json.load(file)
    check_format(trace)
    check_nesting(trace)
    assert len([e for e in of(trace, "X") if e["name"] in ("step", "prefill step")]) == 90
    for text in (said, trace["otherData"]["holds"]):
        assert "90 steps of " in text
        assert "async ends at 0." in text
    labels = [e["args"]["labels"] for e in of(trace, "M") if e["name"] == "process_labels"]
    assert all("first 30 of " in label for label in labels)
    last = {pid: max(e["ts"] + e["dur"] for e in of(trace, "X") if e["pid"] == pid) for pid in (1, 2, 3)}
    assert all(e["ts"] <= last[e["pid"]] + 0.001 for e in of(trace, "b", "e"))


def test_who_was_not_served_is_a_mark_where_they_arrived() -> None:
    facts = dict.fromkeys(("id", "prompt_tokens", "output_tokens", "skipped", "steps", "drafted", "verified",
                           "accepted", "preemptions"), 0)
    row = {"class": "chat", "arrival": 1.5, "admitted": None, "first_token": None, "finished": None, **facts}
    track = _Track(1, "a", 0, 10, 10, 4_000_000_000)
    (_, begin), (_, end) = _life({**row, "outcome": "refused"}, track)
    assert (begin["name"], begin["ts"], end["ts"]) == ("chat: refused", 1.5e6, 1.5e6)
    events = [e for _, e in _life({**row, "outcome": "unfinished"}, track)]
    assert [(e["ph"], e["name"], e["ts"]) for e in events] == [
        ("b", "chat", 1.5e6), ("b", "waiting", 1.5e6), ("e", "waiting", 4e6), ("e", "chat", 4e6)]


def test_nothing_partial_under_the_final_name(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("dspark_sim.perfetto.os.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write_trace(folder, tmp_path / "trace.json")
    assert list(tmp_path.iterdir()) == []


def call(*args: object, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["dspark-sim", *map(str, args)])
    with pytest.raises(SystemExit) as left:
        cli.main()
    return int(left.value.code or 0)


def test_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    scenario = make(tmp_path)
    code = call("run", scenario, "--no-plots", "--out", tmp_path / "out", "--perfetto", tmp_path / "t.json",
                monkeypatch=monkeypatch)
    assert code == 0
    assert "trace for ui.perfetto.dev in " in capsys.readouterr().err
    check_format(json.loads((tmp_path / "t.json").read_text()))


def test_without_a_step_the_reason_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every arm fails before its first step: there is no steps table, and the arm's reason is the message."""
    scenario = make(tmp_path)
    (tmp_path / "early.py").write_text(BROKEN.replace("self.steps > 5", "self.steps > 0"))
    head, _ = scenario.read_text().split("arms:")
    scenario.write_text(head + "arms:\n  - {name: bad, drafter: dspark, policy: ./early.py:Broken}\n")
    code = call("run", scenario, "--no-plots", "--out", tmp_path / "out", "--perfetto", tmp_path / "t.json",
                monkeypatch=monkeypatch)
    said = capsys.readouterr().err
    assert code == 1
    assert "no trace in " in said
    assert "error: arm bad failed: " in said


@pytest.mark.parametrize(("setting", "name", "words"), [
    ("record=requests", "t.json", "record: requests"), ("replications=1", ".", "is a folder"),
    ("replications=1", "no/where.json", "its folder does not exist"),
])
def test_refused_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], setting: str, name: str,
    words: str,
) -> None:
    scenario = make(tmp_path)
    code = call("run", scenario, "--no-plots", "--out", tmp_path / "out", "--set", setting, "--perfetto",
                tmp_path / name, monkeypatch=monkeypatch)
    said = capsys.readouterr()
    assert code == 2
    assert words in said.err
    assert said.out == ""
    assert not (tmp_path / "out").exists()


def test_a_scenario_that_records_steps_is_fine(tmp_path: Path) -> None:
    check_target(load_scenario(make(tmp_path)), tmp_path / "t.json")
    with pytest.raises(InputError, match="--perfetto"):
        check_target(load_scenario(make(tmp_path), {"record": "requests"}), tmp_path / "t.json")
