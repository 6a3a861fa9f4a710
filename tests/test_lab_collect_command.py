"""From a target and drafters on disk to a scenario that runs on their traces: the whole way, by the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner, Result

from dspark_sim.cli import app
from dspark_sim.commands.trace_collect import walked
from dspark_sim.lab.checkpoint import save_drafter
from dspark_sim.trace import AcceptanceTrace, load_trace
from tests.lab_models import save_target, tiny_drafter, tiny_target
from tests.small_world import PROFILE

torch.set_num_threads(1)

SCENARIO = """\
name: collected
description: Tiny drafters on a tiny target. It answers nothing.
profile: ./hardware
traces: ./traces
seed: 7
replications: 2
workload:
  arrival: {kind: closed, concurrency: 4}
  classes:
    - {name: math, share: 0.5, domain: math}
    - {name: chat, share: 0.5, domain: chat}
  prompt_tokens: {kind: constant, value: 32}
  output_tokens: {kind: constant, value: 30}
measure: {mode: steady, warmup_s: 1, duration_s: 2}
arms:
  - {name: fixed, drafter: dspark, policy: {name: fixed, length: 3}}
  - {name: async, drafter: dspark, policy: async_global}
  - {name: mtp-1, drafter: mtp, policy: {name: fixed, length: 1}}
"""


def invoke(*words: str | Path) -> Result:
    return CliRunner().invoke(app, [str(w) for w in words])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``target``, ``dspark``, ``mtp`` and a sampled ``corpus``."""
    folder = tmp_path_factory.mktemp("lab")
    target = tiny_target("gemma3")
    save_target(target, folder / "target")
    save_drafter(tiny_drafter("dspark", target, draft_vocab=40), folder / "dspark")
    save_drafter(tiny_drafter("mtp", target), folder / "mtp")
    prompts = [{"domain": d, "prompt": f"w{5 + i} w{9 + i} w7"} for i in range(5) for d in ("math", "chat")]
    (folder / "prompts.jsonl").write_text("\n".join(map(json.dumps, prompts)))
    done = invoke("trace", "sample", folder / "target", folder / "prompts.jsonl", "--out", folder / "corpus",
                  "--tokens", "40", "--held-out", "0.6", "--batch", "4", "--device", "cpu", "--threads", "1")
    assert done.exit_code == 0, done.output
    return folder


def collected(place: Path, out: Path, *more: str | Path, **change: Any) -> Result:
    words = {"target": place / "target", "--corpus": place / "corpus"} | change
    return invoke("trace", "collect", words["target"], "--drafters", place / "dspark", "--drafters", f"mtp={place}/mtp",
                  "--corpus", words["--corpus"], "--out", out, "--device", "cpu", "--threads", "1", *more)


def test_a_scenario_runs_on_what_was_collected(place: Path, tmp_path: Path) -> None:
    done = collected(place, tmp_path / "traces", "--format", "json")
    assert done.exit_code == 0, done.output
    rows = json.loads(done.stdout)
    assert {(r["drafter"], r["domain"]) for r in rows} == {(n, d) for n in ("dspark", "mtp") for d in ("math", "chat")}
    assert "text against target: surprise minus entropy" in done.stderr
    trace = load_trace(tmp_path / "traces" / "dspark.parquet")
    assert (trace.kind, trace.target, trace.block_size, trace.documents) == ("measured", "target", 4, 12)
    assert trace.confidence is not None
    again = collected(place, tmp_path / "traces", "--format", "json")
    assert json.loads(again.stdout) == rows

    (tmp_path / "hardware").mkdir()
    mtp = "  mtp: {kind: autoregressive, seconds: {points: [[1, 0.0005], [64, 0.001]]}, assumption: a constant}\n"
    (tmp_path / "hardware" / "profile.yaml").write_text(PROFILE.replace("max_num_seqs", mtp + "max_num_seqs", 1))
    (tmp_path / "small.yaml").write_text(SCENARIO)
    run = invoke("run", tmp_path / "small.yaml", "--out", tmp_path / "out", "--no-plots", "--quiet")
    assert run.exit_code == 0, run.output
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    length = {arm["arm"]: arm["acceptance_length"]["mean"] for arm in summary["arms"]}
    assert 1 < length["mtp-1"] <= 2
    shown = invoke("trace", "show", tmp_path / "traces", "dspark")
    assert "measured" in shown.stdout
    assert "draft vocabulary 40 of 64" in " ".join(shown.stdout.split())


def test_shards_share_the_work_and_the_last_one_writes(place: Path, tmp_path: Path) -> None:
    first = collected(place, tmp_path / "traces", "--shard", "1/2")
    assert first.exit_code == 0, first.output
    assert "1 of 2 parts are in" in first.stderr
    assert not list((tmp_path / "traces").glob("*.parquet"))
    assert collected(place, tmp_path / "traces", "--shard", "0/2").exit_code == 0
    assert collected(place, tmp_path / "whole").exit_code == 0
    for name in ("dspark", "mtp"):
        a, b = (load_trace(tmp_path / where / f"{name}.parquet") for where in ("traces", "whole"))
        assert np.array_equal(a.accepted, b.accepted)
        assert np.array_equal(a.draft_probability, b.draft_probability)  # type: ignore[arg-type]


def test_fewer_documents_of_every_domain(place: Path, tmp_path: Path) -> None:
    assert collected(place, tmp_path / "traces", "--documents", "4", "--split", "all").exit_code == 0
    assert sorted(load_trace(tmp_path / "traces" / "mtp.parquet").domain) == ["chat", "chat", "math", "math"]
    assert collected(place, tmp_path / "one", "--documents", "1", "--split", "all").exit_code == 0
    assert load_trace(tmp_path / "one" / "mtp.parquet").documents == 1, "at most so many"


def test_mistakes_are_sentences(place: Path, tmp_path: Path) -> None:
    other = tiny_target(vocab=32)
    save_target(other, tmp_path / "other")
    save_drafter(tiny_drafter("mtp", other), tmp_path / "small")
    cases = [
        (collected(place, tmp_path / "x", "--temperature", "0.6"), "--temperature: got 0.6; allowed: 1: the responses"),
        (collected(place, tmp_path / "x", target=tmp_path / "other"), "target: target 'other'; allowed: 'target'"),
        (collected(place, tmp_path / "x", target=tmp_path / "none"), "no target"),
        (collected(place, tmp_path / "x", "--drafters", f"mtp={place}/dspark"), "two drafters are called 'mtp'"),
        (collected(place, tmp_path / "x", "--drafters", tmp_path / "small"), "vocab_size"),
        (collected(place, tmp_path / "x", "--drafters", tmp_path / "nowhere"), "nowhere"),
        (collected(place, tmp_path / "x", "--split", "test"), "split 'test'; allowed: train, held-out"),
        (collected(place, tmp_path / "x", "--shard", "2/2"), "--shard: got '2/2'"),
        (collected(place, tmp_path / "x", **{"--corpus": tmp_path / "no"}), "no corpus"),
        (collected(place, tmp_path / "x", "--device", "cuda:7"), "device 'cuda:7'"),
    ]
    for done, words in cases:
        assert done.exit_code == 2, (words, done.output)
        assert "Traceback" not in done.output
        assert words in done.stderr, done.stderr
    assert not list((tmp_path / "x").rglob("*.parquet"))
    assert collected(place, tmp_path / "y").exit_code == 0
    (tmp_path / "bare").mkdir()
    facts = json.loads((place / "corpus" / "corpus.json").read_text())
    for text, words in ((json.dumps({k: v for k, v in facts.items() if k != "temperature"}), "temperature: is missing"),
                        ("[" * 100_000, "no corpus")):
        (tmp_path / "bare" / "corpus.json").write_text(text)
        assert words in collected(place, tmp_path / "x", **{"--corpus": tmp_path / "bare"}).stderr
    changed = collected(place, tmp_path / "y", "--seed", "4")
    assert changed.exit_code == 2
    assert "seed is 4, was 0" in changed.stderr


def test_rounds_walk_from_row_0() -> None:
    trace = AcceptanceTrace("t", "d", 2, np.array([2, 0, 0, 1, 0, 0, 1, 1], dtype=np.uint8), np.array([0, 5, 8]),
                            ("a", "b"))
    assert walked(trace, "a") == [0, 3]
    assert walked(trace, "b") == [5, 6]
