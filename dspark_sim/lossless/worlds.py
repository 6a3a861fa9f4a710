"""Toy worlds with exact probabilities: a target, a drafter and a confidence head over two or three tokens.

Everything is a function of the text so far and of the tokens drafted so far, as in a real engine; c_k is known before
token k is drawn. Confidences need not be calibrated: a lossless policy is lossless whatever the head says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TypeAlias

import numpy as np

from dspark_sim.curve import StepCurve
from dspark_sim.lossless.bench import Bench

__all__ = ["SPS", "Law1", "Text", "World", "greedy", "worlds"]

Text: TypeAlias = tuple[int, ...]
Law1: TypeAlias = tuple[Fraction, ...]

SPS = (1.0, 0.5, 0.45)  # Appendix A: steps per second with 1, 2 and 3 tokens


@dataclass(frozen=True)
class World:
    """One toy; its laws may look at the last token of the text, not further back.

    Attributes:
        name, says: what it is, in words.
        requests: R, all alive from the first step to the last.
        block_size: G.
        steps: engine steps.
        length: output tokens of each request whose joint law is compared; where the steps brought fewer, the target
            itself goes on.
        target: text so far -> law of the next token.
        drafter: text so far (drafts included) -> law of the next draft token.
        confidence: (text so far, tokens drafted since) -> c of the next draft token.
        seconds: step time at 1, 2, 3, … tokens; goes on at the last slope.
    """

    name: str
    says: str
    requests: int
    block_size: int
    steps: int
    length: int
    target: Callable[[Text], Law1]
    drafter: Callable[[Text], Law1]
    confidence: Callable[[Text, Text], float]
    seconds: tuple[float, ...]

    def bench(self, host_lag: int, seed: int = 0, temperature: float = 1.0) -> Bench:
        """The engine of this world, as the policy believes it to be."""
        sizes = np.arange(1, len(self.seconds) + 1)
        curve = StepCurve(sizes, np.array(self.seconds), extrapolate="linear")
        return Bench(self.block_size, curve, self.requests, host_lag=host_lag, seed=seed, temperature=temperature)


def _law(*tenths: int) -> Law1:
    return tuple(Fraction(t, sum(tenths)) for t in tenths)


def _last(text: Text) -> int:
    return text[-1] if text else 0


def worlds(G: int, *, thorough: bool = False, wide: bool = False) -> list[World]:
    """The catalogue for one block size; more steps when ``thorough``, fewer when a policy sees ``wide`` rows."""
    small, more = G <= 3, int(thorough) - int(wide)
    appendix = World(
        "Appendix A", "target (0.7, 0.3), drafter (0.5, 0.5), c_1 = 0.8; c_2 = 0.9 after A, 0 after B; "
        "SPS 1, 0.5, 0.45", 1, G, 1, 1, lambda text: _law(7, 3), lambda text: _law(5, 5),
        lambda text, drafted: (0.9, 0.0)[drafted[-1]] if drafted else 0.8, tuple(1 / s for s in SPS),
    )
    long = replace(appendix, name="Appendix A, several steps", steps=(3 if G == 2 else 2) + more if small else 1,
                   length=3 + max(more, 0) if small else 2)
    mirrored = replace(
        appendix, name="mirrored", says="as Appendix A, but the drafter is sure after B (0.95) and not after A (0.3)",
        steps=2 + max(more, 0) if small else 1, length=3 if small else 2,
        confidence=lambda text, drafted: (0.3, 0.95)[drafted[-1]] if drafted else 0.6,
        seconds=(1.0, 1.65, 2.1, 2.6),
    )
    markov = World(
        "moods", "text moves between an easy and a hard mood; c and both laws follow the last token; a staircase",
        1, G, (3 if G == 2 else 2) + more if small else 1, 4 if small else 2,
        lambda text: (_law(6, 4), _law(2, 8))[_last(text)], lambda text: (_law(5, 5), _law(6, 4))[_last(text)],
        lambda text, drafted: ((0.9, 0.35)[_last(text)] if not drafted else (0.95, 0.05)[drafted[-1]]),
        (1.0, 1.0, 1.4, 1.4, 2.2),
    )
    three = World(
        "three tokens", "three tokens, a drafter that prefers the wrong one; c tells the last token apart",
        1, G, max(1, 1 + more) if small else 1, 2, lambda text: _law(5, 3, 2), lambda text: _law(2, 3, 5),
        lambda text, drafted: (0.9, 0.6, 0.1)[drafted[-1]] if drafted else 0.7, (1.0, 1.75, 2.2, 2.6),
    )
    two = World(
        "two requests", "two requests as in Appendix A, in one batch", 2, G, 2 if G == 2 else 1, 2,
        appendix.target, appendix.drafter, appendix.confidence, (1.0, 1.0, 1.45, 1.85, 2.2, 2.45),
    )
    pair = replace(
        two, name="two moods", says="two requests; c_1 follows the last token, c_2 the drafted one; a free region",
        confidence=lambda text, drafted: (0.9, 0.1)[drafted[-1]] if drafted else (0.8, 0.5)[_last(text)],
        seconds=(1.0, 1.0, 1.0, 1.6, 1.7, 3.0), steps=2 + max(more, 0) if G == 2 else 1,
        length=2 + max(more, 0) if G == 2 else 2,
    )
    catalogue = [appendix, long, mirrored, markov, two, pair]
    return [*catalogue, three] if G <= 5 else catalogue


def greedy(world: World) -> World:
    """The same world at temperature 0: the target always emits its most probable token."""

    def target(text: Text) -> Law1:
        law = world.target(text)
        best = law.index(max(law))
        return tuple(Fraction(int(t == best)) for t in range(len(law)))

    return replace(world, target=target)
