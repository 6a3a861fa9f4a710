"""``profile measure``: what is timed is a step, points survive a kill, and the profile holds what was measured."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from dspark_sim.cli import app
from dspark_sim.errors import InputError
from dspark_sim.lab import step_timer, stopwatch
from dspark_sim.lab.held_cache import held_cache
from dspark_sim.lab.measure import Request, measure, points_path, sizes
from dspark_sim.lab.points_file import PointsFile, TimedPoint
from dspark_sim.lab.step_timer import rectangle
from dspark_sim.lab.stopwatch import OutOfMemory, Timing, timed
from dspark_sim.profile import HardwareProfile, load_profile
from dspark_sim.profile_write import write_profile
from tests.lab_models import tiny_target

CONFIG = {"model_type": "qwen3", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 6, "vocab_size": 100,
          "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
REAL = step_timer.StepTimer._time
QUIET: Callable[[str], None] = lambda line: None  # noqa: E731


@pytest.fixture
def config(tmp_path: Path) -> str:
    (tmp_path / "tiny.json").write_text(json.dumps(CONFIG))
    return str(tmp_path / "tiny.json")


def request_of(config: str, **changes: Any) -> Request:
    small: dict[str, Any] = {"device": "cpu", "tokens": (1, 2, 8), "contexts": (4, 20), "requests": (1, 2), "repeat": 3,
                             "layers": 2, "block": 3, "width": 4, "command": "none"}
    return Request(config, **(small | changes))


class Clock:
    """Stands for the stopwatch: every call gets the time that ``rule`` says, and what was timed is written down."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, rule: Callable[[TimedPoint], float | BaseException]) -> None:
        self.seen: list[TimedPoint] = []
        def asked(timer: Any, point: TimedPoint) -> Timing:
            self.seen.append(point)
            return REAL(timer, point)

        def answer(call: Callable[[], object], **options: Any) -> Timing:
            with torch.inference_mode():
                call()  # it must work, whatever it is said to take
            found = rule(self.seen[-1])
            if isinstance(found, BaseException):
                raise found
            return Timing(found, 0.9 * found, 1.2 * found, options["repeat"], "eager")

        monkeypatch.setattr(step_timer.StepTimer, "_time", asked)
        monkeypatch.setattr(step_timer, "timed", answer)


def seconds(p: TimedPoint) -> float:
    """10 ms and 1 ms per token, 1 us per KV token; drafters 1 ms per request, 0.6 ms for a block's tokens."""
    if p.part == "verify":
        return 0.01 + 1e-3 * p.tokens + 1e-6 * p.requests * p.context
    return 6e-4 if p.part.startswith("token") else 1e-3 * p.requests


def made(folder: Path, request: Request) -> HardwareProfile:
    return write_profile(measure(request, folder / "made", QUIET), folder / "made")


# -- what is timed ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("family", ["qwen3", "gemma3"])
def test_a_step_over_the_held_cache_is_the_step_of_a_real_one(family: str) -> None:
    """Full and sliding layers: the same hidden states as after a real prefill, also when asked twice."""
    target = tiny_target(family)
    ids = torch.randint(64, (2, 20), generator=torch.Generator().manual_seed(0))
    expected = target.forward(ids).last[:, 16:]
    cache = held_cache(target.config, requests=2, context=16, width=4, device=target.device, dtype=target.dtype)
    filled: Any = target.forward(ids[:, :16], keep=True).cache
    for layer, real in zip(cache.layers, filled.layers, strict=True):
        layer.keys[:, :, : layer.past] = real.keys[:, :, -layer.past:]
        layer.values[:, :, : layer.past] = real.values[:, :, -layer.past:]
    positions = torch.arange(16, 20).expand(2, -1)
    for _ in range(2):
        got = target.forward(ids[:, 16:], cache=cache, positions=positions).last
        torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)


def test_a_batch_is_the_widest_rectangle() -> None:
    assert [rectangle(b, 4) for b in (1, 2, 4, 6)] == [(1, 1), (1, 2), (1, 4), (2, 3)]
    assert [rectangle(b, 4) for b in (7, 8, 64)] == [(7, 1), (2, 4), (16, 4)]


def test_the_stopwatch_gives_median_and_quartiles(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(100))
    now = {"t": 0.0}
    monkeypatch.setattr(stopwatch.time, "perf_counter", lambda: now["t"])

    def call() -> None:
        now["t"] += next(ticks)

    found = timed(call, device=torch.device("cpu"), repeat=5, graph=True)  # after a warm-up of 3: 3, 4, 5, 6, 7
    assert (found.low, found.median, found.high, found.repeats, found.mode) == (4.0, 5.0, 6.0, 5, "eager")

    def full() -> None:
        raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes")

    with pytest.raises(OutOfMemory):
        timed(full, device=torch.device("cpu"), repeat=3, graph=False)


# -- the profile -----------------------------------------------------------------------------------------------------
def test_the_profile_holds_what_was_timed(tmp_path: Path, config: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Clock(monkeypatch, seconds)
    profile = made(tmp_path, request_of(config))
    assert profile.provenance.kind == "measured"
    assert (profile.measured_context, profile.max_num_seqs, profile.max_num_batched_tokens) == (4, 2, 8)
    assert profile.per_kv_token == pytest.approx(1e-6)
    assert profile.verify(8) == pytest.approx(0.018 + 8e-6)
    cost = profile.step_cost(drafter="dspark", block_size=3, max_requests=2, max_tokens=8)
    assert cost.step(8, 2, 2 * 20, 3) == pytest.approx(0.018 + 40e-6 + 2e-3 + 6e-4)
    eagle = profile.step_cost(drafter="eagle3", block_size=3, max_requests=2, max_tokens=8)
    assert eagle.draft_seconds(2, 3) == pytest.approx(2e-3)  # a round of 3 tokens took 2 ms
    assert eagle.draft_seconds(2, 1) == pytest.approx(2e-3 / 3)
    rows = (tmp_path / "made" / "verify.csv").read_text().splitlines()
    assert rows[0] == "batch_tokens,seconds,p25,p75,repeats,mode,requests,context"
    assert rows[2] == "2,0.012004,0.0108036,0.0144048,3,eager,1,4"
    said = " ".join(profile.provenance.assumptions)
    assert "random weights" in profile.provenance.model
    assert "ns per KV token beyond 4" in said


def test_falling_times_are_kept_as_they_are(tmp_path: Path, config: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Clock(monkeypatch, lambda p: 0.02 - 1e-3 * p.tokens if p.part == "verify" else 1e-3)
    profile = made(tmp_path, request_of(config, drafters=("eagle3",), contexts=(4,)))
    assert [profile.verify(b) for b in (1, 2, 8)] == [0.019, 0.018, 0.012]
    assert profile.verify.extrapolate is None
    assert "One context only" in " ".join(profile.provenance.assumptions)


def test_what_does_not_fit_is_skipped_and_said(tmp_path: Path, config: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, lambda p: OutOfMemory() if p.tokens * p.context >= 80 or "eagle3" in p.part
                  else seconds(p))
    profile = made(tmp_path, request_of(config, tokens=(1, 2, 4, 8)))
    assert profile.max_num_batched_tokens == 8
    assert "eagle3" not in profile.drafters
    assert sum(p.part == "verify" and p.context == 20 and p.tokens == 8 for p in clock.seen) == 0  # 4 did not fit
    assert "skipped, out of memory among them" in " ".join(profile.provenance.assumptions)
    Clock(monkeypatch, lambda p: OutOfMemory())
    with pytest.raises(InputError, match="only 0 verify steps have a time"):
        measure(request_of(config), tmp_path / "other", QUIET)
    assert points_path(tmp_path / "other").exists()


# -- stopped and gone on ---------------------------------------------------------------------------------------------
def test_a_stopped_measurement_goes_on_where_it_was(tmp_path: Path, config: str,
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    request, out = request_of(config), tmp_path / "made"
    stops = Clock(monkeypatch, lambda p: KeyboardInterrupt() if p.part.startswith("token") else seconds(p))
    with pytest.raises(KeyboardInterrupt):
        measure(request, out, QUIET)
    kept = points_path(out)
    with kept.open("a") as file:
        file.write('{"part": "verify", "tok')  # killed while it wrote
    goes_on = Clock(monkeypatch, seconds)
    profile = write_profile(measure(request, out, QUIET), out)
    assert goes_on.seen[0].key == stops.seen[-1].key
    assert len(goes_on.seen) + len(stops.seen) == 6 + 2 * 5 + 1
    again = Clock(monkeypatch, seconds)
    measure(request, out, QUIET)
    assert again.seen == []
    assert profile.verify(8) == pytest.approx(0.018 + 8e-6)


def test_points_of_another_measurement_are_not_mixed_in(tmp_path: Path, config: str,
                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    Clock(monkeypatch, seconds)
    measure(request_of(config), tmp_path / "made", QUIET)
    before = points_path(tmp_path / "made").read_bytes()
    for changes, said in (({"dtype": "bfloat16"}, "points of dtype 'float32', not 'bfloat16'"),
                          ({"block": 2}, "points of block 3, not 2"), ({"repeat": 5}, "points of repeat 3, not 5")):
        with pytest.raises(InputError, match=said):
            measure(request_of(config, **changes), tmp_path / "made", QUIET)
    assert points_path(tmp_path / "made").read_bytes() == before
    for text in ("something else\n", "something else", "[" * 100_000 + "\n", '{"format": "no"}\n',
                 '{"format": "dspark-sim timed points 1"}\n', '{"format": "dspark-sim timed points 1", '
                 '"about": {}}\n{"part": 1}\n'):
        (tmp_path / "x.jsonl").write_text(text)
        with pytest.raises(InputError, match="holds"):
            PointsFile(tmp_path / "x.jsonl", {"model": "m"})
        assert (tmp_path / "x.jsonl").read_text() == text


# -- mistakes --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("changes", "said"), [
    ({"model": "qwen3-8B"}, "did you mean 'qwen3-8b'"),
    ({"dtype": "int8"}, "dtype 'int8'"),
    ({"tokens": (2, 4)}, "--tokens: starts at 2"),
    ({"tokens": (1,)}, "--tokens: one size only"),
    ({"requests": (2,)}, "--requests: starts at 2"),
    ({"drafters": ("dsprak",)}, "did you mean 'dspark'"),
    ({"drafters": ("mine=",)}, "NAME=FOLDER"),
    ({"drafters": ("mine=./none",)}, "no drafter"),
    pytest.param({"device": "cuda"}, "no CUDA device here",
                 marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")),
    ({"device": "tpu"}, "device 'tpu'"),
])
def test_mistakes_are_told(tmp_path: Path, config: str, changes: dict[str, Any], said: str) -> None:
    model = changes.pop("model", config)
    with pytest.raises(InputError) as caught:
        measure(request_of(model, **changes), tmp_path / "made", QUIET)
    assert said in str(caught.value)
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"hidden_size": 4}', '{"model_type": "nothing"}',
                                  '{"model_type": "qwen3", "hidden_size": "wide"}'])
def test_a_configuration_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(InputError, match=r"config\.json"):
        measure(request_of(str(tmp_path / "config.json")), tmp_path / "made", QUIET)


def test_lists_of_sizes() -> None:
    assert sizes(["1,2", "4"], "--tokens") == (1, 2, 4)
    for bad in (["0,1"], ["2,1"], ["1,1"], ["1,x"], [""], ["1.5"]):
        with pytest.raises(InputError, match="--tokens"):
            sizes(bad, "--tokens")


# -- the command -----------------------------------------------------------------------------------------------------
def run(*words: object) -> Any:
    return CliRunner().invoke(app, ["profile", "measure", *map(str, words)])


def test_the_command_measures_for_real_and_run_accepts_it(tmp_path: Path, config: str) -> None:
    words = [config, "--out", tmp_path / "mine", "--device", "cpu", "--threads", "1", "--tokens", "1,2,8", "--context",
             "4", "--requests", "1,2", "--repeat", "3", "--drafter", "dspark", "--block", "3", "--draft-layers", "1"]
    got = run(*words)
    assert got.exit_code == 0, got.output
    profile = load_profile(tmp_path / "mine")
    assert profile.verify(8) > 0
    assert set(profile.drafters) == {"dspark"}
    assert not points_path(tmp_path / "mine").exists()
    cost = profile.step_cost(drafter="dspark-3", block_size=3, max_requests=2, max_tokens=8)
    assert cost.step(8, 2, 100) > cost.verify(8, 2, 100) > 0
    again = run(*words)
    assert again.exit_code == 2
    assert "--force" in again.output


def test_a_measurement_that_is_stopped_says_how_to_go_on(tmp_path: Path, config: str,
                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    Clock(monkeypatch, lambda p: KeyboardInterrupt() if p.tokens == 8 else seconds(p))
    got = run(config, "--out", tmp_path / "mine", "--device", "cpu", "--tokens", "1,2,8", "--drafter", "none", "-q")
    assert got.exit_code == 130
    assert "the points so far are kept in" in got.output
    assert not (tmp_path / "mine").exists()


def test_without_torch_the_command_says_what_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "dspark_sim.lab.measure")
    monkeypatch.setitem(sys.modules, "torch", None)
    got = run("qwen3-4b", "--out", tmp_path / "mine")
    assert got.exit_code == 2
    assert "dspark-sim[lab]" in got.output
