"""What the profile makers share: reading and writing small tables, the same bytes each time."""

from __future__ import annotations

import csv
import json
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

Row = Sequence[Any]
COMMAND = "python tools/make_profiles.py [DATA]"


def field_case(data: Path, name: str) -> dict[str, Any]:
    """One case of ``field_cases.json``."""
    cases = json.loads((data / "field_cases.json").read_text())
    return next(dict(c["data"]) for c in cases if c["id"] == name)


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Row], comment: str = "") -> None:
    """A small table; numbers as :func:`num` writes them. Every line of ``comment`` starts with ``#`` in the file."""
    lines = [f"# {line}" for line in textwrap.wrap(comment, 110)] + [",".join(header)]
    lines += [",".join(num(cell) for cell in row) for row in rows]
    path.write_text("\n".join(lines) + "\n", newline="\n")


def read_csv(path: Path) -> list[dict[str, str]]:
    """Rows of a table written by :func:`write_csv`."""
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    return list(csv.DictReader(lines))


def num(value: Any) -> str:
    """A number with up to six digits (a word as it is): few enough that another machine's last bits do not show."""
    return value if isinstance(value, str) else str(value) if isinstance(value, int) else f"{float(value):.6g}"


def block(text: str, indent: int = 2) -> str:
    """``text`` as a folded YAML block under a key: ``description: >-`` and its lines."""
    return ">-\n" + textwrap.fill(" ".join(text.split()), 110, initial_indent=" " * indent,
                                  subsequent_indent=" " * indent)


def assumptions(texts: Sequence[str]) -> str:
    """The list under ``provenance.assumptions``."""
    return "\n".join(f"    - {block(text, 6)}" for text in texts)


def table(header: Sequence[str], rows: Iterable[Row]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]) + "\n"
