"""The contract of :mod:`dspark_sim.policy`, held against one policy: what every engine relies on.

Populations in which requests come and go, drafts that are cut short, ends that are near, one request and many, new and
old ones mixed; the same run twice; the same object started twice.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from dspark_sim.curve import StepCurve
from dspark_sim.errors import PolicyFailure
from dspark_sim.lossless.bench import Bench, Rows, frozen
from dspark_sim.lossless.report import Check
from dspark_sim.lossless.stage import Stage
from dspark_sim.lossless.subject import Subject
from dspark_sim.lossless.tables import confidences, rows_of

__all__ = ["check_contract"]

Answers = list[tuple[list[int], list[int], list[int]]]
CURVE = StepCurve(np.array([1, 8, 64, 1024]), np.array([1.0, 1.1, 2.0, 20.0]), between="hold", extrapolate="linear")
CROWDS = ((1, 25), (6, 30), (70, 4))  # (requests at most, steps)


def check_contract(subject: Subject, seed: int) -> list[Check]:
    """Answers, views left alone, repeatable, started anew, nothing read before it exists."""
    if subject.broken:
        return [Check("contract", "answers", False, f"fails in the simplest engine: {subject.broken}")]
    steps, early = 0, set[str]()
    try:
        for G in _sizes(subject):
            for most, count in CROWDS:
                stage = Stage(subject.make(), _bench(subject, G, most, seed), _outputs(seed), guarded=True)
                steps += len(_run(stage, most, count, seed))
                early |= stage.early
    except _WroteError as wrote:
        return [Check("contract", "answers", False, str(wrote))]
    except (PolicyFailure, ValueError) as problem:
        return [Check("contract", "answers", False, str(problem))]
    sizes = ", ".join(map(str, sorted(subject.sizes)))
    note = f" ({subject.refused})" if subject.refused else ""
    checks = [Check("contract", "answers", True,
                    f"{steps} steps, 1 to 70 requests, block sizes {sizes}{note}, host_lag {subject.host_lag}: whole "
                    "numbers within the draft, views left alone")]
    return [*checks, _repeatable(subject, seed), _restarted(subject, seed), _early(early)]


def _sizes(subject: Subject) -> list[int]:
    return sorted({subject.sizes[0], subject.sizes[len(subject.sizes) // 2], max(subject.sizes), min(subject.sizes)})


def _bench(subject: Subject, G: int, most: int, seed: int) -> Bench:
    return Bench(G, CURVE, most, host_lag=subject.host_lag, seed=seed)


def _outputs(seed: int) -> dict[int, int]:
    rng = np.random.default_rng([seed, 1])
    return {i: int(n) for i, n in enumerate(rng.integers(2, 40, 2000))}


def _run(stage: Stage, most: int, steps: int, seed: int) -> Answers:
    """One population; rows come from ``seed`` alone, so runs of equal policies are equal."""
    rng = np.random.default_rng([seed, most, stage.block_size])
    running: list[int] = []
    born = 0
    out: Answers = []
    for _ in range(steps):
        running = [i for i in running if stage.left(i) > 0]
        while len(running) < most and (len(running) < most - 8 or rng.random() < 0.8):
            running.append(born)
            born += 1
        if len(running) > 1 and rng.random() < 0.15:  # preempted: comes back without a past, behind the others
            running.append(running.pop(int(rng.integers(0, len(running) - 1))))
            _answer(stage, rng, tuple(running[:-1]), out)
        _answer(stage, rng, tuple(running), out)
    return out


def _answer(stage: Stage, rng: np.random.Generator, ids: tuple[int, ...], out: Answers) -> None:
    ids = tuple(i for i in ids if stage.left(i) > 0)
    if not ids:
        return
    G = stage.block_size
    rows: Rows = rows_of(rng, ids, confidences(rng, len(ids), G))
    limit = np.where(rng.random(len(ids)) < 0.15, rng.integers(0, G + 1, len(ids)), G)
    prefill = int(rng.integers(0, 64)) if rng.random() < 0.2 else 0
    decision = stage.decide(replace(rows, limit=frozen(limit, np.int64), prefill_tokens=prefill))
    for name, array, copy in stage.handed:
        if array.flags.writeable or not np.array_equal(array, copy, equal_nan=True):
            raise _WroteError(f"writes into view.{name} (views are read-only; copy what you keep)")
    out.append((decision.asked.tolist(), decision.drafted.tolist(), decision.lengths.tolist()))
    stage.settle()


class _WroteError(Exception):
    """The policy changed what it was shown."""


def _repeatable(subject: Subject, seed: int) -> Check:
    G, title = subject.sizes[0], "repeatable"
    try:
        runs = []
        for stir in (1, 2):
            with _stirred(stir):
                runs.append(_run(Stage(subject.make(), _bench(subject, G, 6, seed), _outputs(seed)), 6, 30, seed))
    except (PolicyFailure, ValueError) as problem:
        return Check("contract", title, False, str(problem))
    at = _differ(*runs)
    if at is None:
        return Check("contract", title, True, "two fresh objects with the same random stream give the same answers")
    return Check("contract", title, False, f"two fresh objects with the same random stream differ at decode step {at}: "
                 "draw from setup.rng only, and keep nothing on the class or in the module")


def _restarted(subject: Subject, seed: int) -> Check:
    G, title = subject.sizes[0], "starts anew"
    policy = subject.make()
    try:
        runs = [_run(Stage(policy, _bench(subject, G, 6, seed), _outputs(seed)), 6, 30, seed) for _ in range(2)]
    except (PolicyFailure, ValueError) as problem:
        return Check("contract", title, False, str(problem))
    at = _differ(*runs)
    if at is None:
        return Check("contract", title, True, "an object that is started again has forgotten the first run")
    return Check("contract", title, False, f"started again, one object differs from its first run at decode step {at}: "
                 "set all state in start(setup)")


def _early(early: set[str]) -> Check:
    forbidden = sorted(early - {"past"})
    if not forbidden:
        return Check("contract", "before drafting", True, "nothing of this step is read before it is drafted")
    return Check("contract", "before drafting", False,
                 f"draft_lengths reads {' and '.join('view.' + name for name in forbidden)} (or survival): before "
                 "drafting this step has none; only past(n) exists")


def _differ(first: Answers, second: Answers) -> int | None:
    if first == second:
        return None
    pairs = zip(first, second, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))


@contextmanager
def _stirred(seed: int) -> Iterator[None]:
    """Global random streams in some state, and back as they were: a policy that uses them is not repeatable."""
    ours, numpys = random.getstate(), np.random.get_state()
    random.seed(seed)
    np.random.seed(seed)
    try:
        yield
    finally:
        random.setstate(ours)
        np.random.set_state(numpys)
