"""What reading unverified tails does to a replay, to the last digit: toys whose stationary law can be solved.

Two tokens; the next one depends on the one before it, in the target and in the drafter; a confidence is the chance
that the next draft token is kept. R requests decode for ever under a rule, once really (rejection sampling, bonus token
drawn afresh) and once from rows that are coupled to a text (docs/method.md). Both are finite Markov chains: really, of
(anchor, last row of confidences) per request; in a replay also of the text that the last row has been coupled to and
that lies still ahead. Their stationary laws give accepted tokens per request-step.

    python tools/replay_exact.py
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import cache
from itertools import product
from math import prod
from types import SimpleNamespace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from dspark_sim.curve import StepCost, StepCurve
from dspark_sim.policy import EngineSetup
from dspark_sim.registry import load_policy

Tokens: TypeAlias = tuple[int, ...]
Row: TypeAlias = tuple[float, ...]  # confidences of a block
State: TypeAlias = tuple[int, Tokens, Row]  # anchor, text known ahead (replay only), last row
Draw: TypeAlias = tuple[Row, Tokens, Tokens, int, float]  # row, block, text ahead, kept if all verified, probability
Choice: TypeAlias = Callable[[tuple[Row, ...], tuple[Row, ...]], tuple[int, ...]]  # last rows, current rows -> ℓ
FloatArray: TypeAlias = npt.NDArray[np.float64]

# Target and drafter [token before][token]. Steady: much alike. Sharp: the drafter bets on token 0, the target does not.
STEADY = (np.array([[0.90, 0.10], [0.35, 0.65]]), np.array([[0.80, 0.20], [0.60, 0.40]]))
SHARP = (np.array([[0.50, 0.50], [0.40, 0.60]]), np.array([[0.90, 0.10], [0.70, 0.30]]))
SLOPES = (0.4, 0.582, 0.728, 0.909, 1.137, 1.421, 3.469)  # seconds per token, beside 1 second a step
SIZES = ((1, 2), (1, 3), (2, 2))  # requests and block size of async_global


class Toy:
    """One target and one drafter.

    Args:
        laws: p and q, (2, 2) each.
        G: block size.
        replay: blocks are drawn beside a text that exists already.
    """

    def __init__(self, laws: tuple[FloatArray, FloatArray], G: int, replay: bool) -> None:
        self.p, self.q = laws
        self.G, self.replay = G, replay
        self.draws = cache(self._draws)

    def row(self, anchor: int, block: Tokens) -> Row:
        """c_1 … c_G."""
        before = (anchor, *block[:-1])
        return tuple(round(float(np.minimum(self.p[b], self.q[b]).sum()), 9) for b in before)

    def _chain(self, law: FloatArray, before: int, tokens: Tokens) -> float:
        return prod(float(law[a, b]) for a, b in zip((before, *tokens), tokens, strict=False))

    def _draws(self, anchor: int, known: Tokens) -> list[Draw]:
        """Everything that one round may draw before anything is verified."""
        G, out = self.G, list[Draw]()
        if not self.replay:
            return [(self.row(anchor, b), b, (), 0, self._chain(self.q, anchor, b)) for b in product((0, 1), repeat=G)]
        last = (anchor, *known)[-1]
        for more in product((0, 1), repeat=G - len(known)):
            ahead, chance = known + more, self._chain(self.p, last, more)
            for block in product((0, 1), repeat=G):
                full, likely = self._coupled(anchor, ahead, block)
                if likely:
                    out.append((self.row(anchor, block), block, ahead, full, chance * likely))
        return out

    def _coupled(self, anchor: int, ahead: Tokens, block: Tokens) -> tuple[int, float]:
        """How many of the block are kept, and P(block | text)."""
        on, kept, chance = True, 0, 1.0
        for k, (d, y) in enumerate(zip(block, ahead, strict=True)):
            before = (anchor, *block)[k]
            p, q = self.p[before], self.q[before]
            if not on:
                chance *= float(q[d])
                continue
            keep = min(1.0, float(q[y] / p[y]))
            if d == y:  # two tokens: a rejected one is the other one
                kept, chance = kept + 1, chance * keep
            else:
                on, chance = False, chance * (1 - keep)
        return kept, chance

    def settled(self, anchor: int, draw: Draw, length: int) -> Iterator[tuple[int, State, float]]:
        """(accepted, next state, probability) when ``length`` tokens are verified."""
        row, block, ahead, full, _ = draw
        if self.replay:
            n = min(length, full)
            if n < self.G:
                yield n, (ahead[n], ahead[n + 1:], row), 1.0
            else:
                for y in (0, 1):
                    yield n, (y, (), row), float(self.p[block[-1], y])
            return
        chance = 1.0
        for k in range(length):
            before = (anchor, *block)[k]
            p, q, d = self.p[before], self.q[before], block[k]
            keep = min(1.0, float(p[d] / q[d]))
            if keep < 1:
                yield k, (1 - d, (), row), chance * (1 - keep)
            chance *= keep
        before = (anchor, *block)[length]
        for y in (0, 1):
            yield length, (y, (), row), chance * float(self.p[before, y])

    def accepted(self, R: int, choose: Choice) -> float:
        """Accepted tokens per request-step in the stationary law of R requests under a rule."""
        states, todo = _begun(self, R)
        rows, gains = list[dict[int, float]](), list[float]()
        for joint in todo:  # grows while it is read
            row, gain = _step(self, joint, lambda draws, joint=joint: choose(  # type: ignore[misc]
                tuple(s[2] for s in joint), tuple(d[0] for d in draws)), states, todo)
            rows.append(row)
            gains.append(gain)
        return _stationary(rows, gains)


def _begun(toy: Toy, R: int) -> tuple[dict[tuple[State, ...], int], list[tuple[State, ...]]]:
    start = ((0, (), toy.row(0, (0,) * toy.G)),) * R
    return {start: 0}, [start]


def _step(
    toy: Toy, joint: tuple[State, ...], choose: Callable[[tuple[Draw, ...]], tuple[int, ...]],
    states: dict[tuple[State, ...], int], todo: list[tuple[State, ...]],
) -> tuple[dict[int, float], float]:
    """Where a joint state leads (index -> probability) and accepted tokens per request; new states join ``todo``."""
    row, gain = dict[int, float](), 0.0
    for draws in product(*(toy.draws(anchor, known) for anchor, known, _ in joint)):
        likely, lengths = prod(d[4] for d in draws), choose(draws)
        for ends in product(*(list(toy.settled(s[0], d, n)) for s, d, n in zip(joint, draws, lengths, strict=True))):
            chance = likely * prod(e[2] for e in ends)
            if chance > 0:
                new = tuple(e[1] for e in ends)
                if new not in states:
                    states[new] = len(todo)
                    todo.append(new)
                row[states[new]] = row.get(states[new], 0.0) + chance
                gain += chance * sum(e[0] for e in ends) / len(joint)
    return row, gain


def _stationary(rows: list[dict[int, float]], gains: list[float]) -> float:
    """Mean gain in the stationary law of a chain."""
    equations = -np.eye(len(rows))
    for i, row in enumerate(rows):
        assert abs(sum(row.values()) - 1) < 1e-9
        equations[list(row), i] += list(row.values())
    equations[-1] = 1.0  # one equation follows from the others; probabilities sum to 1 instead
    law = np.linalg.solve(equations, np.r_[np.zeros(len(rows) - 1), 1.0])
    return float(law @ np.array(gains))


def async_global(R: int, G: int, slope: float) -> Choice:
    """The shipped policy with lag 1 where a step of B tokens takes 1 + slope · B seconds."""
    policy: Any = load_policy("async_global", {"lag": 1})[0]
    sizes = np.arange(1, R * (G + 1) + 1)
    seconds = np.asarray(1 + slope * sizes, dtype=np.float64)
    policy.start(EngineSetup(
        drafter="toy", block_size=G, temperature=1.0, max_num_seqs=R, max_num_batched_tokens=int(sizes[-1]),
        host_lag=1, rng=np.random.default_rng(0),
        cost=StepCost(StepCurve(sizes, seconds), block_size=G, max_requests=R, max_tokens=int(sizes[-1])),
    ))

    @cache
    def choose(last: tuple[Row, ...], now: tuple[Row, ...]) -> tuple[int, ...]:
        past, current = (np.cumprod(np.array(rows, dtype=np.float32), axis=1) for rows in (last, now))
        view = SimpleNamespace(requests=R, prefill_tokens=0, kv_tokens=0, block_size=G, host_lag=1, step=5,
                               drafted=np.full(R, G), past=lambda n: past, survival=current)
        if hasattr(policy, "draft_lengths"):
            policy.draft_lengths(view)
        return tuple(np.asarray(policy.verify_lengths(view)).tolist())

    return choose


def error(laws: tuple[FloatArray, FloatArray], G: int, R: int, choose: Callable[[Toy], Choice]) -> tuple[float, float]:
    """Accepted tokens per request-step, really and replayed."""
    really, replayed = Toy(laws, G, False), Toy(laws, G, True)
    return really.accepted(R, choose(really)), replayed.accepted(R, choose(replayed))


def worst_slope(
    laws: tuple[FloatArray, FloatArray], G: int, R: int, slopes: tuple[float, ...] = SLOPES
) -> tuple[float, float, float]:
    """(slope, really, replayed) where ``async_global`` is replayed worst, of all slopes tried: on most of them it
    verifies everything or nothing and is replayed exactly."""
    tried = ((s, *error(laws, G, R, lambda toy, s=s: async_global(R, G, s))) for s in slopes)  # type: ignore[misc]
    return max(tried, key=lambda found: abs(found[2] / found[1] - 1) if found[1] else 0.0)


def extremes(laws: tuple[FloatArray, FloatArray], G: int) -> dict[str, tuple[str, float, float]]:
    """Of all rules that verify nothing or everything by the last row of the same request: the one with the lowest and
    the one with the highest ratio of replayed to real τ = 1 + accepted per step. A rule is written as a digit (ℓ) for
    each possible row, rows sorted by their confidences."""
    both, names = [], list[Row]()
    for replay in (False, True):
        toy = Toy(laws, G, replay)
        states, todo = _begun(toy, 1)
        options = [{n: _step(toy, joint, lambda draws, n=n: (n,), states, todo) for n in (0, G)}  # type: ignore[misc]
                   for joint in todo]
        names = sorted({joint[0][2] for joint in todo})
        both.append((options, [names.index(joint[0][2]) for joint in todo]))
    found = []
    for table in product((0, G), repeat=len(names)):
        a, b = (_stationary([o[table[i]][0] for o, i in zip(options, which, strict=True)],
                            [o[table[i]][1] for o, i in zip(options, which, strict=True)]) for options, which in both)
        if len(set(table)) > 1:
            found.append(((1 + b) / (1 + a), "".join(map(str, table)), a, b))
    return {"lowest": min(found)[1:], "highest": max(found)[1:]}


def main() -> None:
    parser = argparse.ArgumentParser(description="What reading unverified tails does to a replay, to the last digit")
    parser.add_argument("--slopes", type=int, default=len(SLOPES), help="try only the first so many for async_global")
    slopes = SLOPES[:parser.parse_args().slopes]
    print("toy     rule                          R   accepted per request-step     replay is off by")
    print("                                           really      replayed       accepted       τ")
    for name, laws in (("steady", STEADY), ("sharp", SHARP)):
        lines = []
        for R, G in SIZES:
            slope, a, b = worst_slope(laws, G, R, slopes)
            lines.append((f"async_global, G {G}, slope {slope:.2f}", R, a, b))
        for word, (table, a, b) in extremes(laws, 3).items():
            lines.append((f"by last row, {word}: {table}", 1, a, b))
        for rule, R, a, b in lines:
            accepted, length = (round(100 * (x - 1), 3) + 0.0 for x in (b / a, (1 + b) / (1 + a)))
            print(f"{name:7} {rule:30}{R:2}   {a:9.5f}   {b:9.5f}     {accepted:+8.3f} %  {length:+8.3f} %")


if __name__ == "__main__":
    main()
