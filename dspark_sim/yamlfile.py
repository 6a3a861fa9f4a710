"""Strict YAML: text to plain lists, dicts and scalars, with the line of every key remembered.

Anything clever is refused (tags, anchors, merge keys, duplicate keys, several documents), and so is anything that is
large, deep or binary. Words stay words: ``yes``, ``on``, ``2026-01-31``, ``010`` and ``0x10`` are text, not a truth
value, a date or an octal number; ``1e-3`` is a number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from dspark_sim.errors import InputError, shown

__all__ = ["MAX_BYTES", "MAX_DEPTH", "Document", "KeyPath", "dotted", "parse_scalar", "parse_yaml", "read_yaml"]

MAX_BYTES = 1 << 20  # two seconds of parsing; more would look like a hang
MAX_DEPTH = 40
MAX_DIGITS = 400
KeyPath: TypeAlias = tuple[str | int, ...]

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # all but tab and line feed; terminals obey some of them
_BOOL = re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$")
_INT = re.compile(r"^[-+]?(?:0|[1-9](?:_?[0-9])*)$")
_FLOAT = re.compile(
    r"^(?:[-+]?(?:\.[0-9]+(?:[eE][-+]?[0-9]+)?|[0-9](?:_?[0-9])*(?:\.[0-9]*(?:[eE][-+]?[0-9]+)?|[eE][-+]?[0-9]+))"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
)
_NULL = re.compile(r"^(?:~|null|Null|NULL|)$")


@dataclass
class Document:
    """A parsed file (or string): the data, and where each key stood.

    Attributes:
        data: dicts, lists and scalars.
        file: for messages; None when the text did not come from a file.
        lines: path of keys -> 1-based line.
        text: the source as read, for the manifest.
        overridden: path of keys -> what set it, e.g. ``--set workload.arrival.concurrency``.
    """

    data: Any
    file: Path | None
    lines: dict[KeyPath, int] = field(default_factory=dict)
    text: str = ""
    overridden: dict[KeyPath, str] = field(default_factory=dict)

    def line(self, path: KeyPath) -> int | None:
        """The line of a key, or of the nearest parent that has one."""
        while path:
            if path in self.lines:
                return self.lines[path]
            path = path[:-1]
        return self.lines.get(())

    def origin(self, path: KeyPath) -> tuple[int | None, str | None]:
        """(line, key) as a message should give them; a key that was overridden has no line but its option."""
        for n in range(len(path), 0, -1):
            label = self.overridden.get(path[:n])
            if label is not None:
                rest = dotted(path[n:])
                return None, label + (f".{rest}" if rest and not rest.startswith("[") else rest)
        return self.line(path), dotted(path) or None

    def error(
        self,
        problem: str,
        path: KeyPath = (),
        *,
        error: type[InputError] = InputError,
        allowed: str | None = None,
        suggestion: str | None = None,
    ) -> InputError:
        """An error that names this file, the line of ``path`` (or the option that set it) and its dotted key."""
        line, key = self.origin(path)
        return error(problem, file=self.file, line=line, key=key, allowed=allowed, suggestion=suggestion)


def dotted(path: KeyPath) -> str:
    """``("arms", 2, "policy")`` -> ``arms[2].policy``."""
    out = ""
    for part in path:
        out += f"[{part}]" if isinstance(part, int) else (f".{part}" if out else str(part))
    return out


def read_yaml(path: str | Path, error: type[InputError] = InputError) -> Document:
    """Parse one file; see :func:`parse_yaml`.

    Raises:
        InputError (of the given class): missing, a folder, too large, not text, not YAML.
    """
    path = Path(path)
    try:
        if path.is_dir():
            raise error("is a folder, not a file", file=path)
        if not path.is_file():
            raise error("no such file" if not path.exists() else "is not a file that can be read", file=path)
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise error(f"is {size} bytes long", file=path, allowed=f"at most {MAX_BYTES}")
        raw = path.read_bytes()
    except InputError:
        raise
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        raise error(f"cannot be read ({reason})", file=path) from None
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise error(f"is not UTF-8 text (byte {problem.start})", file=path) from None
    return parse_yaml(text, path, error)


def parse_yaml(text: str, file: Path | None = None, error: type[InputError] = InputError) -> Document:
    """Parse YAML text strictly.

    Raises:
        InputError (of the given class): a syntax error, a tag, an anchor or alias, a duplicate key, a key that is
        not a word, more than one document, or nesting deeper than 40.
    """
    reader = _Reader(Document(None, file, text=text), error)
    try:
        return reader.read(yaml.parse(text, Loader=yaml.SafeLoader))
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        what = " ".join(str(problem.problem or problem.context or "syntax error").split())
        raise error(f"is not valid YAML ({what})", file=file, line=None if mark is None else mark.line + 1) from None
    except yaml.reader.ReaderError as problem:
        line = text[: problem.position].count("\n") + 1
        raise error(f"is not text: character {problem.character:#x} ({problem.reason})", file=file, line=line) from None
    except yaml.YAMLError as problem:
        raise error(f"is not valid YAML ({' '.join(str(problem).split())})", file=file) from None


def parse_scalar(text: str) -> Any:
    """The value of ``--set key=TEXT``: YAML, so ``8``, ``1e-3``, ``true``, ``[1, 2]`` and words mean what they say.

    Raises:
        InputError: the text is not YAML.
    """
    return parse_yaml(text).data


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1


class _Reader:
    """Builds a document from the parser's events in one pass, and stops at the first thing that is not allowed."""

    def __init__(self, document: Document, error: type[InputError]) -> None:
        self.document, self.error = document, error

    def read(self, events: Iterator[Any]) -> Document:
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                if () in self.document.lines:
                    raise self.fault("only one YAML document may stand in a file", event)
                self.document.data = self.node(next(events), events, ())
                self.document.lines.setdefault((), 1)
        return self.document

    def fault(self, problem: str, event: Any, path: KeyPath = (), allowed: str | None = None) -> InputError:
        key = dotted(path) or None
        return self.error(problem, file=self.document.file, line=_line(event), key=key, allowed=allowed)

    def node(self, event: Any, events: Iterator[Any], path: KeyPath) -> Any:
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            raise self.fault("YAML anchors and aliases (& and *) are not allowed", event, path)
        if event.tag is not None:
            raise self.fault(f"YAML tag {shown(event.tag)} is not allowed", event, path)
        if len(path) > MAX_DEPTH:
            raise self.fault("is nested too deeply", event, path[:3], f"at most {MAX_DEPTH} levels")
        self.document.lines.setdefault(path, _line(event))
        if isinstance(event, yaml.ScalarEvent):
            return self.scalar(event, path)
        if isinstance(event, yaml.SequenceStartEvent):
            items: list[Any] = []
            while not isinstance(event := next(events), yaml.SequenceEndEvent):
                items.append(self.node(event, events, (*path, len(items))))
            return items
        out: dict[str, Any] = {}
        while not isinstance(event := next(events), yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent) or event.value == "<<" or event.anchor or event.tag:
                raise self.fault("a key must be a plain word", event, path)
            self.scalar(event, path)
            if event.value in out:
                raise self.fault("stands twice", event, (*path, event.value))
            self.document.lines[(*path, event.value)] = _line(event)
            out[event.value] = self.node(next(events), events, (*path, event.value))
        return out

    def scalar(self, event: yaml.ScalarEvent, path: KeyPath) -> Any:
        text = event.value
        if not text.isascii() and any("\ud800" <= c <= "\udfff" for c in text):
            raise self.fault("holds half a character (a lone surrogate), which is no text", event, path)
        if not text.isprintable() and (odd := CONTROL.search(text)):
            raise self.fault(f"holds the control character {odd.group()!r}, which is no text", event, path)
        if not event.implicit[0]:  # quoted, or a block of text
            return text
        if _NULL.match(text):
            return None
        if _BOOL.match(text):
            return text.lower() == "true"
        if _INT.match(text):
            if len(text) > MAX_DIGITS:
                raise self.fault(f"got {shown(text)}, not a number", event, path, f"at most {MAX_DIGITS} digits")
            return int(text.replace("_", ""))
        if _FLOAT.match(text):
            return float(text.lower().replace("_", "").replace(".inf", "inf").replace(".nan", "nan"))
        return text
