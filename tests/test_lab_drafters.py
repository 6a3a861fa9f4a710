"""Every kind of drafter agrees with a second forward pass written from the files alone, and looks only backwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from dspark_sim.lab.checkpoint import save_drafter
from dspark_sim.lab.drafters import Drafter
from dspark_sim.lab.target import Target
from tests.lab_models import tiny_drafter, tiny_target
from tests.lab_naive import Naive

GEMMA = {"family": "gemma4", "attention_k_eq_v": True, "num_key_value_heads": 1, "partial_rotary_factor": 0.5,
         "final_logit_softcapping": 3.0}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "dspark": ("dspark", {}),
    "dspark-gated": ("dspark", {"head": "gated"}),
    "dspark-rnn": ("dspark", {"head": "rnn", "bias": True}),
    "dspark-plain-confidence": ("dspark", {"with_markov": False}),
    "dspark-no-markov": ("dspark", {"head": None}),
    "dspark-no-confidence": ("dspark", {"confidence": False, "layers": 1}),
    "dflash": ("dflash", {"target_layer_ids": (-1, 1, 3)}),
    "eagle3": ("eagle3", {"target_layer_ids": (0, 1, 3)}),
    "mtp": ("mtp", {}),
    "dspark-gemma4": ("dspark", GEMMA),
    "dspark-gemma4-values": ("dspark", GEMMA | {"attention_k_eq_v": False, "head": "rnn"}),
    "eagle3-gemma4": ("eagle3", GEMMA | {"partial_rotary_factor": 1.0}),
    "dspark-all-tokens": ("dspark", {"markov_all_tokens": True}),
}
L = 11


@pytest.fixture(scope="module")
def targets() -> dict[str, Target]:
    return {family: tiny_target(family) for family in ("qwen3", "gemma3")}


def ids_like(*shape: int, seed: int = 1) -> Tensor:
    return torch.randint(2, 64, shape, generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def rounds(drafter: Drafter, context: Any, row: list[int], position: list[int], given: Tensor,
           entries: list[int] | None = None) -> list[tuple[Tensor, Tensor | None]]:
    """Logits (A, Vd) and confidences of a whole block; ``given`` (A, G): anchor and the tokens before each slot."""
    state = drafter.begin(context, torch.tensor(row), torch.tensor(position), given[:, 0],
                          None if entries is None else torch.tensor(entries))
    return [drafter.step(state, given[:, k]) for k in range(drafter.config.block_size)]


def agrees(got: list[tuple[Tensor, Tensor | None]], block: int, want: list[tuple[Any, float | None]]) -> None:
    for (logits, confidence), (expected, sure) in zip(got, want, strict=True):
        assert logits.dtype == torch.float32
        assert (logits[block].double() - torch.from_numpy(expected)).abs().max() < 1e-5
        assert (confidence is None) == (sure is None)
        if confidence is not None:
            assert abs(float(confidence[block]) - float(sure or 0)) < 1e-5


@pytest.mark.parametrize("draft_vocab", [None, 20])
@pytest.mark.parametrize("case", CASES)
def test_agrees_with_the_second_pass(
    case: str, draft_vocab: int | None, targets: dict[str, Target], tmp_path: Path
) -> None:
    kind, options = CASES[case]
    target = targets["gemma3" if draft_vocab is None or "gemma" in case else "qwen3"]
    drafter = tiny_drafter(kind, target, draft_vocab=draft_vocab, **options)  # type: ignore[arg-type]
    naive = Naive(save_drafter(drafter, tmp_path / "drafter"))
    ids, G = ids_like(2, L + 1), drafter.config.block_size
    features = target.forward(ids[:, :L], layer_ids=drafter.config.target_layer_ids).features
    least = 0 if drafter.config.parallel else 1
    with torch.no_grad():
        context = drafter.context(ids, features)

    # Several sequences, several blocks each, at the start, inside and at the end of the text.
    row, position = [0, 1, 0, 1], [L, least, 4, 7]
    given = ids_like(4, G, seed=2)
    got = rounds(drafter, context, row, position, given)
    for a, (r, p) in enumerate(zip(row, position, strict=True)):
        agrees(got, a, naive.round(ids[r].tolist(), features[r], p, p, given[a].tolist()))

    # One sequence shared by all blocks.
    with torch.no_grad():
        shared = drafter.context(ids[1:], features[1:])
    for (one, sure), (many, surer) in zip(rounds(drafter, shared, [0, 0], [least, 7], given[[1, 3]]),
                                          got, strict=True):
        assert (one - many[[1, 3]]).abs().max() < 1e-5
        assert (sure is None and surer is None) or (sure - surer[[1, 3]]).abs().max() < 1e-5  # type: ignore

    # Entries that are not text positions: the sequences' contexts begin at positions 3 and 8 of their texts.
    with torch.no_grad():
        moved = drafter.context(ids, features, torch.tensor([3, 8]))
    got = rounds(drafter, moved, [0, 1], [3 + 5, 8 + 9], given[:2], entries=[5, 9])
    agrees(got, 0, naive.round(ids[0].tolist(), features[0], 5, 8, given[0].tolist()))
    agrees(got, 1, naive.round(ids[1].tolist(), features[1], 9, 17, given[1].tolist()))


@pytest.mark.parametrize("case", ["dspark", "eagle3", "mtp"])
def test_a_context_grows_piece_by_piece(case: str, targets: dict[str, Target]) -> None:
    drafter = tiny_drafter(case, targets["qwen3"])  # type: ignore[arg-type]
    ids, given = ids_like(2, L + 1), ids_like(2, drafter.config.block_size, seed=3)
    features = targets["qwen3"].forward(ids[:, :L], layer_ids=drafter.config.target_layer_ids).features
    with torch.no_grad():
        whole = drafter.context(ids, features)
        grown = drafter.context(ids[:, :5], features[:, :4])
        for a, b in ((4, 5), (5, L)):
            grown = grown.extended(drafter.context(ids[:, a:b + 1], features[:, a:b], a))
    assert grown.length == whole.length == L
    for (a, c), (b, d) in zip(rounds(drafter, whole, [0, 1], [L, 6], given),
                              rounds(drafter, grown, [0, 1], [L, 6], given), strict=True):
        assert (a - b).abs().max() < 1e-5
        assert (c is None and d is None) or (c - d).abs().max() < 1e-5  # type: ignore[operator]


@pytest.mark.parametrize("family", ["qwen3", "gemma3"])
@pytest.mark.parametrize("case", ["dspark", "dspark-rnn", "dflash", "eagle3", "mtp"])
def test_text_from_the_anchor_on_is_not_seen(case: str, family: str, targets: dict[str, Target]) -> None:
    kind, options = CASES[case]
    target, p = targets[family], 6
    drafter = tiny_drafter(kind, target, **options)  # type: ignore[arg-type]
    ids, given = ids_like(1, L + 1), ids_like(1, drafter.config.block_size, seed=3)

    def logits(changed: Tensor, spoil: bool = False) -> list[Tensor]:
        features = target.forward(changed[:, :L], layer_ids=drafter.config.target_layer_ids).features
        if spoil:
            features[:, p:] = 7.0
        with torch.no_grad():
            return [x for x, _ in rounds(drafter, drafter.context(changed, features), [0], [p], given)]

    base, later = logits(ids), ids.clone()
    later[:, p:] = ids_like(1, L + 1 - p, seed=9)
    for other in (logits(later), logits(ids, spoil=True)):  # the block itself is given, whatever the text says
        for a, b in zip(base, other, strict=True):
            assert (a - b).abs().max() < 1e-6
    before = ids.clone()
    before[:, p - 1] = (before[:, p - 1] + 1) % 64
    assert (logits(before)[0] - base[0]).abs().max() > 1e-3  # the text before the anchor is seen


def test_an_autoregressive_drafter_needs_a_token_before_the_anchor(targets: dict[str, Target]) -> None:
    drafter = tiny_drafter("eagle3", targets["qwen3"])
    ids = ids_like(1, L + 1)
    features = targets["qwen3"].forward(ids[:, :L], layer_ids=drafter.config.target_layer_ids).features
    with torch.no_grad(), pytest.raises(ValueError, match="before the anchor"):
        rounds(drafter, drafter.context(ids, features), [0], [0], ids_like(1, 4))


def test_features_can_train_a_drafter(targets: dict[str, Target]) -> None:
    drafter = tiny_drafter("dspark", targets["qwen3"])
    ids = ids_like(1, L + 1)
    features = targets["qwen3"].forward(ids[:, :L], layer_ids=drafter.config.target_layer_ids).features
    state = drafter.begin(drafter.context(ids, features), torch.tensor([0]), torch.tensor([5]), ids[:, 5])
    drafter.step(state, ids[:, 5])[0].sum().backward()
    assert drafter.fc.weight.grad is not None
    assert drafter.embed_tokens.weight.grad is None  # frozen


@pytest.mark.parametrize("family", ["qwen3", "gemma4"])
@torch.no_grad()
def test_layers_are_those_of_transformers(family: str, targets: dict[str, Target]) -> None:
    """Without context a draft layer is the target family's own layer without causality: same names and numbers."""
    G, shape = 5, dict(vocab_size=64, hidden_size=32, intermediate_size=48, num_attention_heads=4, rms_norm_eps=1e-6,
                       num_hidden_layers=2, layer_types=["full_attention"] * 2, attn_implementation="eager")
    if family == "qwen3":
        from transformers.models.qwen3 import modeling_qwen3 as theirs

        drafter = tiny_drafter("dflash", targets["qwen3"], block_size=G)
        config: Any = theirs.Qwen3Config(
            **shape, num_key_value_heads=2, head_dim=8, rope_parameters={"rope_type": "default", "rope_theta": 1e4})
        layers = [theirs.Qwen3DecoderLayer(config, i) for i in range(2)]
        rotary: Any = theirs.Qwen3RotaryEmbedding(config)
    else:
        from transformers.models.gemma4 import modeling_gemma4 as theirs4

        drafter = tiny_drafter("dflash", targets["gemma3"], block_size=G, **GEMMA)
        config = theirs4.Gemma4TextConfig(
            **shape, num_key_value_heads=2, num_global_key_value_heads=1, head_dim=4, global_head_dim=8,
            attention_k_eq_v=True, hidden_size_per_layer_input=0, num_kv_shared_layers=0,
            rope_parameters={"full_attention": {"rope_type": "proportional", "rope_theta": 1e4,
                                                "partial_rotary_factor": 0.5}})
        layers = [theirs4.Gemma4TextDecoderLayer(config, i) for i in range(2)]  # type: ignore[misc]
        rotary = theirs4.Gemma4TextRotaryEmbedding(config)
    ids = ids_like(1, G)
    ids[:, 1:] = drafter.config.mask_token_id
    x, at = drafter.embed(ids), torch.arange(G)[None]
    where = rotary(x, at) if family == "qwen3" else rotary(x, at, "full_attention")
    more: dict[str, Any] = {} if family == "qwen3" else {"shared_kv_states": {}}
    for mine, layer in zip(drafter.layers, layers, strict=True):  # type: ignore[call-overload]
        layer.load_state_dict(mine.state_dict(), strict=True)
        out = layer(x, position_embeddings=where, attention_mask=torch.zeros(1, 1, G, G), position_ids=at, **more)
        x = out[0] if isinstance(out, tuple) else out
    features = torch.zeros(1, 3, 64)
    state = drafter.begin(drafter.context(ids[:, :4], features), torch.tensor([0]), torch.tensor([0]), ids[:, 0])
    assert (state.hidden - drafter.norm(x)).abs().max() < 1e-5
