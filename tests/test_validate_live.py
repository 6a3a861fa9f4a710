"""`validate live` on tiny models: the whole of it, stopped and going on, its page, and what may go wrong."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from dspark_sim.cli import app
from dspark_sim.errors import InputError
from dspark_sim.lab import live_validate
from dspark_sim.lab.checkpoint import save_drafter
from dspark_sim.lab.corpus import Document, read_prompts, write_part
from dspark_sim.lab.live_plan import pick_prompts
from dspark_sim.lab.live_timing import sizes
from dspark_sim.stats import Figure
from dspark_sim.validate_live import FORMAT, QUANTITIES, drift, error_of, read_result, sentences, tables
from dspark_sim.validate_live_page import BEGIN, END, section
from tests.lab_models import save_target, tiny_drafter, tiny_target

torch.set_num_threads(1)
SMALL = ("--tokens", "8", "--requests", "4", "--repeat", "2", "--rounds", "1", "--concurrency", "2", "--split", "all",
         "--check-requests", "2", "--check-tokens", "4", "--threads", "1", "--device", "cpu", "--no-plots")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a target, a drafter, a drafter without confidences and prompts."""
    folder = tmp_path_factory.mktemp("live")
    target = tiny_target("gemma3")
    save_target(target, folder / "target")
    save_drafter(tiny_drafter("dspark", target, draft_vocab=50), folder / "dspark")
    save_drafter(tiny_drafter("mtp", target), folder / "mtp")
    save_drafter(tiny_drafter("dspark", tiny_target(hidden=16)), folder / "foreign")
    lines = [{"domain": d, "prompt": " ".join(f"w{5 + i + k}" for k in range(2 + i))} for i in range(4)
             for d in ("math", "chat")]
    (folder / "prompts.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return folder


def call(
    world: Path, *more: str, drafter: str = "dspark", target: str = "target", prompts: str = "prompts.jsonl"
) -> Any:
    places = ("--target", target, "--drafter", drafter, "--prompts", prompts)
    words = [word if word.startswith("--") else str(world / word) for word in places]
    return CliRunner().invoke(app, ["validate", "live", *words, *SMALL, *more])


def test_it_runs_stops_and_goes_on(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    words = ("--out", str(out), "--arms", "no_spec,fixed:2,async_global")
    real, calls = live_validate.live_run, list[str]()

    def stopped(setup: Any, *args: Any, **more: Any) -> Any:
        calls.append(setup.name)
        if len(calls) == 6:  # three rehearse, two have run
            raise KeyboardInterrupt
        return real(setup, *args, **more)

    monkeypatch.setattr(live_validate, "live_run", stopped)
    assert call(world, *words).exit_code == 130
    assert not (out / "live.json").exists()
    assert sorted(p.name for p in out.glob("c2/runs/*.json")) == ["0-fixed-2.json", "0-no_spec.json"]
    timing = (out / "c2/timing.json").read_bytes()
    page = tmp_path / "page.md"
    page.write_text(f"# Mine\n{BEGIN}\nold\n{END}\nrest\n", encoding="utf-8")
    done = call(world, *words, "--write-docs", str(page), "--format", "json")
    assert done.exit_code == 0, done.output
    assert calls[6:] == ["async_global", "fixed:2", "async_global", "no_spec"]  # the second repeat begins with another
    assert (out / "c2/timing.json").read_bytes() == timing
    result = read_result(out / "live.json")
    assert json.loads(done.stdout) == result
    assert [load["concurrency"] for load in result["loads"]] == [2]
    assert {r["arm"] for r in result["records"]} == {"no_spec", "fixed:2", "async_global"}
    for r in result["records"]:
        assert r["predicted"]["mean"] > 0
        assert r["measured"]["mean"] > 0
        assert r["measured"]["ci95_low"] <= r["measured"]["mean"] <= r["measured"]["ci95_high"]
    exact = {r["arm"]: r for r in result["records"] if r["quantity"] == "verification_budget"}
    assert exact["no_spec"]["predicted"]["mean"] == exact["no_spec"]["measured"]["mean"] == 1
    assert exact["fixed:2"]["measured"]["mean"] == 3
    assert set(result["loads"][0]["hindsight_pct"]) == {"no_spec", "fixed:2", "async_global"}
    assert all(g["lossless"] and g["different"] == 0 for g in result["greedy"])
    replays = {a["arm"]: a["replay_pct"] for a in result["loads"][0]["arms"]}
    assert replays["no_spec"] is None
    assert replays["async_global"]["requests"] == 8
    assert BEGIN in page.read_text() and "old" not in page.read_text() and page.read_text().endswith(f"{END}\nrest\n")  # noqa: PT018

    # what was measured is what was emitted, and the ordinary simulator takes the files
    run = json.loads((out / "c2/runs/1-fixed-2.json").read_text())
    assert all(len(text) == 8 for text in run["outputs"])
    figures = run["figures"]
    assert figures["throughput_tok_s_gpu"] == pytest.approx(4 * 8 / figures["window_s"], rel=1e-6)
    assert figures["acceptance_length"] == pytest.approx(1 + figures["accepted_tokens"] / sum(run["steps"]))
    again = CliRunner().invoke(app, ["run", str(out / "c2/scenario.yaml"), "--no-plots", "--quiet", "--format", "json",
                                     "--out", str(tmp_path / "sim")])
    assert again.exit_code == 0, again.output
    first = json.loads((out / "c2/predicted.json").read_text())["fixed:2"][0]
    assert json.loads(again.stdout)["arms"][1]["acceptance_length"]["mean"] == first["acceptance_length"]

    other = call(world, *words, "--seed", "2")
    assert other.exit_code == 2
    assert "seed is 2, was 1" in other.output
    (out / "c2/runs/0-no_spec.json").write_text("{", encoding="utf-8")
    assert "delete it: the next run makes it again" in call(world, *words).output


def test_a_failing_policy_is_told_and_the_others_are_finished(world: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text("class Bad:\n    lossless = True\n    timing = 'overlapped'\n    def verify_lengths(self, view):\n"
                   "        return view.drafted + (view.step == 2)\n", encoding="utf-8")
    done = call(world, "--out", str(tmp_path / "out"), "--arms", f"no_spec,{bad}:Bad", "--repeat", "1", "--no-replay",
                "--temperature", "0", "--check-requests", "0")
    assert done.exit_code == 1
    said = " ".join(done.output.split())
    assert re.search(r"Bad.verify_lengths answered 5 for request 0 of 2.* at decode step 2", said)
    result = read_result(tmp_path / "out" / "live.json")
    assert {r["arm"] for r in result["records"]} == {"no_spec"}
    assert result["greedy"] == []
    bad.write_text(bad.read_text().replace(" + (view.step == 2)", ""), encoding="utf-8")
    again = call(world, "--out", str(tmp_path / "out"), "--arms", f"no_spec,{bad}:Bad", "--repeat", "1", "--no-replay",
                 "--temperature", "0", "--check-requests", "0")
    assert again.exit_code == 0, again.output
    assert len(read_result(tmp_path / "out" / "live.json")["records"]) == 8


def test_mistakes_are_sentences(world: Path, tmp_path: Path) -> None:
    (world / "bad.jsonl").write_text('{"domain": "math"}\n', encoding="utf-8")
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "letter.txt").write_text("dear", encoding="utf-8")
    cases: tuple[tuple[tuple[str, ...], dict[str, str], str], ...] = (
        ((), {"drafter": "nowhere"}, "no drafter"),
        ((), {"drafter": "foreign"}, "hidden_size: got 16: this drafter is not for target"),
        ((), {"target": "nowhere"}, "no target"),
        ((), {"prompts": "nowhere.jsonl"}, "no such file"),
        ((), {"prompts": "bad.jsonl"}, "bad.jsonl:1: got"),
        (("--arms", "asynk_global"), {}, "did you mean 'async_global'"),
        (("--arms", "early_stop"), {"drafter": "mtp"}, "early_stop needs confidences; this drafter has none"),
        (("--concurrency", "4,x"), {}, "--concurrency: got '4,x'"),
        (("--concurrency", "8"), {}, "got 8, with 4 requests"),
        (("--requests", "40"), {}, "prompts.jsonl: 8 prompts of 2 to 256 tokens"),
        (("--split", "hold-out"), {}, "'held-out'"),
        (("--tokens", "600"), {}, "--tokens: got 600"), (("--device", "tpu"), {}, "device 'tpu'"),
        (("--dtype", "float23"), {}, "float32"), (("--out", str(tmp_path / "there")), {}, "no live validation"),
        (("--write-docs", str(world / "prompts.jsonl")), {}, "has no place for results"),
    )
    for more, which, words in cases:
        done = call(world, *more, **which)
        assert done.exit_code == 2, (more, which, done.output)
        assert words in " ".join(done.output.split()), (more, which, done.output)


def test_little_memory_is_a_sentence(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(live_validate, "make_traces", full)
    done = call(world, "--out", str(tmp_path / "out"))
    assert done.exit_code == 2
    assert "too little memory" in done.output
    assert (tmp_path / "out" / "settings.json").is_file()


def test_figures_and_words() -> None:
    error = error_of(Figure(110.0, 108.9, 111.1), Figure(100.0, 97.0, 103.0))
    assert error.mean == pytest.approx(10)
    assert error.half_width == pytest.approx(110 * (0.01**2 + 0.03**2) ** 0.5)
    assert error_of(Figure(None), Figure(1.0)).mean is None
    assert drift({"verify": [[1, 0.1], [2, 0.2]]}, {"verify": [[1, 0.11], [2, 0.22]]}) == pytest.approx(10)
    assert sizes(1, 1) == ([1], [2])
    assert sizes(8, 7)[1][-1] == 64
    assert sizes(8, 7)[0] == [1, 2, 3, 4, 6, 8]

    def figure(mean: float) -> dict[str, float]:
        return {"mean": mean, "ci95_low": mean - 1, "ci95_high": mean + 1}

    record = {"concurrency": 4, "arm": "fixed:3", "quantity": "throughput_tok_s_gpu", "predicted": figure(50),
              "measured": figure(40), "error_pct": figure(25), "aim_pct": 10.0, "inside_aim": False}
    load = {"concurrency": 4, "records": [record], "drift_pct": 12.0, "hindsight_pct": {"fixed:3": -2.0},
            "timing": {"spread": 0.1, "factor": 1.02},
            "arms": [{"arm": "fixed:3", "error": None, "replay_pct": figure(-3) | {"requests": 96}},
                     {"arm": "bad", "error": "it broke", "replay_pct": None}]}
    greedy = {"arm": "fixed:3", "requests": 8, "tokens": 256, "different": 1, "gap": 2.0, "lossless": False,
              "error": None}
    result = {"loads": [load], "greedy": [greedy], "plan": {
        "target": "t", "drafter_name": "d", "tokens": 8, "temperature": 1.0, "repeat": 2, "samples": 2,
        "dtype": "float32"},
        "requests": 4, "domains": {"math": 4}, "machine": {"device": "x", "software": "y"}, "date": "2026-01-01T"}
    header = ["arm", "predicted", "measured", "error", "within 10 %"]
    assert tables(result) == [("throughput, tokens/s, 4 at once", header,
                               [["fixed:3", "50 ± 1", "40 ± 1", "+25.0 % ± 1.0", "NO"]])]
    said = dict(sentences(result))
    assert sum(said.values()) == 3  # the drift, the broken arm, the loss
    assert any("accepts -3.0 ± 1.0 % (96 requests), more than chance" in text for text in said)
    assert any("off by fixed:3 -2.0 %" in text for text in said)
    assert any("NOT LOSSLESS" in text for text in said)
    assert "| fixed:3 | 50 ± 1 | 40 ± 1 | +25.0 % ± 1.0 | NO |" in section(result)


def test_prompts_of_a_corpus_and_of_files(world: Path, tmp_path: Path) -> None:
    target = tiny_target("gemma3", tokenizer=True)
    files = [world / "prompts.jsonl"]
    every = pick_prompts(files, target, 8, split="all")
    assert [p.domain for p in every[:4]] == ["math", "chat", "math", "chat"]
    held = {p.id for p in read_prompts(files) if p.held_out}
    assert {p.id for p in pick_prompts(files, target, 2)} == held
    assert [len(p.tokens) for p in pick_prompts(files, target, 2, split="all", longest=8)] == [4, 4]  # with templates
    documents = [Document(7 - i, "math", "held-out" if i > 1 else "train", np.array([2, 5 + i]), np.array([4]), True)
                 for i in (0, 1, 2, 3, 3)]
    (tmp_path / "corpus.json").write_text('{"format": "dspark-sim corpus 1"}', encoding="utf-8")
    write_part(tmp_path, 0, documents)
    assert [(p.id, p.tokens) for p in pick_prompts([tmp_path], target, 2)] == [(4, (2, 8)), (5, (2, 7))]
    write_part(tmp_path, 0, [replace(documents[3], prompt=np.array([2, 64]))])
    with pytest.raises(InputError, match="holds token 64"):
        pick_prompts([tmp_path], target, 1)


def test_the_picture_is_drawn_from_the_result_alone(tmp_path: Path) -> None:
    from dspark_sim.plots.live import draw_live

    def figure(mean: float, half: float | None) -> dict[str, float | None]:
        return {"mean": mean, "ci95_low": None if half is None else mean - half,
                "ci95_high": None if half is None else mean + half}

    records = [{"concurrency": c, "arm": arm, "quantity": q, "predicted": figure(3, 0.1), "measured": figure(2.9, half)}
               for c, half in ((1, None), (4, 0.2)) for arm in ("no_spec", "fixed:3") for q in QUANTITIES]
    result = {"format": FORMAT, "date": "2026-01-01T", "machine": {"device": "x"}, "requests": 4,
              "plan": {"target": "t", "drafter_name": "d", "tokens": 8, "temperature": 1.0, "repeat": 2, "samples": 2},
              "loads": [{"concurrency": c, "records": [r for r in records if r["concurrency"] == c]} for c in (1, 4)]}
    (tmp_path / "live.json").write_text(json.dumps(result), encoding="utf-8")
    [picture] = draw_live(tmp_path)
    assert picture.read_bytes()[:4] == b"\x89PNG"
    (tmp_path / "live.json").write_text("{}", encoding="utf-8")
    with pytest.raises(InputError, match="no result of `validate live`"):
        draw_live(tmp_path)


def test_cases_are_still_cases() -> None:
    done = CliRunner().invoke(app, ["validate", "--help"])
    assert "validate live --help" in " ".join(done.output.replace("│", " ").split())
    assert "--drafter" not in done.output
    assert "--drafter" in CliRunner().invoke(app, ["validate", "live", "--help"]).output
    assert "s1-staircas" in CliRunner().invoke(app, ["validate", "s1-staircas"]).output
