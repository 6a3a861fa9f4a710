"""dspark-sim policy list | show."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from dspark_sim.commands.local import announce
from dspark_sim.commands.output import emit_console, emit_rows, note

if TYPE_CHECKING:
    from rich.console import Console

    from dspark_sim.registry import PolicySource

__all__ = ["list_command", "show_command"]


def list_command(form: str, *, local_policies: bool = True) -> None:
    """The policies that a name finds from here: claims, where they are, and the first sentence of what they say."""
    from dspark_sim.policy_places import by_name
    from dspark_sim.registry import all_policies

    local = [name for name, found in by_name().items() if not found.trusted] if local_policies else []
    announce(local, allowed=True)
    sources, problems = all_policies(local=local_policies)
    for problem in problems:
        note(f"warning: left out: {problem}")
    titles = {"name": "policy", "lossless": "loss-\nless", "timing": "timing",
              "needs_confidence": "needs con-\nfidence", "summary": "what it does"}
    if any(source.place != "shelf" for source in sources):
        titles = {"name": "policy", "place": "place", "lossless": "lossless", "summary": "what it does"}
    if any(source.hides for source in sources):
        titles = {"name": "policy", "place": "place", "hides": "hides", "summary": "what it does"}
    emit_rows([_row(source) for source in sources], form, titles)


def show_command(reference: str, form: str, *, local_policies: bool) -> None:
    """One policy: claims, parameters, documentation, file."""
    from dspark_sim.registry import find_policy

    announce([reference], allowed=local_policies)
    source = find_policy(reference)[1]
    if form != "table":
        emit_rows([_row(source)], form)
    else:
        emit_console(lambda console: _show(console, source))


def _row(source: PolicySource) -> dict[str, Any]:
    parameters = {n: {"type": kind, "default": _default(value)} for n, (kind, value) in source.parameters.items()}
    return {
        "name": source.name, "summary": _first(source.doc), "lossless": source.lossless, "timing": source.timing,
        "needs_confidence": source.needs_confidence, "parameters": parameters, "doc": source.doc,
        "path": None if source.path is None else str(source.path), "sha256": source.sha256,
        "place": source.place, "hides": list(source.hides),
    }


def _default(value: Any) -> Any:
    return None if value is ... else value


def _first(doc: str) -> str:
    return " ".join(doc.split("\n\n")[0].replace("``", "").split())


def _paragraphs(doc: str) -> Iterator[tuple[int, str]]:
    """(indent, text) of a docstring, lines joined that belong together; "" between paragraphs."""
    indent, words = 0, ""
    for line in [*doc.replace("``", "").splitlines(), ""]:
        text, margin = line.strip(), len(line) - len(line.lstrip())
        parameter = indent > 0 and margin == indent and re.match(r"\w+: ", text) is not None
        if words and (not text or text.startswith("* ") or words == "Args:" or margin < indent or parameter):
            yield indent, words
            words = ""
        if not text:
            yield 0, ""
        elif words:
            words += f" {text}"
        else:
            indent, words = margin, text


def _show(console: Console, source: PolicySource) -> None:
    from rich.padding import Padding
    from rich.text import Text

    from dspark_sim.render import bullet

    console.print(Text(source.name, style="bold"))
    claims = f"{'lossless' if source.lossless else 'NOT lossless'} (its claim), {source.timing}"
    claims += ", needs confidence" if source.needs_confidence else ""
    claims += ", sees the outcome (oracle)" if source.needs_oracle else ""
    console.print(Text(claims))
    console.print(Text(f"{source.place}: {source.path}", style="dim"))
    for hidden in source.hides:
        console.print(Text(f"hides {hidden}", style="yellow"))
    console.print()
    for indent, paragraph in _paragraphs(source.doc or "(no documentation)"):
        if paragraph.startswith("* "):
            bullet(console, paragraph[2:], "")
        else:
            console.print(Padding(Text(paragraph), (0, 0, 0, indent)) if paragraph else "")
    console.print()
    if not source.parameters:
        console.print(Text("No parameters."))
    for name, (kind, value) in source.parameters.items():
        console.print(Text(f"  {name}: {kind}" + ("  (must be given)" if value is ... else f" = {value}")))
