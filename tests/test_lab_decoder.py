"""The real ``collect``, replayed, against plain speculative decoding (tests/plain_decoder.py) on the same tiny models.

Sampling: attention is silenced, so that every round is a draw from a law that its last two tokens decide, and few long
documents give thousands of rounds; cells are whole rounds (ℓ, tokens, revealed confidences) by anchor and by what the
round before was. Greedy: attention is on, and both must agree round by round.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

import numpy as np
import pytest
import torch
from scipy.stats import chi2

from dspark_sim.lab import coupling
from dspark_sim.lab.collect import collect
from dspark_sim.lab.corpus import Document
from dspark_sim.lab.drafters import Drafter
from dspark_sim.lab.target import Target
from dspark_sim.trace import AcceptanceTrace
from tests.lab_models import tiny_drafter, tiny_target
from tests.plain_decoder import PlainDecoder

torch.set_num_threads(1)
Round: TypeAlias = tuple[int, tuple[int, ...], tuple[float, ...]]  # ℓ, emitted, confidences 1 … ℓ + 1
Rule: TypeAlias = Callable[[list[float], Round | None], int]
ROUNDS, DOCUMENTS, TOKENS, BLOCK = 12_000, 8, 480, 3


def models(kind: str, silent: bool) -> tuple[Target, Drafter]:
    target = tiny_target("qwen3", vocab=4, seed=2, hidden=16)
    drafter = tiny_drafter(kind, target, block_size=BLOCK, seed=2, draft_vocab=3)  # type: ignore[arg-type]
    with torch.no_grad():
        for name, weight in [*target.model.named_parameters(), *drafter.named_parameters()]:
            if silent and name.endswith("o_proj.weight"):
                weight.zero_()
            if "markov" in name or "confidence" in name:
                weight.mul_(2.5)
    return target, drafter


def rule_for(levels: list[float]) -> Rule:
    """Verify while confidences are high, all the same after a long round, nothing after a doubtful one: ℓ = 0 … G."""
    def rule(sure: list[float], before: Round | None) -> int:
        length = 0
        for c, level in zip(sure, levels, strict=True):
            if c < level and not (before is not None and len(before[1]) > 2):
                break
            length += 1
        return min(length, 1) if before is not None and before[2][-1] < min(levels) else length
    return rule


def replayed(trace: AcceptanceTrace, texts: list[Document], rule: Rule) -> Iterator[list[Round]]:
    """Rounds of every document, from its first row: what an engine makes of a trace."""
    for d, text in enumerate(texts):
        start, end = int(trace.document_start[d]), int(trace.document_start[d + 1])
        at, rounds, before = 0, list[Round](), None
        while at + BLOCK + 1 < end - start:
            sure = [0.0] * BLOCK if trace.confidence is None else trace.confidence[start + at].tolist()
            length = rule(sure, before)
            n = min(length, int(trace.accepted[start + at])) + 1
            before = (length, tuple(text.response[at:at + n].tolist()), tuple(sure[:length + 1]))
            rounds.append(before)
            at += n
        yield rounds


def cells(walks: Iterable[list[Round]], prompt: tuple[int, ...]) -> dict[object, Counter[object]]:
    """Rounds by the two tokens before them, and by the round before them with its last token."""
    out: dict[object, Counter[object]] = {}
    for rounds in walks:
        text = prompt
        for i, (length, emitted, sure) in enumerate(rounds):
            key = (length, emitted, tuple(round(c, 3) for c in sure))
            out.setdefault(("tokens", text[-2:]), Counter())[key] += 1
            if i:
                out.setdefault(("round", len(rounds[i - 1][1]), rounds[i - 1][0], text[-2:]), Counter())[key] += 1
            text += emitted
    return out


def chi_square(a: dict[object, Counter[object]], b: dict[object, Counter[object]], what: str) -> tuple[float, int]:
    """p-value and cells of the hypothesis that both come from one law, given what stands before; rare cells pooled."""
    statistic, freedom = 0.0, 0
    for state in {s for s in (*a, *b) if s[0] == what}:  # type: ignore[index]
        mine, theirs = a.get(state, Counter()), b.get(state, Counter())
        n, m = mine.total(), theirs.total()
        if min(n, m) < 20:
            continue
        pooled, table = [0, 0], []
        for key in {*mine, *theirs}:
            pair = [mine[key], theirs[key]]
            if sum(pair) * n / (n + m) < 5:
                pooled = [pooled[0] + pair[0], pooled[1] + pair[1]]
            else:
                table.append(pair)
        if sum(pooled) * n / (n + m) >= 5:
            table.append(pooled)
        expected = [[sum(row) * n / (n + m), sum(row) * m / (n + m)] for row in table]
        statistic += sum((x - e) ** 2 / e for row, exp in zip(table, expected, strict=True)
                         for x, e in zip(row, exp, strict=True))
        freedom += max(0, len(table) - 1)
    return float(chi2.sf(statistic, freedom)), freedom


def both(kind: str, seed: int) -> tuple[dict[object, Counter[object]], dict[object, Counter[object]]]:
    """Cells of collection with replay, and of the plain decoder."""
    target, drafter = models(kind, silent=True)
    decoder, rng, prompt = PlainDecoder(target, drafter, 1.0), np.random.default_rng(seed), (2, 3, 0)
    level = [float(np.median([decoder.q((a, b), (0,) * k)[1] for a in range(4) for b in range(4)]))
             for k in range(BLOCK)] if drafter.has_confidence else [0.0] * BLOCK
    rule = rule_for(level)
    texts = []
    for i in range(DOCUMENTS):
        response = [0]
        for _ in range(TOKENS):
            response.append(int(rng.choice(4, p=decoder.p((response[-1],)))))
        texts.append(Document(i, "toy", "held-out", np.array(prompt), np.array(response[1:]), False))
    trace = collect(target, {"it": drafter}, texts, seed=seed)["it"]
    rounds, text, before = list[Round](), prompt, None
    for _ in range(ROUNDS):
        seen = before
        length, _, sure, emitted = decoder.round(text[-2:], lambda c, seen=seen: rule(c, seen), rng)  # type: ignore[misc]
        before = (length, emitted, tuple((sure if drafter.has_confidence else [0.0] * BLOCK)[:length + 1]))
        rounds.append(before)
        text += emitted
    return cells(replayed(trace, texts, rule), prompt), cells([rounds], prompt)


@pytest.mark.parametrize("kind", ["dspark", "eagle3"])
def test_collected_rounds_follow_the_law_of_plain_decoding(kind: str) -> None:
    collected, plain = both(kind, seed=11)
    for what in ("tokens", "round"):
        p, freedom = chi_square(collected, plain, what)
        assert p > 0.01, (what, p)
        assert freedom > 50, what
    lengths = {length for counts in collected.values() for length, _, _ in counts}  # type: ignore[attr-defined]
    assert lengths == ({0, 1, 3} if kind == "dspark" else {3})


@pytest.mark.parametrize("mistake", ["ratio upside down", "residual of the wrong side"])
def test_a_wrong_coupling_is_seen(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right, left = coupling.acceptance, coupling.residual
    if mistake == "ratio upside down":
        monkeypatch.setattr(coupling, "acceptance", lambda draft, target: right(target, draft) * (draft > 0))
    else:
        monkeypatch.setattr(coupling, "residual", lambda draft, target: left(target, draft))
    collected, plain = both("dspark", seed=11)
    assert min(chi_square(collected, plain, what)[0] for what in ("tokens", "round")) < 1e-6


@pytest.mark.parametrize("kind", ["dspark", "eagle3"])
def test_greedy_rounds_are_those_of_plain_decoding(kind: str) -> None:
    target, drafter = models(kind, silent=False)
    decoder, rng, prompt = PlainDecoder(target, drafter, 0.0), np.random.default_rng(0), (2, 3, 0)
    texts = [Document(0, "toy", "held-out", np.array(prompt), np.array(decoder.write(prompt, 30, rng)), False)]
    trace = collect(target, {"it": drafter}, texts, temperature=0.0)["it"]
    rule = rule_for([0.5, 0.6, 0.4] if drafter.has_confidence else [0.0] * BLOCK)
    [rounds] = replayed(trace, texts, rule)
    text, before = prompt, None
    for length, emitted, sure in rounds:
        seen = before
        plain = decoder.round(text, lambda c, seen=seen: rule(c, seen), rng)  # type: ignore[misc]
        assert (plain[0], plain[3]) == (length, emitted)
        if drafter.has_confidence:
            assert np.allclose(plain[2][:length + 1], sure, atol=1e-5)
        before = (length, emitted, sure)
        text += emitted
    assert len(rounds) > 5
