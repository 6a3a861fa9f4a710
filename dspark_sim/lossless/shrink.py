"""Make a counterexample small: fewer steps, requests and positions, fewer changed confidences, round numbers.

Every pass proposes simpler cases and keeps those that still leak in the same way (and, where the first one did, still
bend the output law). Passes repeat until none helps or the budget of decisions is spent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from dspark_sim.curve import StepCurve
from dspark_sim.errors import PolicyFailure
from dspark_sim.lossless.bench import Bench, Rows, frozen
from dspark_sim.lossless.cases import Case, Kind, Leak, judge
from dspark_sim.lossless.implied import deviation
from dspark_sim.lossless.subject import Subject

__all__ = ["complexity", "shrink"]

NICE = (0.5, 1.0, 0.0, 0.9, 0.8, 0.1, 0.2, 0.7)
PAIRS = ((0.0, 1.0), (1.0, 0.0), (0.0, 0.9), (0.9, 0.0), (0.1, 0.9), (0.9, 0.1))
SIZE = 1e-9


def shrink(subject: Subject, leak: Leak, *, bends: bool, tries: int = 1000) -> Leak:
    """The smallest case found that leaks like ``leak``; ``bends``: its implied output law must stay wrong."""
    left = tries
    passes: list[Callable[[Leak], Iterator[Case | None]]] = [
        _fewer_steps, _fewer_requests, _fewer_positions, _dense_curve, _fewer_changes, _plain_curve, _round_history,
        _round_values,
    ]
    while True:
        before = left
        improved = False
        for step in passes:
            restart = True
            while restart and left > 0:
                restart = False
                for case in step(leak):
                    if case is None or left <= 0:
                        continue
                    left -= 1
                    smaller = _still(subject, case, leak.kind, bends)
                    if smaller is not None:
                        leak, improved, restart = smaller, True, True
                        break
        if not improved or left <= 0 or left == before:
            return _still(subject, _numbered(leak.case), leak.kind, bends) or leak


def _still(subject: Subject, case: Case, kind: Kind, bends: bool) -> Leak | None:
    if case.bench.block_size not in subject.sizes:
        return None
    try:
        leak = judge(subject, case, kind)
        if leak is None or (bends and deviation(subject, leak) < SIZE):
            return None
    except (PolicyFailure, ValueError):
        return None
    return leak


# -- cutting ---------------------------------------------------------------------------------------------------------
def _fewer_steps(leak: Leak) -> Iterator[Case]:
    for i in range(len(leak.case.history)):
        yield replace(leak.case, history=leak.case.history[:i] + leak.case.history[i + 1 :])


def _fewer_requests(leak: Leak) -> Iterator[Case | None]:
    case = leak.case
    for gone in reversed(case.before.ids):
        if len(case.before.ids) == 1:
            return
        history = tuple(_without(rows, gone) for rows in case.history)
        smaller = replace(case, before=_without(case.before, gone), after=_without(case.after, gone),
                          history=tuple(rows for rows in history if rows.ids))
        yield smaller
        for shift in (1, 1 + case.bench.block_size):  # a curve that was aimed at one request more
            c = case.bench.curve
            tokens = c.batch_tokens - shift
            if (tokens > 0).sum() > 1:
                curve = replace(c, batch_tokens=tokens[tokens > 0], seconds=c.seconds[tokens > 0], graph_limit=None)
                yield replace(smaller, bench=_with(case.bench, curve=curve))


def _without(rows: Rows, gone: int) -> Rows:
    keep = np.array([i != gone for i in rows.ids])
    return _cut(rows, keep, np.ones(rows.confidence.shape[1], dtype=np.bool_))


def _cut(rows: Rows, keep: npt.NDArray[np.bool_], columns: npt.NDArray[np.bool_]) -> Rows:
    p = rows.draft_probability
    return Rows(
        tuple(i for i, k in zip(rows.ids, keep, strict=True) if k),
        frozen(rows.confidence[keep][:, columns], np.float32),
        frozen(np.minimum(rows.kept[keep], columns.sum()), np.int64),
        None if p is None else frozen(p[keep][:, columns], np.float32),
    )


def _fewer_positions(leak: Leak) -> Iterator[Case]:
    case, G = leak.case, leak.case.bench.block_size
    for k in reversed(range(G)):
        columns = np.arange(G) != k
        if G > 1:
            before, after, *history = (_cut(rows, np.ones(len(rows.ids), dtype=np.bool_), columns)
                                       for rows in (case.before, case.after, *case.history))
            yield Case(_with(case.bench, block_size=G - 1), tuple(history), before, after)


def _with(bench: Bench, **changes: Any) -> Bench:
    return replace(bench, _cost=[], **changes)


def _numbered(case: Case) -> Case:
    """Requests counted 0, 1, … in admission order."""
    names = {i: n for n, i in enumerate(case.before.ids)}
    before, after, *history = (replace(rows, ids=tuple(names[i] for i in rows.ids))
                               for rows in (case.before, case.after, *case.history))
    return replace(case, before=before, after=after, history=tuple(history))


# -- what changes ----------------------------------------------------------------------------------------------------
def _fewer_changes(leak: Leak) -> Iterator[Case]:
    case = leak.case
    for r, k in np.argwhere(case.before.confidence != case.after.confidence).tolist():
        yield replace(case, after=_set(case.after, "confidence", r, k, case.before.confidence[r, k]))
    p, q = case.before.draft_probability, case.after.draft_probability
    if p is not None and q is not None:
        for r, k in np.argwhere(p != q).tolist():
            yield replace(case, after=_set(case.after, "draft_probability", r, k, p[r, k]))


def _set(rows: Rows, what: str, r: int, k: int, value: float) -> Rows:
    table = np.array(getattr(rows, what))
    table[r, k] = value
    return replace(rows, **{what: frozen(table, np.float32)})


def _rank(value: float) -> int:
    return NICE.index(value) if value in NICE else len(NICE)


def _rounder(value: float) -> Iterator[float]:
    """Simpler values to try instead; the old one must not be among the simplest already."""
    at = _rank(round(value, 6))
    yield from NICE[:at]
    if at == len(NICE):
        for digits in (1, 2, 3):
            if round(value, digits) != round(value, 6):
                yield round(value, digits)


def _round_values(leak: Leak) -> Iterator[Case]:
    case = leak.case
    for what in ("confidence", "draft_probability"):
        a, b = getattr(case.before, what), getattr(case.after, what)
        if a is None or b is None:
            continue
        for r, k in np.ndindex(*a.shape):
            old, new = round(float(a[r, k]), 6), round(float(b[r, k]), 6)
            if old == new:
                pairs = [(v, v) for v in _rounder(old)]
            elif what == "confidence":
                now = PAIRS.index((old, new)) if (old, new) in PAIRS else len(PAIRS)
                pairs = list(PAIRS[:now])
            else:
                pairs = []  # a drawn probability and its complement belong together
            for x, y in pairs:
                yield replace(case, before=_set(case.before, what, r, k, x), after=_set(case.after, what, r, k, y))


def _round_history(leak: Leak) -> Iterator[Case]:
    case = leak.case
    for n, rows in enumerate(case.history):
        def put(new: Rows, n: int = n) -> Case:
            return replace(case, history=(*case.history[:n], new, *case.history[n + 1 :]))

        if rows.kept.any():
            yield put(replace(rows, kept=frozen(np.zeros_like(rows.kept), np.int64)))
        for what in ("confidence", "draft_probability"):
            table = getattr(rows, what)
            if table is None:
                continue
            if (table != 0.5).any():
                yield put(replace(rows, **{what: frozen(np.full(table.shape, 0.5), np.float32)}))
            for r, k in np.ndindex(*table.shape):
                for value in _rounder(float(table[r, k])):
                    yield put(_set(rows, what, r, k, value))


# -- the curve -------------------------------------------------------------------------------------------------------
def _dense_curve(leak: Leak) -> Iterator[Case]:
    """The curve as plain seconds at 1, 2, 3, … tokens, as many as this batch can have."""
    bench, most = leak.case.bench, len(leak.case.before.ids)
    size = most * (1 + bench.block_size)
    curve = bench.curve
    dense = curve.between == "linear" and np.array_equal(curve.batch_tokens, np.arange(1, size + 1))
    if not dense or bench.most != most:
        seconds = curve.at(np.arange(1, size + 1))
        yield replace(leak.case, bench=_with(bench, curve=_line(seconds), most=most, ragged="flattened"))
        yield replace(leak.case, bench=_with(bench, curve=_line(seconds), most=most))


def _line(seconds: npt.ArrayLike) -> StepCurve:
    s = np.asarray(seconds, dtype=np.float64)
    return StepCurve(np.arange(1, s.size + 1), s, extrapolate="linear")


def _plain_curve(leak: Leak) -> Iterator[Case]:
    case, curve = leak.case, leak.case.bench.curve
    s = curve.seconds
    if curve.between == "hold" or not np.array_equal(curve.batch_tokens, np.arange(1, s.size + 1)):
        return
    if (s != 1.0).any():
        yield replace(case, bench=_with(case.bench, curve=_line(np.ones_like(s))))
    for digits in (1, 2, 3, 4):
        rounded = np.round(s, digits)
        if (rounded > 0).all() and (np.round(s, 9) != rounded).any():
            yield replace(case, bench=_with(case.bench, curve=_line(rounded)))
            for i in range(s.size):
                if abs(s[i] - rounded[i]) > SIZE:
                    one = s.copy()
                    one[i] = rounded[i]
                    yield replace(case, bench=_with(case.bench, curve=_line(one)))
    for i in range(1, s.size):
        if s[i] != s[i - 1]:
            same = s.copy()
            same[i] = s[i - 1]
            yield replace(case, bench=_with(case.bench, curve=_line(same)))


def complexity(leak: Leak) -> tuple[int, ...]:
    """What makes one counterexample harder to read than another: the smallest is shown."""
    case = leak.case
    changed = int((case.before.confidence != case.after.confidence).sum())
    odd = sum(_rank(round(float(v), 6)) == len(NICE) for v in case.before.confidence.flat)
    seconds = case.bench.curve.seconds
    return (len(case.history), len(case.before.ids), case.bench.block_size, changed, odd, int(np.ptp(seconds) > 0))
