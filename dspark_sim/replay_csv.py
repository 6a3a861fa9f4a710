"""Traffic logs as CSV: Azure's, BurstGPT's, and a plain one; read in pieces, into columns that leave memory if need be.

Every cell comes in as text and is checked by patterns, for then a message can name the line and the column.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from dspark_sim.errors import ScenarioError, nearest, shown
from dspark_sim.growing import Growing, slices
from dspark_sim.replay_log import Columns, IntArray

__all__ = ["CSV_FORMATS", "format_of_header", "header_of", "read_csv"]

# format -> what we call a column -> the names it may have in a file
CSV_FORMATS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "azure": {"arrival": ("TIMESTAMP",), "prompt": ("ContextTokens",), "output": ("GeneratedTokens",)},
    "burstgpt": {"arrival": ("Timestamp",), "prompt": ("Request tokens",), "output": ("Response tokens",),
                 "session": ("Session ID",)},
    "csv": {"arrival": ("arrival_s", "arrived_at_s"), "prompt": ("prompt_tokens", "input_tokens"),
            "output": ("output_tokens",), "class": ("class",), "session": ("session",),
            "client": ("client", "client_id")},
}
NEEDED = ("arrival", "prompt", "output")
BLOCK = 1 << 22  # bytes of text per piece
_PATTERNS = {  # Arrow's own conversions accept more (0x10, nan), and do not say where they stop
    "date": (r"^\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d{1,9})?(Z|\+00:00)?$",
             "a time like 2023-11-16 18:17:03.9799600, in UTC"),
    "seconds": (r"^-?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,2})?$", "seconds, a number"),
    "tokens": (r"^\d{1,15}$", "a whole number of tokens"),
    "word": (r"^.*\S.*$", "a word"),
}


def header_of(line: str) -> list[str]:
    """Column names of a CSV's first line, without blanks and quotes around them."""
    try:
        return [name.strip() for name in next(csv.reader([line]), [])]
    except csv.Error:  # bytes, or lines that end with a lone carriage return
        return []


def format_of_header(names: Sequence[str]) -> str | None:
    """The format whose needed columns are all there, None if there is no such."""
    for name, columns in CSV_FORMATS.items():
        if all(any(alias in names for alias in columns[key]) for key in NEEDED):
            return name
    return None


def read_csv(file: BinaryIO, path: Path, format_: str, names: Sequence[str], class_column: str | None) -> Columns:
    """Read the rows below the header.

    Args:
        file: the whole file, unpacked, from its first byte.
        path: for messages.
        format_: a key of :data:`CSV_FORMATS`.
        names: the header, from :func:`header_of`.
        class_column: column that names the class of a row, None: the format's own, if the file has it.

    Raises:
        ScenarioError: a column is missing, a row is too short or too long, a cell is not what it must be; with file,
            line and column.
    """
    where = _columns(path, format_, names, class_column)
    kinds = {"arrival": "date" if format_ == "azure" else "seconds", "prompt": "tokens", "output": "tokens"}
    lines = Growing(np.int64)
    columns = {key: Growing(np.float64 if kinds[key] == "seconds" else np.int64) for key in NEEDED}
    words = {key: _Words(path, where[key], empty=key != "class") for key in where if key not in kinds}
    for rows, texts in _pieces(file, path, names, list(dict.fromkeys(where.values()))):
        lines.add(rows)
        for key, name in where.items():
            if key in words:
                words[key].add(texts[name], rows)
            else:
                columns[key].add(_converted(texts[name], kinds[key], path, name, rows))
    line, arrival = lines.array(), columns["arrival"].array()
    if format_ == "azure" and arrival.size:  # nanoseconds since 1970 need more digits than a float has
        offset, seconds = int(arrival.min()), Growing(np.float64)
        for part in slices(arrival.size):
            seconds.add((arrival[part] - offset) / 1e9)
        arrival = seconds.array()
    found = Columns(arrival=arrival.astype(np.float64, copy=False), prompt=columns["prompt"].array(),
                    output=columns["output"].array(), line=line)
    if "class" in words:
        found.classes, found.class_code = words["class"].found()
    if "session" in words:
        found.session = words["session"].found()[1]
    if "client" in words:
        found.client = words["client"].found()[1]
    return found


def _columns(path: Path, format_: str, names: Sequence[str], class_column: str | None) -> dict[str, str]:
    twice = [name for i, name in enumerate(names) if name in names[:i]]
    if twice:
        raise ScenarioError(f"has the column {shown(twice[0])} twice", file=path, line=1)
    where: dict[str, str] = {}
    for key, aliases in CSV_FORMATS[format_].items():
        there = [name for name in aliases if name in names]
        if there:
            where[key] = there[0]
        elif key in NEEDED:
            raise ScenarioError(f"has no column {' or '.join(map(shown, aliases))}", file=path, line=1,
                                allowed=f"the columns of format {format_}; got {', '.join(names)}",
                                suggestion=nearest(aliases[0], names))
    if class_column is not None:
        if class_column not in names:
            raise ScenarioError(f"got {shown(class_column)}, which {path.name} has no column of", key="class_column",
                                allowed=", ".join(names), suggestion=nearest(class_column, names))
        where["class"] = class_column
    return where


def _blocks(file: BinaryIO, path: Path) -> Iterator[bytes]:
    """Whole lines, about :data:`BLOCK` bytes at a time. (Arrow's own stream reads ahead in a thread, which aborts the
    process when a mistake ends it in the meantime.)"""
    rest: list[bytes] = []
    while text := file.read(BLOCK):
        end = text.rfind(b"\n") + 1
        if end:
            yield b"".join((*rest, text[:end]))
            rest = []
        rest.append(text[end:])
        if len(rest) > 8:
            raise ScenarioError(f"has a line of more than {7 * BLOCK} bytes: it is no CSV", file=path)
    if any(rest):
        yield b"".join(rest)


def _pieces(
    file: BinaryIO, path: Path, names: Sequence[str], wanted: list[str]
) -> Iterator[tuple[IntArray, dict[str, Any]]]:
    """(lines, {column: Arrow text}) piece by piece; rows without a single filled cell are blank lines, and skipped."""
    import pyarrow as pa
    import pyarrow.compute as compute
    from pyarrow import csv as arrow

    bad: list[Any] = []

    def broken(row: Any) -> str:
        bad.append(row)
        return "error"

    line, skip = 2, 1
    for block in _blocks(file, path):
        try:
            table = arrow.read_csv(
                pa.BufferReader(block),
                read_options=arrow.ReadOptions(
                    use_threads=False, block_size=len(block) + 1, column_names=list(names), skip_rows=skip
                ),
                parse_options=arrow.ParseOptions(invalid_row_handler=broken, ignore_empty_lines=False),
                convert_options=arrow.ConvertOptions(column_types={name: pa.string() for name in names}),
            )
        except pa.ArrowInvalid as problem:
            if bad:
                row = bad[0]
                raise ScenarioError(
                    f"has {row.actual_columns} cells: {shown(row.text)}", file=path,
                    line=line - 1 - skip + row.number, allowed=f"{row.expected_columns} cells, as in the header",
                ) from None
            if "Empty CSV" in str(problem):  # the header alone
                continue
            raise ScenarioError(f"is no CSV that can be read ({str(problem).splitlines()[0]})", file=path) from None
        skip = 0
        rows = np.arange(line, line + table.num_rows, dtype=np.int64)
        line += table.num_rows
        texts = {name: compute.utf8_trim_whitespace(table[names.index(name)].combine_chunks()) for name in wanted}
        filled = np.zeros(table.num_rows, dtype=bool)
        for text in texts.values():
            filled |= _numpy(compute.utf8_length(text), np.int32) > 0
        if not filled.all():
            rows = rows[filled]
            bits = pa.py_buffer(np.packbits(filled, bitorder="little"))
            mask = pa.Array.from_buffers(pa.bool_(), filled.size, [None, bits])
            texts = {name: text.filter(mask) for name, text in texts.items()}
        yield rows, texts


def _converted(text: Any, kind: str, path: Path, name: str, line: IntArray) -> npt.NDArray[Any]:
    import pyarrow as pa
    import pyarrow.compute as compute

    pattern, allowed = _PATTERNS[kind]
    fits = _numpy(compute.match_substring_regex(text, pattern).cast(pa.uint8()), np.uint8)
    try:
        if not fits.all():
            raise pa.ArrowInvalid("pattern")
        if kind == "date":
            plain = compute.replace_substring_regex(text, r"(Z|\+00:00)$", "")
            return _numpy(plain.cast(pa.timestamp("ns")).cast(pa.int64()), np.int64)
        if kind == "seconds":
            return _numpy(text.cast(pa.float64()), np.float64)
        return _numpy(text.cast(pa.int64()), np.int64)
    except pa.ArrowInvalid:
        at = _first_bad_date(text) if fits.all() else int(np.argmin(fits))
        raise ScenarioError(f"got {shown(text[at].as_py(), 40)}", file=path, line=int(line[at]), key=name,
                            allowed=allowed) from None


def _numpy(column: Any, dtype: Any) -> npt.NDArray[Any]:
    """An Arrow array without nulls as numpy sees it; Arrow's own ``to_numpy`` would import pandas."""
    if len(column) == 0:
        return np.zeros(0, dtype=dtype)
    return np.frombuffer(column.buffers()[1], dtype=dtype)[column.offset : column.offset + len(column)]


def _first_bad_date(text: Any) -> int:
    """The pattern fits but it is no date, e.g. February 30."""
    import pyarrow as pa

    for i, word in enumerate(text.to_pylist()):
        try:
            pa.scalar(word).cast(pa.timestamp("ns"))
        except pa.ArrowInvalid:
            return i
    return 0


class _Words:
    """The different words of a column, and which one stands in each row; -1 for an empty cell where that is allowed."""

    def __init__(self, path: Path, name: str, *, empty: bool) -> None:
        self._path, self._name, self._empty = path, name, empty
        self._order: dict[str, int] = {}
        self._codes = Growing(np.int64)

    def add(self, text: Any, line: IntArray) -> None:
        """The cells of a piece and their lines."""
        encoded = text.dictionary_encode()
        of = np.array([-1 if word == "" else self._order.setdefault(word, len(self._order))
                       for word in encoded.dictionary.to_pylist()], dtype=np.int64)
        if not len(text):
            return
        code = of[_numpy(encoded.indices, np.int32)]
        if not self._empty and (code < 0).any():
            raise ScenarioError("is empty", file=self._path, line=int(line[int(np.argmax(code < 0))]), key=self._name,
                                allowed="the name of a class")
        self._codes.add(code)

    def found(self) -> tuple[tuple[str, ...], IntArray]:
        """(words in the order of their first rows, (N,) codes)."""
        return tuple(self._order), self._codes.array()
