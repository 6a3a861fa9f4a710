"""Exact enumeration: the joint law of what a real engine emits under a policy, over all tokens and coins.

Every step drafts a block, asks the policy, verifies ℓ tokens by rejection sampling (keep a draft token with
min(1, p/q), else draw from the positive part of p − q) and draws the bonus token from the target. Probabilities are
fractions, so a lossless policy comes out *equal* to the product of the target's laws, not just close to it.
A policy's answer depends on what it has seen; paths that look the same to it are asked once, by replaying the past to
a fresh object.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import product
from typing import TypeAlias

import numpy as np

from dspark_sim.lossless.bench import Rows, frozen
from dspark_sim.lossless.stage import Stage
from dspark_sim.lossless.subject import Subject
from dspark_sim.lossless.worlds import Law1, Text, World

__all__ = ["Law", "Laws", "output_laws"]

Outcome: TypeAlias = tuple[Text, ...]  # the tokens of every request
Law: TypeAlias = dict[Outcome, Fraction]
Seen: TypeAlias = tuple[tuple[float, ...], tuple[float, ...], int]  # confidences, probabilities of drawn tokens, kept
Past: TypeAlias = tuple[tuple[tuple[Seen, ...], tuple[int, ...]], ...]  # what each step showed, and what it accepted


@dataclass(frozen=True, eq=False)
class Laws:
    """Both joint laws of the first ``length`` tokens of every request in one world.

    Attributes:
        policy, target: outcome -> probability.
        decisions: how many the policy was asked for.
        lengths: the ℓ that occurred; a world in which only 0 did proves nothing.
    """

    world: World
    policy: Law
    target: Law
    decisions: int
    lengths: tuple[int, ...]

    @property
    def deviation(self) -> Fraction:
        """Total variation between them."""
        keys = self.policy.keys() | self.target.keys()
        zero = Fraction(0)
        return sum((abs(self.policy.get(k, zero) - self.target.get(k, zero)) for k in keys), zero) / 2

    def first(self, n: int) -> Laws:
        """The laws of the first n tokens of every request."""
        return Laws(self.world, _cut(self.policy, n), _cut(self.target, n), self.decisions, self.lengths)

    def shortest(self) -> Laws:
        """The law of the fewest first tokens in which they differ; all tokens when they are equal."""
        short = (self.first(n) for n in range(1, self.world.length))
        return next((laws for laws in short if laws.deviation), self)


def output_laws(subject: Subject, world: World, temperature: float = 1.0) -> Laws:
    """Enumerate one world.

    Raises:
        PolicyFailure: the policy raised, or answered against its contract.
    """
    laws = _Enumeration(subject, world, temperature)
    policy = laws.run()
    lengths = {n for answer in laws.answers.values() for n in answer}
    return Laws(world, policy, laws.product_law(), len(laws.answers), tuple(sorted(lengths)))


class _Enumeration:
    def __init__(self, subject: Subject, world: World, temperature: float) -> None:
        self.subject, self.world = subject, world
        self.bench = world.bench(subject.host_lag, temperature=temperature)
        self.answers: dict[tuple[Past, tuple[Seen, ...]], tuple[int, ...]] = {}
        self.blocks = lru_cache(None)(self._blocks)
        self.outs = lru_cache(None)(self._outs)
        self.ends = lru_cache(None)(self._ends)

    def run(self) -> Law:
        world = self.world
        states: dict[Past, Law] = {(): {((),) * world.requests: Fraction(1)}}
        for _ in range(world.steps):
            after: dict[Past, Law] = defaultdict(lambda: defaultdict(Fraction))
            for past, texts in states.items():
                for text, p in texts.items():
                    self._step(after, past, text, p)
            states = after
        out: Law = defaultdict(Fraction)
        for texts in states.values():
            for text, p in texts.items():
                for full, q in self._continued(text):
                    out[full] += p * q
        return dict(out)

    def _step(self, after: dict[Past, Law], past: Past, texts: Outcome, p: Fraction) -> None:
        for seen in product(*(self.blocks(text) for text in texts)):
            lengths = self._answer(past, seen)
            for accepted, grown, q in self.ends(texts, seen, lengths):
                after[(*past, (seen, accepted))][grown] += p * q

    def _ends(
        self, texts: Outcome, seen: tuple[Seen, ...], lengths: tuple[int, ...]
    ) -> list[tuple[tuple[int, ...], Outcome, Fraction]]:
        """How a step can end: (accepted, texts, chance together with ``seen``)."""
        out = []
        outs = [self.outs(text, s, n) for text, s, n in zip(texts, seen, lengths, strict=True)]
        for combination in product(*(o.items() for o in outs)):
            chance = Fraction(1)
            for _, q in combination:
                chance *= q
            accepted = tuple(len(tokens) - 1 for (tokens, _) in combination)
            grown = tuple(self._short(text + new) for text, (new, _) in zip(texts, combination, strict=True))
            out.append((accepted, grown, chance))
        return out

    def _short(self, text: Text) -> Text:
        """What counts of a text: the tokens that are compared, and the last one, which worlds may look at."""
        n = self.world.length
        return text if len(text) <= n + 1 else (*text[:n], text[-1])

    def _blocks(self, text: Text) -> dict[Seen, list[tuple[Text, int, Fraction]]]:
        """What a policy may be shown after ``text``, and the (drafted, kept, chance) behind each."""
        world, found = self.world, defaultdict(list)
        paths: list[tuple[Text, tuple[float, ...], tuple[float, ...], Fraction]] = [((), (), (), Fraction(1))]
        for _ in range(world.block_size):
            longer = []
            for drafted, c, shown, p in paths:
                here = world.confidence(text, drafted)
                for token, q in enumerate(world.drafter(text + drafted)):
                    if q:
                        longer.append(((*drafted, token), (*c, here), (*shown, float(q)), p * q))
            paths = longer
        for drafted, c, shown, p in paths:
            for kept, q in self._kept(text, drafted):
                if q:
                    seen = (c, shown if self.subject.probability else (), kept if self.subject.needs_oracle else -1)
                    found[seen].append((drafted, kept, p * q))
        return dict(found)

    def _kept(self, text: Text, drafted: Text) -> list[tuple[int, Fraction]]:
        """How many of the drafted tokens the target would keep, with chances."""
        out, p = [], Fraction(1)
        for k, token in enumerate(drafted):
            here = text + drafted[:k]
            keep = min(Fraction(1), self.world.target(here)[token] / self.world.drafter(here)[token])
            out.append((k, p * (1 - keep)))
            p *= keep
        return [*out, (len(drafted), p)]

    def _outs(self, text: Text, seen: Seen, length: int) -> dict[Text, Fraction]:
        """Tokens that come out when ``length`` are verified, with their chances together with ``seen``."""
        out: dict[Text, Fraction] = defaultdict(Fraction)
        for drafted, kept, p in self.blocks(text)[seen]:
            accepted = min(length, kept)
            here = text + drafted[:accepted]
            law = self.world.target(here) if accepted == length else self._residual(here)
            for token, q in enumerate(law):
                if q:
                    out[(*drafted[:accepted], token)] += p * q
        return dict(out)

    def _residual(self, text: Text) -> Law1:
        over = [max(p - q, Fraction(0)) for p, q in zip(self.world.target(text), self.world.drafter(text), strict=True)]
        return tuple(x / sum(over) for x in over)

    def _answer(self, past: Past, seen: tuple[Seen, ...]) -> tuple[int, ...]:
        key = (past, seen)
        found = self.answers.get(key)
        if found is None:
            stage = Stage(self.subject.make(), self.bench)
            for before, accepted in past:
                stage.decide(self._rows(before))
                stage.settle(np.array(accepted, dtype=np.int64))
            found = self.answers[key] = tuple(stage.decide(self._rows(seen)).lengths.tolist())
        return found

    def _rows(self, seen: tuple[Seen, ...]) -> Rows:
        c, shown, kept = zip(*seen, strict=True)
        probability = frozen(shown, np.float32) if self.subject.probability else None
        return Rows(tuple(range(len(seen))), frozen(c, np.float32), frozen(kept, np.int64), probability)

    def _continued(self, texts: Outcome) -> list[tuple[Outcome, Fraction]]:
        """Every text cut or continued by the target to the world's length."""
        length = self.world.length
        out: list[tuple[Outcome, Fraction]] = [((), Fraction(1))]
        for text in texts:
            each = self.grown(text[:length])
            out = [((*done, t), p * q) for done, p in out for t, q in each]
        return out

    def grown(self, text: Text) -> list[tuple[Text, Fraction]]:
        """``text`` continued by the target to the world's length."""
        out = [(text, Fraction(1))]
        for _ in range(self.world.length - len(text)):
            out = [((*t, token), p * q) for t, p in out for token, q in enumerate(self.world.target(t)) if q]
        return out

    def product_law(self) -> Law:
        """What the target alone emits."""
        return dict(self._continued(((),) * self.world.requests))


def _cut(law: Law, n: int) -> Law:
    out: Law = defaultdict(Fraction)
    for texts, p in law.items():
        out[tuple(t[:n] for t in texts)] += p
    return dict(out)
