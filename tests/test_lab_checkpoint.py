"""Checkpoints: what is saved comes back, and released forms load."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from dspark_sim.errors import InputError
from dspark_sim.lab.checkpoint import load_drafter, save_drafter
from dspark_sim.lab.drafters import Drafter
from dspark_sim.lab.drafters.released import read_config
from dspark_sim.lab.target import Target
from tests.lab_models import tiny_drafter, tiny_target
from tests.test_lab_drafters import CASES

# What decides anything in deepseek-ai/dspark_qwen3_4b_block7 and dspark_gemma4_12b_block7.
QWEN3_4B = {
    "architectures": ["Qwen3DSparkModel"], "model_type": "qwen3", "hidden_size": 2560, "intermediate_size": 9728,
    "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936, "hidden_act": "silu",
    "num_hidden_layers": 5, "layer_types": ["full_attention"] * 5, "num_target_layers": 36, "rms_norm_eps": 1e-06,
    "rope_parameters": {"rope_theta": 1000000, "rope_type": "default"}, "attention_bias": False, "dtype": "bfloat16",
    "block_size": 7, "target_layer_ids": [1, 9, 17, 25, 33], "mask_token_id": 151669, "num_anchors": 512,
    "markov_rank": 256, "markov_head_type": "vanilla", "enable_confidence_head": True, "use_sliding_window": False,
    "confidence_head_with_markov": True, "tie_word_embeddings": False, "transformers_version": "5.10.2",
}
GEMMA4_12B = {
    "architectures": ["Gemma4DSparkModel"], "attention_bias": False, "attention_dropout": 0.0, "attention_k_eq_v": True,
    "block_size": 7, "confidence_head_with_markov": True, "dtype": "bfloat16", "enable_confidence_head": True,
    "enable_moe_block": False, "final_logit_softcapping": 30.0, "global_head_dim": 512, "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 3840, "hidden_size_per_layer_input": 0,
    "intermediate_size": 15360, "layer_types": ["full_attention"] * 5, "markov_head_type": "vanilla",
    "markov_rank": 256, "mask_token_id": 4, "model_type": "gemma4_text", "num_attention_heads": 16,
    "num_global_key_value_heads": 1, "num_hidden_layers": 5, "num_key_value_heads": 8, "num_kv_shared_layers": 0,
    "num_target_layers": 48,
    "rms_norm_eps": 1e-06, "sliding_window": 1024, "target_layer_ids": [5, 17, 29, 41, 46], "vocab_size": 262144,
    "rope_parameters": {
        "full_attention": {"partial_rotary_factor": 0.25, "rope_theta": 1000000.0, "rope_type": "proportional"},
        "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"},
        "rope_theta": None, "rope_type": "default",
    },
    "use_bidirectional_attention": "vision", "use_double_wide_mlp": False, "tie_word_embeddings": False,
}


@pytest.fixture(scope="module")
def target() -> Target:
    return tiny_target("qwen3")


@pytest.fixture
def folder(target: Target, tmp_path: Path) -> Path:
    return save_drafter(tiny_drafter("dspark", target), tmp_path / "drafter")


def change(folder: Path, **keys: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | keys))


def same(a: Drafter, b: Drafter) -> None:
    one, two = a.state_dict(), b.state_dict()
    assert one.keys() == two.keys()
    for name, weight in one.items():
        assert torch.equal(weight, two[name]), name
    assert torch.equal(a.draft_ids, b.draft_ids)
    assert torch.equal(a.draft_rows, b.draft_rows)


@pytest.mark.parametrize("draft_vocab", [None, 20])
@pytest.mark.parametrize("case", CASES)
def test_what_is_saved_comes_back(case: str, draft_vocab: int | None, tmp_path: Path) -> None:
    kind, options = CASES[case]
    target = tiny_target("gemma3" if "gemma" in case else "qwen3")
    drafter = tiny_drafter(kind, target, draft_vocab=draft_vocab, **options)  # type: ignore[arg-type]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # no key of ours is unknown to us
        again = load_drafter(save_drafter(drafter, tmp_path / "x"), target=target)
    assert again.config == drafter.config or "all-tokens" in case
    same(drafter, again)
    assert not again.training
    assert not again.embed_tokens.weight.requires_grad
    assert again.fc.weight.requires_grad
    # Without embedding and head: the target's, and smaller.
    small = save_drafter(drafter, tmp_path / "small", embedding=False)
    assert "embed_tokens.weight" not in load_file(small / "model.safetensors")
    same(drafter, load_drafter(small, target=target))
    with pytest.raises(InputError, match=r"has no embed_tokens.weight and no lm_head.weight.*target="):
        load_drafter(small)


def test_released_forms_load(target: Target, tmp_path: Path) -> None:
    """bfloat16, in parts with an index, keys of older files, ttt_length; inherited keys that cannot matter."""
    drafter = tiny_drafter("eagle3", target).to(torch.bfloat16)
    folder = save_drafter(drafter, tmp_path / "x")
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names, where = sorted(weights), {}
    for part, some in enumerate((names[::2], names[1::2]), 1):
        file = f"model-0000{part}-of-00002.safetensors"
        save_file({n: weights[n] for n in some}, folder / file, metadata={"format": "pt"})
        where |= {n: file for n in some}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))
    raw = json.loads((folder / "config.json").read_text())
    for ours in ("kind", "family", "embed_scale"):
        del raw[ours]
    raw |= {"rope_theta": raw.pop("rope_parameters")["rope_theta"], "rope_scaling": None, "use_cache": True,
            "torch_dtype": "bfloat16", "step_loss_decay": 0.8, "max_position_embeddings": 40960}
    assert raw["architectures"] == ["Qwen3Eagle3Model"]
    assert raw["ttt_length"] == 4
    (folder / "config.json").write_text(json.dumps(raw))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = load_drafter(folder, target=target)
    assert again.fc.weight.dtype == torch.float32
    assert again.config == drafter.config
    same(drafter.float(), again)
    assert load_drafter(folder, dtype="bfloat16").fc.weight.dtype == torch.bfloat16


def test_a_tied_head_is_the_embedding(target: Target, folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    del weights["lm_head.weight"]
    save_file(weights, folder / "model.safetensors")
    change(folder, tie_word_embeddings=True)
    again = load_drafter(folder)
    assert torch.equal(again.lm_head.weight, weights["embed_tokens.weight"])
    change(folder, tie_word_embeddings=False)
    assert torch.equal(load_drafter(folder, target=target).lm_head.weight, target.head_weight)


def test_released_configurations_are_understood() -> None:
    """The sizes follow: the weights of deepseek-ai's checkpoints have the published number of bytes."""
    config, tied, unknown = read_config(QWEN3_4B, Path("config.json"))
    assert (config.kind, config.block_size, config.outputs, tied, unknown) == ("dspark", 7, 151936, False, ())
    plain = QWEN3_4B | {"markov_rank": 0, "enable_confidence_head": False}
    assert read_config(plain, Path("c"))[0].kind == "dflash"
    eagle = plain | {"architectures": ["Qwen3Eagle3Model"], "ttt_length": 6, "num_hidden_layers": 1,
                     "layer_types": ["full_attention"]}
    assert read_config(eagle, Path("c"))[0].block_size == 6
    larger = QWEN3_4B | {"hidden_size": 4096, "intermediate_size": 12288}  # dspark_qwen3_8b_block7
    assert 0 < 4_742_170_330 - 2 * numbers(larger) < 20_000  # its file's bytes; the rest is the file's header
    gemma, _, unknown = read_config(GEMMA4_12B, Path("config.json"))
    assert unknown == ()
    assert (gemma.family, gemma.head_dim, gemma.num_key_value_heads, gemma.attention_k_eq_v) == ("gemma4", 512, 1, True)
    assert (gemma.rope_theta, gemma.partial_rotary_factor, gemma.embed_scale) == (1e6, 0.25, 3840**0.5)


def numbers(raw: dict[str, Any]) -> int:
    from dspark_sim.lab.drafters import build

    with torch.device("meta"):
        return sum(w.numel() for w in build(read_config(raw, Path("c"))[0]).state_dict().values())


def test_dflash_has_sixty_tensors() -> None:
    from dspark_sim.lab.drafters import build

    with torch.device("meta"):
        drafter = build(read_config(QWEN3_4B | {"markov_rank": 0, "enable_confidence_head": False}, Path("c"))[0])
    assert len(drafter.state_dict()) == 60  # as deepseek-ai/dflash_qwen3_14b_block7


def test_unknown_keys_are_named(folder: Path) -> None:
    change(folder, logit_scale=2.0, favourite="blue")
    with pytest.warns(UserWarning, match=r"config\.json: ignored keys .*: favourite, logit_scale"):
        load_drafter(folder)
