"""A step time out of a serving benchmark's result: TPOT or ITL, acceptance length, and how many requests decoded.

Fields of the same names in ``vllm bench serve`` and ``sglang.bench_serving``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from dspark_sim.importers.points import Point
from dspark_sim.importers.records import Record

__all__ = ["Dialect", "Served", "said", "served"]

TOLERANCE = 1.1  # decoding requests over max_concurrency: more means that a unit is wrong


@dataclass(frozen=True)
class Dialect:
    """How one tool names what both have.

    Attributes:
        tool: its name.
        acceptance: field of the acceptance length (accepted + 1 per step).
        drafts: fields of drafted tokens and of drafting steps, None where there are none.
        itl_is_step: whether an ITL is the gap between two steps (else it is per token).
    """

    tool: str
    acceptance: str
    drafts: tuple[str, str] | None
    itl_is_step: bool


@dataclass(frozen=True)
class Served:
    """One result: its point, and what the assumptions need."""

    point: Point
    acceptance: float
    draft_tokens: int
    seats: float
    decoding: float


def served(record: Record, dialect: Dialect, time: Literal["tpot", "itl"], draft_tokens: int | None) -> Served:
    """One result's step.

    Args:
        record: of the right tool.
        dialect: of that tool.
        time: which figure is read.
        draft_tokens: drafted per request and step, where the file does not say; None.

    Raises:
        ProfileError: a field is missing or cannot be.
    """
    n = record.whole("completed")
    prompt, output = record.number("total_input_tokens") / n, record.number("total_output_tokens") / n
    if output < 2:
        raise record.refuse(f"got {output:.2f} output tokens per request", "total_output_tokens",
                            "2 or more: with one there is no decode step")
    acceptance, drafted = _speculation(record, dialect, draft_tokens)
    tpot = record.number("mean_tpot_ms") / 1e3
    if time == "tpot":
        step = tpot * acceptance
    else:
        step = record.number("median_itl_ms") / 1e3 * (1.0 if dialect.itl_is_step else acceptance)
    decoding = record.number("output_throughput") * tpot
    limit = record.optional("max_concurrency")
    seats = limit if limit is not None else decoding
    if limit is not None and decoding > limit * TOLERANCE:
        raise record.refuse(f"{record.number('output_throughput'):,.0f} tokens/s at {tpot * 1e3:g} ms a token are "
                            f"{decoding:,.1f} requests, but at most {limit:g} were sent: a unit cannot be right",
                            "mean_tpot_ms", "milliseconds per output token")
    requests = seats if limit is not None else max(decoding, 1.0)
    batch = max(1, round(requests * (1 + drafted)))
    point = Point(batch, requests, prompt + output / 2, step, record.file, record.line)
    return Served(point, acceptance, drafted, seats, decoding)


def _speculation(record: Record, dialect: Dialect, draft_tokens: int | None) -> tuple[float, int]:
    """(acceptance length, draft tokens per request and step); (1, 0) without speculation."""
    acceptance = record.optional(dialect.acceptance)
    if acceptance is None or (acceptance == 1 and not draft_tokens):
        if draft_tokens:
            raise record.refuse(f"has no {dialect.acceptance}, but --draft-tokens {draft_tokens} says that it drafted",
                                allowed="the acceptance length in the file, or no --draft-tokens")
        return 1.0, 0
    if dialect.drafts is not None and all(record.data.get(f) for f in dialect.drafts):
        k = record.number(dialect.drafts[0]) / record.whole(dialect.drafts[1])
        if draft_tokens is not None and abs(k - draft_tokens) > 0.01 * draft_tokens:
            raise record.refuse(f"says {k:.2f} draft tokens per step", "--draft-tokens", "what the file says, or "
                                                                                         "nothing")
        found = round(k)
        if abs(k - found) > 0.05 * max(found, 1):
            raise record.refuse(f"drafted {k:.2f} tokens per step on average: lengths that change cannot be put on "
                                "one curve",
                                dialect.drafts[0], "a fixed number of draft tokens")
    elif draft_tokens is None:
        raise record.refuse(f"has an acceptance length of {acceptance:g}, but does not say how many tokens were "
                            "drafted",
                            dialect.acceptance, "--draft-tokens K")
    else:
        found = draft_tokens
    if not 1 <= acceptance <= found + 1:
        raise record.refuse(f"got {acceptance:g} with {found} draft tokens", dialect.acceptance,
                            f"1 to {found + 1}: accepted + 1 per step")
    return acceptance, found


def said(found: Sequence[Served], dialect: Dialect, time: Literal["tpot", "itl"]) -> tuple[list[str], bool]:
    """The assumptions of a set of results, and whether they speculated.

    Raises:
        ProfileError: some speculated and some did not, or with other numbers of draft tokens.
    """
    first = found[0]
    for other in found[1:]:
        if other.draft_tokens != first.draft_tokens:
            p = other.point
            place = first.point.place
            record = Record({}, p.file, p.line)
            raise record.refuse(f"drafted {other.draft_tokens} tokens per step, {place} {first.draft_tokens}: their "
                                "steps do "
                                "not lie on one curve", allowed="results of one kind; import the others into their "
                                                                "own profile")
    lengths = [s.acceptance for s in found]
    spread = f"{min(lengths):.2f}" if min(lengths) == max(lengths) else f"{min(lengths):.2f} to {max(lengths):.2f}"
    if time == "tpot":
        step = "Seconds of a step = mean TPOT" + (f" x acceptance length ({spread})" if first.draft_tokens else "")
        step += "; steps that carried somebody's prefill are in that mean, so a curve with much prefill is too slow."
    else:
        per = f" x acceptance length ({spread})" if first.draft_tokens and not dialect.itl_is_step else ""
        step = f"Seconds of a step = median ITL{per}; half of the steps were slower, those with prefill among them."
    shares = [s.decoding / s.seats for s in found]
    batch = (f"Batch tokens = requests x {1 + first.draft_tokens}. Requests are max_concurrency where it was set; on "
             f"average {min(shares):.0%} to {max(shares):.0%} of them were decoding (throughput x TPOT), the rest in "
             "prefill, ramp or drain. In an open loop they are throughput x TPOT.")
    host = "Host, sampler, scheduler and network of the engine are inside its steps."
    return [step, batch, host], first.draft_tokens > 0
