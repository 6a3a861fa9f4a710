"""Profiles out of operator times: what is made of the answers, with a small engine in the package's place."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from dspark_sim.cli import app
from dspark_sim.errors import InputError, ProfileError
from dspark_sim.importers import operators
from dspark_sim.importers.derive import Options, derive, fit_attention, target_sizes
from dspark_sim.importers.graphs import capture_sizes
from dspark_sim.importers.operators import CONTEXTS, REQUESTS, ask
from dspark_sim.importers.sheet import Shape, Sheet, read_sheet
from dspark_sim.profile import HardwareProfile
from dspark_sim.profile_write import write_profile
from dspark_sim.shelves import HARDWARE_PROFILES, shelf

SHAPE = Shape(layers=4, hidden=64, intermediate=128, heads=8, kv_heads=2, head_dim=8, vocabulary=1000, tied=False)
ABOUT = {"model": "maker/Toy-1B", "system": "toy_sxm", "device": "Toy", "backend": "vllm", "backend_version": "1",
         "package": "none 0", "tp": 1, "weights": "bf16", "shape": SHAPE, "memory_bytes": 10**8,
         "reserved_bytes": 10**6}
INSTALLED = importlib.util.find_spec("aiconfigurator_core") is not None


class ToyEngine:
    """Times in ms that can be computed by heart; ``nextn`` does not exist, so it cannot be used."""

    def decode_step_per_op(self, gen_tokens: int, isl: int, osl: int) -> list[tuple[str, float, float, str]]:
        b, kv = gen_tokens, gen_tokens * isl
        return [("generation_embedding", 0.5, 0.0, "empirical"),
                ("generation_qkv_gemm", 4 * (1 + 0.01 * b), 0.0, "silicon"),
                ("generation_attention", 0.2 + 0.01 * b + 1e-5 * kv, 0.0, "silicon"),
                ("generation_logits_gemm", 0.3 + 0.001 * b, 0.0, "silicon"), ("generation_p2p", 0.0, 0.0, "empirical")]

    def evaluate_ops_json(self, ops_json: str, *, is_context: bool, batch_size: int, s: int) -> list[Any]:
        (op,) = json.loads(ops_json)
        assert not is_context
        weights = op["Gemm"]["n"] * op["Gemm"]["k"] if "Gemm" in op else op["Elementwise"]["bytes_per_token"]
        return [("x", 1e-6 * weights + 1e-4 * batch_size, 0.0, "silicon")]

    def predict_prefill_latency(self, bs: int, isl: int) -> float:
        return bs * isl / 100


def sheet(options: Options) -> Sheet:
    return ask(ToyEngine(), dict(ABOUT), target_sizes(options), options.blocks)


def made(folder: Path, **changes: Any) -> HardwareProfile:
    options = Options(**changes)
    return write_profile(derive(sheet(options), options), folder / "toy")


def test_a_step_is_the_tokens_part_and_each_requests_context_read_once(tmp_path: Path) -> None:
    profile = made(tmp_path, host_ms=2.0, graphs="none")
    cost = profile.step_cost(drafter=None, block_size=7, max_requests=64, max_tokens=2048)
    for r, width, context in ((1, 1, 0), (8, 1, 500), (8, 8, 500), (64, 8, 4000)):
        b, kv = r * width, r * context
        expected = 0.5 + 4 * (1 + 0.01 * b) + 0.3 + 0.001 * b + 0.2 + 0.01 * r + 1e-5 * kv + 2.0
        assert 1e3 * cost.step(b, r, kv, 0) == pytest.approx(expected, rel=1e-4)  # the width is in b, not in kv


def test_graphs_pad_and_above_them_eager_steps_pay(tmp_path: Path) -> None:
    profile = made(tmp_path, eager_ms=3.0, max_num_batched_tokens=1024)
    assert profile.verify.graph_limit == 512
    assert profile.verify(9) == profile.verify(16) < profile.verify(17)
    jump = profile.verify(513) - profile.verify(512)
    assert jump == pytest.approx(3e-3 + 0.041e-3, rel=0.01)


def test_vllm_captures_these_sizes() -> None:
    sizes = capture_sizes("vllm")
    assert sizes[:5] == [1, 2, 4, 8, 16]
    assert (len(sizes), sizes[34], sizes[-1]) == (51, 256, 512)
    assert capture_sizes("vllm:20") == [1, 2, 4, 8, 16]
    assert capture_sizes("1, 3,9") == [1, 3, 9]
    assert capture_sizes("none") == []
    for bad in ("", "vllm:", "vllm:0", "none:1", "4,2", "4,4", "1,x", "0", "-1"):
        with pytest.raises(InputError, match="--graph-sizes"):
            capture_sizes(bad)


def test_drafters_are_priced_by_the_same_answers(tmp_path: Path) -> None:
    profile = made(tmp_path, blocks=(7, 3), draft_context=100)
    assert set(profile.drafters) == {"dspark", "dflash", "dspark-3", "dflash-3", "eagle3"}

    def product(n: int, k: int, m: int) -> float:
        return 1e-6 * n * k + 1e-4 * m

    r = 8
    attention = (0.2 + 0.01 * r + 1e-5 * r * 100) / 4
    block = 5 * (1 + 0.01 * r * 7 + attention) + 0.3 + 0.001 * r * 7
    block += product(64, 320, r * 8) + 5 * product(32, 64, r * 8)
    per_token = product(1000, 256, r) + 3 * (1e-6 * 4000 + 1e-4 * r)
    cost = profile.step_cost(drafter="dspark-7", block_size=7, max_requests=8, max_tokens=64)
    assert 1e3 * cost.draft_seconds(r, 7) == pytest.approx(block + 7 * per_token, rel=1e-4)
    eagle = 1 + 0.01 * r + product(96, 64, r) + attention + product(32_000, 64, r)
    cost = profile.step_cost(drafter="eagle3", block_size=7, max_requests=8, max_tokens=64)
    assert 1e3 * cost.draft_seconds(r, 3) == pytest.approx(3 * eagle, rel=1e-4)
    assert all("not measured" in note for note in profile.drafter_notes.values())
    assert not made(tmp_path / "none", blocks=()).drafters


def test_everything_added_is_said(tmp_path: Path) -> None:
    profile = made(tmp_path, host_ms=2.5, eager_ms=0.25, memory_share=0.8)
    said = " ".join(profile.provenance.assumptions)
    for words in ("--host-ms 2.5", "--graph-sizes vllm", "--eager-ms 0.25", "nextn", "80% of 0 GB", "embedding",
                  "512 tokens", "10 us R"):
        assert words in said, words
    assert profile.provenance.kind == "derived"
    assert profile.price_per_gpu_hour is None
    weights = 4 * (64 * 8 * 20 + 3 * 64 * 128) * 2 + 2 * 1000 * 64 * 2
    assert profile.kv_blocks == int((0.8 * 10**8 - 10**6 - weights) / (2 * 2 * 4 * 2 * 8 * 16))


def test_the_fit_finds_what_made_the_answers() -> None:
    fit = fit_attention(sheet(Options()))
    assert (fit.floor, fit.alpha, fit.kappa) == pytest.approx((0.2, 0.01, 1e-5), rel=1e-3)
    assert fit.worst < 1e-3


def test_a_sheet_comes_back_as_it_was(tmp_path: Path) -> None:
    before = sheet(Options())
    (tmp_path / "source.csv").write_text(before.to_csv())
    assert read_sheet(tmp_path / "source.csv") == before
    assert len(before.rows["attention"]) == sum(r * c <= 600_000 for r in REQUESTS for c in CONTEXTS)
    for text in ("", "part,size,context,ms\n", before.to_csv().replace('"tp": 1', '"tq": 1'), "# sheet {\n"):
        (tmp_path / "bad.csv").write_text(text)
        with pytest.raises(ProfileError, match="no sheet of operator times"):
            read_sheet(tmp_path / "bad.csv")
    with pytest.raises(ProfileError, match="not at 9999"):
        before.ms("target", [9999])


def test_what_does_not_fit_is_refused() -> None:
    options = Options()
    small = dataclasses.replace(sheet(options), memory_bytes=10**6)
    with pytest.raises(InputError, match="leave no room for KV"):
        derive(small, options)
    with pytest.raises(InputError, match="largest graph has 512 tokens"):
        target_sizes(Options(max_num_batched_tokens=256))

    class Latent(ToyEngine):
        def decode_step_per_op(self, gen_tokens: int, isl: int, osl: int) -> list[tuple[str, float, float, str]]:
            return [("generation_mla_block", 1.0, 0.0, "silicon")]

    with pytest.raises(InputError, match="no operator generation_attention"):
        ask(Latent(), dict(ABOUT), [1, 2], (7,))


def test_the_shelf_reads_each_requests_context_once() -> None:
    """64 requests, 16,384 tokens of context, width 8: what attention as 512 requests would cost, we do not charge."""
    tool = runpy.run_path(str(Path(__file__).resolve().parent.parent / "tools" / "make_derived_profiles.py"))
    for name in tool["ENGINES"]:
        answers = read_sheet(shelf(HARDWARE_PROFILES) / name / "source.csv")
        fit = fit_attention(answers)
        assert fit.worst < 0.07
        wide = float(fit.ms(np.array([512.0]), 16384)[0])
        assert float(fit.ms(np.array([64.0]), 16384)[0]) < wide / 7.5
        assert "target" in answers.rows
        assert answers.package == "aiconfigurator-core 0.12.0"


# -- the package itself ----------------------------------------------------------------------------------------------
def run(*words: str) -> Any:
    return CliRunner().invoke(app, ["profile", "import", "aiconfigurator", *words])


def test_without_the_package_the_command_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiconfigurator_core", None)
    with pytest.raises(InputError, match="needs the package aiconfigurator-core") as caught:
        operators.connect("Qwen/Qwen3-8B", "h200")
    assert "dspark-sim[aiconfigurator]" in str(caught.value)
    got = run("--model", "Qwen/Qwen3-8B", "--gpu", "h200", "--out", str(tmp_path / "p"))
    assert got.exit_code == 2
    assert not (tmp_path / "p").exists()


@pytest.mark.skipif(not INSTALLED, reason="needs the extra aiconfigurator (114 MB), which the tests do without")
def test_the_package_still_gives_the_answers_of_the_shelf(tmp_path: Path) -> None:
    for model, gpu, more, said in (("Qwen/Qwen3-9B", "h200", {}, "did you mean 'Qwen/Qwen3-8B'"),
                                   ("Qwen/Qwen3-32B-FP8", "h200", {}, "has quantised weights"),
                                   ("Qwen/Qwen3-8B", "h2oo", {}, "no GPU 'h2oo'"),
                                   ("Qwen/Qwen3-8B", "h200", {"backend": "tgi"}, "cannot answer"),
                                   ("Qwen/Qwen3-8B", "h200", {"version": "0.1"}, "cannot answer"),
                                   ("Qwen/Qwen3-8B", "h200", {"tp": 3}, "cannot answer"),
                                   ("deepseek-ai/DeepSeek-V3", "h200", {}, "no dense model")):
        with pytest.raises(InputError) as caught:
            operators.connect(model, gpu, **more)  # type: ignore[arg-type]
        assert said in str(caught.value)
    options = Options()
    engine, about = operators.connect("Qwen/Qwen3-8B", "h200")
    if about["package"] == "aiconfigurator-core 0.12.0":
        new = ask(engine, about, target_sizes(options), options.blocks)
        assert new == read_sheet(shelf(HARDWARE_PROFILES) / "h200-qwen3-8b" / "source.csv")
