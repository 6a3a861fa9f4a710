"""From a counterexample to a wrong output law: let the token that was peeked at decide between its two rows.

For every request whose later confidences change, take m = min(ℓ before, ℓ after) + 1. Its token m is drawn from A and
B with (0.5, 0.5) while the target has (0.7, 0.3), as in Appendix A of the DSpark paper; earlier tokens are certain.
After the one the row goes on as ``before``, after the other as ``after``: that is all a confidence head does. A token
m that is verified comes out as rejection sampling has it, one that is not comes from the target itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product

import numpy as np

from dspark_sim.lossless.bench import frozen
from dspark_sim.lossless.cases import Leak, play
from dspark_sim.lossless.subject import Subject

__all__ = ["ImpliedLaw", "deviation", "implied_law"]

TARGET = (Fraction(7, 10), Fraction(3, 10))
MOST = 5  # requests that decide; 2^5 decisions


@dataclass(frozen=True, eq=False)
class ImpliedLaw:
    """The joint law of the deciding tokens.

    Attributes:
        requests: which requests decide, counted from 0 in admission order.
        positions: the deciding token of each, counted from 1.
        token_a: for each, whether A is the token after which the row goes on as ``after``.
        drafter: for each, the drafter's law of A and B.
        policy: outcome (a string of A and B) -> probability under the policy.
        target: the same under the target.
    """

    requests: tuple[int, ...]
    positions: tuple[int, ...]
    token_a: tuple[bool, ...]
    drafter: tuple[tuple[Fraction, Fraction], ...]
    policy: dict[str, Fraction]
    target: dict[str, Fraction]

    @property
    def deviation(self) -> float:
        """Total variation between the two laws."""
        return float(sum(abs(self.policy[x] - self.target[x]) for x in self.policy) / 2)


def deviation(subject: Subject, leak: Leak) -> float:
    """Total variation of :func:`implied_law`, 0 where there is none."""
    law = implied_law(subject, leak)
    return 0.0 if law is None else law.deviation


def implied_law(subject: Subject, leak: Leak) -> ImpliedLaw | None:
    """The law that a leak into verification implies; None for other leaks, or when too many requests take part."""
    before, after = leak.case.before, leak.case.after
    moved = (before.confidence != after.confidence).any(axis=1)
    drawn = np.zeros(before.confidence.shape, dtype=np.bool_)
    if before.draft_probability is not None and after.draft_probability is not None:
        drawn = before.draft_probability != after.draft_probability
        moved |= drawn.any(axis=1)
    requests = tuple(int(r) for r in np.flatnonzero(moved))
    if leak.kind != "verify_lengths" or not 0 < len(requests) <= MOST:
        return None
    first, second = leak.answers()
    positions = tuple(int(min(first[r], second[r])) + 1 for r in requests)
    token_a = tuple(bool(second[r] >= first[r]) for r in requests)
    drafter = tuple(_drafter(leak, r, m, a, bool(drawn[r, m - 1]))
                    for r, m, a in zip(requests, positions, token_a, strict=True))
    policy = {"".join(x): Fraction(0) for x in product("AB", repeat=len(requests))}
    for tokens in product((0, 1), repeat=len(requests)):
        as_after = np.zeros((len(moved), 1), dtype=np.bool_)
        for r, token, a in zip(requests, tokens, token_a, strict=True):
            as_after[r] = (token == 0) == a
        rows = replace(before, confidence=frozen(np.where(as_after, after.confidence, before.confidence), np.float32))
        if before.draft_probability is not None and after.draft_probability is not None:
            mixed = np.where(as_after, after.draft_probability, before.draft_probability)
            rows = replace(rows, draft_probability=frozen(mixed, np.float32))
        lengths = play(subject, leak.case.bench, leak.case.history, rows).lengths
        outs = [_out(token, q, verified=bool(lengths[r] >= m))
                for r, m, token, q in zip(requests, positions, tokens, drafter, strict=True)]
        chance = Fraction(1)
        for token, q in zip(tokens, drafter, strict=True):
            chance *= q[token]
        for outcome in product((0, 1), repeat=len(requests)):
            p = chance
            for x, out in zip(outcome, outs, strict=True):
                p *= out[x]
            policy["".join("AB"[x] for x in outcome)] += p
    target = {x: _product(TARGET["AB".index(t)] for t in x) for x in policy}
    return ImpliedLaw(requests, positions, token_a, drafter, policy, target)


def _product(factors: object) -> Fraction:
    out = Fraction(1)
    for f in factors:  # type: ignore[attr-defined]
        out *= f
    return out


def _drafter(leak: Leak, r: int, m: int, a: bool, shown: bool) -> tuple[Fraction, Fraction]:
    """(1/2, 1/2), unless the probabilities of token m itself are part of the counterexample."""
    if not shown:
        return Fraction(1, 2), Fraction(1, 2)
    rows = leak.case.after if a else leak.case.before
    assert rows.draft_probability is not None
    q = Fraction(float(rows.draft_probability[r, m - 1])).limit_denominator(1000)
    return q, 1 - q


def _out(token: int, q: tuple[Fraction, Fraction], *, verified: bool) -> tuple[Fraction, Fraction]:
    """The law of the token that comes out when ``token`` was drafted."""
    if not verified:
        return TARGET
    keep = min(Fraction(1), TARGET[token] / q[token])
    return (keep, 1 - keep) if token == 0 else (1 - keep, keep)
