"""A log of decoding rounds, one line per request or per round, as a recording by text position.

Rounds are laid end to end: a request is a document, its first round begins at its row 0, and a round that kept a draft
tokens is followed by one that begins 1 + a rows later. Decoding with every token verified then visits exactly the
rounds of the log. No round began at the rows between them; they are *filled in*: the run of accepted tokens that was
seen goes on to its end, one token shorter at each row; where a round kept all G tokens no rejection was seen, and the
run goes on through the bonus token into the next round. Policies that verify less visit such rows, so they are replayed
approximately (docs/calibration.md states by how much). Confidences go along, shifted; the last one is repeated.

Shapes: N rounds of one request, G block size, P rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from dspark_sim.errors import TraceError, shown
from dspark_sim.trace import MAX_BLOCK

__all__ = ["Filled", "Request", "fill", "laid_out", "read_requests"]

IntArray: TypeAlias = npt.NDArray[np.int64]
ACCEPTED = ("accepted_draft_lengths", "per_step_accepted", "accepted")  # bonus excluded
WITH_BONUS = "acceptance_lengths"
DRAFTED = ("proposal_lengths", "per_step_drafted", "drafted")
CONFIDENCE = ("confidences", "confidence")
DOMAIN = ("domain", "dataset", "task")
CENSORED = 0.01  # share of rounds cut short by a shorter draft that is let pass, said
MAX_ROWS = 20_000_000


@dataclass(frozen=True)
class Request:
    """Rounds of one request, in order. ``drafted``: None if not logged; ``confidence``: a list per round."""

    accepted: list[int]
    drafted: list[int] | None
    confidence: list[list[float]] | None
    domain: str | None
    line: int


@dataclass(frozen=True)
class Filled:
    """Columns of a recording; ``began``: (P,) whether a round of the log began at the row."""

    accepted: npt.NDArray[np.uint8]
    confidence: npt.NDArray[np.float32] | None
    document_start: IntArray
    began: npt.NDArray[np.bool_]


def read_requests(values: Sequence[tuple[int, Any]], path: Path) -> tuple[list[Request], list[str]]:
    """Requests of a log, and what had to be assumed about it.

    A line per request holds lists under ``accepted_draft_lengths`` (DeepSpec's name), ``per_step_accepted`` (vLLM's) or
    ``accepted``; or ``acceptance_lengths``, which count the bonus token. A line per round holds whole numbers under
    ``accepted``, and ``request``, the name of its request. Optional: drafted tokens, confidences, domain.
    """
    out, rounds, notes = list[Request](), dict[str, Request](), list[str]()
    bonus = False
    for line, value in values:
        if not isinstance(value, dict):
            raise TraceError(f"got {shown(value)}", file=path, line=line, allowed="a JSON object per request or round")
        inner = _inner(value)
        name = next((n for n in ACCEPTED if n in inner), WITH_BONUS if WITH_BONUS in inner else None)
        if name is None:
            raise TraceError(f"has the keys {', '.join(map(str, list(value)[:8]))}", file=path, line=line,
                             allowed=f"{', '.join(ACCEPTED)} or {WITH_BONUS}")
        domain = next((str(value[n]) for n in DOMAIN if isinstance(value.get(n), str)), None)
        drafted = next((inner[n] for n in DRAFTED if n in inner), None)
        confidence = next((inner[n] for n in CONFIDENCE if inner.get(n) is not None), None)
        kept = inner[name]
        if isinstance(kept, list):
            lengths = _counts(kept, path, line, name)
            if name == WITH_BONUS:
                bonus = True
                lengths = [_less(n, path, line) for n in lengths]
            if lengths:
                out.append(Request(lengths, None if drafted is None else _counts(drafted, path, line, "drafted"),
                                   confidence, domain, line))
        else:
            key = value.get("request")
            if name != "accepted" or isinstance(key, bool) or not isinstance(key, (str, int)):
                raise TraceError("is missing" if key is None else f"got {shown(key)}", file=path, line=line,
                                 key="request", allowed="the name of the round's request, and accepted: a whole number")
            one = rounds.setdefault(str(key), Request([], None if drafted is None else [],
                                                      None if confidence is None else [], domain, line))
            if (one.drafted is None) != (drafted is None) or (one.confidence is None) != (confidence is None):
                raise TraceError(f"request {key!r} has drafted or confidence in some rounds only", file=path, line=line)
            one.accepted.extend(_counts([kept], path, line, name))
            if one.drafted is not None:
                one.drafted.extend(_counts([drafted], path, line, "drafted"))
            if one.confidence is not None and confidence is not None:
                one.confidence.append(confidence)
    if bonus:
        notes.append(f"{WITH_BONUS} count the bonus token: one was taken off each round")
    return [*out, *rounds.values()], notes


def _inner(value: dict[str, Any]) -> dict[str, Any]:
    """Where a response of vLLM keeps its arrays; other lines are what they are."""
    metrics = value.get("metrics")
    inner = metrics.get("speculative_decoding") if isinstance(metrics, dict) else value.get("speculative_decoding")
    return inner if isinstance(inner, dict) else value


def _counts(values: Any, path: Path, line: int, key: str) -> list[int]:
    good = isinstance(values, list) and all(isinstance(n, int) and not isinstance(n, bool) and 0 <= n <= MAX_BLOCK + 1
                                            for n in values)
    if not good:
        raise TraceError(f"got {shown(values)}", file=path, line=line, key=key,
                         allowed=f"whole numbers of tokens, 0 to {MAX_BLOCK}")
    return list(values)


def _less(length: int, path: Path, line: int) -> int:
    if length < 1:
        raise TraceError("got 0: a round with its bonus token has at least one", file=path, line=line, key=WITH_BONUS,
                         allowed="accepted_draft_lengths where lengths exclude the bonus token")
    return length - 1


def laid_out(requests: Sequence[Request], path: Path, block_size: int | None = None) -> tuple[int, Filled, list[str]]:
    """(G, columns, assumptions) of a log.

    Raises:
        TraceError: no rounds, contradictions, or a log of shorter verification: a round that kept all of a short draft
            does not tell what a whole one would have kept.
    """
    if not requests:
        raise TraceError("holds no rounds", file=path)
    for r in requests:
        if r.drafted is not None and len(r.drafted) != len(r.accepted):
            raise TraceError(f"{len(r.accepted)} rounds, but {len(r.drafted)} draft lengths", file=path, line=r.line)
    G = block_size or max(max(r.accepted if r.drafted is None else r.drafted) for r in requests)
    if not 1 <= G <= MAX_BLOCK:
        raise TraceError(f"got {G}", file=path, key="--block-size", allowed=f"1 to {MAX_BLOCK}")
    rounds = sum(len(r.accepted) for r in requests)
    if sum(sum(r.accepted) + len(r.accepted) for r in requests) > MAX_ROWS:
        raise TraceError("holds too many tokens", file=path, allowed=f"at most {MAX_ROWS:,}; thin it out by requests")
    notes = [f"{rounds:,} rounds of {len(requests):,} requests, laid end to end, a request a document: exact for "
             "decoding with every draft token verified, which is what was recorded",
             "where no round began, the run of accepted tokens seen there goes on to its end: policies that verify "
             "less than everything are replayed approximately",
             "a request that ended inside its last round is laid out as if it had gone on to the round's end"]
    cut = sum(_check(r, G, path) for r in requests)
    if all(r.drafted is None for r in requests):
        notes.append(f"the log does not say how many tokens were drafted: {G} in every round, all verified"
                     + ("" if block_size else " (the longest round of the log)"))
    if cut > CENSORED * rounds:
        raise TraceError(
            f"{cut:,} of {rounds:,} rounds kept all of a draft of fewer than {G} tokens: a log of shorter verification "
            "cannot say what a whole draft would have kept", file=path,
            allowed="a log in which every draft is whole and all of it is verified (a fixed length, no threshold)",
        )
    if cut:
        notes.append(f"{cut:,} of {rounds:,} rounds kept all of a draft of fewer than {G} tokens and are taken as they "
                     "are")
    has = [r.confidence is not None for r in requests]
    if any(has) and not all(has):
        raise TraceError("has confidences in some requests only", file=path, line=requests[has.index(False)].line)
    return G, fill([r.accepted for r in requests], G, _confidence(requests, G, path) if all(has) else None), notes


def _check(r: Request, G: int, path: Path) -> int:
    """Contradictions raise; gives the number of rounds that a short draft cut short, the last one aside."""
    if max(r.accepted) > G:
        raise TraceError(f"a round kept {max(r.accepted)} draft tokens of {G}", file=path, line=r.line,
                         key="--block-size")
    if r.drafted is None:
        return 0
    for kept, drafted in zip(r.accepted, r.drafted, strict=True):
        if kept > drafted or drafted > G:
            raise TraceError(f"a round kept {kept} of {drafted} draft tokens", file=path, line=r.line,
                             allowed=f"kept ≤ drafted ≤ {G}")
    return sum(kept == drafted < G for kept, drafted in zip(r.accepted[:-1], r.drafted[:-1], strict=True))


def _confidence(requests: Sequence[Request], G: int, path: Path) -> list[npt.NDArray[np.float32]]:
    """(N, G) per request; a round that drafted less repeats its last confidence."""
    out = []
    for r in requests:
        assert r.confidence is not None
        rows = r.confidence
        good = isinstance(rows, list) and len(rows) == len(r.accepted) and all(
            isinstance(row, list) and 1 <= len(row) <= G and all(map(_is_share, row)) for row in rows)
        if not good:
            raise TraceError(f"got {shown(rows)}", file=path, line=r.line, key="confidences",
                             allowed=f"a list per round of 1 to {G} numbers from 0 to 1")
        out.append(np.array([[*row, *[row[-1]] * (G - len(row))] for row in rows], dtype=np.float32))
    return out


def _is_share(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 1


def fill(
    rounds: Sequence[Sequence[int]], G: int, confidence: Sequence[npt.NDArray[np.float32]] | None = None
) -> Filled:
    """Rows of requests whose rounds kept ``rounds[r]`` tokens; see the module's docstring for rows between them."""
    kept = [np.asarray(r, dtype=np.int64) for r in rounds]
    accepted, said, began = list[IntArray](), list[npt.NDArray[np.float32]](), list[npt.NDArray[np.bool_]]()
    for r, a in enumerate(kept):
        of = np.repeat(np.arange(a.size), a + 1)  # the round that a row lies in
        j = np.arange(of.size) - np.repeat(np.cumsum(a + 1) - (a + 1), a + 1)  # rows since it began
        after = np.append(a[1:], 0)  # what the next round kept; nothing is known after the last
        through = np.minimum(G, G - j + 1 + after[of])
        through[of == a.size - 1] = (G - j)[of == a.size - 1]
        run = np.where((a[of] == G) & (j > 0), through, a[of] - j)
        accepted.append(run)
        began.append(j == 0)
        if confidence is not None:
            at = np.minimum(j[:, None] + np.arange(G), G - 1)
            said.append(confidence[r][of[:, None], at])
    sizes = [a.size for a in accepted]
    return Filled(
        np.concatenate(accepted).astype(np.uint8), np.concatenate(said) if confidence is not None else None,
        np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64), np.concatenate(began),
    )
