"""Checkpoints that are damaged, of another form or of another target: every mistake is one clear error."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from dspark_sim.errors import InputError
from dspark_sim.lab.checkpoint import load_drafter, save_drafter
from dspark_sim.lab.target import Target
from tests.lab_models import tiny_drafter, tiny_target
from tests.test_lab_checkpoint import change


@pytest.fixture(scope="module")
def target() -> Target:
    return tiny_target("qwen3")


@pytest.fixture
def folder(target: Target, tmp_path: Path) -> Path:
    return save_drafter(tiny_drafter("dspark", target), tmp_path / "drafter")


def retensor(edit: Callable[[dict[str, torch.Tensor]], Any]) -> Callable[[Path], None]:
    def broken(folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        edit(weights)
        save_file(weights, folder / "model.safetensors")

    return broken


def cut(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def index(weight_map: Any) -> Callable[[Path], None]:
    def broken(folder: Path) -> None:
        (folder / "model.safetensors").rename(folder / "part.safetensors")
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))

    return broken


def no_tensors(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


MISTAKES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "truncated": (cut, r"model\.safetensors: truncated, or not safetensors"),
    "empty": (lambda f: (f / "model.safetensors").write_bytes(b""), r"truncated, or not safetensors"),
    "pickle": (pickled, r"pytorch_model\.bin is a pickle.*allowed: model\.safetensors"),
    "no weights": (no_tensors, "has no weights"),
    "no config": (lambda f: (f / "config.json").unlink(), "has no config.json"),
    "config not JSON": (lambda f: (f / "config.json").write_text("{"), r"config\.json: not JSON"),
    "config a list": (lambda f: (f / "config.json").write_text("[]"), r"got \[\]; allowed: a JSON object"),
    "index not a map": (index([]), "no weight_map"),
    "index leads out": (index({"fc.weight": "../x.safetensors"}), "no weight_map"),
    "index without its part": (index({"fc.weight": "gone.safetensors"}), "names gone.safetensors, which is not there"),
    "index with one too many": (index({"fcc.weight": "part.safetensors"}), r"part\.safetensors: tensor fcc"),
    "missing tensor": (retensor(lambda w: w.pop("layers.1.mlp.up_proj.weight")),
                       r"tensor layers\.1\.mlp\.up_proj\.weight \[48, 32\] is missing"),
    "misspelt tensor": (retensor(lambda w: w.update({"hidden_nrom.weight": w.pop("hidden_norm.weight")})),
                        r"hidden_norm\.weight \[32\] is missing.*did you mean 'hidden_nrom\.weight'"),
    "extra tensor": (retensor(lambda w: w.update(midlayer=torch.ones(3))),
                     r"model\.safetensors: tensor midlayer is not part of the model"),
    "wrong shape": (retensor(lambda w: w.update({"fc.weight": torch.ones(32, 96)})),
                    r"tensor fc\.weight has shape \[32, 96\]; allowed: \[32, 64\]"),
    "wrong type": (retensor(lambda w: w.update({"fc.weight": torch.ones(32, 64, dtype=torch.int8)})),
                   r"tensor fc\.weight is of type I8; allowed: F32, BF16, F16"),
    "not finite": (retensor(lambda w: w["fc.weight"].fill_(float("nan"))), r"tensor fc\.weight holds NaN"),
    "d2t of another length": (retensor(lambda w: w.update(d2t=torch.zeros(3, 2))), r"tensor d2t has shape \[3, 2\]"),
    "d2t too far": (retensor(lambda w: w.update(d2t=torch.full((4,), 61))), "rising token ids.*0 to 63"),
    "d2t falling": (retensor(lambda w: w.update(d2t=torch.tensor([5, 0]))), "rising token ids"),
    "t2d of other tokens": (retensor(lambda w: w.update(d2t=torch.tensor([5, 6]), t2d=torch.ones(64).bool())),
                            "tensor t2d names other tokens than d2t"),
}
KEYS: dict[str, tuple[dict[str, Any], str]] = {
    "another architecture": ({"architectures": ["Qwen3ForCausalLM"]}, r"architectures: got 'Qwen3ForCausalLM'"),
    "z-lab": ({"architectures": ["DFlashDraftModel"]}, "z-lab format, in which a slot predicts itself"),
    "SpecForge": ({"architectures": ["LlamaForCausalLMEagle3"]}, "SpecForge format"),
    "no architecture": ({"architectures": None}, "architectures: got None"),
    "yarn": ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4}},
             r"rope_parameters\.rope_type: got 'yarn': this scaling .* is not supported; allowed: default"),
    "linear": ({"rope_parameters": None, "rope_theta": 1e6, "rope_scaling": {"type": "linear", "factor": 2}},
               r"rope_scaling\.rope_type: got 'linear'"),
    "two bases": ({"rope_theta": 5.0}, r"rope_theta: got \[10000\.0, 5\.0\]"),
    "no base": ({"rope_parameters": None}, "rope_theta: missing"),
    "rope a number": ({"rope_parameters": 3}, "rope_parameters: got 3; allowed: an object"),
    "base a word": ({"rope_parameters": {"rope_theta": "big"}}, "rope_theta: got 'big'; allowed: a number"),
    "partial": ({"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}}, "_factor: got 0.5"),
    "sliding": ({"layer_types": ["full_attention", "sliding_attention"]}, "layer_types: got .*2 times full_attention"),
    "sliding, older": ({"layer_types": None, "use_sliding_window": True}, "use_sliding_window"),
    "quantised": ({"quantization_config": {"bits": 4}}, "quantised weights are not supported"),
    "same position": ({"enable_d2_feature": True}, "enable_d2_feature: got True: slots that predict themselves"),
    "k is v": ({"attention_k_eq_v": True}, "attention_k_eq_v: got True; allowed: false unless family is gemma4"),
    "block a word": ({"block_size": "7"}, "block_size: got '7'; allowed: a value of type int"),
    "block missing": ({"block_size": None}, "block_size: missing"),
    "block true": ({"block_size": True}, "block_size: got True"),
    "block too long": ({"block_size": 64}, "config.json: block_size: got 64; allowed: 1 to 63"),
    "sizes beyond reason": ({"vocab_size": 10**12}, "vocab_size: got 1000000000000"),
    "layers in disorder": ({"target_layer_ids": [2, 0]}, r"target_layer_ids: got \(2, 0\); allowed: rising"),
    "layers of words": ({"target_layer_ids": ["a"]}, "target_layer_ids: got"),
    "layers beyond": ({"target_layer_ids": [0, 4]}, "target_layer_ids: got .* at most 3"),
    "activation": ({"hidden_act": "relu"}, "hidden_act: got 'relu'; allowed: silu"),
    "head type": ({"markov_head_type": "lstm"}, "markov_head_type: got 'lstm'; allowed: vanilla, gated, rnn"),
    "mask": ({"mask_token_id": 64}, "mask_token_id: got 64; allowed: 0 to 63"),
    "draft vocabulary without a map": ({"draft_vocab_size": 9}, "draft_vocab_size: got 9, but the checkpoint has no"),
    "heads": ({"num_key_value_heads": 3}, "num_key_value_heads: got 3; allowed: a divisor"),
    "more layers": ({"num_hidden_layers": 3, "layer_types": None}, r"tensor layers\.2\.\S+ .* is missing and 10 more"),
    "own kind": ({"architectures": ["DsparkSimDrafter"], "kind": "eagle"}, "kind: got 'eagle'.*did you mean 'eagle3'"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_damage_is_one_clear_error(mistake: str, folder: Path) -> None:
    spoil, says = MISTAKES[mistake]
    spoil(folder)
    with pytest.raises(InputError, match=says) as caught:
        load_drafter(folder)
    assert "\n" not in str(caught.value)
    assert str(folder) in str(caught.value)


@pytest.mark.parametrize("mistake", KEYS)
def test_a_wrong_key_is_one_clear_error(mistake: str, folder: Path) -> None:
    keys, says = KEYS[mistake]
    change(folder, **keys)
    with pytest.raises(InputError, match=says) as caught:
        load_drafter(folder)
    assert "\n" not in str(caught.value)
    assert str(folder) in str(caught.value)


@pytest.mark.parametrize(("options", "says"), [
    ({"vocab": 80}, "vocab_size: got 64: this drafter is not for target tiny-qwen3, which has 80"),
    ({"hidden": 40}, "hidden_size: got 32: .* which has 40"),
])
def test_a_drafter_of_another_target_is_refused(options: dict[str, int], says: str, folder: Path) -> None:
    with pytest.raises(InputError, match=says):
        load_drafter(folder, target=tiny_target(**options))  # type: ignore[arg-type]


def test_layers_that_the_target_lacks(target: Target, folder: Path) -> None:
    change(folder, num_target_layers=8)
    with pytest.raises(InputError, match=r"num_target_layers: got 8: .* has 4; allowed: 4"):
        load_drafter(folder, target=target)
    change(folder, num_target_layers=None, target_layer_ids=[0, 7])
    with pytest.raises(InputError, match=r"target_layer_ids: got \[0, 7\]: target tiny-qwen3 has 4 layers"):
        load_drafter(folder, target=target)


def test_names_that_lead_nowhere(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(InputError, match=r"no drafter 'deepseek-ai/\w+'; allowed: a folder on this machine"):
        load_drafter("deepseek-ai/dspark_qwen3_4b_block7")
    with pytest.raises(InputError, match="device 'cuda:99'"):
        load_drafter(folder, device="cuda:99")
    with pytest.raises(InputError, match="dtype 'float8'"):
        load_drafter(folder, dtype="float8")


def test_saving_leaves_no_half_files(target: Target, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        save_drafter(tiny_drafter("mtp", target), tmp_path / "taken")
    folder = save_drafter(tiny_drafter("mtp", target), tmp_path / "x")
    save_drafter(tiny_drafter("mtp", target, seed=1), folder)  # over an earlier one
    assert sorted(p.name for p in folder.iterdir()) == ["config.json", "model.safetensors"]
