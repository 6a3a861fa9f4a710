"""Rows of a curve, from YAML or CSV, into a :class:`~dspark_sim.curve.StepCurve`; every mistake names its row."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dspark_sim.curve import MAX_SECONDS, MAX_TOKENS, StepCurve
from dspark_sim.errors import ProfileError, nearest, shown
from dspark_sim.profile_schema import CurveSpec
from dspark_sim.yamlio import Document

__all__ = ["MAX_CSV_BYTES", "Axis", "CurveReader", "Key", "refusal"]

Key = tuple[str | int, ...]

Axis = Literal["batch_tokens", "requests"]
MAX_CSV_BYTES = 4 << 20
MAX_ROWS = 100_000
MIN_STEP = 1e-6  # seconds; no forward pass is faster, and a clock that hardly moves looks like a hang
_PER_SECOND = {"seconds": 1, "s": 1, "ms": 1000}  # divided by, so that 20.63 ms is the float 0.02063
_NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?")

Complaint = Callable[..., ProfileError]


def refusal(document: Document, problem: str, key: Key, allowed: str | None = None) -> ProfileError:
    """An error that names the file, the line and the dotted key."""
    return ProfileError(problem, file=document.file, line=document.line(key), key=_dotted(key), allowed=allowed)


class CurveReader:
    """Builds the curves of one profile; remembers the bytes of every CSV that it opened, for the hash.

    Args:
        document: the parsed ``profile.yaml``.
        folder: where the CSV files lie; a ``file:`` may not lead out of it.
    """

    def __init__(self, document: Document, folder: Path) -> None:
        self.document, self.folder = document, folder
        self.files: dict[str, bytes] = {}

    def read(self, spec: CurveSpec, path: Key, axis: Axis, *, positive: bool = False) -> StepCurve:
        """One curve.

        Args:
            spec: what the YAML says.
            path: where it says so.
            axis: the name of the size column.
            positive: a time of 0 is refused (a forward pass takes time).

        Raises:
            ProfileError: with the row of the CSV, or the point of the YAML.
        """
        if spec.points is not None:
            unit: str = spec.unit or "s"
            rows = [self._point(item, (*path, "points", i)) for i, item in enumerate(spec.points)]
        else:
            unit, rows = self._csv(str(spec.file), (*path, "file"), axis)
        sizes: list[int] = []
        seconds: list[float] = []
        for size, value, complain in rows:
            sizes.append(_size(size, axis, sizes, complain))
            seconds.append(_time(value, unit, positive, complain))
        try:
            curve = StepCurve(
                np.array(sizes), np.array(seconds), spec.between, spec.graph_limit, spec.extrapolate, spec.running_max
            )
        except ProfileError as problem:
            raise refusal(self.document, problem.problem, path, problem.allowed) from None
        if spec.extrapolate is not None and len(sizes) > 1:
            self._can_go_on(curve, path)
        return curve

    def _can_go_on(self, curve: StepCurve, path: Key) -> None:
        """Refuse a last segment that no one could want continued."""
        if curve.graph_limit is not None and curve.batch_tokens[-2] == curve.graph_limit:
            problem, allowed = "would continue the jump at graph_limit", "two points above graph_limit"
        elif curve.seconds[-1] < curve.seconds[-2]:
            problem, allowed = "would follow a falling last segment to 0 seconds", "a last segment that does not fall"
        else:
            return
        raise refusal(self.document, problem, (*path, "extrapolate"), allowed)

    def _point(self, item: Any, path: Key) -> tuple[Any, Any, Complaint]:
        def complain(problem: str, allowed: str | None = None) -> ProfileError:
            return refusal(self.document, problem, path, allowed)

        if not isinstance(item, list) or len(item) != 2:
            raise complain(f"got {shown(item)}", "a point, [size, time]")
        return item[0], item[1], complain

    def _csv(self, name: str, path: Key, axis: Axis) -> tuple[str, list[tuple[Any, Any, Complaint]]]:
        file, text = self._text(name, path)

        def complaint(line: int) -> Complaint:
            def complain(problem: str, allowed: str | None = None) -> ProfileError:
                return ProfileError(problem, file=file, line=line, allowed=allowed)

            return complain

        header: list[str] = []
        rows: list[tuple[Any, Any, Complaint]] = []
        unit, at, of = "s", 0, 0
        reader = csv.reader(io.StringIO(text, newline=""), strict=True)
        try:
            for cells in reader:
                line = reader.line_num
                if not cells or cells[0].lstrip().startswith("#") or not any(c.strip() for c in cells):
                    continue
                cells = [c.strip() for c in cells]
                if not header:
                    header = cells
                    unit, at, of = _columns(header, axis, complaint(line), file, line)
                    continue
                if len(cells) != len(header):
                    raise complaint(line)(f"has {len(cells)} cells, the header has {len(header)}")
                if len(rows) >= MAX_ROWS:
                    raise complaint(line)("has too many rows", f"at most {MAX_ROWS}")
                rows.append((_number(cells[at]), _number(cells[of]), complaint(line)))
        except csv.Error as problem:
            raise complaint(reader.line_num)(f"is not CSV ({problem})") from None
        if not rows:
            raise ProfileError("has no rows", file=file, allowed=f"a header {axis},seconds and at least one row")
        return unit, rows

    def _text(self, name: str, path: Key) -> tuple[Path, str]:
        def refuse(problem: str, allowed: str | None = None) -> ProfileError:
            return refusal(self.document, problem, path, allowed)

        if Path(name).is_absolute() or ".." in Path(name).parts or "\0" in name:
            raise refuse(f"got {shown(name)}", "a file in the profile's own folder")
        file = self.folder / name
        try:
            if not file.is_file():
                here = sorted(p.name for p in self.folder.glob("*.csv"))
                guess = nearest(name, here)
                hint = f" (did you mean {guess!r}?)" if guess else ""
                raise refuse(f"no file {shown(name)} beside the profile{hint}")
            size = file.stat().st_size
            if size > MAX_CSV_BYTES:
                raise ProfileError(f"is {size} bytes long", file=file, allowed=f"at most {MAX_CSV_BYTES}")
            raw = file.read_bytes()
        except OSError as problem:
            raise refuse(f"{shown(name)} cannot be read ({problem.strerror or problem})") from None
        self.files[name] = raw
        try:
            return file, raw.decode("utf-8-sig")
        except UnicodeDecodeError as problem:
            raise ProfileError(f"is not UTF-8 text (byte {problem.start})", file=file) from None


def _columns(header: list[str], axis: Axis, complain: Complaint, file: Path, line: int) -> tuple[str, int, int]:
    if len(set(header)) != len(header):
        twice = next(h for h in header if header.count(h) > 1)
        raise complain(f"the column {shown(twice)} stands twice")
    units = [name for name in ("seconds", "ms") if name in header]
    if axis not in header or len(units) != 1:
        wanted = axis if axis not in header else "seconds"
        problem = "has both a column seconds and a column ms" if len(units) == 2 else f"has no column {wanted}"
        raise ProfileError(f"the header {problem}", file=file, line=line, allowed=f"{axis},seconds or {axis},ms",
                           suggestion=None if len(units) == 2 else nearest(wanted, header))
    return units[0], header.index(axis), header.index(units[0])


def _number(text: str) -> Any:
    """An int or float if the cell is one; else the text, which the row checks refuse with the value shown."""
    if not _NUMBER.fullmatch(text) or len(text) > 400:
        return text
    return int(text) if text.lstrip("+-").isdecimal() else float(text)


def _size(value: Any, axis: Axis, before: list[int], complain: Complaint) -> int:
    what = f"{axis} "
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or (isinstance(value, float) and (not math.isfinite(value) or value != int(value))):
        raise complain(f"{what}{shown(value)} is not a whole number", f"0 to {MAX_TOKENS}")
    size = int(value)
    if not 0 <= size <= MAX_TOKENS:
        raise complain(f"{what}{shown(value)}", f"0 to {MAX_TOKENS}")
    if before and size == before[-1]:
        raise complain(f"{what}{size} stands twice")
    if before and size < before[-1]:
        raise complain(f"{what}{size} stands after {before[-1]}", "rising sizes")
    return size


def _time(value: Any, unit: str, positive: bool, complain: Complaint) -> float:
    least = MIN_STEP if positive else 0.0
    allowed = f"{least * _PER_SECOND[unit]:g} to {MAX_SECONDS * _PER_SECOND[unit]:g} {'ms' if unit == 'ms' else 's'}"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise complain(f"time {shown(value)} is not a number", allowed)
    try:
        seconds = float(value) / _PER_SECOND[unit]
    except OverflowError:
        seconds = math.inf
    if not least <= seconds <= MAX_SECONDS:  # NaN fails the comparison
        raise complain(f"time {shown(value)}", allowed)
    return seconds


def _dotted(path: Key) -> str:
    out = ""
    for part in path:
        out += f"[{part}]" if isinstance(part, int) else (f".{part}" if out else str(part))
    return out
