"""Profiles out of benchmark results: what a step is taken to be, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dspark_sim.cli import app
from dspark_sim.errors import InputError
from dspark_sim.importers.points import About, from_points
from dspark_sim.importers.sglang import read_sglang
from dspark_sim.importers.sps import read_sps
from dspark_sim.importers.vllm import Reading, read_vllm
from dspark_sim.profile import HardwareProfile, load_profile
from dspark_sim.profile_write import ProfileDraft, write_profile
from tests.bench_files import lines, one_batch, serve_sglang, serve_vllm, write

ABOUT = About("Toy", "1x Toy", 1, "a toy", "2026", "derived", "a test; x", "none")
SPEC: dict[str, Any] = {"spec_decode_acceptance_length": 2.5, "spec_decode_draft_tokens": 300,
                        "spec_decode_num_drafts": 100}


def profile(folder: Path, reading: Reading | ProfileDraft) -> HardwareProfile:
    draft = reading if isinstance(reading, ProfileDraft) else from_points(reading.points, ABOUT)
    return write_profile(draft, folder / "made")


def steps(reading: Reading) -> list[tuple[int, float]]:
    return [(p.batch_tokens, round(p.seconds, 9)) for p in reading.points]


# -- vLLM ------------------------------------------------------------------------------------------------------------
def test_without_speculation_a_step_is_a_tpot(tmp_path: Path) -> None:
    files = [str(write(tmp_path / f"{c}.json", serve_vllm(c, ms))) for c, ms in ((64, 20.0), (8, 10.0))]
    reading = read_vllm(files)
    assert steps(reading) == [(64, 0.02), (8, 0.01)]
    assert reading.date == "2026-03-01"
    made = profile(tmp_path, reading)
    assert made.verify(8) == 0.01
    assert (made.measured_context, made.max_num_seqs, made.max_num_batched_tokens) == (1100, 64, 64)
    assert steps(read_vllm(files, time="itl")) == [(64, 0.018), (8, 0.009)]


def test_with_speculation_a_step_is_tpot_times_acceptance_length(tmp_path: Path) -> None:
    files = [str(write(tmp_path / f"{c}.json", serve_vllm(c, ms, **SPEC))) for c, ms in ((8, 4.0), (16, 6.0))]
    reading = read_vllm(files)
    assert steps(reading) == [(32, 0.01), (64, 0.015)]  # 3 draft tokens and the anchor
    assert reading.drafted
    assert "x acceptance length (2.50)" in reading.assumptions[0]
    assert steps(read_vllm(files, time="itl")) == [(32, 0.0036), (64, 0.0054)]  # an ITL of vLLM is a step's gap


def test_in_an_open_loop_the_batch_is_what_was_decoding(tmp_path: Path) -> None:
    one = serve_vllm(4, 10.0, max_concurrency=None, request_rate=2.0, output_throughput=800.0)
    other = serve_vllm(4, 20.0, max_concurrency=None, request_rate=4.0, output_throughput=1000.0)
    assert steps(read_vllm([str(lines(tmp_path / "a.json", one, other))])) == [(8, 0.01), (20, 0.02)]


@pytest.mark.parametrize(("changes", "said"), [
    ({"mean_tpot_ms": ...}, "has no field mean_tpot_ms"),
    ({"mean_tpot_ms": "fast"}, "mean_tpot_ms: got 'fast'"),
    ({"mean_tpot_ms": -1.0}, "mean_tpot_ms: got -1.0"),
    ({"mean_tpot_ms": 10_000.0}, "a unit cannot be right"),
    ({"completed": 0}, "completed: got 0"),
    ({"completed": 10**400}, "completed: got 1000"),
    (SPEC | {"spec_decode_draft_tokens": 1e15, "spec_decode_num_drafts": 1e-300}, "spec_decode_num_drafts: got 1e-300"),
    ({"total_output_tokens": 100}, "with one there is no decode step"),
    ({"spec_decode_acceptance_length": 2.5}, "--draft-tokens K"),
    (SPEC | {"spec_decode_acceptance_length": 4.5}, "got 4.5 with 3 draft tokens; allowed: 1 to 4"),
    (SPEC | {"spec_decode_num_drafts": 120}, "lengths that change cannot be put on one curve"),
    (SPEC, "their steps do not lie on one curve"),
    ({"max_concurrency": 8, "output_throughput": 800.0}, "8 batch tokens stand twice, in 8.json and x.json"),
])
def test_a_result_of_vllm_that_cannot_be_is_refused(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    good = write(tmp_path / "8.json", serve_vllm(8, 10.0))
    bad = write(tmp_path / "x.json", serve_vllm(16, 10.0, **changes))
    with pytest.raises(InputError) as caught:
        profile(tmp_path, read_vllm([str(good), str(bad)]))
    assert said in str(caught.value)
    assert "x.json" in str(caught.value)
    assert not (tmp_path / "made").exists()


def test_seconds_in_place_of_milliseconds_are_noticed(tmp_path: Path) -> None:
    files = [str(write(tmp_path / f"{c}.json", serve_vllm(c, 0.01))) for c in (8, 16)]
    with pytest.raises(InputError, match="the unit cannot be right"):
        profile(tmp_path, read_vllm(files))


def latency(path: Path, seconds: float) -> Path:
    return write(path, {"avg_latency": seconds, "latencies": [seconds] * 3, "percentiles": {"50": seconds}})


def test_bench_latency_of_two_lengths_has_no_prefill_in_it(tmp_path: Path) -> None:
    for batch, step in ((1, 0.01), (8, 0.02)):
        for output in (64, 128):
            latency(tmp_path / f"{batch}-{output}.json", 0.3 + step * output)
    files = [f"{tmp_path}/{b}-{o}.json={b}/{o}" for b in (1, 8) for o in (64, 128)]
    assert steps(read_vllm(files)) == [(1, 0.01), (8, 0.02)]
    alone = read_vllm([f"{tmp_path}/{b}-128.json={b}" for b in (1, 8)], output_len=128)
    assert steps(alone)[0] == (1, round(0.01 + 0.3 / 128, 9))
    assert "as if prefill took one step" in " ".join(alone.assumptions)
    for words, said in ((files[:1] * 2, "batch 1 stands 2 times"),
                        ([*files[:1], str(tmp_path / "8-64.json")], "for all"),
                        ([files[0].rpartition("/")[0]], "does not say how many tokens"),
                        ([f"{tmp_path}/1-64.json=1/1"], "2 or more tokens")):
        with pytest.raises(InputError, match=said):
            read_vllm(words)
    for odd in (1.0, 10**400, True):
        write(tmp_path / "odd.json", {"avg_latency": 5.0, "latencies": [odd], "percentiles": {}})
        with pytest.raises(InputError, match="not the mean of latencies"):
            read_vllm([f"{tmp_path}/odd.json=1/8"])


# -- SGLang ----------------------------------------------------------------------------------------------------------
def test_bench_one_batch_gives_steps_and_a_cost_per_kv_token(tmp_path: Path) -> None:
    rows = [one_batch(b, 0.01 + 1e-4 * b + 1e-8 * b * (i + 16), i) for b in (1, 8, 64) for i in (512, 4096)]
    reading = read_sglang([lines(tmp_path / "r.jsonl", *rows)])
    assert reading.kind == "measured"
    made = profile(tmp_path, reading)
    assert made.per_kv_token == pytest.approx(1e-8)
    cost = made.step_cost(drafter=None, block_size=1, max_requests=64, max_tokens=64)
    assert cost.step(64, 64, 64 * 2000, 0) == pytest.approx(0.01 + 64e-4 + 64e-8 * 2000)


def test_longer_contexts_are_brought_to_the_curves_own(tmp_path: Path) -> None:
    """Only batch 4 was measured at a longer context; the curve is at the median one."""
    rows = [one_batch(b, 0.01 + 1e-4 * b + 1e-7 * b * (i + 16), i) for b, i in ((4, 512), (4, 4096), (8, 512))]
    made = profile(tmp_path, read_sglang([lines(tmp_path / "r.jsonl", *rows)]))
    assert made.measured_context == 528
    assert [made.verify(b) for b in (4, 8)] == pytest.approx([0.0104 + 4e-7 * 528, 0.0108 + 8e-7 * 528], rel=1e-4)


def test_bench_serving_multiplies_either_figure(tmp_path: Path) -> None:
    rows = [serve_sglang(c, 5.0, accept_length=2.0) for c in (4, 8)]
    file = lines(tmp_path / "s.jsonl", *rows)
    assert steps(read_sglang([file], draft_tokens=3)) == [(16, 0.01), (32, 0.01)]
    assert steps(read_sglang([file], draft_tokens=3, time="itl")) == [(16, 0.009), (32, 0.009)]
    with pytest.raises(InputError, match="--draft-tokens K"):
        read_sglang([file])
    with pytest.raises(InputError, match="says that it drafted"):
        read_sglang([lines(tmp_path / "n.jsonl", serve_sglang(4, 5.0))], draft_tokens=3)


def test_lines_that_cannot_be_are_refused(tmp_path: Path) -> None:
    good = one_batch(8, 0.01)
    for bad, said in ((one_batch(8, 0.02), "stand twice, in r.jsonl:1 and r.jsonl:2"),
                      (one_batch(16, 10.0, median_decode_throughput=1600.0), "r.jsonl:2.* unit cannot be right"),
                      (one_batch(16, 0.01, input_len=...), "r.jsonl:2: has no field input_len"),
                      (one_batch(16, 0.01, batch_size=1.5), "whole number"),
                      (serve_sglang(8, 5.0), "is a result of sglang.bench_serving, not of sglang.bench_one_batch")):
        with pytest.raises(InputError, match=said):
            profile(tmp_path, read_sglang([lines(tmp_path / "r.jsonl", good, bad)]))
    with pytest.raises(InputError, match="one size only"):
        profile(tmp_path, read_sglang([lines(tmp_path / "r.jsonl", good)]))


@pytest.mark.parametrize(("data", "said"), [
    (one_batch(1, 0.1), "dspark-sim profile import sglang"),
    ({"avg_latency": 1.0, "latencies": [1.0]}, "profile import vllm FILE=BATCH"),
    ({"sample_batch_tokens": [1], "sample_steps_per_sec": [1.0], "max_batch_tokens": 1}, "profile import sps"),
    ({"elapsed_time": 1.0, "tokens_per_second": 5.0}, "vllm bench throughput is not read"),
    ({"token_counts": [1], "step_time_ms": [1.0]}, "cost table of TensorRT-LLM"),
    ({"hello": 1}, "no result of vllm bench serve; it has the fields 'hello'"),
])
def test_a_file_of_another_tool_is_named(tmp_path: Path, data: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as caught:
        read_vllm([str(write(tmp_path / "x.json", data))])
    assert said in str(caught.value)


@pytest.mark.parametrize(("text", "said"), [
    ("", "is empty"), ("{", "x.json:1: is not JSON"), ("[1, 2]", "allowed: JSON objects"), ('{"a": 1}\n{', "x.json:2"),
    ("\x00\x01", "is not JSON"),
])
def test_a_damaged_file_is_named(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(InputError) as caught:
        read_vllm([str(tmp_path / "x.json")])
    assert said in str(caught.value)
    with pytest.raises(InputError, match="cannot be read"):
        read_vllm([str(tmp_path / "none.json")])


# -- SGLang's SPS table ----------------------------------------------------------------------------------------------
DIAGONAL = {"sample_batch_tokens": [8, 16, 64], "sample_steps_per_sec": [100.0, 80.0, 50.0], "max_batch_tokens": 128}
ADDITIVE = {"bias_seconds": 0.01, "bs_probes": [8, 16], "alpha_seconds": [0.0, 0.002], "m_probes": [16, 64],
            "theta_seconds": [0.0, 0.005]}


def test_steps_per_second_become_seconds(tmp_path: Path) -> None:
    made = profile(tmp_path, read_sps(write(tmp_path / "t.json", DIAGONAL), ABOUT))
    assert [made.verify(b) for b in (1, 8, 16, 64)] == [0.01, 0.01, 0.0125, 0.02]


def test_the_additive_table_adds_up_as_sglang_does(tmp_path: Path) -> None:
    made = profile(tmp_path, read_sps(write(tmp_path / "t.json", ADDITIVE), ABOUT))
    cost = made.step_cost(drafter=None, block_size=3, max_requests=16, max_tokens=64)
    for r, b, expected in ((1, 4, 0.01), (8, 16, 0.01), (16, 64, 0.017), (12, 40, 0.0135)):
        assert cost.step(b, r, 0, 0) == pytest.approx(expected)
    shifted = ADDITIVE | {"alpha_seconds": [-0.001, 0.001], "theta_seconds": [0.001, 0.006]}
    again = write_profile(read_sps(write(tmp_path / "u.json", shifted), ABOUT), tmp_path / "again")
    other = again.step_cost(drafter=None, block_size=3, max_requests=16, max_tokens=64)
    assert other.step(40, 12, 0, 0) == pytest.approx(0.0135)


@pytest.mark.parametrize(("changes", "said"), [
    ({"sample_batch_tokens": [8, 8, 64]}, "8 stands twice"),
    ({"sample_batch_tokens": [16, 8, 64]}, "8 stands after 16"),
    ({"sample_batch_tokens": [8, 16]}, "has 3 values for 2 sizes"),
    ({"sample_batch_tokens": [8, 16.5, 64]}, "whole numbers"),
    ({"sample_steps_per_sec": [100.0, 0.0, 50.0]}, "the unit cannot be right"),
    ({"sample_steps_per_sec": [1e7, 9e6, 8e6]}, "the unit cannot be right"),
    ({"sample_steps_per_sec": ["a", 1, 2]}, "allowed: numbers"),
    ({"sample_batch_tokens": [1], "sample_steps_per_sec": [1.0]}, "placeholder"),
])
def test_a_table_that_cannot_be_is_refused(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as caught:
        read_sps(write(tmp_path / "t.json", DIAGONAL | changes), ABOUT)
    assert said in str(caught.value)
    with pytest.raises(InputError, match="not of SGLang's SPS table"):
        read_sps(write(tmp_path / "t.json", serve_vllm(8, 10.0)), ABOUT)


# -- the command -----------------------------------------------------------------------------------------------------
def run(*words: object) -> Any:
    return CliRunner().invoke(app, ["profile", "import", *map(str, words)])


def test_the_command_writes_a_profile_that_says_what_was_assumed(tmp_path: Path) -> None:
    files = [write(tmp_path / f"{c}.json", serve_vllm(c, ms, **SPEC)) for c, ms in ((8, 4.0), (16, 6.0))]
    words = ["vllm", *files, "--out", tmp_path / "mine", "--model", "Toy", "--device", "1x Toy", "--gpus", "2"]
    got = run(*words)
    assert got.exit_code == 0, got.output
    assert "TPOT" in got.output
    made = load_profile(tmp_path / "mine")
    assert (made.gpus, made.provenance.kind, made.provenance.date) == (2, "derived", "2026-03-01")
    assert made.drafters["drafter"](8, 3) == 0.0
    assert "vllm bench serve; 8.json, 16.json" in made.provenance.source
    before = (tmp_path / "mine" / "verify.csv").read_bytes()
    again = run(*words)
    assert again.exit_code == 2
    assert "--force" in again.output
    write(files[0], serve_vllm(8, 5.0, **SPEC))
    assert run(*words, "--force").exit_code == 0
    assert (tmp_path / "mine" / "verify.csv").read_bytes() != before
    write(files[0], {})
    assert run(*words, "--force").exit_code == 2
    assert load_profile(tmp_path / "mine").verify.last == 64  # a failed import loses nothing
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    write(files[0], serve_vllm(8, 5.0, **SPEC))
    assert "notes.txt" in run(*words, "--force").output
    assert sorted(p.name for p in tmp_path.iterdir() if p.name.startswith(".")) == []


def test_a_profile_that_the_loader_refuses_is_told_without_a_file_that_is_gone(tmp_path: Path) -> None:
    table = write(tmp_path / "t.json", DIAGONAL)
    got = run("sps", table, "--out", tmp_path / "made", "--model", "m", "--device", "d", "--drafter", "<script>")
    assert got.exit_code == 2
    assert "a drafter's name" in got.output
    assert ".tmp" not in got.output
    assert [p.name for p in tmp_path.iterdir()] == ["t.json"]


def test_sglang_and_sps_have_their_commands(tmp_path: Path) -> None:
    file = lines(tmp_path / "r.jsonl", *(one_batch(b, 0.01 + 1e-4 * b) for b in (1, 8)))
    about = ["--model", "Toy", "--device", "1x Toy"]
    assert run("sglang", file, "--out", tmp_path / "a", *about).exit_code == 0
    assert load_profile(tmp_path / "a").provenance.kind == "measured"
    assert run("sps", write(tmp_path / "t.json", DIAGONAL), "--out", tmp_path / "b", *about).exit_code == 0
    assert set(load_profile(tmp_path / "b").drafters) == {"dspark"}
    assert run("sps", tmp_path / "t.json", "--out", tmp_path / "a.txt", *about, "--drafter", "none").exit_code == 0
    assert not load_profile(tmp_path / "a.txt").drafters
