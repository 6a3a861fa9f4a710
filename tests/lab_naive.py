"""A second, slow and obvious forward pass of every drafter, from the files alone: config.json and the raw tensors.

float64 numpy, one vector at a time, loops over positions and heads; nothing of dspark_sim is imported. The tests
compare it with the drafters of ``dspark_sim.lab``.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

Vector = Any  # a float64 array of one dimension
Entry = tuple[list[Vector], list[Vector]]  # keys and values, one vector per key-value head


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


class Naive:
    """A saved drafter, read again without the package."""

    def __init__(self, folder: Path) -> None:
        self.c = json.loads((folder / "config.json").read_text())
        self.w = {k: np.asarray(v, dtype=np.float64) for k, v in load_file(folder / "model.safetensors").items()}
        self.gemma = self.c["family"] == "gemma4"
        rope = self.c["rope_parameters"]
        rope = rope.get("full_attention", rope)
        self.theta, self.share = rope["rope_theta"], rope.get("partial_rotary_factor", 1.0)
        self.E = self.c["head_dim"]
        self.N = self.c["num_attention_heads"]
        self.K = self.w["layers.0.self_attn.k_proj.weight"].shape[0] // self.E

    # -- parts ---------------------------------------------------------------------------------------------------------
    def norm(self, x: Vector, name: str | None) -> Vector:
        out = x / math.sqrt(sum(v * v for v in x) / len(x) + self.c["rms_norm_eps"])
        return out if name is None else out * self.w[f"{name}.weight"]

    def linear(self, x: Vector, name: str) -> Vector:
        out = self.w[f"{name}.weight"] @ x
        return out + self.w[f"{name}.bias"] if f"{name}.bias" in self.w else out

    def turned(self, x: Vector, position: int) -> Vector:
        out, half = x.copy(), self.E // 2
        for i in range(int(self.share * half)):
            angle = position / self.theta ** (2 * i / self.E)
            out[i] = x[i] * math.cos(angle) - x[i + half] * math.sin(angle)
            out[i + half] = x[i + half] * math.cos(angle) + x[i] * math.sin(angle)
        return out

    def entry(self, layer: str, x: Vector, position: int) -> Entry:
        raw = self.linear(x, f"{layer}.self_attn.k_proj")
        values = raw if self.c.get("attention_k_eq_v") else self.linear(x, f"{layer}.self_attn.v_proj")
        keys, own = [], []
        for k in range(self.K):
            at = slice(k * self.E, (k + 1) * self.E)
            keys.append(self.turned(self.norm(raw[at], f"{layer}.self_attn.k_norm"), position))
            own.append(self.norm(values[at], None) if self.gemma else values[at])
        return keys, own

    def attention(self, layer: str, x: Vector, position: int, entries: list[Entry]) -> Vector:
        raw, heads = self.linear(x, f"{layer}.self_attn.q_proj"), []
        for n in range(self.N):
            q = self.turned(self.norm(raw[n * self.E:(n + 1) * self.E], f"{layer}.self_attn.q_norm"), position)
            k = n // (self.N // self.K)
            scores = [float(q @ keys[k]) / (1.0 if self.gemma else math.sqrt(self.E)) for keys, _ in entries]
            weights = [math.exp(s - max(scores)) for s in scores]
            heads.append(sum(w * values[k] for w, (_, values) in zip(weights, entries, strict=True)) / sum(weights))
        return self.linear(np.concatenate(heads), f"{layer}.self_attn.o_proj")

    def mlp(self, layer: str, x: Vector) -> Vector:
        gate = self.linear(x, f"{layer}.mlp.gate_proj")
        if self.c.get("hidden_act", self.c.get("hidden_activation")) == "silu":
            gate = gate * sigmoid(gate)
        else:
            gate = 0.5 * gate * (1 + np.tanh(math.sqrt(2 / math.pi) * (gate + 0.044715 * gate**3)))
        return self.linear(gate * self.linear(x, f"{layer}.mlp.up_proj"), f"{layer}.mlp.down_proj")

    def rest(self, layer: str, x: Vector, attended: Vector) -> Vector:
        if self.gemma:
            x = x + self.norm(attended, f"{layer}.post_attention_layernorm")
            inner = self.mlp(layer, self.norm(x, f"{layer}.pre_feedforward_layernorm"))
            return (x + self.norm(inner, f"{layer}.post_feedforward_layernorm")) * self.w[f"{layer}.layer_scalar"][0]
        x = x + attended
        return x + self.mlp(layer, self.norm(x, f"{layer}.post_attention_layernorm"))

    def embedded(self, token: int) -> Vector:
        return self.w["embed_tokens.weight"][token] * self.c["embed_scale"]

    def head(self, hidden: Vector) -> Vector:
        out, cap = self.w["lm_head.weight"] @ hidden, self.c.get("final_logit_softcapping")
        return out if cap is None else cap * np.tanh(out / cap)

    # -- a round -------------------------------------------------------------------------------------------------------
    def round(
        self, tokens: list[int], features: Any, entries: int, position: int, given: list[int]
    ) -> list[tuple[Vector, float | None]]:
        """Logits and confidence at each slot.

        Args:
            tokens: text; entry j is about features[j] and, for autoregressive drafters, tokens[j + 1].
            features: (L, F·H) of the target.
            entries: how many entries the block sees; the last one is the text position before ``position``.
            position: text position of the anchor.
            given: the anchor, then the tokens of the block up to the last but one.
        """
        block = self.parallel if "block_size" in self.c else self.autoregressive
        return block(tokens, np.asarray(features, dtype=np.float64), entries, position, given)

    def parallel(self, tokens: list[int], features: Any, entries: int, position: int, given: list[int]) -> Any:
        G, first = self.c["block_size"], position - entries
        seen = [self.norm(self.linear(features[j], "fc"), "hidden_norm") for j in range(entries)]
        x = [self.embedded(given[0] if k == 0 else self.c["mask_token_id"]) for k in range(G)]
        for i in range(self.c["num_hidden_layers"]):
            layer = f"layers.{i}"
            inner = [self.norm(v, f"{layer}.input_layernorm") for v in x]
            pairs = [self.entry(layer, s, first + j) for j, s in enumerate(seen)]
            pairs += [self.entry(layer, v, position + k) for k, v in enumerate(inner)]
            x = [self.rest(layer, x[k], self.attention(layer, inner[k], position + k, pairs)) for k in range(G)]
        out, state = [], np.zeros(self.c["markov_rank"])
        for k, token in enumerate(given):
            hidden = self.norm(x[k], "norm")
            logits, before = self.head(hidden), np.zeros(0)
            if self.c["markov_rank"]:
                before = self.w["markov_head.markov_w1.weight"][self.markov_row(token)]
                bias, state = self.markov(before, hidden, state)
                logits = logits + bias
            confidence = None
            if self.c["enable_confidence_head"]:
                read = np.concatenate([hidden, before]) if self.c["confidence_head_with_markov"] else hidden
                confidence = float(self.linear(read, "confidence_head.proj")[0])
            out.append((logits, confidence))
        return out

    def markov_row(self, token: int) -> int:
        rows = self.w["markov_head.markov_w1.weight"].shape[0]
        if rows == self.c["vocab_size"]:
            return token
        draft = [int(d) + i for i, d in enumerate(self.w["d2t"])]
        return draft.index(token) if token in draft else rows - 1

    def markov(self, before: Vector, hidden: Vector, state: Vector) -> tuple[Vector, Vector]:
        w2, r = self.w["markov_head.markov_w2.weight"], self.c["markov_rank"]
        if self.c["markov_head_type"] == "vanilla":
            return w2 @ before, state
        if self.c["markov_head_type"] == "gated":
            gate = sigmoid(self.linear(np.concatenate([hidden, before]), "markov_head.gate_proj"))
            return w2 @ (gate * before), state
        joint = self.linear(np.concatenate([state, before, hidden]), "markov_head.joint_proj")
        gate = sigmoid(joint[:r])
        return w2 @ np.tanh(joint[2 * r:]), gate * state + (1 - gate) * np.tanh(joint[r:2 * r])

    def autoregressive(self, tokens: list[int], features: Any, entries: int, position: int, given: list[int]) -> Any:
        layer, first = "layers.0", position - entries

        def joined(token: int, feature: Vector) -> Vector:
            return np.concatenate([self.norm(self.embedded(token), f"{layer}.input_layernorm"),
                                   self.norm(feature, f"{layer}.hidden_norm")])

        fused = [self.linear(features[j], "fc") for j in range(entries)]
        pairs = [self.entry(layer, joined(tokens[j + 1], fused[j]), first + j) for j in range(entries - 1)]
        x, out = fused[-1], []
        for k, token in enumerate(given):
            inner, at = joined(token, x), position - 1 + k
            pairs.append(self.entry(layer, inner, at))
            x = self.rest(layer, x, self.attention(layer, inner, at, pairs))
            out.append((self.head(self.norm(x, "norm")), None))
        return out
