"""Opening a traffic log: unpacked if it is gzipped (by its first bytes, not its name), its format by its first line."""

from __future__ import annotations

import gzip
import zlib
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, Literal, cast

from dspark_sim.errors import ScenarioError, shown
from dspark_sim.replay_csv import CSV_FORMATS, NEEDED, format_of_header, header_of, read_csv
from dspark_sim.replay_jsonl import read_mooncake
from dspark_sim.replay_log import TrafficLog, build_log

__all__ = ["read_log"]

MAX_FIRST_LINE = 1 << 20


def read_log(
    path: Path, format_: str = "auto", class_column: str | None = None, unordered: Literal["error", "sort"] = "error"
) -> TrafficLog:
    """Read a traffic log; the last two files read are remembered for as long as they do not change.

    Args:
        path: the file, as it is or gzipped.
        format_: ``azure``, ``burstgpt``, ``csv``, ``mooncake``, or ``auto``.
        class_column: column that names each row's class.
        unordered: rows earlier than the row before: ``error`` or ``sort``.

    Raises:
        ScenarioError: it cannot be read or is no such log; names the line where there is one. Without a file, the
            file itself is not there (the caller knows the key to blame).
    """
    try:
        state = path.stat()
    except OSError as problem:
        raise ScenarioError(f"cannot read {str(path)!r} ({problem.strerror})", key="file") from None
    return _read(path, format_, class_column, unordered, (state.st_mtime_ns, state.st_size, state.st_ino))


@lru_cache(maxsize=2)
def _read(
    path: Path, format_: str, class_column: str | None, unordered: Literal["error", "sort"], state: tuple[int, ...]
) -> TrafficLog:
    try:
        with path.open("rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            file = cast(BinaryIO, gzip.GzipFile(fileobj=raw) if packed else raw)
            first = file.readline(MAX_FIRST_LINE).decode("utf-8-sig", errors="replace").strip("\r\n")
            file.seek(0)
            kind = _format(first, path) if format_ == "auto" else format_
            if kind == "mooncake":
                if class_column is not None:
                    raise ScenarioError("has no effect: Mooncake's format has no columns", key="class_column")
                columns = read_mooncake(file, path)
            else:
                columns = read_csv(file, path, kind, header_of(first), class_column)
    except (OSError, EOFError, zlib.error) as problem:
        reason = getattr(problem, "strerror", None) or f"damaged gzip: {problem}"
        raise ScenarioError(f"cannot be read ({reason})", file=path) from None
    return build_log(columns, path, kind, unordered=unordered)


def _format(first: str, path: Path) -> str:
    if first.lstrip().startswith("{"):
        return "mooncake"
    found = format_of_header(header_of(first))
    if found is None:
        known = "; ".join(
            f"{name}: {', '.join(columns[key][0] for key in NEEDED)}" for name, columns in CSV_FORMATS.items()
        )
        raise ScenarioError(f"begins with {shown(first)}, which no known format does", file=path, line=1,
                            allowed=f"{known}; mooncake: JSON objects")
    return found
