"""The tables of a run: ``steps``, ``intervals``, ``requests`` and ``lengths`` (docs/file-formats.md).

Steps are kept as tuples for a while, then added to the intervals in one go and, with ``record: all``, turned into
an Arrow table that goes to a sink (a Parquet row group) or stays in memory. Sums are taken in the order of time, so
a naive loop gives the same bits.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dspark_sim.request import Request
from dspark_sim.spill import Spill
from dspark_sim.tally import LengthTally

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["GAP_BINS_PER_E", "INTERVAL_SUMS", "Recorder", "gap_value", "interval_of"]

CHUNK = 8192
GAP_BINS_PER_E = 100  # bin b covers gaps from exp(b / 100) to exp((b + 1) / 100) seconds

_STEP_INTS = (
    "requests", "drafted", "verified", "accepted", "emitted", "prefill_tokens", "batch_tokens", "padded_tokens",
    "kv_tokens", "waiting", "stalled",
)
# One tuple per step, in this order: the recorder's hot path appends it and does nothing else.
#   engine, step, start, draft_s, schedule_s, verify_s, other_s, end, *_STEP_INTS, gap, gap_rows, extrapolated
_N = 8 + len(_STEP_INTS) + 3
_KEY = 1 << 14  # gap bins reach from -2,100 (1 ns) to about 2,300 (300 years)
_FLOAT_SUMS = ("busy_s", "draft_s", "schedule_s", "verify_s", "other_s", "request_seconds", "waiting_seconds")
_INT_SUMS = (
    "steps", "request_steps", "drafted", "verified", "accepted", "emitted", "prefill_tokens", "batch_tokens",
    "padded_tokens", "extrapolated_steps",
)
INTERVAL_SUMS = (*_FLOAT_SUMS, *_INT_SUMS, "finished")


def interval_of(end: npt.NDArray[np.float64], width: float) -> npt.NDArray[np.int64]:
    """The bin of each moment: bin i covers (i·width, (i + 1)·width]; 0 belongs to bin 0."""
    return np.maximum(np.ceil(end / width).astype(np.int64) - 1, 0)


def gap_value(bins: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Seconds at the geometric middle of histogram bins: at most 0.5 % from any gap in them."""
    return np.asarray(np.exp((bins + 0.5) / GAP_BINS_PER_E))


class Recorder:
    """Collects what engines do and makes the tables.

    Args:
        arm, replication: written into every row.
        classes: class names by index.
        interval_s: width of an interval's bin.
        engines: how many engines report.
        keep_steps: make the steps table (``record: all``).
        block_size, measured_from: of the table ``lengths``, see :class:`~dspark_sim.tally.LengthTally`.
        steps_sink: called with each finished Arrow table of steps; None keeps them for :meth:`steps`.
    """

    def __init__(
        self, arm: str, replication: int, classes: list[str], interval_s: float, *, engines: int = 1,
        keep_steps: bool = True, steps_sink: Callable[[pa.Table], None] | None = None, block_size: int = 0,
        measured_from: float = 0.0,
    ) -> None:
        self.arm, self.replication, self.classes, self.interval_s = arm, replication, classes, interval_s
        self.engines, self.keep_steps, self.steps_sink = engines, keep_steps, steps_sink
        self.lengths = LengthTally(block_size, measured_from)
        self._pending = array("d")
        self._gaps: list[tuple[float, float, int]] = []  # (end, gap, rows) beside each step's common gap
        self._tables: list[pa.Table] = []
        self._floats = np.zeros((engines, len(_FLOAT_SUMS), 64))
        self._whole = np.zeros((engines, len(_INT_SUMS), 64), dtype=np.int64)
        self._ended = np.zeros((engines, 64), dtype=np.int64)
        self._histogram: dict[tuple[int, int], int] = {}  # (interval, gap bin) -> rows, of all engines
        self._requests: list[tuple[Any, ...]] = []
        self._request_tables = Spill()
        self._finished: list[tuple[int, float]] = []
        self._up: list[list[float]] = []  # [engine, from, to]
        self.steps_recorded = 0
        self.extrapolated = 0

    # -- hot path ----------------------------------------------------------------------------------------------
    def step(self, row: tuple[Any, ...]) -> None:
        """One engine step; see the order of the tuple above."""
        self._pending.extend(row)
        if len(self._pending) >= CHUNK * _N:
            self.flush()

    def gap(self, end: float, gap: float, rows: int = 1) -> None:
        """A gap of ``rows`` requests that differs from the step's common one."""
        self._gaps.append((end, gap, rows))

    def request(self, r: Request, engine: int) -> None:
        """A request that left the simulation, or was still in it at the end."""
        self._requests.append((
            engine, r.id, r.class_index, r.arrival, r.admitted, r.first_token, r.finished, r.prompt_tokens,
            r.output_tokens, r.skipped, r.emitted, r.steps, r.drafted, r.verified, r.accepted, r.preemptions,
            r.slowest_gap, r.outcome, r.requeued, r.cached_tokens, r.recomputed_tokens,
        ))
        if r.finished is not None:
            self._finished.append((engine, r.finished))
        if len(self._requests) >= CHUNK:
            self._flush_requests()
            self._count_finished()

    def _count_finished(self) -> None:
        if self._finished:
            who, when = np.array(self._finished).T
            self._finished.clear()
            where = interval_of(when, self.interval_s)
            self._grow(int(where.max()) + 1)
            np.add.at(self._ended, (who.astype(np.int64), where), 1)

    def up(self, engine: int, now: float) -> None:
        """An engine is in service from now on."""
        self._up.append([engine, now, np.inf])

    def down(self, engine: int, now: float) -> None:
        """An engine is out of service from now on."""
        for span in reversed(self._up):
            if span[0] == engine:
                span[2] = now
                return

    # -- from tuples to sums and tables ------------------------------------------------------------------------
    def flush(self) -> None:
        """Add the pending steps to the intervals and, if wanted, to the steps table."""
        if self._pending:
            rows = np.frombuffer(self._pending).reshape(-1, _N).T
            self._pending = array("d")
            self._add(rows)
            if self.keep_steps:
                self._emit(rows)
        if self._gaps:
            gaps = np.array(self._gaps, dtype=np.float64).T
            self._gaps.clear()
            self._add_gaps(gaps[0], gaps[1], gaps[2].astype(np.int64))

    def _grow(self, bins: int) -> None:
        have = self._floats.shape[2]
        if bins > have:
            more = max(bins, 2 * have) - have
            self._floats = np.pad(self._floats, ((0, 0), (0, 0), (0, more)))
            self._whole = np.pad(self._whole, ((0, 0), (0, 0), (0, more)))
            self._ended = np.pad(self._ended, ((0, 0), (0, more)))

    def _add(self, rows: npt.NDArray[np.float64]) -> None:
        engine, start, end = rows[0].astype(np.int64), rows[2], rows[7]
        draft, schedule, verify, other = rows[3:7]
        ints = rows[8 : 8 + len(_STEP_INTS)]
        seconds = draft + schedule + verify + other
        where = interval_of(end, self.interval_s)
        self._grow(int(where.max()) + 1)
        named = dict(zip(_STEP_INTS, ints, strict=True))
        extrapolated = rows[-1]
        for i, values in enumerate(
            (seconds, draft, schedule, verify, other, (named["requests"] + named["stalled"]) * seconds,
             named["waiting"] * seconds)
        ):
            np.add.at(self._floats[:, i], (engine, where), values)
        sums = (
            np.ones(start.size), named["requests"], *(named[name] for name in _INT_SUMS[2:9]), extrapolated,
        )
        for i, values in enumerate(sums):
            np.add.at(self._whole[:, i], (engine, where), values.astype(np.int64))
        self.steps_recorded += int(start.size)
        self.extrapolated += int(extrapolated.sum())
        gap, gap_rows = rows[-3], rows[-2].astype(np.int64)
        have = gap_rows > 0
        self._add_gaps(end[have], gap[have], gap_rows[have])

    def _add_gaps(
        self, end: npt.NDArray[np.float64], gap: npt.NDArray[np.float64], rows: npt.NDArray[np.int64]
    ) -> None:
        if gap.size == 0:
            return
        bins = np.floor(np.log(np.maximum(gap, 1e-9)) * GAP_BINS_PER_E).astype(np.int64)
        where = interval_of(end, self.interval_s)
        keys, index = np.unique(where * _KEY + bins + _KEY // 2, return_inverse=True)
        counts = np.bincount(index, weights=rows).astype(np.int64)
        for key, count in zip(keys.tolist(), counts.tolist(), strict=True):
            spot = (key // _KEY, key % _KEY - _KEY // 2)
            self._histogram[spot] = self._histogram.get(spot, 0) + count

    def _emit(self, rows: npt.NDArray[np.float64]) -> None:
        import pyarrow as pa

        n = rows.shape[1]
        columns: dict[str, Any] = {
            "arm": pa.array([self.arm] * n, pa.string()),
            "replication": pa.array(np.full(n, self.replication, dtype=np.int16)),
            "engine": pa.array(rows[0].astype(np.int16)),
            "step": pa.array(rows[1].astype(np.int64)),
        }
        for i, name in enumerate(("start", "draft_s", "schedule_s", "verify_s", "other_s")):
            columns[name] = pa.array(rows[2 + i])
        for i, name in enumerate(_STEP_INTS):
            kind = np.int64 if name == "kv_tokens" else np.int32
            columns[name] = pa.array(rows[8 + i].astype(kind))
        table = pa.table(columns)
        if self.steps_sink is None:
            self._tables.append(table)
        else:
            self.steps_sink(table)

    # -- the tables --------------------------------------------------------------------------------------------
    def steps(self) -> pa.Table | None:
        """The steps table, None when it was not kept or went to a sink."""
        import pyarrow as pa

        self.flush()
        if self.keep_steps and self.steps_sink is None and not self._tables:
            self._emit(np.empty((_N, 0)))  # a run without a step has a table without a row
        return pa.concat_tables(self._tables) if self._tables else None

    def intervals(self, end: float) -> pa.Table:
        """The intervals table up to ``end``: a row for every bin of every engine, idle ones too."""
        import pyarrow as pa

        self.flush()
        bins = max(int(interval_of(np.array([end]), self.interval_s)[0]) + 1, 1)
        self._grow(bins)
        self._count_finished()
        start = np.arange(bins) * self.interval_s
        columns: dict[str, Any] = {
            "arm": [self.arm] * (bins * self.engines),
            "replication": np.full(bins * self.engines, self.replication, dtype=np.int16),
            "engine": np.repeat(np.arange(self.engines, dtype=np.int16), bins),
            "start": np.tile(start, self.engines),
            "seconds": np.tile(np.minimum(self.interval_s, end - start), self.engines),
            "up_s": self._up_seconds(start, np.minimum(start + self.interval_s, end)).ravel(),
        }
        for i, name in enumerate(_FLOAT_SUMS):
            columns[name] = self._floats[:, i, :bins].ravel()
        for i, name in enumerate(_INT_SUMS):
            columns[name] = self._whole[:, i, :bins].ravel()
        columns["finished"] = self._ended[:, :bins].ravel()
        gap_bins: list[list[int]] = [[] for _ in range(bins * self.engines)]
        gap_counts: list[list[int]] = [[] for _ in range(bins * self.engines)]
        for (where, gap), count in sorted(self._histogram.items()):  # of all engines, in the rows of the first
            if where < bins:
                gap_bins[where].append(gap)
                gap_counts[where].append(count)
        columns["gap_bin"] = pa.array(gap_bins, pa.list_(pa.int32()))
        columns["gap_count"] = pa.array(gap_counts, pa.list_(pa.int64()))
        return pa.table(columns)

    def _up_seconds(self, start: npt.NDArray[Any], stop: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """(engines, bins) seconds of each bin in which an engine was in service."""
        seconds = np.zeros((self.engines, start.size))
        for engine, since, until in self._up:
            if since <= start[0] and until >= stop[-1]:
                seconds[int(engine)] = stop - start
            else:
                seconds[int(engine)] += np.maximum(np.minimum(stop, until) - np.maximum(start, since), 0.0)
        return seconds

    def _flush_requests(self) -> None:
        import pyarrow as pa

        columns = [list(column) for column in zip(*self._requests, strict=True)]
        self._requests.clear()
        columns[2] = [self.classes[c] for c in columns[2]]
        schema = _request_schema()
        same = [[self.arm] * len(columns[0]), [self.replication] * len(columns[0])]
        arrays = [pa.array(column, field.type) for column, field in zip(same + columns, schema, strict=True)]
        self._request_tables.add(pa.Table.from_arrays(arrays, schema=schema))

    def requests(self) -> pa.Table:
        """The requests table, in the order in which requests ended."""
        if self._requests:
            self._flush_requests()
        return self._request_tables.table() or _request_schema().empty_table()


def _request_schema() -> pa.Schema:
    import pyarrow as pa

    text, short, whole, real = pa.string(), pa.int16(), pa.int64(), pa.float64()
    return pa.schema([
        ("arm", text), ("replication", short), ("engine", short), ("id", whole), ("class", text), ("arrival", real),
        ("admitted", real), ("first_token", real), ("finished", real), ("prompt_tokens", whole),
        ("output_tokens", whole), ("skipped", whole), ("emitted", whole), ("steps", whole), ("drafted", whole),
        ("verified", whole), ("accepted", whole), ("preemptions", whole), ("slowest_gap", real), ("outcome", text),
        ("requeued", whole), ("cached_tokens", whole), ("recomputed_tokens", whole),
    ])
