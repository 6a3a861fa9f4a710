"""JSON files as benchmark tools leave them: one value, JSON lines, or values appended one after the other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dspark_sim.errors import InputError

__all__ = ["MAX_BYTES", "json_values"]

MAX_BYTES = 1 << 28


def json_values(path: Path, error: type[InputError], allowed: str) -> list[tuple[Any, int]]:
    """The values of a file, each with the line where it begins; at least one.

    Args:
        path: the file, UTF-8 with or without a mark.
        error: class of what is raised.
        allowed: what the file should be, for its message.

    Raises:
        InputError (of the given class): unreadable, too large, empty, or not JSON; names the line.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise error("is too large for a benchmark result", file=path, allowed=f"at most {MAX_BYTES} bytes")
        text = path.read_text(encoding="utf-8-sig").strip()
    except OSError as problem:
        raise error(f"cannot be read ({problem.strerror or problem})", file=path) from None
    except UnicodeDecodeError as problem:
        raise error(f"is not JSON ({str(problem)[:80]})", file=path, allowed=allowed) from None
    if not text:
        raise error("is empty", file=path, allowed=allowed)
    decoder, at, found = json.JSONDecoder(), 0, list[tuple[Any, int]]()
    line = 1
    while at < len(text):
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as problem:
            raise error(f"is not JSON ({str(problem)[:80]})", file=path, line=line, allowed=allowed) from None
        found.append((value, line))
        while end < len(text) and text[end].isspace():
            end += 1
        line += text.count("\n", at, end)
        at = end
    return found
