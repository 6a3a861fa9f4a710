"""The law of collected traces: output, accepted counts and revealed confidences together, as in rejection sampling.

Enumerated in toy worlds for every rule of a class, with the real functions of ``dspark_sim.lab.coupling``. The real
``collect`` meets a plain speculative decoder in tests/test_lab_decoder.py.
"""

from __future__ import annotations

from itertools import product

import pytest

from tests.law_worlds import History, Rule, World, distance, outputs

WORLDS = {
    "two tokens": World(2, 2, seed=1),
    "other tables": World(2, 2, seed=8),
    "three tokens": World(3, 2, seed=3),
    "a token that is never drafted": World(3, 2, seed=4, unseen=(1,)),
    "greedy": World(3, 2, seed=6, greedy=True),
}


def stopping_rules(world: World) -> list[Rule]:
    """All 64 of block size 2 that see which confidences are high: on to token 1 by c_1, to token 2 by c_1 and c_2."""
    level = world.levels()

    def rule(first: tuple[bool, ...], second: tuple[bool, ...]) -> Rule:
        def length(row: tuple[float, ...], history: History, rows: object) -> int:
            a, b = row[0] > level[0], row[1] > level[1]
            return 0 if not first[a] else 2 if second[2 * a + b] else 1
        return length

    flags = (False, True)
    return [rule(f, s) for f in product(flags, repeat=2) for s in product(flags, repeat=4)]


def by_history(rules: list[Rule], i: int) -> Rule:
    """A rule that what was revealed, accepted and emitted before chooses among ``rules``."""
    def length(row: tuple[float, ...], history: History, rows: tuple[tuple[float, ...], ...]) -> int:
        _, kept, revealed, emitted = history[-1]
        told = (revealed[-1] > 0.5) + 2 * kept + 6 * emitted[-1]
        return rules[(7 * i + 13 * told) % len(rules)](row, history, rows)
    return length


@pytest.mark.parametrize("name", WORLDS)
def test_every_rule_that_reads_what_is_revealed_is_replayed_exactly(name: str) -> None:
    world = WORLDS[name]
    rules, lengths = stopping_rules(world), set()
    for i, first in enumerate(rules if world.V == 2 else rules[::5]):
        for start in ((0, 1), (1, 0)):
            pair = (first, by_history(rules, i))
            really, replayed = world.really(start, pair), world.replayed(start, pair)
            assert abs(sum(really.values()) - 1) < 1e-12
            assert distance(really, replayed) < 1e-12, (i, start)
            lengths |= {r[0] for history in really for r in history}
    assert lengths == {0, 1, 2}


@pytest.mark.parametrize("world", [World(2, 3, seed=2), World(2, 3, seed=5)], ids=("a", "b"))
def test_thresholds_on_survival_in_longer_blocks(world: World) -> None:
    """Go on while c_1 … c_k is at least the threshold, which falls after a round with a confident end."""
    for high, low in ((0.5, 0.1), (0.3, 0.02), (0.05, 0.6)):
        def rule(row: tuple[float, ...], history: History, rows: object, high: float = high, low: float = low) -> int:
            least = high if not history or history[-1][2][-1] < 0.5 else low
            survival, length = 1.0, 0
            for c in row:
                survival *= c
                if survival < least:
                    break
                length += 1
            return length

        assert distance(world.really((0, 1), (rule, rule)), world.replayed((0, 1), (rule, rule))) < 1e-12


def test_greedy_decoding_is_replayed_exactly_whatever_is_read() -> None:
    """Current and earlier tails included: nothing is left to chance, so nothing can leak."""
    world = WORLDS["greedy"]
    def nosy(row: tuple[float, ...], history: History, rows: tuple[tuple[float, ...], ...]) -> int:
        return int(row[1] > 0.5) + int(bool(rows) and rows[-1][-1] > 0.4)

    for start in product(range(3), repeat=2):
        assert distance(world.really(start, (nosy,) * 3), world.replayed(start, (nosy,) * 3)) == 0


def test_a_rule_that_looks_ahead_is_not_replayed_and_no_longer_lossless() -> None:
    """Verifying token 1 by c_2, which depends on token 1: the real engine's text changes, the replay's cannot."""
    world = WORLDS["two tokens"]
    level = (world.confidence(1, (0,)) + world.confidence(1, (1,))) / 2
    def leaky(row: tuple[float, ...], history: History, rows: object) -> int:
        return int(row[1] > level)

    really, replayed = (outputs(law, 1) for law in (world.really((0, 1), (leaky,)), world.replayed((0, 1), (leaky,))))
    own = {(t,): float(p) for t, p in enumerate(world.target((0, 1)))}
    assert distance(replayed, own) < 1e-12  # type: ignore[arg-type]
    assert distance(really, own) > 0.02  # type: ignore[arg-type]


def test_earlier_unverified_tails_are_replayed_approximately() -> None:
    """ℓ = 0, then verify by the last confidence of the row before: its tail knows the text ahead, in a replay only."""
    world = World(2, 3, seed=2)
    level = world.levels()[2]
    def nothing(row: tuple[float, ...], history: History, rows: object) -> int:
        return 0

    def by_tail(row: tuple[float, ...], history: History, rows: tuple[tuple[float, ...], ...]) -> int:
        return 3 if rows[-1][2] > level else 0

    really, replayed = (law((0, 1), (nothing, by_tail)) for law in (world.really, world.replayed))
    assert distance(really, replayed) > 0.01  # the joint law of ℓ, accepted and output is off …
    assert distance(outputs(really, 2), outputs(replayed, 2)) < 1e-12  # type: ignore[arg-type]  # … the text's is not
