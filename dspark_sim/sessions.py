"""Conversations: what each session will say, drawn when it begins and the same in every arm.

Session s draws from a stream of its own (seed, replication, s), turn by turn, so that neither other sessions nor the
number of turns change what turn k is. When its turns are *sent* depends on the arm, for each waits for an answer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dspark_sim.arrival_schema import Sessions
from dspark_sim.rates import arrival_times, rate_of
from dspark_sim.request import Request
from dspark_sim.scenario_schema import Workload
from dspark_sim.workload import CHUNK, FloatArray, drawn, needed, random_stream

__all__ = ["BLOCK_TOKENS", "Session", "SessionStream"]

BLOCK_TOKENS = 512  # of a prefix hash, as in Request.prefix
_BLOCK_BITS = 24  # more blocks than a context of 10 million tokens has


@dataclass(frozen=True, slots=True)
class Turn:
    """Sizes in tokens, the text's seed, and the seconds that the user thinks before sending it (not the first one)."""

    prompt: int
    output: int
    text: int
    think: float


@dataclass(frozen=True, slots=True)
class Session:
    """One conversation.

    Attributes:
        number: 0, 1, 2, … in order of beginning.
        class_index: the same for all its turns.
        first_id: id of its first turn; the others follow.
        turns: what it says.
        shared_blocks: whole blocks of 512 tokens that all sessions of its class begin with.
        classes: how many classes there are, for the numbers of blocks.
        cut: turns that were left out because the context would have grown beyond ``max_context``.
    """

    number: int
    class_index: int
    first_id: int
    turns: tuple[Turn, ...]
    shared_blocks: int
    classes: int
    cut: int

    def request(self, k: int) -> Request:
        """Turn k; its arrival is NaN until it is sent.

        Its prefix hashes are those of the whole blocks of its prompt, which begins with all that was said before, and
        of its answer, which the next prompt repeats: a prefix cache that kept an earlier turn finds both.
        """
        turn = self.turns[k]
        request = Request(self.first_id + k, self.class_index, math.nan, turn.prompt, turn.output, turn.text)
        request.session = self.number
        mine = (self.number + self.classes) << _BLOCK_BITS
        common = self.class_index << _BLOCK_BITS
        blocks = (turn.prompt + turn.output) // BLOCK_TOKENS
        shared = min(self.shared_blocks, blocks)
        request.answer_hashed = True
        request.prefix = (*range(common, common + shared), *range(mine + shared, mine + blocks))
        return request


class SessionStream:
    """The sessions of one replication, endless.

    Args:
        workload: its arrival is of kind ``sessions``, its classes have lengths: new tokens of the user, and answers.
        seed, replication: choose the random streams.
    """

    def __init__(self, workload: Workload, seed: int, replication: int) -> None:
        assert isinstance(workload.arrival, Sessions)
        self._plan, self._classes = workload.arrival, workload.classes
        self._seed, self._replication = seed, replication
        share = np.array([group.share for group in workload.classes])
        self._edges = np.cumsum(share / share.sum())[:-1]
        self._next = self._ids = 0

    def arrivals(self) -> Iterator[float]:
        """Absolute seconds at which sessions begin, endless, rising."""
        curve, cv = rate_of(self._plan)
        return arrival_times(curve, cv, random_stream(self._seed, self._replication, "arrivals"), CHUNK)

    def take(self) -> Session:
        """The next session."""
        plan, number = self._plan, self._next
        self._next += 1
        rng = random_stream(self._seed, self._replication, "sessions", number)
        first = rng.random(4)
        of = int(np.searchsorted(self._edges, first[0], side="right"))
        n = int(drawn(plan.turns, _normal(first[1:2], first[2:3]), first[3:4])[0])
        group, u = self._classes[of], rng.random((n, 7)).T  # a row per turn: more turns leave the earlier ones alone
        new = drawn(needed(group.prompt_tokens, group.name), _normal(u[0], u[1]), u[2])
        output = drawn(needed(group.output_tokens, group.name), _normal(u[3], u[4]), u[5])
        prompt = plan.shared_tokens + np.cumsum(new + output) - output
        fit = int(np.searchsorted(prompt + output, plan.max_context, side="right"))
        seeds = (u[6] * (1 << 53)).astype(np.int64)
        rows = zip(prompt[:fit].tolist(), output[:fit].tolist(), seeds[:fit].tolist(), self._thinks(number, n)[:fit],
                   strict=True)
        turns = tuple(Turn(*row) for row in rows)
        session = Session(number, of, self._ids, turns, plan.shared_tokens // BLOCK_TOKENS, len(self._classes), n - fit)
        self._ids += len(turns)
        return session

    def _thinks(self, number: int, n: int) -> list[float]:
        pause = self._plan.think_time_s
        if pause.mean == 0 or pause.cv == 0:
            return [pause.mean] * n
        rng, shape = random_stream(self._seed, self._replication, "sessions", number, 1), 1.0 / pause.cv**2
        times: list[float] = (rng.standard_gamma(shape, n) * (pause.mean / shape)).tolist()
        return times


def _normal(u: FloatArray, v: FloatArray) -> FloatArray:
    """Standard normals from two uniforms each (Box and Muller): a fixed number of draws, whatever comes out."""
    return np.asarray(np.sqrt(-2.0 * np.log1p(-u)) * np.cos(2.0 * math.pi * v))
