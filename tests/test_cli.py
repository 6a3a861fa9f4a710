"""The command line as a user meets it: output, exit codes, messages, interrupts, and what it imports when."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import dspark_sim
from dspark_sim import cli
from tests.small_world import make

BROKEN = "  - {name: broken, drafter: dspark, policy: ./broken.py}\n"


@dataclass
class Outcome:
    code: int
    out: str
    err: str


Command = Callable[..., Outcome]


@pytest.fixture(name="world", scope="module")
def _world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("world"))


@pytest.fixture(name="dspark")
def _dspark(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Command:
    """Runs the command line in this process, in an empty folder, 100 columns wide."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")

    def call(*args: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["dspark-sim", *map(str, args)])
        with pytest.raises(SystemExit) as left:
            cli.main()
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        return Outcome(int(left.value.code or 0), said.out, said.err)

    return call


def test_run_prints_a_table_and_writes_a_folder(dspark: Command, world: Path, tmp_path: Path) -> None:
    got = dspark("run", world, "--no-plots")
    assert got.code == 0
    for words in ("no-spec", "fixed-3", "async", "throughput", "synthetic input", "What the figures rest on"):
        assert words in got.out, words
    (folder,) = (tmp_path / "runs").iterdir()
    assert f"results in {folder}" in got.err
    assert folder.name.startswith("small-")
    assert {p.name for p in folder.iterdir()} == {
        "manifest.json", "steps.parquet", "intervals.parquet", "requests.parquet", "lengths.parquet", "summary.csv",
        "summary.json"}
    summary = json.loads((folder / "summary.json").read_text())
    arms = {a["arm"]: a for a in summary["arms"]}
    # 8 requests, one token each per step of 5 ms, on 2 GPUs
    assert arms["no-spec"]["throughput_tok_s_gpu"]["mean"] == pytest.approx(800, rel=0.003)
    assert arms["no-spec"]["verification_budget"]["mean"] == 1.0
    assert arms["fixed-3"]["verification_budget"]["mean"] == 4.0


def test_manifest_says_what_it_is(dspark: Command, world: Path, tmp_path: Path) -> None:
    got = dspark("run", world, "--no-plots", "-q", "--out", "here", "--set", "replications=1", "--seed", "11")
    assert got.code == 0
    m = json.loads((tmp_path / "here" / "manifest.json").read_text())
    assert m["status"] == "finished"
    assert m["seed"] == 11
    assert m["scenario"]["text"] == world.read_text()
    assert m["scenario"]["overrides"] == {"replications": 1, "seed": 11}
    assert m["scenario"]["resolved"]["replications"] == 1
    assert m["command"][1:3] == ["run", str(world)]
    assert len(m["profiles"]["hardware"]["sha256"]) == 64
    assert len(m["traces"]["made-up/dspark"]["sha256"]) == 64
    assert [len(a["policy"]["sha256"]) for a in m["arms"]] == [64, 64, 64]
    assert m["arms"][1]["policy"]["parameters"] == {"length": 3}
    assert m["packages"]["numpy"]
    assert any("synthetic" in w for w in m["warnings"])


def test_json_and_csv_are_all_that_stdout_gets(dspark: Command, world: Path) -> None:
    as_json = dspark("run", world, "--no-plots", "--format", "json")
    data = json.loads(as_json.out, parse_constant=pytest.fail)
    assert [a["arm"] for a in data["arms"]] == ["no-spec", "fixed-3", "async"]
    assert "results in" in as_json.err
    rows = list(csv.DictReader(io.StringIO(dspark("run", world, "--no-plots", "--format", "csv").out)))
    assert [float(r["throughput_tok_s_gpu"]) for r in rows] == [a["throughput_tok_s_gpu"]["mean"] for a in data["arms"]]


def test_quiet_is_quiet(dspark: Command, world: Path) -> None:
    got = dspark("run", world, "--no-plots", "--quiet")
    assert got.err == ""
    assert "no-spec" in got.out


def test_same_seed_same_bytes_other_seed_other_figures(dspark: Command, world: Path, tmp_path: Path) -> None:
    for name, *more in (("a",), ("b",), ("c", "--seed", "8")):
        assert dspark("run", world, "--no-plots", "-q", "--out", name, *more).code == 0
    a, b, c = (tmp_path / n for n in "abc")
    tables = [f"{name}.parquet" for name in ("steps", "intervals", "requests", "lengths")]
    for file in ("summary.json", "summary.csv", *tables):
        assert (a / file).read_bytes() == (b / file).read_bytes(), file
    assert (a / "summary.csv").read_bytes() != (c / "summary.csv").read_bytes()


def test_tables_hold_every_arm_and_replication(dspark: Command, world: Path, tmp_path: Path) -> None:
    assert dspark("run", world, "--no-plots", "-q", "--out", "t").code == 0
    for name in ("steps", "intervals", "requests"):
        table = pq.read_table(tmp_path / "t" / f"{name}.parquet")
        seen = set(zip(table["arm"].to_pylist(), table["replication"].to_pylist(), strict=True))
        assert seen == {(a, r) for a in ("no-spec", "fixed-3", "async") for r in (0, 1)}, name
    assert dspark("run", world, "--no-plots", "-q", "--out", "u", "--set", "record=requests").code == 0
    assert not (tmp_path / "u" / "steps.parquet").exists()


def test_set_changes_the_run(dspark: Command, world: Path) -> None:
    got = dspark("run", world, "--no-plots", "-q", "--format", "json", "--set", "workload.arrival.concurrency=4",
                 "--set", "arms.fixed-3.policy.length=2")
    arms = {a["arm"]: a for a in json.loads(got.out)["arms"]}
    assert arms["no-spec"]["requests_decoding_mean"]["mean"] == pytest.approx(4, rel=0.01)
    assert arms["fixed-3"]["verification_budget"]["mean"] == 3.0


def test_a_policy_that_fails_stops_its_arm_only(dspark: Command, tmp_path: Path) -> None:
    got = dspark("run", make(tmp_path, BROKEN), "--no-plots", "--format", "json")
    assert got.code == 1
    arms = {a["arm"]: a for a in json.loads(got.out)["arms"]}
    assert arms["broken"]["throughput_tok_s_gpu"]["mean"] is None
    assert "verify_lengths answered 4" in arms["broken"]["error"]
    assert arms["async"]["throughput_tok_s_gpu"]["ci95_low"] is not None
    assert "error: arm broken failed: policy Broken.verify_lengths answered 4" in got.err
    assert got.err.count("its code is executed") == 1
    (folder,) = (tmp_path / "runs").iterdir()
    m = json.loads((folder / "manifest.json").read_text())
    assert m["status"] == "failed"
    assert [a["finished_replications"] for a in m["arms"]] == [2, 2, 2, 0]
    table = pq.read_table(folder / "requests.parquet")
    tried = set(zip(table["arm"].to_pylist(), table["replication"].to_pylist(), strict=True))
    assert ("broken", 1) not in tried  # it ended for good
    assert ("async", 1) in tried


def test_local_policies_can_be_refused_before_they_execute(dspark: Command, tmp_path: Path) -> None:
    scenario = make(tmp_path, BROKEN)
    (tmp_path / "broken.py").write_text("raise SystemExit('executed')")
    got = dspark("run", scenario, "--no-local-policies")
    assert got.code == 2
    assert "arms[3].policy: policy './broken.py' is not on the shelf" in got.err
    assert "executed" not in got.err
    assert dspark("scenario", "check", scenario, "--no-local-policies").code == 2
    assert dspark("policy", "show", tmp_path / "broken.py", "--no-local-policies").code == 2


@pytest.mark.parametrize(("args", "words"), [
    (["--set", "measure.duraton_s=3"], ["--set measure.duraton_s", "did you mean 'duration_s'"]),
    (["--set", "replications=-1"], ["replications", "got -1"]),
    (["--set", "replications"], ["--set", "allowed: dotted.key=value"]),
    (["--set", "a=1", "--set", "a=2"], ["--set a: is set twice"]),
    (["--set", "seed=[1"], ["--set seed", "not valid YAML"]),
    (["--set", "profile=b300x4-deepseek-v4-flsh"], ["did you mean 'b300x4-deepseek-v4-flash'"]),
    (["--seed", "-1"], ["--seed"]),
    (["--format", "xml"], ["--format", "xml"]),
    (["--colour"], ["--colour"]),
])
def test_mistakes_are_one_message_and_exit_code_2(
    dspark: Command, world: Path, tmp_path: Path, args: list[str], words: list[str]
) -> None:
    got = dspark("run", world, *args)
    assert got.code == 2
    assert got.out == ""
    for word in words:
        assert word in got.err, word
    assert not (tmp_path / "runs").exists()


def test_scenarios_that_are_not_there(dspark: Command, tmp_path: Path) -> None:
    assert "no scenario 'nothing'" in dspark("run", "nothing").err
    assert dspark("run", "nothing.yaml").code == 2
    (tmp_path / "binary.yaml").write_bytes(b"\x00\xff\xfe")
    assert dspark("run", "binary.yaml").code == 2
    assert dspark("run", tmp_path).code == 2


def test_out_is_checked_before_anything_runs(dspark: Command, world: Path, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("x")
    got = dspark("run", world, "--out", "full")
    assert got.code == 2
    assert "is not empty" in got.err
    assert [p.name for p in tmp_path.iterdir()] == ["full"]


def test_scenario_commands(dspark: Command, world: Path, tmp_path: Path) -> None:
    assert dspark("scenario", "show", world).out == world.read_text()
    shown = json.loads(dspark("scenario", "show", world, "--format", "json", "--set", "replications=3").out)
    assert shown["replications"] == 3
    assert shown["engine"] is not None
    (tmp_path / "bad.yaml").write_text(world.read_text().replace("seed: 7", "sed: 7"))
    got = dspark("scenario", "check", world, "bad.yaml", "missing.yaml")
    assert got.code == 2
    assert "small.yaml: fine (3 arms × 2 replications)" in got.out
    assert "bad.yaml:5: sed: unknown key" in got.err
    assert "missing.yaml" in got.err
    assert dspark("scenario", "check", world).code == 0
    names = [r["name"] for r in json.loads(dspark("scenario", "list", "--format", "json").out)]
    assert names == sorted(names)
    assert json.loads(dspark("schema").out)["title"] == "dspark-sim scenario"


def test_policy_commands(dspark: Command, tmp_path: Path) -> None:
    rows = {r["name"]: r for r in json.loads(dspark("policy", "list", "--format", "json").out)}
    assert {"no_spec", "fixed", "early_stop", "async_global"} <= set(rows)
    assert rows["sync_global"]["lossless"] is False
    assert rows["fixed"]["parameters"]["length"]["type"]
    shown = dspark("policy", "show", "early_stop").out
    assert "Algorithm 1" in shown
    assert "cost:" in shown
    got = dspark("policy", "show", "early_stopp")
    assert got.code == 2
    assert "did you mean 'early_stop'" in got.err
    make(tmp_path)
    assert "Fails at its sixth step" in dspark("policy", "show", "./broken.py").out


def test_profile_commands(dspark: Command, world: Path, tmp_path: Path) -> None:
    rows = {r["name"]: r for r in json.loads(dspark("profile", "list", "--format", "json").out)}
    assert rows["b300x4-deepseek-v4-flash"]["kind"] == "measured"
    text = dspark("profile", "show", "b300x4-deepseek-v4-flash").out
    assert "CUDA graphs end at 1024 tokens: 20.63 ms; one token more: 104.5 ms" in text
    assert "█" in text
    assert max(map(len, text.splitlines())) <= 100
    as_csv = dspark("profile", "show", world.parent / "hardware", "--format", "csv").out
    pairs = list(csv.DictReader(io.StringIO(as_csv)))
    assert pairs[0] == {"batch_tokens": "1", "seconds": "0.004"}
    assert dspark("profile", "show", world.parent / "hardware", "--plot", "x.txt").code == 2
    got = dspark("profile", "show", "b300x4-deepseek-v4")
    assert got.code == 2
    assert "did you mean" in got.err


def test_trace_commands(dspark: Command, world: Path) -> None:
    rows = json.loads(dspark("trace", "show", world.parent / "traces", "--format", "json").out)
    assert {(r["drafter"], r["domain"]) for r in rows} == {("dspark", "math"), ("dspark", "chat")}
    assert all(1.0 < r["acceptance_length"] < 4.0 for r in rows)
    assert len(rows[0]["conditional_acceptance"]) == 3
    assert "synthetic" in dspark("trace", "show", world.parent / "traces").out
    assert any(r["target"] == "deepseek-v4" for r in json.loads(dspark("trace", "list", "--format", "json").out))
    assert dspark("trace", "show", world.parent / "traces", "dsprak").code == 2


def test_version_and_help(dspark: Command) -> None:
    assert dspark("--version").out == f"dspark-sim {dspark_sim.__version__}\n"
    for command in ([], ["run"], ["scenario"], ["policy"], ["profile"], ["trace"], ["profile", "show"]):
        got = dspark(*command, "--help")
        assert got.code == 0
        assert "Usage" in got.out


@pytest.mark.parametrize(("wish", "coloured"), [
    ({"FORCE_COLOR": "1"}, True), ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False), ({}, False),
])
def test_no_color_is_honoured(
    dspark: Command, monkeypatch: pytest.MonkeyPatch, wish: dict[str, str], coloured: bool
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in wish.items():
        monkeypatch.setenv(name, value)
    assert ("\x1b[1;36m" in dspark("policy", "list").out) is coloured
