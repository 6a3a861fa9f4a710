"""How far a replay from position-indexed rows is from real speculative decoding, in small worlds.

A Markov chain of three tokens is the target, a blurred copy of it the drafter: after token 0 both are nearly sure,
after token 2 they disagree, so confidences tell what lies ahead. The same policy objects serve R requests twice:

* really: the drafter draws G tokens, the first ones are verified by rejection sampling, a bonus token is drawn;
* as a trace replays it: the text is sampled first, each row is coupled to it (docs/method.md).

The laws agree exactly for policies that look at c_1 … c_{ℓ+1} of each row. ``async_global`` also reads the unverified
tails of earlier rows, and ``tail_reader`` (below) lives on nothing else: the worst that we could think of.

    python tools/replay_error.py [--steps N]
"""

from __future__ import annotations

import argparse
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from dspark_sim.curve import StepCost, StepCurve
from dspark_sim.policy import EngineSetup
from dspark_sim.registry import load_policy

G = 4
TARGET = np.array([[0.86, 0.07, 0.07], [0.10, 0.80, 0.10], [0.25, 0.15, 0.60]])
DRAFTER = np.array([[0.80, 0.10, 0.10], [0.20, 0.55, 0.25], [0.55, 0.40, 0.05]])
SURE = np.minimum(TARGET, DRAFTER).sum(axis=1)  # acceptance of the next draft token, by the token before it
KEEP = np.minimum(1.0, TARGET / DRAFTER)  # [before, drawn]
COUPLE = np.minimum(1.0, DRAFTER / TARGET)  # [before, text]


def _law(rows: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    positive = np.maximum(rows, 0)
    return np.asarray(np.cumsum(positive / positive.sum(axis=1, keepdims=True), axis=1))


NEXT, DRAW, FIX, MISS = _law(TARGET), _law(DRAFTER), _law(TARGET - DRAFTER), _law(DRAFTER - TARGET)
Tokens = npt.NDArray[np.int64]


class World:
    """R requests for ``steps`` steps; ``replay``: blocks are drawn beside a text that exists already."""

    def __init__(self, R: int, steps: int, seed: int, replay: bool) -> None:
        self.rows, self.replay, self.rng = np.arange(R), replay, np.random.default_rng(seed)
        self.last = np.zeros(R, dtype=np.int64)
        self.at = np.zeros(R, dtype=np.int64)  # of the next token in the text
        if replay:
            self.text = np.empty((steps * (G + 1) + G, R), dtype=np.int64)
            before = self.last
            for row in self.text:
                row[:] = before = self.draw(NEXT, before)

    def draw(self, laws: npt.NDArray[np.float64], before: Tokens) -> Tokens:
        """One token per request from the law that its token ``before`` selects."""
        return np.asarray((self.rng.random(before.size)[:, None] > laws[before]).sum(axis=1))

    def block(self) -> tuple[npt.NDArray[np.float32], Tokens, Tokens]:
        """Confidences (R, G), draft tokens (R, G), and (R,) how many the target keeps if all are verified."""
        R = self.rows.size
        confidence, tokens = np.empty((R, G), dtype=np.float32), np.empty((R, G), dtype=np.int64)
        before, on, kept = self.last, np.ones(R, dtype=bool), np.zeros(R, dtype=np.int64)
        for k in range(G):
            confidence[:, k] = SURE[before]
            drawn, chance = self.draw(DRAW, before), self.rng.random(R)
            if self.replay:
                text = self.text[self.at + k, self.rows]
                hit = on & (chance < COUPLE[before, text])
                drawn = np.where(hit, text, np.where(on, self.draw(MISS, before), drawn))
            else:
                hit = on & (chance < KEEP[before, drawn])
            on, kept, before = hit, kept + hit, drawn
            tokens[:, k] = drawn
        return confidence, tokens, kept

    def settle(self, lengths: Tokens, tokens: Tokens, kept: Tokens) -> Tokens:
        """Emit accepted + 1 tokens per request; returns accepted (R,)."""
        accepted = np.minimum(lengths, kept)
        if self.replay:
            self.last = self.text[self.at + accepted, self.rows]
            self.at = self.at + accepted + 1
        else:
            anchor = np.where(accepted > 0, tokens[self.rows, accepted - 1], self.last)
            self.last = np.where(accepted < lengths, self.draw(FIX, anchor), self.draw(NEXT, anchor))
        return accepted


class TailReader:
    """Verifies one token, or all of them if the end of the last row was confident: lives on what replay has wrong."""

    def verify_lengths(self, view: Any) -> Tokens:
        tail = view.past(1)
        return np.where(tail[:, -1] > 0.5 * tail[:, 0], G, 1)


def policy(name: str, R: int) -> Any:
    if name == "tail_reader":
        return TailReader()
    lag = int(name[-1])
    found = load_policy("async_global", {"lag": lag})[0]
    sizes = np.arange(1, R * (G + 1) + 1)
    seconds = 1.0 + 0.25 * np.ceil(sizes / max(1, R / 2))  # stairs of R / 2 tokens
    found.start(EngineSetup(  # type: ignore[attr-defined]
        drafter="toy", block_size=G, temperature=1.0, max_num_seqs=R, max_num_batched_tokens=int(sizes[-1]),
        host_lag=1, cost=StepCost(StepCurve(sizes, seconds), block_size=G, max_requests=R, max_tokens=int(sizes[-1])),
        rng=np.random.default_rng(0),
    ))
    return found


def accepted_per_step(name: str, R: int, steps: int, seed: int, replay: bool) -> tuple[float, float]:
    """Mean accepted tokens per request-step, and its standard error (from 50 batches)."""
    world, chooser = World(R, steps, seed, replay), policy(name, R)
    pasts = [np.full((R, G), np.nan, dtype=np.float32)] * 3
    sums = np.zeros(steps)
    for step in range(steps):
        view = SimpleNamespace(
            requests=R, prefill_tokens=0, kv_tokens=0, block_size=G, host_lag=1, step=step, drafted=np.full(R, G),
            past=lambda n, rows=pasts: rows[-n],
        )
        if hasattr(chooser, "draft_lengths"):
            chooser.draft_lengths(view)
        confidence, tokens, kept = world.block()
        view.survival = np.cumprod(confidence, axis=1)
        lengths = np.asarray(chooser.verify_lengths(view))
        pasts = [*pasts[1:], view.survival]
        sums[step] = world.settle(lengths, tokens, kept).mean()
    batches = np.array([b.mean() for b in np.array_split(sums, 50)])
    return float(sums.mean()), float(batches.std(ddof=1) / np.sqrt(batches.size))


def main() -> None:
    parser = argparse.ArgumentParser(description="Replay from position-indexed rows against real speculative decoding")
    parser.add_argument("--steps", type=int, default=100_000)
    steps = parser.parse_args().steps
    print("policy               R   accepted per request-step       replay is off by")
    print("                            really     replayed")
    for name in ("async_global lag 1", "async_global lag 2", "tail_reader"):
        for R in (1, 4, 16):
            (a, sa), (b, sb) = (accepted_per_step(name, R, steps, 1 + replay, bool(replay)) for replay in (0, 1))
            error, spread = 100 * (b / a - 1), 196 * float(np.hypot(sa, sb)) / a
            print(f"{name:18}  {R:2}   {a:10.4f}   {b:10.4f}       {error:+6.2f} % ± {spread:.2f}")


if __name__ == "__main__":
    main()
