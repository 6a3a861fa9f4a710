"""Plain speculative decoding of one request, as the papers have it: draft, verify, accept or correct, bonus token.

Written apart from collection: it never sees a text beforehand, runs target and drafter on prefixes, one request at a
time, and knows of no coupling. Distributions are remembered by prefix, since the tests decode the same prompt often.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import torch

from dspark_sim.lab.drafters import Drafter
from dspark_sim.lab.target import Target

__all__ = ["PlainDecoder"]


class PlainDecoder:
    """A target and a drafter at one temperature (0 is greedy)."""

    def __init__(self, target: Target, drafter: Drafter, temperature: float) -> None:
        self.target, self.drafter, self.temperature = target, drafter, temperature
        self.p = cache(self._p)
        self.q = cache(self._q)

    def _law(self, logits: torch.Tensor) -> np.ndarray:
        z = logits.double().numpy()
        if self.temperature == 0:
            return (np.arange(len(z)) == z.argmax()).astype(float)
        e = np.exp((z - z.max()) / self.temperature)
        return np.asarray(e / e.sum())

    @torch.inference_mode()
    def _p(self, text: tuple[int, ...]) -> np.ndarray:
        return self._law(self.target.logits(self.target.forward(torch.tensor([text])).last[0, -1]))

    @torch.inference_mode()
    def _q(self, text: tuple[int, ...], block: tuple[int, ...]) -> tuple[np.ndarray, float]:
        """Drafter's distribution over all tokens and its confidence, after ``block``; ``text`` ends with the anchor."""
        d = self.drafter
        seen = self.target.forward(torch.tensor([text[:-1]]), layer_ids=d.config.target_layer_ids)
        context = d.context(torch.tensor([text]), seen.features)
        at = torch.tensor([len(text) - 1])
        state = d.begin(context, torch.tensor([0]), at, torch.tensor([text[-1]]))
        for token in (text[-1], *block):
            logits, confidence = d.step(state, torch.tensor([token]))
        q = np.zeros(self.target.vocab_size)
        q[d.draft_ids.numpy()] = self._law(logits[0])
        return q, float("nan") if confidence is None else float(torch.sigmoid(confidence)[0])

    def round(
        self, text: tuple[int, ...], rule: Callable[[list[float]], int], rng: np.random.Generator
    ) -> tuple[int, int, list[float], tuple[int, ...]]:
        """(ℓ, accepted, confidences, emitted) of one round; ``rule`` chooses ℓ from the confidences."""
        block: tuple[int, ...] = ()
        sure = []
        for _ in range(self.drafter.config.block_size):
            q, c = self.q(text, block)
            sure.append(c)
            block = (*block, int(rng.choice(len(q), p=q)))
        length = rule(sure)
        for k in range(length):
            p, q = self.p(text + block[:k]), self.q(text, block[:k])[0]
            if rng.random() >= p[block[k]] / q[block[k]]:
                rest = np.maximum(p - q, 0)
                return length, k, sure, (*block[:k], int(rng.choice(len(p), p=rest / rest.sum())))
        p = self.p(text + block[:length])
        return length, length, sure, (*block[:length], int(rng.choice(len(p), p=p)))

    def write(self, text: tuple[int, ...], tokens: int, rng: np.random.Generator) -> tuple[int, ...]:
        """``tokens`` tokens of the target alone."""
        out: tuple[int, ...] = ()
        for _ in range(tokens):
            p = self.p(text + out)
            out = (*out, int(rng.choice(len(p), p=p)))
        return out
