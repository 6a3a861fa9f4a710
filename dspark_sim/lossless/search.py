"""The search for anticipation: shows decisions twice, with other confidences where nothing was revealed.

Every case starts from a table near an edge (:mod:`.tables`), or from the edge itself: two tables with different
answers are bisected until they are as good as equal, and both ends are perturbed. Perturbations touch only positions
beyond ℓ_r + 1, for all requests at once, for one, and for single positions: set to 0, to 1, to a tie, to other values.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from dspark_sim.curve import StepCurve
from dspark_sim.lossless.bench import F32, Bench, Decision, Rows, frozen
from dspark_sim.lossless.cases import Case, Kind, Leak, compared, play, tail
from dspark_sim.lossless.implied import deviation
from dspark_sim.lossless.subject import Subject
from dspark_sim.lossless.tables import MENU, bench_for, confidences, rows_of
from dspark_sim.lossless.worlds import SPS

__all__ = ["Found", "search"]

Rng = np.random.Generator
HALVINGS = 24
ENOUGH = 60  # leaks without an effect on the output law before the search gives up looking for one that has it
SEVERAL = 5  # leaks with an effect, of different cases: the one that shrinks best is shown


@dataclass
class Found:
    """What a search found.

    Attributes:
        decisions: policy decisions asked for.
        cases: base decisions that were perturbed.
        leaks: leaks by kind; for ``verify_lengths`` such that change the output law, if any does.
        effect: the largest total variation that a leak into verification causes in its own toy world.
        moves_batch: the sum of ℓ followed confidences of the same step (a synchronous decision).
    """

    decisions: int = 0
    cases: int = 0
    leaks: dict[Kind, list[Leak]] = field(default_factory=dict)
    effect: float = 0.0
    moves_batch: bool = False
    _without: int = 0

    @property
    def done(self) -> bool:
        """Nothing new is to be expected."""
        found = len(self.leaks.get("verify_lengths", ()))
        return self._without >= ENOUGH or (self.effect > 0.0 and found >= SEVERAL)

    def add(self, subject: Subject, leak: Leak) -> None:
        """Keep a leak if it is the first or a worse one of its kind."""
        if leak.kind != "verify_lengths":
            self.leaks.setdefault(leak.kind, [leak])
            return
        effect = deviation(subject, leak)
        if effect == 0.0:
            self._without += 1
            self.leaks.setdefault("verify_lengths", [leak])
            return
        if self.effect == 0.0:
            self.leaks["verify_lengths"] = []
        self.leaks["verify_lengths"].append(leak)
        self.effect = max(self.effect, effect)


def search(subject: Subject, cases: int, seed: int) -> Found:
    """Look at ``cases`` base decisions; stops early at leaks that change the output law.

    Raises:
        PolicyFailure: the policy raised, or answered against its contract.
    """
    rng, found = np.random.default_rng(seed), Found()
    sizes = [G for G in subject.sizes if G > 1] or list(subject.sizes)
    known = list(_appendix_a(rng, subject)) if 2 in sizes else []
    while found.cases < cases and not found.done:
        if known:
            bench, history, rows = known.pop(0)
        else:
            G = sizes[min(int(rng.geometric(0.5)) - 1, len(sizes) - 1)]
            R = int(rng.choice([1, 2, 3, 4, 8], p=[0.25, 0.4, 0.15, 0.12, 0.08]))
            steps = 10 if rng.random() < 0.02 else int(rng.choice([0, 1, 2, 3, 4], p=[0.4, 0.15, 0.15, 0.2, 0.1]))
            bench, history, rows = _situation(rng, subject, R, G, steps)
        first = _ask(subject, found, bench, history, rows)
        bases = [(rows, first)]
        if rng.random() < 0.35:
            bases += _edge(rng, subject, found, bench, history, rows, first)
        for base, decision in bases:
            found.cases += 1
            for changed in _perturbed(rng, subject, base, decision):
                case = Case(bench, history, base, changed)
                leaks = compared(case, decision, _ask(subject, found, bench, history, changed))
                for leak in leaks:
                    found.add(subject, leak)
                if leaks and (found.effect or found.done):
                    break
            _whole(rng, subject, found, bench, history, base, decision)
    return found


def _appendix_a(rng: Rng, subject: Subject) -> Iterator[tuple[Bench, tuple[Rows, ...], Rows]]:
    """The paper's own edge comes first: after A, and after B."""
    for c2 in (0.0, 0.9):
        curve = StepCurve(np.arange(1, len(SPS) + 1), 1 / np.array(SPS), extrapolate="linear")
        table = np.array([[0.8, c2]], dtype=np.float32)
        yield Bench(2, curve, 1, host_lag=subject.host_lag), (), rows_of(rng, (0,), table)


def _ask(subject: Subject, found: Found, bench: Bench, history: tuple[Rows, ...], rows: Rows) -> Decision:
    found.decisions += 1
    return play(subject, bench, history, rows)


def _situation(rng: Rng, subject: Subject, R: int, G: int, steps: int) -> tuple[Bench, tuple[Rows, ...], Rows]:
    """An engine, the steps that lead up to a decision (some requests join on the way), and its rows."""
    ids = tuple(range(R))
    joined = rng.integers(0, steps + 1, R) if steps and rng.random() < 0.3 else np.zeros(R, dtype=np.int64)
    joined[0] = 0
    history = []
    for step in range(steps):
        here = tuple(i for i in ids if joined[i] <= step)
        history.append(rows_of(rng, here, confidences(rng, len(here), G)))
    table = confidences(rng, R, G)
    past = history[-min(steps, int(rng.integers(1, 3)))].confidence if steps else None
    bench = bench_for(rng, table, past, R, subject.host_lag, seed=int(rng.integers(0, 1 << 30)))
    return bench, tuple(history), rows_of(rng, ids, table)


def _edge(rng: Rng, subject: Subject, found: Found, bench: Bench, history: tuple[Rows, ...], low: Rows,
          first: Decision) -> list[tuple[Rows, Decision]]:
    """Both sides of the edge between two tables with different answers."""
    high = replace(low, confidence=frozen(confidences(rng, *low.confidence.shape), np.float32))
    second = _ask(subject, found, bench, history, high)
    if np.array_equal(first.lengths, second.lengths):
        return []
    for _ in range(HALVINGS):
        middle = 0.5 * (low.confidence.astype(np.float64) + high.confidence)
        half = replace(low, confidence=frozen(middle, np.float32))
        answer = _ask(subject, found, bench, history, half)
        if np.array_equal(answer.lengths, first.lengths):
            low, first = half, answer
        else:
            high, second = half, answer
    return [(low, first), (high, second)]


def _perturbed(rng: Rng, subject: Subject, rows: Rows, decision: Decision) -> Iterator[Rows]:
    """The same rows with other confidences (and drawn probabilities) where nothing was revealed."""
    R, G = rows.confidence.shape
    stops = [decision.lengths]
    if not np.array_equal(decision.drafted, decision.lengths) and callable(getattr(subject.make(), "stop_drafting", 0)):
        stops.append(decision.drafted)
    for revealed in stops:
        free = tail(revealed, G, 1)
        if subject.probability:
            assert rows.draft_probability is not None
            drawn = tail(revealed, G, 0)
            other = np.where(drawn, np.float32(1) - rows.draft_probability, rows.draft_probability)
            flipped = replace(rows, draft_probability=frozen(other, np.float32))
            yield flipped
        if not free.any():
            continue
        c = rows.confidence
        shown = np.take_along_axis(c, np.minimum(revealed, G - 1)[:, None], axis=1)
        tables: list[F32] = [np.zeros_like(c), np.ones_like(c), 1 - c, np.broadcast_to(shown, c.shape),
                             rng.choice(MENU, c.shape).astype(np.float32), confidences(rng, R, G)]
        masks = [free] * len(tables)
        if R > 1:  # up for some requests, down for the others
            side = rng.random((R, 1)) < 0.5
            tables += [np.where(side, np.float32(1), np.float32(0)) * np.ones_like(c)] * 2
            masks += [free, free & side]
        r, k = (int(x) for x in rng.permutation(np.argwhere(free))[0])
        one = np.zeros_like(free)
        one[r, k] = True
        tables.append(np.full_like(c, np.float32(0 if c[r, k] > 0.5 else 1)))
        masks.append(one)
        for table, mask in zip(tables, masks, strict=True):
            changed = np.where(mask, table, c)
            if not np.array_equal(changed, c):
                yield replace(flipped if subject.probability and rng.random() < 0.3 else rows,
                              confidence=frozen(changed, np.float32))


def _whole(rng: Rng, subject: Subject, found: Found, bench: Bench, history: tuple[Rows, ...], rows: Rows,
           first: Decision) -> None:
    """Change everything, what was revealed too: draft lengths must not follow; an overlapped batch size neither."""
    table = np.clip(confidences(rng, *rows.confidence.shape), 0.01, 1)
    other = replace(rows, confidence=frozen(table, np.float32))
    second = _ask(subject, found, bench, history, other)
    for leak in compared(Case(bench, history, rows, other), first, second):
        found.add(subject, leak)
    if int(first.lengths.sum()) != int(second.lengths.sum()) and rows.confidence.min() > 0:
        found.moves_batch = True
