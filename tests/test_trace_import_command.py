"""``dspark-sim trace import`` as a shell sees it: what is written, said and refused, and that ``run`` takes it."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dspark_sim
from dspark_sim import cli
from dspark_sim.trace import load_trace
from dspark_sim.trace_import.spec import walked_rates
from dspark_sim.traceset import find_traces
from tests.small_world import PROFILE

DATA = Path(__file__).resolve().parent / "data" / "trace_import"
TOY = ("--target", "toy", "--drafter", "mine")
Call = Callable[..., tuple[int, str, str]]


@pytest.fixture(name="call")
def _call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Call:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")

    def call(*args: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["dspark-sim", "trace", "import", *map(str, args)])
        with pytest.raises(SystemExit) as left:
            cli.main()
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        return int(left.value.code or 0), said.out, said.err

    return call


def test_rates_become_a_specification_that_shows_them(call: Call, tmp_path: Path) -> None:
    code, out, err = call("--rates", "0.8,0.6,0.48", "--given", "unconditional", *TOY, "--out", "toy.yaml")
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    for words in ("toy/mine: derived, block size 3", "dividing each by", "independent draws",
                  "temperature 1 is assumed", "no confidence", "written: toy.yaml"):
        assert words in out, words
    found = find_traces("toy.yaml")
    assert walked_rates(found.open("mine"), "all") == pytest.approx([0.8, 0.75, 0.8], abs=2e-3)
    assert found.spec is not None
    assert any("independent draws" in a for a in found.spec.provenance.assumptions)
    assert "trace import --rates" in str(found.spec.provenance.command)
    assert [p.name for p in tmp_path.iterdir()] == ["toy.yaml"]


def test_a_spread_and_a_confidence_can_be_borrowed(call: Call) -> None:
    args = ("--rates", "0.8 0.75", "--given", "conditional", *TOY, "--temperature", "0.6", "--documents", "200")
    assert call(*args, "--out", "alone.yaml")[0] == 0
    code, out, _ = call(*args, "--spread-from", "qwen3-4b/dspark", "--confidence", "--out", "lent.yaml")
    assert code == 0
    assert "borrowed from qwen3-4b/dspark, and so is the confidence" in " ".join(out.split())
    alone, lent = (find_traces(name).open("mine") for name in ("alone.yaml", "lent.yaml"))
    assert walked_rates(lent, "all") == pytest.approx([0.8, 0.75], abs=2e-3)
    assert lent.confidence is not None
    assert lent.sts_temperature == (1.48, 1.46)
    assert lent.temperature == 0.6
    assert alone.confidence is None
    assert lent.accepted.var() > 0.95 * alone.accepted.var()  # of documents, far more:
    spread = [t.accepted.reshape(200, -1).mean(axis=1).std() for t in (alone, lent)]
    assert spread[1] > 3 * spread[0]


def test_domains_come_from_several_files(call: Call, tmp_path: Path) -> None:
    code, text, _ = call(f"code={DATA / 'vllm-bench.json'}", f"chat={DATA / 'vllm.log'}", "--drafter", "mine",
                         "--documents", "100", "--out", "two.yaml", "--format", "json")
    assert code == 0
    facts = json.loads(text)
    assert facts["formats"] == ["vllm-bench", "vllm-log"]
    assert facts["target"] == "served-8b"
    assert facts["acceptance_length"]["code"]["imported"] == pytest.approx(2.5)
    assert any(a.startswith("chat: 2 log lines") for a in facts["assumptions"])
    assert find_traces("two.yaml").open("mine").domains == ("code", "chat")
    code, _, err = call(DATA / "vllm-bench.json", DATA / "vllm.log", *TOY, "--out", "clash.yaml")
    assert code == 2
    assert "gives domain 'all' again; allowed: one source per domain: write DOMAIN=FILE" in err
    assert not (tmp_path / "clash.yaml").exists()


def test_rounds_become_a_recording(call: Call, tmp_path: Path) -> None:
    code, text, err = call(DATA / "rounds.jsonl", *TOY, "--out", "logs", "--format", "csv")
    assert code == 0
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [r["trace_conditional"] for r in rows[:3]] == ["0.75", "0.666667", "0.5"]
    assert "assumed: 7 rounds of 2 requests, laid end to end" in err
    assert load_trace(tmp_path / "logs" / "mine.parquet").documents == 2
    assert find_traces("logs").drafters == ("mine",)


SCENARIO = """\
name: imported
profile: ./hardware
traces: ./{traces}
seed: 3
replications: 2
workload:
  arrival: {{kind: closed, concurrency: 8}}
  classes: [{{name: any, domain: all}}]
  prompt_tokens: {{kind: constant, value: 32}}
  output_tokens: {{kind: constant, value: 200}}
measure: {{mode: steady, warmup_s: 1, duration_s: 10}}
arms: [{{name: fixed, drafter: dspark, policy: {{name: fixed, length: 4}}}}]
"""


def test_run_takes_what_was_imported(call: Call, tmp_path: Path) -> None:
    """The whole way: vLLM's counters in, and an engine that verifies everything shows their acceptance length."""
    (tmp_path / "hardware").mkdir()
    (tmp_path / "hardware" / "profile.yaml").write_text(PROFILE)
    assert call(DATA / "vllm-metrics.txt", "--target", "toy", "--drafter", "dspark", "--out", "toy.yaml")[0] == 0
    (tmp_path / "s.yaml").write_text(SCENARIO.format(traces="toy.yaml"))
    results = dspark_sim.run(tmp_path / "s.yaml", tmp_path / "out")
    got = results["fixed"].figures["acceptance_length"].mean
    assert got == pytest.approx(1 + 0.8 + 0.6 + 0.48 + 0.24, rel=0.02)
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert "averages over all requests that the counters saw" in json.dumps(manifest["traces"])


MISTAKES: dict[str, tuple[tuple[object, ...], str]] = {
    "nothing": (TOY, "FILE: nothing to import; allowed: files, or --rates"),
    "two things": (("--rates", "0.5", "--given", "conditional", DATA / "vllm.log", *TOY), "several things to import"),
    "which rates": (("--rates", "0.5", *TOY), "--given: is missing: nothing in the numbers tells which"),
    "given alone": ((DATA / "vllm.log", "--given", "conditional", *TOY), "--given: has no effect without --rates"),
    "no block size": (("--acceptance-length", "2", *TOY), "--block-size: is missing"),
    "no target": ((DATA / "vllm.log", "--drafter", "mine"), "--target: is missing: the files do not say it"),
    "odd drafter": ((DATA / "vllm.log", "--target", "a", "--drafter", "b/c"), "--drafter: got 'b/c'; allowed: letters"),
    "line break in a domain": ((DATA / "vllm.log", *TOY, "--domain", "a\n"), "--domain: got 'a\\n'; allowed: letters"),
    "line break in a target": ((DATA / "vllm.log", "--target", "a\n", "--drafter", "b"), "--target: got 'a\\n'"),
    "unknown format": ((DATA / "vllm.log", *TOY, "--from", "vllm-logs"), "--from: got 'vllm-logs'; allowed: auto"),
    "since of a log": ((DATA / "vllm.log", *TOY, "--since", DATA / "vllm.log"), "--since: has no effect on vllm-log"),
    "spread of nobody": ((DATA / "vllm.log", *TOY, "--spread-from", "qwen3-4b/dsprk"), "did you mean 'dspark'?"),
    "spread unnamed": ((DATA / "vllm.log", *TOY, "--spread-from", "dspark"), "allowed: TARGET/DRAFTER"),
    "shorter lender": ((DATA / "vllm.log", *TOY, "--spread-from", "deepseek-v4/mtp"), "drafts 1 tokens, the"),
    "no confidence": ((DATA / "vllm.log", *TOY, "--spread-from", "qwen3-4b/dflash", "--confidence"),
                      "qwen3-4b/dflash has no confidence to borrow"),
    "confidence alone": ((DATA / "vllm.log", *TOY, "--confidence"), "has no effect without --spread-from"),
    "rates and rounds": ((DATA / "vllm.log", DATA / "rounds.jsonl", *TOY), "vllm.log holds rates, "),
    "rates to a folder": ((DATA / "vllm.log", *TOY, "--out", "folder"), "--out: got 'folder'; allowed: a .yaml file"),
    "rounds to a file": ((DATA / "rounds.jsonl", *TOY), "--out: got 'x.yaml'; allowed: a folder, for mine.parquet"),
    "spread of rounds": ((DATA / "rounds.jsonl", *TOY, "--spread-from", "qwen3-4b/dspark"), "shows its own spread"),
    "too many rows": ((f"a={DATA / 'vllm.log'}", f"b={DATA / 'vllm.log'}", f"c={DATA / 'vllm.log'}",
                       f"d={DATA / 'vllm.log'}", *TOY, "--documents", "5000"), "5000 documents in 4 domains"),
    "file not there": (("no.log", *TOY), "no.log: cannot be read (No such file"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name: str, call: Call, tmp_path: Path) -> None:
    args, words = MISTAKES[name]
    code, out, err = call(*args, *(() if "--out" in args else ("--out", "x.yaml")))
    assert (code, out) == (2, "")
    assert words in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_temperature_that_no_trace_can_have(call: Call, tmp_path: Path) -> None:
    text = (DATA / "deepspec-metrics.json").read_text()
    (tmp_path / "m.json").write_text(text.replace('"temperature": 1.0', '"temperature": 1e6'))
    code, _, err = call("m.json", *TOY, "--out", "x.yaml")
    assert (code, "--temperature: got 1e+06; allowed: 0 (greedy) to 10" in err) == (2, True)


def test_out_is_needed_and_never_overwritten(call: Call, tmp_path: Path) -> None:
    assert "--out: is missing" in call(DATA / "vllm.log", *TOY)[2]
    for args, file in (((DATA / "vllm.log", *TOY, "--out", "x.yaml"), "x.yaml"),
                       ((DATA / "rounds.jsonl", *TOY, "--out", "logs"), "logs/mine.parquet")):
        assert call(*args)[0] == 0
        before = (tmp_path / file).read_bytes()
        code, _, err = call(*args, "--temperature", "0.5")
        assert code == 2
        assert "exists; allowed:" in err
        assert (tmp_path / file).read_bytes() == before
        assert call(*args, "--temperature", "0.5", "--force")[0] == 0
        assert (tmp_path / file).read_bytes() != before


def test_a_real_process(tmp_path: Path) -> None:
    command: list[Any] = [sys.executable, "-m", "dspark_sim", "trace", "import", DATA / "sglang-requests.jsonl", *TOY,
                          "--out", "toy.yaml", "--documents", "20", "--format", "json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["block_size"] == 4
    assert "assumed: every step verified a chain of 4 draft tokens" in done.stderr
