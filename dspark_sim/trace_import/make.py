"""From what the files say to a trace that ``run`` takes, with provenance: the work of ``trace import``."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from dspark_sim.errors import TraceError, nearest, shown
from dspark_sim.trace import AcceptanceTrace, TraceKind
from dspark_sim.trace_import import rounds
from dspark_sim.trace_import.rates import Rates
from dspark_sim.trace_import.sources import Source
from dspark_sim.trace_import.spec import INDEPENDENT, Borrowed, build
from dspark_sim.traceset import find_traces

__all__ = ["Imported", "Names", "borrow", "from_rates", "from_rounds", "merged"]

WORD = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}\Z")
TARGET = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
EVERYTHING = "all"  # the domain of what names none


@dataclass(frozen=True)
class Names:
    """What the trace is of; None: as the files say, or a default that is said."""

    target: str | None = None
    drafter: str | None = None
    temperature: float | None = None
    domain: str | None = None
    kind: TraceKind = "derived"
    source: str | None = None


@dataclass(frozen=True)
class Imported:
    """A trace ready to be written.

    Attributes:
        trace: its rows.
        spec: the specification as plain data; None for a recording.
        rates: what was imported, by domain; empty for a recording.
        assumptions: all of them, as they stand in the provenance.
        warnings: doubts to be read.
        began: (P,) rows at which a round of the log began; None for a specification.
    """

    trace: AcceptanceTrace
    spec: dict[str, Any] | None
    rates: Mapping[str, Rates] = field(default_factory=dict)
    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    began: Any = None


def merged(found: Sequence[tuple[str | None, str, Source]], default: str | None) -> dict[str, Rates]:
    """Rates by domain of several sources: (domain asked for, name for messages, source).

    Raises:
        TraceError: two sources for one domain, or a domain's name that cannot be one.
    """
    out: dict[str, Rates] = {}
    for asked, name, source in found:
        for own, rates in source.rates.items():
            domain = asked or own or default or EVERYTHING
            if domain in out:
                raise TraceError(f"{name} gives domain {domain!r} again", key="FILE",
                                 allowed="one source per domain: write DOMAIN=FILE")
            if WORD.match(domain) is None:
                raise TraceError(f"got {shown(domain)}", key="--domain", allowed="letters, digits, - and _")
            out[domain] = rates
    return out


def borrow(reference: str, confidence: bool) -> Borrowed:
    """``TARGET/DRAFTER`` (or ``FILE.yaml/DRAFTER``) of a parametric specification."""
    place, _, name = reference.rpartition("/")
    if not place:
        raise TraceError(f"got {shown(reference)}", key="--spread-from", allowed="TARGET/DRAFTER, e.g. qwen3-4b/dspark")
    found = find_traces(place)
    found.check(name)
    if found.spec is None:
        raise TraceError(f"{place} is a recording, and only specifications say how acceptance varies in numbers",
                         key="--spread-from", allowed="a drafter of a parametric specification, e.g. qwen3-4b/dspark")
    return Borrowed(f"{found.target}/{name}", found.spec, found.spec.drafters[name], confidence)


def _named(names: Names, facts: Mapping[str, str | float]) -> tuple[str, str, float, list[str]]:
    """(target, drafter, temperature, assumptions)."""
    notes = []
    target = names.target or _plain(facts.get("target"), TARGET)
    drafter = names.drafter or _plain(facts.get("drafter"), WORD)
    for key, value, pattern in (("--target", target, TARGET), ("--drafter", drafter, WORD)):
        if value is None:
            raise TraceError("is missing: the files do not say it", key=key, allowed="a name")
        if pattern.match(value) is None:
            raise TraceError(f"got {shown(value)}", key=key, allowed="letters, digits, - and _"
                             + (" and ." if pattern is TARGET else ""))
    assert target is not None
    assert drafter is not None
    temperature = names.temperature
    if temperature is None and isinstance(facts.get("temperature"), float):
        temperature = float(facts["temperature"])
    if temperature is None:
        temperature = 1.0
        notes.append("temperature 1 is assumed: neither the files nor --temperature say it")
    if not 0 <= temperature <= 10:
        raise TraceError(f"got {temperature:g}", key="--temperature", allowed="0 (greedy) to 10")
    return target, drafter, temperature, notes


def _plain(value: object, pattern: re.Pattern[str]) -> str | None:
    """A model's name as one of ours may look."""
    if not isinstance(value, str):
        return None
    extra = "." if pattern is TARGET else ""
    return re.sub(rf"[^A-Za-z0-9_{extra}-]+", "-", value).strip("-._")[:64] or None


def _provenance(
    names: Names, files: Sequence[str], command: str, assumptions: Sequence[str]
) -> dict[str, Any]:
    source = [*([names.source] if names.source else []), *files] or ["the command line"]
    return {"source": [_text(s) for s in source], "date": datetime.date.today().isoformat(), "command": _text(command),
            "assumptions": list(assumptions)}


def _text(words: str) -> str:
    """As a trace may keep it: what is no text (control characters, odd bytes of a file's name) as escapes."""
    return "".join(c if c.isprintable() else " " if c in "\n\t" else f"\\x{ord(c):02x}" for c in words)[:4000]


def from_rates(
    rates: Mapping[str, Rates], names: Names, files: Sequence[str], command: str, *, seed: int = 1,
    documents: int = 400, borrowed: Borrowed | None = None,
) -> Imported:
    """A specification whose walked rounds show the rates."""
    facts: dict[str, str | float] = {}
    for r in rates.values():
        for key, value in r.facts.items():
            if facts.setdefault(key, value) != value and getattr(names, key) is None:
                raise TraceError(f"the files say {facts[key]!r} and {value!r}", key=f"--{key}",
                                 allowed="files of one target, drafter and temperature, or the option")
    target, drafter, temperature, notes = _named(names, facts)
    several = len(rates) > 1
    said = [f"{domain}: {a}" if several else a for domain, r in rates.items() for a in r.assumptions]
    if borrowed is None:
        spread = INDEPENDENT
    else:
        spread = f"how acceptance varies over the text is borrowed from {borrowed.name}"
        if borrowed.confidence:
            spread += ", and so is the confidence: neither was measured here"
    if borrowed is None or not borrowed.confidence:
        notes.append("no confidence: policies that need one cannot be simulated")
    assumptions = tuple(dict.fromkeys([*said, spread, *notes]))
    provenance = _provenance(names, files, command, assumptions)
    words = {"description": f"{target} with {drafter}: rows drawn from imported acceptance rates.",
             "provenance": provenance}
    data, trace = build(rates, target=target, drafter=drafter, temperature=temperature, kind=names.kind, seed=seed,
                        documents=documents, words=words, borrowed=borrowed)
    warnings = tuple(f"{domain}: {w}" if several else w for domain, r in rates.items() for w in r.warnings)
    return Imported(trace, data, dict(rates), assumptions, warnings)


def from_rounds(
    found: Sequence[tuple[str | None, str, Source]], names: Names, command: str, block_size: int | None = None
) -> Imported:
    """A recording from logs of rounds, domain by domain in order of first appearance."""
    requests = list[rounds.Request]()
    notes = list[str]()
    for asked, _, source in found:
        requests += [replace(r, domain=asked or r.domain or names.domain or EVERYTHING) for r in source.requests]
        notes += source.notes
    files = [name for _, name, _ in found]
    order = {d: i for i, d in enumerate(dict.fromkeys(r.domain for r in requests))}
    requests.sort(key=lambda r: order[r.domain])
    for domain in order:
        if domain is None or WORD.match(domain) is None:
            raise TraceError(f"got {shown(domain)}", key="--domain", allowed="letters, digits, - and _")
    G, filled, said = rounds.laid_out(requests, Path(files[0]), block_size)
    target, drafter, temperature, more = _named(names, {})
    assumptions = tuple(dict.fromkeys([*notes, *said, *more]))
    provenance = _provenance(names, files, command, assumptions)
    share = float(np.mean(filled.began))
    provenance["rows_recorded"] = round(share, 4)
    trace = AcceptanceTrace(
        target=target, drafter=drafter, block_size=G, accepted=filled.accepted, document_start=filled.document_start,
        domain=tuple(r.domain or EVERYTHING for r in requests), confidence=filled.confidence, temperature=temperature,
        kind=names.kind, provenance=provenance,
    )
    return Imported(trace, None, {}, assumptions, (), filled.began)


def known_format(word: str, formats: Mapping[str, str]) -> str:
    """``word`` if it is a format."""
    if word != "auto" and word not in formats:
        raise TraceError(f"got {shown(word)}", key="--from", allowed=", ".join(("auto", *formats)),
                         suggestion=nearest(word, formats))
    return word
