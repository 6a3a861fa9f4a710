"""What a sweep varies: values as people write them, grids, contradictions, and points that make no scenario."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dspark_sim.cli import app
from dspark_sim.errors import InputError
from dspark_sim.sweep_define import define, load_grid
from dspark_sim.sweep_grid import Definition, axes_of, parse_over, parse_values, short_names, where
from tests.small_world import make


@pytest.mark.parametrize(("text", "values"), [
    ("8", (8,)), ("1,2, 4", (1, 2, 4)), ("1e-3,true,~,word", (0.001, True, None, "word")),
    ("[1, 2],[3]", ([1, 2], [3])), ("{a: 1, b: [2, 3]},x", ({"a": 1, "b": [2, 3]}, "x")), ("'a,b',c", ("a,b", "c")),
    ("1:256:*2", (1, 2, 4, 8, 16, 32, 64, 128, 256)), ("4:64:20", (4, 24, 44, 64)), ("1:10:*3", (1, 3, 9)),
    ("0.1:0.5:0.1", (0.1, 0.2, 0.3, 0.4, 0.5)), ("1,10:30:10,100", (1, 10, 20, 30, 100)), ("'1:2:1'", ("1:2:1",)),
    ("-2:2:2", (-2, 0, 2)), ("5:5:1", (5,)), ("1:8:*2.0", (1.0, 2.0, 4.0, 8.0)),
])
def test_values(text: str, values: tuple[Any, ...]) -> None:
    found = parse_values(text, "--over k")
    assert found == values
    assert [type(v) for v in found] == [type(v) for v in values]


@pytest.mark.parametrize(("options", "message"), [
    (["k"], "got 'k'; allowed: dotted.key=value"), (["=1"], "got '=1'"), (["k="], "--over k: got '', with an empty"),
    (["k=1,,2"], "with an empty value"), (["k=1,1"], "holds 1 twice"), (["k=1", "k=2"], "--over k: is given twice"),
    (["k=4:1:1"], "first ≤ last"), (["k=1:4:0"], "step > 0"), (["k=1:4:*1"], "factor > 1"), (["k=0:4:*2"], "0 < first"),
    (["k=1:9999999:1"], "at most 100000"), (["k=[1"], "is not valid YAML"), (["k=.nan"], "finite numbers"),
    (["k=1:2:1,2"], "holds 2 twice"), (["k=&a 1"], "anchors"),
])
def test_values_that_cannot_be_read(options: list[str], message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_over(options)
    assert message in str(caught.value)


def test_the_last_key_varies_fastest() -> None:
    grid = Definition("", "", ".", axes={"a": (1, 2), "b": ("x", "y")})
    assert list(grid.points()) == [{"a": 1, "b": "x"}, {"a": 1, "b": "y"}, {"a": 2, "b": "x"}, {"a": 2, "b": "y"}]
    assert Definition("", "", ".").size == 1
    assert list(Definition("", "", ".").points()) == [{}]


def test_names_are_as_short_as_can_be() -> None:
    assert short_names(["w.arrival.concurrency", "arms.a.policy.length", "arms.b.policy.length"]) == {
        "w.arrival.concurrency": "concurrency", "arms.a.policy.length": "a.policy.length",
        "arms.b.policy.length": "b.policy.length"}
    assert short_names(["b", "a.b"]) == {"b": "b", "a.b": "a.b"}
    assert where({"x.lag": 2, "y.on": [1, 2]}) == "lag=2, on=[1,2]"


@pytest.mark.parametrize(("axes", "settings", "message"), [
    ({"name": ("a", "b")}, {}, "over name: cannot vary within a sweep"),
    ({"replications": (2, 3)}, {}, "the option --replications"), ({"sweep.over": (1,)}, {}, "cannot vary"),
    ({"a": (1,), "a.b": (2,)}, {}, "over a: holds a.b, which is set as well"),
    ({"a": ({},)}, {"a.b": 2}, "holds a.b"), ({"a": (1,)}, {"a": 2}, "is set by another option as well"),
    ({k: tuple(range(1000)) for k in "abc"}, {}, "1000000000 points; allowed: at most 1000000"),
])
def test_contradictions(axes: dict[str, Any], settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        Definition("", "", ".", settings, axes, "over").check()
    assert message in str(caught.value)


def test_a_key_inside_a_setting_is_fine(tmp_path: Path) -> None:
    path = make(tmp_path)
    arrival = {"kind": "closed", "concurrency": 9, "think_time_s": 0.5}
    found = define(path, {"workload.arrival.concurrency": [2]}, overrides={"workload.arrival": arrival})
    (point,) = load_grid(found)
    assert {**point.scenario.workload.arrival.model_dump(), "kind": "closed"}.items() >= {
        **arrival, "concurrency": 2}.items()


def test_axes_from_python() -> None:
    import numpy as np

    assert axes_of({"a": np.arange(1, 4), "b": "1:4:*2", "c": range(2)}, "over") == {
        "a": (1, 2, 3), "b": (1, 2, 4), "c": (0, 1)}
    for wrong in (4, {"x": 1}, [], [object()], [float("nan")]):
        with pytest.raises(InputError, match="over a"):
            axes_of({"a": wrong}, "over")


def test_the_section_speaks_where_the_command_line_is_silent(tmp_path: Path) -> None:
    path = make(tmp_path, "sweep: {over: {workload.arrival.concurrency: [2, 4], seed: '1:3:1'}, replications: 3}\n")
    found = define(path)
    assert found.axes == {"workload.arrival.concurrency": (2, 4), "seed": (1, 2, 3)}
    assert [p.scenario.replications for p in load_grid(found)] == [3] * 6
    assert [p.scenario.seed for p in load_grid(found)] == [1, 2, 3] * 2
    assert define(path, {"seed": [5]}).axes == {"seed": (5,)}
    assert define(path, replications=1).settings["replications"] == 1
    assert define(path, overrides={"replications": 2}).settings["replications"] == 2


@pytest.mark.parametrize(("section", "message"), [
    ("{ovr: {}}", "did you mean 'over'"), ("{over: {seed: 4}}", "sweep.over"), ("{over: {seed: []}}", "sweep.over"),
    ("{replications: 0}", "sweep.replications"), ("{over: {sed: [1]}}", "did you mean 'seed'"), ("3", "sweep"),
])
def test_a_section_with_a_mistake(section: str, message: str, tmp_path: Path) -> None:
    path = make(tmp_path, f"sweep: {section}\n")
    with pytest.raises(InputError) as caught:
        load_grid(define(path))
    assert message in str(caught.value)


def test_the_definition_names_the_folder(tmp_path: Path) -> None:
    path = make(tmp_path)
    axes = {"workload.arrival.concurrency": [2, 4]}
    digest = define(path, axes).digest()
    path.write_text("# a remark\n" + path.read_text())
    assert define(path, axes).digest() == digest
    others = [define(path, axes, seed=3), define(path, axes, replications=3), define(path, {"seed": [2, 4]}),
              define(path, {"workload.arrival.concurrency": [4, 2]}), define(path, axes, overrides={"interval_s": 0.5})]
    assert len({digest, *(d.digest() for d in others)}) == 6


@pytest.mark.parametrize(("arguments", "message"), [
    (["--over", "workload.arrival.concurrency=2,0"], "--over workload.arrival.concurrency: got 0"),
    (["--over", "workload.arrival.concurrency=2,0"], "(at the grid point interval_s=1, concurrency=0)"),
    (["--over", "workload.arrival.concurency=2"], "did you mean 'concurrency'"),
    (["--over", "arms.fixed-3.policy.length=1,2,9"], "(at the grid point interval_s=1, length=9)"),
    (["--over", "arms.fixed-4.policy.length=1,2"], "did you mean 'fixed-3'"),
    (["--over", "profile=./hardware,./nowhere"], "(at the grid point interval_s=1, profile=./nowhere)"),
    (["--over", "seed=1,2", "--set", "seed=3"], "--over seed: is set by another option"),
    (["--backend", "spark"], "--backend: got 'spark'; allowed: loky, dask, ray"),
    (["--address", "tcp://x:1"], "--address: loky computes on this machine"),
])
def test_nothing_runs_when_anything_is_wrong(arguments: list[str], message: str, tmp_path: Path,
                                             monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "w").mkdir()
    path = make(tmp_path / "w")
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["sweep", str(path), "--over", "interval_s=1", *arguments])
    assert done.exit_code == 2, done.output
    assert message in " ".join(done.stderr.split())
    assert [p.name for p in tmp_path.iterdir()] == ["w"]


def test_local_policies_are_refused_at_any_point_and_announced_once(tmp_path: Path) -> None:
    path = make(tmp_path)
    over = ["--over", "arms.fixed-3.policy=fixed,./broken.py:Broken", "--over", "seed=1,2", "--jobs", "1",
            "--replications", "1", "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(app, ["sweep", str(path), *over, "--no-local-policies"])
    assert done.exit_code == 2
    assert "--no-local-policies refuses it" in done.stderr
    done = CliRunner().invoke(app, ["sweep", str(path), *over, "--no-plots"])
    assert done.exit_code == 1
    assert done.stderr.count("its code is executed") == 1
