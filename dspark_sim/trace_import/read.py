"""Opening what the user names: text, JSON or JSON lines, gzipped or not, with limits; nothing is executed.

Called by the readers of each format; they say what they miss.
"""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path
from typing import Any

from dspark_sim.errors import TraceError, shown

__all__ = ["LARGEST", "json_values", "number", "text_of", "whole"]

MAX_BYTES = 1 << 29  # unpacked; a day of rounds of a busy engine fits
LARGEST = 1 << 50  # of counts: exact as floats, and more than any server has counted


def text_of(path: Path) -> str:
    """The text of a file, unpacked if its first bytes say gzip.

    Raises:
        TraceError: missing, a folder, too large, damaged, not UTF-8, or empty.
    """
    try:
        with path.open("rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            data = gzip.GzipFile(fileobj=raw).read(MAX_BYTES + 1) if packed else raw.read(MAX_BYTES + 1)
    except (OSError, EOFError, zlib.error) as problem:
        raise TraceError(f"cannot be read ({getattr(problem, 'strerror', None) or problem})", file=path) from None
    if len(data) > MAX_BYTES:
        raise TraceError("is too large", file=path, allowed=f"at most {MAX_BYTES >> 20} MB")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise TraceError(f"is not UTF-8 text (byte {problem.start})", file=path) from None
    if not text.strip():
        raise TraceError("is empty", file=path)
    return text


def json_values(text: str, path: Path) -> list[tuple[int, Any]]:
    """(line, value) of every JSON value that follows another: one document, or one a line; a list is opened.

    Raises:
        TraceError: not JSON (names the line), or nothing in it.
    """
    decoder, out = json.JSONDecoder(parse_constant=_not_a_number), list[tuple[int, Any]]()
    at, line = 0, 1
    while True:
        begin = at
        while at < len(text) and text[at] in " \t\r\n":
            at += 1
        line += text.count("\n", begin, at)
        if at == len(text):
            break
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as problem:
            reason = getattr(problem, "msg", None) or str(problem) or "nested too deeply"
            where = text.count("\n", 0, getattr(problem, "pos", at)) + 1
            raise TraceError(f"is not JSON ({reason})", file=path, line=where) from None
        out.extend((line, item) for item in (value if isinstance(value, list) else [value]))
        line += text.count("\n", at, end)
        at = end
    if not out:
        raise TraceError("is an empty list", file=path)
    return out


def _not_a_number(word: str) -> float:
    raise ValueError(f"{word} is no number")


def number(data: dict[str, Any], key: str, path: Path, line: int | None = None) -> float:
    """A number ≥ 0 under ``key``."""
    value = data.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= LARGEST:
        what = "is missing" if key not in data else f"got {shown(value)}"
        raise TraceError(what, file=path, line=line, key=key, allowed="a number, 0 or more")
    return float(value)


def whole(data: dict[str, Any], key: str, path: Path, line: int | None = None) -> int:
    """A whole number ≥ 0 under ``key``."""
    value = number(data, key, path, line)
    if value != int(value):
        raise TraceError(f"got {value:g}", file=path, line=line, key=key, allowed="a whole number")
    return int(value)
