"""Timed points in a file that grows: one JSON line each, flushed to the disk, so that a killed measurement goes on."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dspark_sim.errors import InputError, shown

__all__ = ["Key", "PointsFile", "TimedPoint"]

FORMAT = "dspark-sim timed points 1"
Key = tuple[str, int, int, int]


@dataclass(frozen=True)
class TimedPoint:
    """One line.

    Attributes:
        part: ``verify``, ``draft NAME`` (context, block or whole chain of a drafter) or ``token NAME`` (its sequential
            part, per token).
        tokens: of the target's pass; of one round for drafters.
        requests: in the batch.
        context: tokens that each has already.
        seconds, low, high: median and quartiles; None where it was skipped.
        repeats, mode: see :class:`~dspark_sim.lab.stopwatch.Timing`.
        skipped: why there is no time, None if there is.
    """

    part: str
    tokens: int
    requests: int
    context: int
    seconds: float | None = None
    low: float | None = None
    high: float | None = None
    repeats: int = 0
    mode: str = ""
    skipped: str | None = None

    @property
    def key(self) -> Key:
        """What was timed."""
        return self.part, self.tokens, self.requests, self.context


class PointsFile:
    """The file of one measurement.

    Args:
        path: made when the first point comes.
        about: what must be the same for points to belong together (model, device, threads, …).

    Raises:
        InputError: the file holds something else, or points of another measurement.
    """

    def __init__(self, path: Path, about: Mapping[str, Any]) -> None:
        self.path, self.about = path, dict(about)
        self.points: dict[Key, TimedPoint] = {}
        if path.exists():
            self._read()
        self.found = len(self.points)

    def add(self, point: TimedPoint) -> None:
        """Keep a point, on the disk before this returns."""
        new = not self.path.exists()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            if new:
                file.write(json.dumps({"format": FORMAT, "about": self.about}) + "\n")
            file.write(json.dumps(asdict(point)) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.points[point.key] = point

    def _read(self) -> None:
        allowed = "a file of an earlier call of this command, or no file"
        whole, _, torn = self.path.read_bytes().rpartition(b"\n")
        lines = whole.decode("utf-8", "replace").split("\n") if whole else []
        if not lines and not torn.lstrip().startswith(b"{"):
            lines = [""]  # something else: refuse it below, and leave it alone
        if not lines:
            self.path.unlink()
            return
        try:
            head = json.loads(lines[0])
            if not isinstance(head, dict) or head.get("format") != FORMAT or not isinstance(head.get("about"), dict):
                raise ValueError("its first line is no header")
            points = [TimedPoint(**json.loads(line)) for line in lines[1:]]
        except (ValueError, TypeError, RecursionError) as problem:
            raise InputError(f"holds no timed points ({shown(str(problem))})", file=self.path,
                             allowed=allowed) from None
        for key, value in self.about.items():
            if head["about"].get(key) != value:
                raise InputError(f"holds points of {key} {shown(head['about'].get(key))}, not {shown(value)}",
                                 file=self.path, allowed=f"the same {key}, another --out, or delete the file")
        if torn:  # the last line was being written when the process was killed
            with self.path.open("r+b") as file:
                file.truncate(len(whole) + 1)
        self.points = {p.key: p for p in points}
