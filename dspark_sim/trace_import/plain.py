"""Acceptance rates that somebody wrote down: on the command line, in CSV, in YAML or JSON.

Whoever writes rates down must say which of the two they are, for nothing in the numbers tells: *conditional* (of the
rounds that accepted every token before) or *unconditional* (of all rounds, which is what engines print).

CSV: columns ``position`` (1, 2, …) and ``conditional`` or ``unconditional``, optionally ``domain``. YAML and JSON: a
list under ``conditional`` or ``unconditional``, or one such mapping per domain under ``domains``; beside it ``target``,
``drafter``, ``temperature`` where they are known.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dspark_sim.errors import TraceError, nearest, shown
from dspark_sim.trace_import.rates import Rates, from_conditional, from_survival
from dspark_sim.trace_import.read import text_of
from dspark_sim.yamlio import Document, parse_yaml

__all__ = ["GIVEN", "from_csv", "from_words", "from_yaml"]

GIVEN = ("conditional", "unconditional")
FACTS = ("target", "drafter", "temperature")


def from_words(text: str, given: str | None) -> Rates:
    """``--rates 0.8,0.6,0.5 --given conditional``."""
    if given not in GIVEN:
        raise TraceError("is missing: nothing in the numbers tells which of the two they are", key="--given",
                         allowed="conditional (of the rounds that reached the position) or unconditional (of all "
                         "rounds, as engines print them)")
    values: list[object] = []
    for word in text.replace(",", " ").split():
        try:
            values.append(float(word))
        except ValueError:
            raise TraceError(f"got {shown(word)}", key="--rates",
                             allowed="numbers from 0 to 1, e.g. 0.8,0.6,0.5") from None
    return (from_conditional if given == "conditional" else from_survival)(values, key="--rates")


def from_csv(path: Path) -> dict[str | None, Rates]:
    """Domain (None without such a column) -> rates."""
    reader = csv.DictReader(text_of(path).splitlines())
    try:
        return _from_rows(reader, path)
    except csv.Error as problem:
        raise TraceError(f"is not CSV ({problem})", file=path, line=reader.line_num + 1) from None


def _from_rows(reader: csv.DictReader[str], path: Path) -> dict[str | None, Rates]:
    columns = [name.strip() for name in reader.fieldnames or ()]
    reader.fieldnames = columns
    unknown = [name for name in columns if name not in ("position", "domain", *GIVEN)]
    given = [name for name in GIVEN if name in columns]
    if unknown or len(given) != 1 or "position" not in columns:
        what = f"unknown column {unknown[0]!r}" if unknown else f"has the columns {', '.join(columns)}"
        raise TraceError(what, file=path, line=1, allowed="position, domain, and conditional or unconditional",
                         suggestion=nearest(unknown[0], (*GIVEN, "position", "domain")) if unknown else None)
    found: dict[str | None, list[object]] = {}
    for row in reader:
        domain = (row.get("domain") or "").strip() or None
        values = found.setdefault(domain, [])
        if (row["position"] or "").strip() != str(len(values) + 1):
            raise TraceError(f"got {shown(row['position'])}", file=path, line=reader.line_num, key="position",
                             allowed=f"{len(values) + 1}: positions count from 1, in order")
        try:
            values.append(float(row[given[0]] or ""))
        except ValueError:
            raise TraceError(f"got {shown(row[given[0]])}", file=path, line=reader.line_num, key=given[0],
                             allowed="a number from 0 to 1") from None
    if not found:
        raise TraceError("has no rows", file=path)
    make = from_conditional if given[0] == "conditional" else from_survival
    return {domain: make(values, file=path, key=given[0] if domain is None else f"{given[0]} of {domain}")
            for domain, values in found.items()}


def from_yaml(path: Path) -> dict[str | None, Rates]:
    """Domain (None: the file names none) -> rates. JSON is YAML."""
    document = parse_yaml(text_of(path), path, TraceError)
    data = document.data
    if not isinstance(data, Mapping):
        raise document.error(f"got {shown(data)}, not a mapping of keys", error=TraceError, allowed=", ".join(GIVEN))
    facts = _facts(document, data)
    if "domains" not in data:
        return {None: _rates(document, data, (), facts, FACTS)}
    for key in data:
        if key not in ("domains", *FACTS):
            raise document.error("unknown beside domains", (key,), error=TraceError,
                                 allowed=", ".join(("domains", *FACTS)))
    domains = data["domains"]
    if not isinstance(domains, Mapping) or not domains:
        raise document.error(f"got {shown(domains)}", ("domains",), error=TraceError,
                             allowed="a mapping: name -> rates")
    return {str(name): _rates(document, inner, ("domains", name), facts, ()) for name, inner in domains.items()}


def _facts(document: Document, data: Mapping[str, Any]) -> dict[str, str | float]:
    out: dict[str, str | float] = {}
    for key in FACTS:
        value = data.get(key)
        if value is None:
            continue
        good = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 10 if (
            key == "temperature") else isinstance(value, str)
        if not good:
            raise document.error(f"got {shown(value)}", (key,), error=TraceError,
                                 allowed="0 to 10" if key == "temperature" else "a name")
        out[key] = value
    return out


def _rates(
    document: Document, data: Any, path: tuple[str, ...], facts: Mapping[str, str | float], more: tuple[str, ...]
) -> Rates:
    if not isinstance(data, Mapping):
        raise document.error(f"got {shown(data)}", path, error=TraceError,
                             allowed="conditional or unconditional: a list")
    given = [name for name in GIVEN if name in data]
    for key in data:
        if key not in (*GIVEN, *more):
            raise document.error("unknown key", (*path, key), error=TraceError, allowed=", ".join((*GIVEN, *more)),
                                 suggestion=nearest(str(key), (*GIVEN, *more)))
    if len(given) != 1:
        raise document.error("has both" if given else "has neither", path, error=TraceError,
                             allowed="conditional or unconditional: engines print unconditional rates")
    values = data[given[0]]
    where = (*path, given[0])
    if not isinstance(values, list):
        raise document.error(f"got {shown(values)}", where, error=TraceError, allowed="a list of numbers from 0 to 1")
    make = from_conditional if given[0] == "conditional" else from_survival
    try:
        rates = make(values)
    except TraceError as problem:
        raise document.error(problem.problem, where, error=TraceError, allowed=problem.allowed) from None
    return Rates(rates.conditional, rates.rounds, rates.assumptions, facts, rates.warnings)
