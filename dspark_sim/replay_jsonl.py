"""Traffic logs as JSON lines, as Mooncake publishes them: time stamp, lengths, and hashes of the prompt's blocks."""

from __future__ import annotations

import json
from array import array
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from dspark_sim.errors import ScenarioError, shown
from dspark_sim.lengths import MAX_LENGTH
from dspark_sim.replay_log import Columns, IntArray

__all__ = ["read_mooncake"]

KEYS = ("timestamp", "input_length", "output_length")
MAX_HASH = (1 << 62) - 1


def read_mooncake(file: BinaryIO, path: Path) -> Columns:
    """Read one request per line: ``timestamp`` (milliseconds), ``input_length``, ``output_length``, ``hash_ids``.

    A hash stands for the prompt up to and with its block of 512 tokens; equal hashes are equal text. What belongs to
    one conversation is not said; it is taken to be what shares the first block that not all rows have in common.

    Args:
        file: the whole file, unpacked.
        path: for messages.

    Raises:
        ScenarioError: a line is no such object; with file, line and key.
    """
    stamp, prompt, output, lines = array("d"), array("q"), array("q"), array("q")
    start, ids = array("q", [0]), array("q")
    for number, text in enumerate(file, start=1):
        if not text.strip():
            continue
        try:
            row = json.loads(text)
        except (ValueError, RecursionError):
            raise ScenarioError(f"is no JSON: {shown(text[:40])}", file=path, line=number) from None
        if not isinstance(row, dict):
            allowed = "an object with " + ", ".join(KEYS)
            raise ScenarioError(f"got {shown(row)}", file=path, line=number, allowed=allowed)
        try:
            stamp.append(_number(row["timestamp"]) / 1000.0)
            prompt.append(_tokens(row["input_length"]))
            output.append(_tokens(row["output_length"]))
            ids.extend(map(_hash, row.get("hash_ids", ())))
        except (KeyError, TypeError, ValueError, OverflowError):
            raise _blame(row, path, number) from None
        start.append(len(ids))
        lines.append(number)
    found = Columns(
        arrival=np.array(stamp, dtype=np.float64), prompt=np.array(prompt, dtype=np.int64),
        output=np.array(output, dtype=np.int64), line=np.array(lines, dtype=np.int64),
    )
    if len(ids):
        found.prefix_start, found.prefix_ids = np.array(start, dtype=np.int64), np.array(ids, dtype=np.int64)
        found.session = _sessions(found.prefix_start, found.prefix_ids)
    return found


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < 1e15:
        raise ValueError
    return value


def _tokens(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_LENGTH:
        raise ValueError
    return value


def _hash(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_HASH:
        raise ValueError
    return value


def _blame(row: dict[str, Any], path: Path, number: int) -> ScenarioError:
    """Which key of a row it was."""
    for key in KEYS:
        if key not in row:
            return ScenarioError(f"has no {key}", file=path, line=number, allowed="keys " + ", ".join(KEYS))
        try:
            _number(row[key]) if key == "timestamp" else _tokens(row[key])
        except (ValueError, TypeError):
            what = "milliseconds, a number" if key == "timestamp" else f"a whole number, 0 to {MAX_LENGTH}"
            return ScenarioError(f"got {shown(row[key], 40)}", file=path, line=number, key=key, allowed=what)
    return ScenarioError(f"got {shown(row.get('hash_ids'), 40)}", file=path, line=number, key="hash_ids",
                         allowed="a list of whole numbers")


def _sessions(start: IntArray, ids: IntArray) -> IntArray:
    """(N,) sessions: rows that share the first block behind those that all rows begin with; -1 where there is none."""
    counts = np.diff(start)
    common = 0
    while common < int(counts.min()) and np.unique(ids[start[:-1] + common]).size == 1:
        common += 1
    found = np.full(counts.size, -1, dtype=np.int64)
    has = counts > common
    found[has] = np.unique(ids[start[:-1][has] + common], return_inverse=True)[1]
    return found
