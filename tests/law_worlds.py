"""Toy worlds in which a drafter, a target and two rounds of decoding can be enumerated, twice:

* really: the drafter draws a block, the first ℓ tokens are verified by rejection sampling, a bonus token is drawn;
* as a trace replays it: the text is drawn first, each block is coupled to it by ``dspark_sim.lab.coupling``.

Tables are conditional on everything that they may depend on: the target on the last two tokens, drafter and confidence
on the anchor and on the block so far. Shapes: V tokens, G block size. Probabilities are float64.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from typing import TypeAlias

import numpy as np
import torch

from dspark_sim.lab.coupling import acceptance, residual

Tokens: TypeAlias = tuple[int, ...]
Round: TypeAlias = tuple[int, int, tuple[float, ...], Tokens]  # ℓ, accepted, confidences revealed (ℓ + 1), emitted
History: TypeAlias = tuple[Round, ...]
Rule: TypeAlias = Callable[[tuple[float, ...], History, tuple[tuple[float, ...], ...]], int]
"""ℓ from this row's confidences (G), what was revealed in earlier rounds, and the whole rows of earlier rounds."""


@dataclass(eq=False)
class World:
    """One toy.

    Args:
        seed: of its random tables.
        unseen: tokens that the drafter cannot propose.
        greedy: target and drafter are arg maxima.
    """

    V: int
    G: int
    seed: int
    unseen: tuple[int, ...] = ()
    greedy: bool = False
    _tables: dict[tuple[str, Tokens], np.ndarray] = field(default_factory=dict)

    def _law(self, what: str, key: Tokens) -> np.ndarray:
        found = self._tables.get((what, key))
        if found is None:
            code = [self.seed, len(what), *(t + 1 for t in key)]
            p = np.random.default_rng(code).dirichlet(np.full(self.V, 0.9)) + 0.02
            if what == "draft":
                p[list(self.unseen)] = 0
            if self.greedy:
                p = np.arange(self.V) == p.argmax()
            found = self._tables[(what, key)] = p / p.sum()
        return found

    def target(self, text: Tokens) -> np.ndarray:
        """p (V,) after ``text``."""
        return self._law("target", text[-2:])

    def draft(self, anchor: int, block: Tokens) -> np.ndarray:
        """q (V,)."""
        return self._law("draft", (anchor, *block))

    def confidence(self, anchor: int, block: Tokens) -> float:
        """c of the token after ``block``: a number that tells which block it is."""
        return float(np.random.default_rng([self.seed, 7, anchor + 1, *(t + 1 for t in block)]).random())

    def row(self, anchor: int, block: Tokens) -> tuple[float, ...]:
        """c_1 … c_G of a drafted block."""
        return tuple(self.confidence(anchor, block[:k]) for k in range(self.G))

    def levels(self) -> list[float]:
        """(G,) thresholds that split the confidences of each position in halves."""
        return [float(np.median([self.confidence(a, b) for a in range(self.V)
                                 for b in product(range(self.V), repeat=k)])) for k in range(self.G)]

    # -- the two machines ---------------------------------------------------------------------------------------
    def blocks(self, anchor: int) -> Iterator[tuple[Tokens, float]]:
        """Every block that the drafter may draw, with its probability."""
        for block in product(range(self.V), repeat=self.G):
            chance = 1.0
            for k, token in enumerate(block):
                chance *= float(self.draft(anchor, block[:k])[token])
            if chance > 0:
                yield block, chance

    def verified(self, text: Tokens, block: Tokens, length: int) -> Iterator[tuple[int, Tokens, float]]:
        """(accepted, emitted, probability) when the first ``length`` tokens go to the target: rejection sampling."""
        chance = 1.0
        for k in range(length):
            p, q = self.target(text + block[:k]), self.draft(text[-1], block[:k])
            keep = min(1.0, float(p[block[k]] / q[block[k]]))
            rest = np.maximum(p - q, 0)
            if keep < 1:
                for y in np.flatnonzero(rest):
                    yield k, (*block[:k], int(y)), chance * (1 - keep) * float(rest[y] / rest.sum())
            chance *= keep
        p = self.target(text + block[:length])
        for y in np.flatnonzero(p):
            if chance > 0:
                yield length, (*block[:length], int(y)), chance * float(p[y])

    def coupled(self, text: Tokens, ahead: Tokens) -> list[tuple[Tokens, int, float]]:
        """(block, accepted in full verification, probability) beside the text's next tokens ``ahead``."""
        out: list[tuple[Tokens, int, float]] = [((), 0, 1.0)]
        for k in range(self.G):
            new = []
            for block, kept, chance in out:
                q, y = self.draft(text[-1], block), ahead[k]
                if kept < k:
                    new += [((*block, d), kept, chance * float(q[d])) for d in range(self.V)]
                    continue
                keep, rest = self._coupling(text[-1], block, (text + ahead[:k])[-2:], y)
                new.append(((*block, y), k + 1, chance * keep))
                new += [((*block, d), k, chance * (1 - keep) * rest[d]) for d in range(self.V)]
            out = [(b, n, c) for b, n, c in new if c > 0]
        return out

    @cache  # noqa: B019 - worlds are few and live as long as the tests
    def _coupling(self, anchor: int, block: Tokens, before: Tokens, y: int) -> tuple[float, list[float]]:
        q, p = (torch.from_numpy(np.asarray(t, dtype=np.float64)) for t in (self.draft(anchor, block),
                                                                           self.target(before)))
        weight = residual(q[None], p[None])[0]
        return float(acceptance(q[y], p[y])), (weight / weight.sum()).tolist()

    def texts(self, text: Tokens, known: Tokens, length: int) -> Iterator[tuple[Tokens, float]]:
        """Continuations of ``length`` tokens that begin with ``known``, with their probability given it."""
        for more in product(range(self.V), repeat=length - len(known)):
            ahead, chance = known + more, 1.0
            for k in range(len(known), length):
                chance *= float(self.target(text + ahead[:k])[ahead[k]])
            if chance > 0:
                yield ahead, chance

    def really(self, text: Tokens, rules: tuple[Rule, ...]) -> dict[History, float]:
        """Law of what a real engine does in ``len(rules)`` rounds."""
        out: dict[History, float] = defaultdict(float)

        def go(text: Tokens, history: History, rows: tuple[tuple[float, ...], ...], chance: float) -> None:
            if len(history) == len(rules):
                out[history] += chance
                return
            for block, drawn in self.blocks(text[-1]):
                row = self.row(text[-1], block)
                length = rules[len(history)](row, history, rows)
                for kept, emitted, p in self.verified(text, block, length):
                    record = (length, kept, row[:length + 1], emitted)
                    go(text + emitted, (*history, record), (*rows, row), chance * drawn * p)

        go(text, (), (), 1.0)
        return out

    def replayed(self, text: Tokens, rules: tuple[Rule, ...]) -> dict[History, float]:
        """Law of what a replay of coupled rows does."""
        out: dict[History, float] = defaultdict(float)

        def go(text: Tokens, known: Tokens, history: History, rows: tuple[tuple[float, ...], ...],
               chance: float) -> None:
            if len(history) == len(rules):
                out[history] += chance
                return
            for ahead, p in self.texts(text, known, self.G + 1):
                for block, full, drawn in self.coupled(text, ahead):
                    row = self.row(text[-1], block)
                    length = rules[len(history)](row, history, rows)
                    kept = min(length, full)
                    record = (length, kept, row[:length + 1], ahead[:kept + 1])
                    go(text + ahead[:kept + 1], ahead[kept + 1:], (*history, record), (*rows, row), chance * p * drawn)

        go(text, (), (), (), 1.0)
        return out


def distance(a: dict[History, float], b: dict[History, float]) -> float:
    """Total variation."""
    return sum(abs(a.get(k, 0.0) - b.get(k, 0.0)) for k in {*a, *b}) / 2


def outputs(law: dict[History, float], n: int) -> dict[Tokens, float]:
    """Law of the first ``n`` tokens emitted."""
    out: dict[Tokens, float] = defaultdict(float)
    for history, chance in law.items():
        out[tuple(t for r in history for t in r[3])[:n]] += chance
    return out
