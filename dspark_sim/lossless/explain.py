"""A counterexample in the paper's terms: requests, confidences, ℓ, and which token leaks into whose admission."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from dspark_sim.lossless.bench import F32, Rows
from dspark_sim.lossless.cases import Leak
from dspark_sim.lossless.enumerate import Laws
from dspark_sim.lossless.implied import ImpliedLaw

__all__ = ["counterexample", "law_rows", "leaks_into"]


def counterexample(leak: Leak, law: ImpliedLaw | None) -> list[str]:
    """Lines of text: what was shown twice, what came back, what that means, and the law that follows."""
    case, G = leak.case, leak.case.bench.block_size
    first, second = leak.answers()
    shown = (case.before, case.after)
    out = [f"{_count(len(case.before.ids), 'request')}, block size {G}{_engine(leak)}"]
    for n, rows in enumerate(case.history, start=-len(case.history)):
        out += _table(f"step {n}", rows, None, "")
    symbol = {"verify_lengths": "ℓ", "stop_drafting": "drafted", "draft_lengths": "draft length"}[leak.kind]
    ahead = {"verify_lengths": 1, "stop_drafting": 1, "draft_lengths": 0}[leak.kind]
    for word, rows, answer in zip(("before", "after"), shown, (first, second), strict=True):
        revealed = np.zeros_like(first) if leak.kind == "draft_lengths" else first + ahead
        out += _table(word, rows, answer, symbol, revealed)
    p, q = case.before.draft_probability, case.after.draft_probability
    if p is not None and q is not None and (p != q).any():
        for word, table in (("before", p), ("after", q)):
            out += [f"  {word:7} request {r + 1}  probability of the tokens drawn: {_numbers(table[r])}"
                    for r in range(len(table))]
    return [*out, *leaks_into(leak), *_law(law)]


def _engine(leak: Leak) -> str:
    bench, R = leak.case.bench, len(leak.case.before.ids)
    seconds = bench.curve.at(np.arange(R, R * (1 + bench.block_size) + 1))
    if np.ptp(seconds) == 0:
        return "; step times play no part"
    times = ", ".join(f"{s:.6g}" for s in seconds)
    return f"; step times at B = {R} … {R + seconds.size - 1}: {times}" + (
        "" if bench.ragged == "flattened" else " (padded engine)")


def _table(word: str, rows: Rows, answer: np.ndarray[tuple[int], np.dtype[np.int64]] | None, symbol: str,
           revealed: np.ndarray[tuple[int], np.dtype[np.int64]] | None = None) -> list[str]:
    out = []
    for r, i in enumerate(rows.ids):
        c = rows.confidence[r]
        n = c.size if revealed is None else min(int(revealed[r]), c.size)
        values = _numbers(c[:n]) + (" | " + _numbers(c[n:]) if n < c.size else "")
        end = "" if answer is None else f"   {symbol} = {answer[r]}"
        out.append(f"  {word:7} request {i + 1}  c = {values.strip()}{end}")
    return out


def _numbers(values: F32) -> str:
    return ", ".join(f"{float(v):.6g}" for v in values)


def leaks_into(leak: Leak) -> list[str]:
    """Sentences: what changed, and what followed it although nobody could know it yet."""
    case = leak.case
    first, second = leak.answers()
    moved = case.before.confidence != case.after.confidence
    p, q = case.before.draft_probability, case.after.draft_probability
    drawn = np.zeros_like(moved) if p is None or q is None else p != q
    changes = [f"c_{{{case.before.ids[r] + 1},{k + 1}}}" for r, k in np.argwhere(moved).tolist()]
    changes += [f"the probability of token {k + 1} of request {case.before.ids[r] + 1}"
                for r, k in np.argwhere(drawn).tolist()]
    what = _and(changes)
    if leak.kind == "draft_lengths":
        return [f"Only {what} changed, and draft_lengths followed: before drafting no confidence of this step exists."]
    if leak.kind == "stop_drafting":
        return [f"Only {what} changed, beyond the token at which drafting had stopped, and the stop moved: a drafter "
                "that stops after s tokens has computed c_1 … c_{s+1} and nothing else."]
    affected = np.flatnonzero(first != second).tolist()
    late = "known only once those tokens are drawn" if drawn.any() else "beyond ℓ + 1"
    sentences = [f"Only {what} changed: {late}."]
    for r in np.flatnonzero((moved | drawn).any(axis=1)).tolist():
        token = int(min(first[r], second[r])) + 1
        names = []
        for s in affected:
            low, high = sorted((int(first[s]), int(second[s])))
            span = f"token {low + 1}" if high == low + 1 else f"tokens {low + 1} to {high}"
            own = s == r and low < token <= high
            names.append("its own admission" if own else f"the admission of {span} of request {case.before.ids[s] + 1}")
        sentences.append(f"What changed there depends on token {token} of request {case.before.ids[r] + 1}, which so "
                         f"leaks into {_and(names)}.")
    return sentences


def _law(law: ImpliedLaw | None) -> list[str]:
    if law is None:
        return []
    who = _and([f"token {m} of request {r + 1}" for r, m in zip(law.requests, law.positions, strict=True)])
    q = law.drafter[0]
    out = [f"Let {who} be A or B, drafter ({float(q[0]):g}, {float(q[1]):g}), target (0.7, 0.3), and let it decide:",
           *(f"  request {r + 1} goes on as {'after' if a else 'before'} if it is A, "
             f"as {'before' if a else 'after'} if it is B"
             for r, a in zip(law.requests, law.token_a, strict=True)),
           f"  {'outcome':>9}  {'policy':>10}  {'target':>10}"]
    out += [f"  {x:>9}  {float(p):>10.6g}  {float(law.target[x]):>10.6g}" for x, p in law.policy.items()]
    if law.deviation == 0:
        out.append("  The law is exact in this toy: the rule is stricter than what this case needs; it is not proven.")
    return out


def law_rows(laws: Laws, most: int = 8) -> list[tuple[str, float, float]]:
    """(outcome, policy, target), outcomes as letters, the worst first; at most ``most`` of them."""
    keys = sorted(laws.target.keys() | laws.policy.keys())
    rows = [(" ".join("".join("ABC"[t] for t in text) for text in k), laws.policy.get(k), laws.target.get(k))
            for k in keys]
    full = [(name, float(p or 0), float(q or 0)) for name, p, q in rows]
    if len(full) > most:
        full.sort(key=lambda row: (-abs(row[1] - row[2]), row[0]))
    return full[:most]


def _and(parts: Iterable[str]) -> str:
    *rest, last = list(parts)
    return f"{', '.join(rest)} and {last}" if rest else last


def _count(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"
