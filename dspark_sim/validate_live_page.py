"""The section of docs/live.md that a result writes: between two markers, everything else of the page stays."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from dspark_sim.errors import InputError
from dspark_sim.validate_live import sentences, tables

__all__ = ["BEGIN", "END", "check_page", "section", "write_section"]

BEGIN, END = "<!-- live results: begin -->", "<!-- live results: end -->"


def section(result: dict[str, Any], picture: str | None = None) -> str:
    """Markdown of one result."""
    plan, machine = result["plan"], result["machine"]
    domains = ", ".join(f"{n} {name}" for name, n in result["domains"].items())
    lines = [
        f"Target {plan['target']}, drafter {plan['drafter_name']}, {result['requests']} requests ({domains}) of "
        f"{plan['tokens']} tokens each, temperature {plan['temperature']:g}, {plan['repeat']} repeats, "
        f"{plan['samples']} independent text sample{'s' if plan['samples'] > 1 else ''} for the prediction, "
        f"{plan['dtype']}. Machine: {machine['device']}; {machine['software']}; {result['date'][:10]}.", "",
    ]
    if picture is not None:
        lines += [f"![Predicted and measured]({picture})", ""]
    for title, header, rows in tables(result):
        lines += [f"**{title}**", "", "| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
        lines += ["| " + " | ".join(row) + " |" for row in rows]
        lines.append("")
    lines += [f"* {text}." for text, _ in sentences(result)]
    return "\n".join(lines) + "\n"


def check_page(page: Path) -> tuple[str, str]:
    """What stands before and behind the section.

    Raises:
        InputError: no such page, or no markers in it.
    """
    try:
        text = page.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read ({error})", file=page, key="--write-docs",
                         allowed=f"a page with {BEGIN} and {END}") from None
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise InputError("has no place for results", file=page, key="--write-docs",
                         allowed=f"a page with {BEGIN} and {END}")
    return before, after


def write_section(page: Path, result: dict[str, Any], drawn: Path | None) -> None:
    """Put the section into a page that has the markers, and the picture under ``img/`` beside it.

    Raises:
        InputError: no such page, or no markers in it.
    """
    before, after = check_page(page)
    picture = None
    if drawn is not None and drawn.is_file():
        target = page.parent / "img" / "live.png"
        target.parent.mkdir(exist_ok=True)
        shutil.copyfile(drawn, target)
        picture = f"img/{target.name}"
    aside = page.with_name(f".{page.name}.part")
    aside.write_text(f"{before}{BEGIN}\n{section(result, picture)}{END}{after}", encoding="utf-8", newline="\n")
    os.replace(aside, page)
