"""Where the command line speaks: data to stdout, everything else to stderr, exit codes 0, 1 and 2.

130 after Ctrl-C and 143 after SIGTERM, as shells expect. A reader of stdout that goes away (``| head``) is no error.
"""

from __future__ import annotations

import contextlib
import csv
import functools
import io
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import typer

from dspark_sim.errors import DsparkSimError, InputError
from dspark_sim.stopping import exit_code, obeyed

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["emit", "emit_console", "emit_rows", "ended", "guarded", "note", "stdout_console"]

P = ParamSpec("P")
T = TypeVar("T")


def note(text: str) -> None:
    """A sentence for the user, on stderr; dropped where there is none."""
    with contextlib.suppress(OSError):
        if sys.stderr is not None:
            print(_printable(text), file=sys.stderr, flush=True)


def _printable(text: str) -> str:
    """Control characters, which a name or a file may hold and a terminal would obey, as escapes."""
    return "".join(c if c.isprintable() or c in "\n\t" else f"\\x{ord(c):02x}" for c in text)


def emit(text: str) -> None:
    """Data, on stdout; dropped where there is none, "?" for what its encoding lacks."""
    if sys.stdout is None:
        return
    encoding = sys.stdout.encoding or "utf-8"
    try:
        sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
        sys.stdout.flush()
    except BrokenPipeError:
        # nobody reads on: later writes, and the interpreter's own flush at exit, must not complain
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def stdout_console() -> Console:
    """A rich console that looks like stdout (colour, width) but only captures; see :func:`emit_console`."""
    from rich.console import Console

    return Console(highlight=False)


def emit_console(draw: Callable[[Console], None]) -> None:
    """What ``draw`` prints on a console, to stdout, safe against broken pipes."""
    console = stdout_console()
    with console.capture() as captured:
        draw(console)
    text = captured.get()
    emit(text if console.is_terminal else "\n".join(line.rstrip() for line in text.split("\n")))


def emit_rows(rows: Sequence[Mapping[str, Any]], form: str, titles: Mapping[str, str] | None = None) -> None:
    """A list of equal records as table, JSON or CSV; ``titles`` names and orders the columns of the table."""
    if form == "json":
        emit(json.dumps(list(rows), indent=2, ensure_ascii=False) + "\n")
    elif form == "csv":
        text = io.StringIO()
        writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
        writer.writeheader()
        writer.writerows({k: _csv(v) for k, v in row.items()} for row in rows)
        emit(text.getvalue())
    else:
        emit_console(lambda console: _table(console, rows, titles or {}))


def _csv(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return " ".join(map(str, value))
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else value


def _table(console: Console, rows: Sequence[Mapping[str, Any]], titles: Mapping[str, str]) -> None:
    from rich.table import Table
    from rich.text import Text

    columns = titles or {key: key for key in (rows[0] if rows else {})}
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold cyan")
    for i, (key, title) in enumerate(columns.items()):
        numbers = bool(rows) and all(isinstance(r[key], (int, float)) and not isinstance(r[key], bool) for r in rows)
        table.add_column(title, no_wrap=i == 0, justify="right" if numbers else "left")
    for row in rows:
        table.add_row(*(Text(_shown(row[key])) for key in columns))
    console.print(table)


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "–"
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


@contextmanager
def ended() -> Iterator[None]:
    """Around the whole program: threads that a policy has left running do not keep it from ending."""
    try:
        yield
    except SystemExit as done:
        guard = sys.modules.get("dspark_sim.guard")
        left = [] if guard is None else guard.stragglers()
        if not left:
            raise
        note(f"note: left behind by a policy, and given up: {', '.join(left)}")
        sys.stdout.flush()
        os._exit(done.code if isinstance(done.code, int) else 0 if done.code is None else 1)


def guarded(command: Callable[P, T]) -> Callable[P, T]:
    """Turns our errors into one line on stderr and an exit code; a mistake of the user never shows a traceback."""

    @functools.wraps(command)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            with obeyed():
                return command(*args, **kwargs)
        except InputError as problem:
            note(f"error: {problem}")
            raise typer.Exit(2) from None
        except DsparkSimError as problem:
            note(f"error: {problem}")
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            note("stopped")
            raise typer.Exit(exit_code()) from None
        except OSError as problem:
            where = f"{problem.filename}: " if problem.filename else ""
            note(f"error: {where}{problem.strerror or problem}")
            raise typer.Exit(1) from None

    return call
