"""The page itself: one HTML file with everything inside it. Every word from outside passes through escaping."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dspark_sim.report.inputs import Input, Reproduce
from dspark_sim.report.table import Column, Table

__all__ = ["Page", "Picture", "render"]

TEMPLATES = Path(__file__).resolve().parent / "templates"


@dataclass(frozen=True)
class Picture:
    """A picture: ``name`` (of its file), ``alt`` for those who do not see it, ``caption`` (what to look at)."""

    name: str
    png: bytes
    alt: str
    caption: str

    @property
    def uri(self) -> str:
        """The picture as an address that needs no network."""
        return "data:image/png;base64," + base64.b64encode(self.png).decode("ascii")

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels, from the PNG's header, so that the page does not jump while it loads."""
        return int.from_bytes(self.png[16:20], "big"), int.from_bytes(self.png[20:24], "big")


@dataclass(frozen=True)
class Page:
    """What a report says, in its order.

    Attributes:
        title, subtitle, description: who it is about.
        facts: short ones for the head, (name, value).
        failures, warnings: what to doubt; first on the page.
        answer: sentences that sum up the first table.
        tables: main ones, open; ``details`` are folded.
        pictures: in order.
        missing: pictures that could not be drawn, and why.
        assumptions: what the figures rest on.
        inputs: provenance of each.
        reproduce: how to make it again.
        glossary: columns to explain.
    """

    title: str
    subtitle: str
    description: str
    facts: Sequence[tuple[str, str]]
    failures: Sequence[str]
    warnings: Sequence[str]
    answer: Sequence[str]
    tables: Sequence[Table]
    details: Sequence[Table]
    pictures: Sequence[Picture]
    assumptions: Sequence[str]
    inputs: Sequence[Input]
    reproduce: Reproduce
    glossary: Sequence[Column]
    missing: Sequence[str] = field(default_factory=tuple)


def render(page: Page) -> str:
    """HTML text; deterministic, needs no network, works without JavaScript (tables then do not sort)."""
    import jinja2
    import yaml

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )

    resolved = yaml.safe_dump(dict(page.reproduce.resolved), sort_keys=False, allow_unicode=True, width=100)
    return environment.get_template("page.html").render(page=page, resolved=resolved)
