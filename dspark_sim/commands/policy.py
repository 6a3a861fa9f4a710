"""dspark-sim policy list | show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dspark_sim.commands.output import emit_console, emit_rows, note
from dspark_sim.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from dspark_sim.registry import PolicySource

__all__ = ["list_command", "show_command"]


def list_command(form: str) -> None:
    """The policies of the shelf: claims, and the first sentence of what they say."""
    from dspark_sim.registry import list_policies

    rows = [_row(source) for source in list_policies()]
    titles = {"name": "policy", "lossless": "lossless", "timing": "timing", "needs_confidence": "needs confidence",
              "summary": "what it does"}
    emit_rows(rows, form, titles)


def show_command(reference: str, form: str, *, local_policies: bool) -> None:
    """One policy: claims, parameters, documentation, file."""
    from dspark_sim.registry import find_policy

    local = ":" in reference or "/" in reference or reference.endswith(".py")
    if local and not local_policies:
        raise InputError(f"policy {reference!r} is not on the shelf, and --no-local-policies refuses it")
    if local:
        note(f"note: policy {reference} is not on the shelf; its code is executed")
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
    }


def _default(value: Any) -> Any:
    return None if value is ... else value


def _first(doc: str) -> str:
    return " ".join(doc.split("\n\n")[0].split())


def _show(console: Console, source: PolicySource) -> None:
    from rich.text import Text

    console.print(Text(source.name, style="bold"))
    claims = f"{'lossless' if source.lossless else 'NOT lossless'} (its claim), {source.timing}"
    claims += ", needs confidence" if source.needs_confidence else ""
    claims += ", sees the outcome (oracle)" if source.needs_oracle else ""
    console.print(Text(claims))
    console.print(Text(f"file: {source.path}", style="dim"))
    console.print()
    console.print(Text(source.doc or "(no documentation)"))
    console.print()
    if not source.parameters:
        console.print(Text("No parameters."))
    for name, (kind, value) in source.parameters.items():
        console.print(Text(f"  {name}: {kind}" + ("  (must be given)" if value is ... else f" = {value}")))
