"""Acceptance by position as it was counted: checked, made conditional, every assumption in words.

Shapes: G block size. ``conditional[k - 1]`` = P(token k accepted given 1..k - 1), ``survival[k - 1]`` = P(first k
accepted) = share of all rounds. Engines print survivals and call them acceptance rates by position.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from operator import mul
from pathlib import Path

from dspark_sim.errors import TraceError, shown
from dspark_sim.trace import MAX_BLOCK
from dspark_sim.trace_import.read import LARGEST

__all__ = ["SHORT", "Rates", "from_conditional", "from_counts", "from_histograms", "from_mean", "from_survival"]

DIVISION = "unconditional rates (of all rounds) were made conditional by dividing each by the one before it"
UNREACHED = "no round reached position {}: its acceptance and that of later ones is unknown and taken as 0"
SHORT = ("drafts had {:.2f} of {} tokens on average: positions that were not drafted count as not accepted, so "
         "acceptance comes out too low towards the end")
FULL = 0.995  # mean draft length / G above which drafts count as whole


@dataclass(frozen=True)
class Rates:
    """One drafter in one domain.

    Attributes:
        conditional: (G,) 0..1.
        rounds: drafts behind the numbers; None if the source does not say.
        assumptions: what had to be assumed, in sentences; goes into the trace's provenance.
        facts: what the source says of itself: ``target``, ``drafter``, ``temperature``, where it does.
        warnings: doubts about the source that the user must read.
    """

    conditional: tuple[float, ...]
    rounds: int | None = None
    assumptions: tuple[str, ...] = ()
    facts: Mapping[str, str | float] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @property
    def survival(self) -> tuple[float, ...]:
        """(G,) P(first k accepted)."""
        return tuple(accumulate(self.conditional, mul))

    @property
    def length(self) -> float:
        """Acceptance length τ, bonus included."""
        return 1 + sum(self.survival)


def _shares(values: Sequence[object], file: Path | None, key: str) -> list[float]:
    """Numbers from 0 to 1, at most MAX_BLOCK of them."""
    if not values:
        raise TraceError("is empty", file=file, key=key, allowed="an acceptance rate per position")
    if len(values) > MAX_BLOCK:
        raise TraceError(f"has {len(values)} positions", file=file, key=key, allowed=f"at most {MAX_BLOCK}")
    out = []
    for k, value in enumerate(values, 1):
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= LARGEST:
            raise TraceError(f"position {k}: got {shown(value)}", file=file, key=key, allowed="a number from 0 to 1")
        out.append(float(value))
    worst = max(out, key=lambda v: abs(v - 0.5))
    if not 0 <= worst <= 1:
        percent = 1 < max(out) <= 100 and min(out) >= 0
        hint = "; these look like per cent" if percent else "; more than one is a length or a count, not a rate"
        raise TraceError(f"got {worst:g}{hint if worst > 0 else ''}", file=file, key=key, allowed="shares from 0 to 1")
    return out


def from_conditional(values: Sequence[object], *, file: Path | None = None, key: str = "conditional") -> Rates:
    """Rates of each position among the rounds that reached it."""
    return Rates(tuple(_shares(values, file, key)), assumptions=("the rates are conditional: of the rounds that "
                                                                 "accepted every token before the position",))


def from_survival(
    values: Sequence[object], *, file: Path | None = None, key: str = "unconditional", slack: float = 1e-9,
    rounds: int | None = None,
) -> Rates:
    """Rates of each position among all rounds: token k can only be kept where 1..k - 1 were, so they never rise.

    Args:
        slack: by how much a rate may exceed the one before it (rounding of the source).

    Raises:
        TraceError: outside 0..1, or rising: then they are not what they are said to be.
    """
    rates = _shares(values, file, key)
    for k, (before, now) in enumerate(pairwise(rates), 2):
        if now > before + slack:
            raise TraceError(
                f"position {k} has {now:g} after {before:g}: unconditional rates never rise", file=file, key=key,
                allowed="falling rates; rates that may rise are conditional",
            )
    assumptions = [DIVISION]
    conditional: list[float] = []
    for before, now in pairwise([1.0, *rates]):
        conditional.append(min(now / before, 1.0) if before > 0 else 0.0)
    dead = next((k for k, (before, _) in enumerate(pairwise([1.0, *rates]), 1) if before <= 0), None)
    if dead is not None:
        assumptions.append(UNREACHED.format(dead))
    return Rates(tuple(conditional), rounds, tuple(assumptions))


def from_counts(
    drafts: int, accepted: Sequence[int], *, file: Path | None = None, draft_tokens: int | None = None,
    accepted_tokens: int | None = None, key: str = "accepted tokens by position",
) -> Rates:
    """An engine's counters: drafts, and drafts that kept token k, for each k.

    Raises:
        TraceError: counters that contradict each other.
    """
    if drafts <= 0:
        raise TraceError("counts no drafts: nothing was decoded speculatively", file=file, key=key)
    if accepted and accepted[0] > drafts:
        raise TraceError(f"position 1 was kept {accepted[0]:,} times in {drafts:,} drafts", file=file, key=key)
    if accepted_tokens is not None and abs(sum(accepted) - accepted_tokens) > 0.001 * accepted_tokens:
        raise TraceError(f"the positions sum to {sum(accepted):,}, but {accepted_tokens:,} tokens were accepted",
                         file=file, key=key, allowed="counters read at the same moment, of the same engines")
    rates = from_survival([a / drafts for a in accepted], file=file, key=key, rounds=drafts)
    return _whole(rates, drafts, draft_tokens)


def _whole(rates: Rates, drafts: float, draft_tokens: float | None) -> Rates:
    """Whether every draft had all G tokens, as far as the counters can tell."""
    G = len(rates.conditional)
    if draft_tokens is None:
        note = f"all drafts had {G} tokens and all were verified (the source does not count draft tokens)"
        return _more(rates, note)
    mean = draft_tokens / drafts
    if mean > G * (2 - FULL):
        raise TraceError(f"{mean:.2f} draft tokens per draft, but only {G} positions are counted")
    if mean >= FULL * G:
        return _more(rates, f"all drafts had {G} tokens (counted: {mean:.2f} on average) and all were verified")
    doubt = SHORT.format(mean, G)
    return Rates(rates.conditional, rates.rounds, (*rates.assumptions, doubt), rates.facts, (*rates.warnings, doubt))


def _more(rates: Rates, *assumptions: str) -> Rates:
    return Rates(rates.conditional, rates.rounds, (*rates.assumptions, *assumptions), rates.facts, rates.warnings)


def from_histograms(by_length: Mapping[int, Sequence[int]], *, file: Path | None = None) -> Rates:
    """Counts of rounds by draft length L and accepted tokens j: ``by_length[L][j]``, j = 0..L.

    c_k is counted on the rounds that drafted at least k tokens, so short drafts leave no trace; those rounds are taken
    to be like the others.
    """
    G = max((length for length, counts in by_length.items() if sum(counts)), default=0)
    if not 1 <= G <= MAX_BLOCK:
        raise TraceError("holds no round with draft tokens" if G < 1 else f"has drafts of {G} tokens", file=file,
                         allowed=f"1 to {MAX_BLOCK} draft tokens")
    conditional, unreached = list[float](), None
    for k in range(1, G + 1):
        long = [counts for length, counts in by_length.items() if length >= k]
        reached = sum(sum(counts[k - 1:]) for counts in long)
        kept = sum(sum(counts[k:]) for counts in long)
        conditional.append(kept / reached if reached else 0.0)
        unreached = unreached or (None if reached else k)
    rounds = sum(sum(counts) for counts in by_length.values())
    short = sum(sum(counts) for length, counts in by_length.items() if length < G)
    notes = ["conditional acceptance was counted on the rounds that reached each position"]
    if short:
        notes.append(f"{short:,} of {rounds:,} rounds drafted fewer than {G} tokens: each position is counted on the "
                     "rounds that drafted it, which are taken to be like the others")
    if unreached:
        notes.append(UNREACHED.format(unreached))
    return Rates(tuple(conditional), rounds, tuple(notes))


def from_mean(length: float, block_size: int) -> Rates:
    """One number, the acceptance length (bonus included), and the assumption that all positions are alike.

    Solves 1 + c + c² + … + c^G = length.
    """
    if not 1 <= block_size <= MAX_BLOCK:
        raise TraceError(f"got {block_size}", key="--block-size", allowed=f"1 to {MAX_BLOCK}")
    if not 1 <= length <= 1 + block_size:
        raise TraceError(f"got {length:g}", key="--acceptance-length",
                         allowed=f"1 to {1 + block_size} (the bonus token counts), for {block_size} draft tokens")
    low, high = 0.0, 1.0
    for _ in range(60):
        c = (low + high) / 2
        low, high = (c, high) if 1 + sum(c**k for k in range(1, block_size + 1)) < length else (low, c)
    return Rates((high,) * block_size, None, (
        f"only the acceptance length {length:g} is known: every position is given the same conditional acceptance "
        f"{high:.4f}, though drafters are better at some positions than at others",
    ))
