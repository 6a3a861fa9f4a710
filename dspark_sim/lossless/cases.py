"""A case: one decision shown twice, with different confidences; and what a difference of the answers proves.

Positions are counted from 1 as in the paper, columns of arrays from 0. Revealed when ℓ tokens of a row are verified
(or drafted): the confidences c_1 … c_{ℓ+1}, and the drafter's probability of the tokens 1 … ℓ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from dspark_sim.lossless.bench import Bench, Decision, Rows
from dspark_sim.lossless.stage import Stage
from dspark_sim.lossless.subject import Subject
from dspark_sim.policy import IntArray

__all__ = ["Case", "Kind", "Leak", "compared", "judge", "play", "tail"]

Kind: TypeAlias = Literal["draft_lengths", "stop_drafting", "verify_lengths"]


@dataclass(frozen=True, eq=False)
class Case:
    """Steps that lead up to a decision, and two versions of the rows that it is about.

    Attributes:
        bench: the engine.
        history: rows of the steps before, the same in both versions.
        before, after: the rows of the decision; they may differ in confidence and draft_probability only.
    """

    bench: Bench
    history: tuple[Rows, ...]
    before: Rows
    after: Rows


@dataclass(frozen=True, eq=False)
class Leak:
    """A case in which the answers differ though nothing that was revealed does.

    Attributes:
        kind: which answer.
        case: the case.
        first, second: the policy's answers before and after.
    """

    kind: Kind
    case: Case
    first: Decision
    second: Decision

    def answers(self) -> tuple[IntArray, IntArray]:
        """(R,) before and after, of the method that leaks."""
        names: dict[Kind, str] = {
            "draft_lengths": "asked", "stop_drafting": "drafted", "verify_lengths": "lengths",
        }
        return getattr(self.first, names[self.kind]), getattr(self.second, names[self.kind])


def play(subject: Subject, bench: Bench, history: tuple[Rows, ...], rows: Rows) -> Decision:
    """A fresh policy's decision about ``rows`` after ``history``.

    Raises:
        PolicyFailure: it raised, or answered against its contract.
    """
    stage = Stage(subject.make(), bench)
    for past in history:
        stage.decide(past)
        stage.settle()
    return stage.decide(rows)


def tail(lengths: IntArray, G: int, ahead: int) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    """(R, G) columns of positions > ℓ + ``ahead``: 1 for confidences, 0 for probabilities of drawn tokens."""
    return np.arange(G) >= (lengths + ahead)[:, None]


def judge(subject: Subject, case: Case, kind: Kind) -> Leak | None:
    """Ask both versions; the leak of one kind, None if there is none."""
    first = play(subject, case.bench, case.history, case.before)
    second = play(subject, case.bench, case.history, case.after)
    return next((leak for leak in compared(case, first, second) if leak.kind == kind), None)


def compared(case: Case, first: Decision, second: Decision) -> list[Leak]:
    """What two answers prove; nothing, when both versions are the same."""
    if not _differ(case):
        return []
    out = []
    if not np.array_equal(first.lengths, second.lengths) and _hidden(case, first.lengths):
        out.append(Leak("verify_lengths", case, first, second))
    if not np.array_equal(first.asked, second.asked):
        out.append(Leak("draft_lengths", case, first, second))
    elif not np.array_equal(first.drafted, second.drafted) and _hidden(case, first.drafted):
        out.append(Leak("stop_drafting", case, first, second))
    return out


def _differ(case: Case) -> bool:
    a, b = case.before, case.after
    if not np.array_equal(a.confidence, b.confidence):
        return True
    p, q = a.draft_probability, b.draft_probability
    return p is not None and q is not None and not np.array_equal(p, q)


def _hidden(case: Case, lengths: IntArray) -> bool:
    """Whether all that changed lies beyond what ``lengths`` reveals."""
    G, a, b = case.bench.block_size, case.before, case.after
    changed = a.confidence != b.confidence
    if (changed & ~tail(lengths, G, 1)).any():
        return False
    if a.draft_probability is None or b.draft_probability is None:
        return True
    drawn = a.draft_probability != b.draft_probability
    return not (drawn & ~tail(lengths, G, 0)).any()
