"""One request: its size, the text it decodes, and what happened to it.

The text of a request is a chain of documents of its domain: the first chosen by ``text``, then on and on from the
request's own random stream, the same in every arm. Output token j of a request (j = 0 is the one that prefill emits)
stands at position j of that chain, so arms that advance by different steps read the same rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["OUTCOMES", "Request", "document_of"]

OUTCOMES = ("finished", "unfinished", "refused", "timed_out")
_MASK = (1 << 64) - 1


def document_of(text: int, n: int, documents: Sequence[int] | npt.NDArray[np.int64]) -> int:
    """The n-th document (n = 0, 1, …) of the chain with seed ``text``, drawn with replacement from ``documents``.

    A splitmix64 hash of (text, n): a random stream that needs no state and is the same in every arm and process.
    """
    z = (text + (n + 1) * 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return int(documents[(z ^ (z >> 31)) % len(documents)])


@dataclass(slots=True, eq=False)
class Request:
    """A request and its time stamps (seconds of simulated time; None: has not happened).

    Attributes:
        id: rank in the order of issue; equal ids are equal requests in every arm.
        class_index: index into the workload's classes.
        arrival: when it reached the engine's queue.
        prompt_tokens, output_tokens: sizes; output counts the token that prefill emits.
        text: 64-bit seed of its chain of documents.
        skipped: output tokens that had been emitted before the simulation began (``measure: steady`` starts its
            first requests inside their life); 0 for every other request.
        emitted: output tokens so far, ``skipped`` included.
        steps, drafted, verified, accepted: sums over its decode steps (never the anchor or the bonus).
        preemptions: times it lost its KV and was recomputed.
        slowest_gap: longest time between two moments at which its user received tokens, None before the second.
        last_emit: when its user last received tokens (``admitted`` for one whose first token existed then).
        outcome: one of :data:`OUTCOMES`.
        session: number of the conversation it belongs to, None if it stands alone.
        prefix: hashes of the prompt's leading blocks of 512 tokens; equal hashes are equal text (prefix cache).
        answer_hashed: ``prefix`` goes on through the answer, so its blocks can be found by a later prompt.
        priority: of its class; higher goes first.
        deadline: simulated second at which it gives up waiting for its first admission, ``inf`` for never.
        prefilled: its prompt was computed by another engine, so its next admission needs no prefill.
        requeued: times its engine failed under it.
        cached_tokens: prompt tokens that a prefix cache spared it.
        recomputed_tokens: tokens that were prefilled again after a preemption or a failure.
        engine: number of the engine that had it last.
    """

    id: int
    class_index: int
    arrival: float
    prompt_tokens: int
    output_tokens: int
    text: int
    skipped: int = 0
    admitted: float | None = None
    first_token: float | None = None
    finished: float | None = None
    emitted: int = 0
    steps: int = 0
    drafted: int = 0
    verified: int = 0
    accepted: int = 0
    preemptions: int = 0
    slowest_gap: float | None = None
    last_emit: float | None = None
    outcome: str = "unfinished"
    session: int | None = None
    prefix: tuple[int, ...] = ()
    answer_hashed: bool = False
    priority: int = 0
    deadline: float = math.inf
    prefilled: bool = False
    requeued: int = 0
    cached_tokens: int = 0
    recomputed_tokens: int = 0
    engine: int = 0
