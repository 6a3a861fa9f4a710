"""A traffic log: one array per column, checked at birth, read-only; long ones are mapped from files without a name.

N rows, K prefix blocks of all rows together.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from dspark_sim.errors import ScenarioError
from dspark_sim.growing import Growing, slices
from dspark_sim.lengths import MAX_LENGTH

__all__ = ["Columns", "TrafficLog", "build_log", "tick_of"]

FloatArray: TypeAlias = npt.NDArray[np.float64]
IntArray: TypeAlias = npt.NDArray[np.int64]
_TICK_ROWS = 0.05  # share of rows that share their time stamp with the row before: above it, ticks shape the traffic
_TICK_FIT = 0.95  # share of the distances between stamps that must be whole ticks
_TICK_ERROR = 0.02  # how far from a whole tick, in ticks
_TICK_LOOK = 1_000_000  # rows in which ticks are looked for
_TICK_SECONDS = 0.01  # shorter ones are shorter than an engine's step and shape nothing


@dataclass
class Columns:
    """What a reader found, as it stood in the file; ``line`` numbers the rows for messages (the first line is 1)."""

    arrival: FloatArray
    prompt: IntArray
    output: IntArray
    line: IntArray
    classes: tuple[str, ...] | None = None
    class_code: IntArray | None = None
    session: IntArray | None = None
    client: IntArray | None = None
    prefix_start: IntArray | None = None
    prefix_ids: IntArray | None = None


@dataclass(frozen=True, eq=False)
class TrafficLog:
    """The rows of a file that are requests, in order of time.

    Attributes:
        file, format: where they come from.
        arrival: (N,) seconds; dates count from the earliest of them, seconds stand as they are.
        prompt, output: (N,) tokens, 1 or more.
        line: (N,) line of the file.
        classes, class_code: names of the class column's values and (N,) which of them; None without such a column.
        session: (N,) number of the conversation, -1 for none; None if the file tells of none.
        client: (N,) number of the client; None if the file tells of none.
        prefix_start, prefix_ids: row i's leading prompt blocks of 512 tokens are
            ``prefix_ids[prefix_start[i]:prefix_start[i + 1]]``; None if the file tells of none.
        tick: seconds between time stamps where they are coarse, None where they are not.
        dropped: rows left out because prompt or output was 0, and the line of the first one.
    """

    file: Path
    format: str
    arrival: FloatArray
    prompt: IntArray
    output: IntArray
    line: IntArray
    classes: tuple[str, ...] | None = None
    class_code: IntArray | None = None
    session: IntArray | None = None
    client: IntArray | None = None
    prefix_start: IntArray | None = None
    prefix_ids: IntArray | None = None
    dropped: tuple[int, int] = (0, 0)
    tick: float | None = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tick", tick_of(self.arrival[:_TICK_LOOK]))
        for values in vars(self).values():
            if isinstance(values, np.ndarray):
                values.flags.writeable = False

    @property
    def rows(self) -> int:
        """N."""
        return int(self.arrival.size)

    def prefix(self, row: int) -> tuple[int, ...]:
        """Row ``row``'s prefix blocks, empty without them."""
        if self.prefix_start is None or self.prefix_ids is None:
            return ()
        found: list[int] = self.prefix_ids[self.prefix_start[row] : self.prefix_start[row + 1]].tolist()
        return tuple(found)


def build_log(
    columns: Columns, file: Path, format_: str, *, unordered: Literal["error", "sort"]
) -> TrafficLog:
    """Check and order what a reader found.

    Rows whose prompt or output is 0 (failed calls, in some logs) are no requests: they are left out and counted.

    Args:
        columns: the file's rows in its order.
        file, format_: for messages.
        unordered: what to do with rows that are earlier than the row before.

    Raises:
        ScenarioError: nothing is left, a length is too large, a time is out of order or negative; names the row.
    """
    rows = int(columns.arrival.size)
    if rows == 0:
        raise ScenarioError("holds no requests", file=file)
    back, dropped, first, first_back = 0, 0, 0, 0
    last = columns.arrival[0]
    for part in slices(rows):
        for name, values in (("prompt", columns.prompt[part]), ("output", columns.output[part])):
            if int(values.max()) > MAX_LENGTH or int(values.min()) < 0:
                bad = int(np.flatnonzero((values > MAX_LENGTH) | (values < 0))[0])
                raise ScenarioError(f"got {int(values[bad])} {name} tokens", file=file,
                                    line=int(columns.line[part.start + bad]), allowed=f"0 to {MAX_LENGTH}")
        earlier = np.flatnonzero(np.diff(columns.arrival[part], prepend=last) < 0)
        last = columns.arrival[part.stop - 1]
        if earlier.size and not back:
            first_back = part.start + int(earlier[0])
        back += earlier.size
        empty = np.flatnonzero((columns.prompt[part] == 0) | (columns.output[part] == 0))
        if empty.size and not dropped:
            first = int(columns.line[part.start + int(empty[0])])
        dropped += empty.size
    if back and unordered == "error":
        raise ScenarioError(
            f"is {columns.arrival[first_back - 1] - columns.arrival[first_back]:.6g} s earlier than the row before"
            + (f" ({back} rows are)" if back > 1 else ""), file=file, line=int(columns.line[first_back]),
            allowed="rows in order of time, or `workload.arrival.unordered: sort` in the scenario",
        )
    if dropped == rows:
        raise ScenarioError("every row has 0 prompt or output tokens", file=file, line=int(columns.line[0]))
    kept = None if not (back or dropped) else _kept(columns, sort=bool(back))
    least = 0 if kept is None else int(kept[0])
    if columns.arrival[least] < 0:
        raise ScenarioError(f"got second {columns.arrival[least]:g}", file=file, line=int(columns.line[least]),
                            allowed="seconds from 0 on")
    start, ids = _prefixes(columns, kept)

    def pick(values: npt.NDArray[Any] | None) -> Any:
        if values is None or kept is None:
            return values
        out = Growing(values.dtype)
        for part in slices(kept.size):
            out.add(values[kept[part]])
        return out.array()

    return TrafficLog(
        file=file, format=format_, arrival=pick(columns.arrival), prompt=pick(columns.prompt),
        output=pick(columns.output), line=pick(columns.line), classes=columns.classes,
        class_code=pick(columns.class_code), session=pick(columns.session), client=pick(columns.client),
        prefix_start=start, prefix_ids=ids, dropped=(dropped, first),
    )


def _kept(columns: Columns, *, sort: bool) -> IntArray:
    """Rows that are requests, in order of time; equal times keep their order."""
    out = Growing(np.int64)
    for part in slices(columns.arrival.size):
        out.add(part.start + np.flatnonzero((columns.prompt[part] > 0) & (columns.output[part] > 0)))
    kept: IntArray = out.array()
    return kept[np.argsort(columns.arrival[kept], kind="stable")] if sort else kept


def _prefixes(columns: Columns, kept: IntArray | None) -> tuple[IntArray | None, IntArray | None]:
    start, ids = columns.prefix_start, columns.prefix_ids
    if start is None or ids is None:
        return None, None
    if kept is None:
        return start, ids
    counts = (start[1:] - start[:-1])[kept]
    out = np.concatenate([[0], np.cumsum(counts)])
    return out, ids[np.repeat(start[:-1][kept] - out[:-1], counts) + np.arange(out[-1])]


def tick_of(arrival: FloatArray) -> float | None:
    """Seconds between two ticks of a coarse clock, None if the time stamps are fine enough.

    A clock is coarse when its ticks are 10 ms or longer, more than 5 % of the rows have the time stamp of the row
    before, and 95 % of the distances between different stamps are a whole number of ticks (within 2 %). Requests that
    come in groups at fine time stamps fail the last condition: they are left alone. The tick is the mean of the
    shortest distances, so it may jitter a little (Mooncake's 3 s ticks do, by 3 ms).
    """
    gaps = np.diff(arrival)
    moved = gaps[gaps > 0]
    if arrival.size < 20 or moved.size < 4 or moved.size >= (1 - _TICK_ROWS) * gaps.size:
        return None
    low = float(np.quantile(moved, 0.01))
    tick = float(moved[moved < 1.5 * low].mean())
    ticks = moved / tick
    off = np.abs(ticks - np.rint(ticks)) > _TICK_ERROR
    return tick if tick >= _TICK_SECONDS and float(off.mean()) <= 1 - _TICK_FIT else None
