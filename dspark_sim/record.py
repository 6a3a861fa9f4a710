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

from dspark_sim.bins import FLOAT_SUMS, GAP_BINS_PER_E, INT_SUMS, Intervals, gap_value, interval_of
from dspark_sim.request import Request
from dspark_sim.spill import Spill
from dspark_sim.tally import LengthTally

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["GAP_BINS_PER_E", "INTERVAL_SUMS", "Recorder", "gap_value", "interval_of"]

CHUNK = 8192
_STEP_INTS = (
    "requests", "drafted", "verified", "accepted", "emitted", "prefill_tokens", "batch_tokens", "padded_tokens",
    "kv_tokens", "waiting", "stalled",
)
# One tuple per step, in this order: the recorder's hot path appends it and does nothing else.
#   engine, step, start, draft_s, schedule_s, verify_s, other_s, end, *_STEP_INTS, gap, gap_rows, extrapolated
_N = 8 + len(_STEP_INTS) + 3
INTERVAL_SUMS = (*FLOAT_SUMS, *INT_SUMS, "finished")


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
        self._requests: list[tuple[Any, ...]] = []
        self._request_tables = Spill()
        self._finished: list[tuple[int, float]] = []
        self._intervals = Intervals(arm, replication, interval_s, engines)
        self.steps_recorded = 0
        self.extrapolated = 0

    # -- hot path ----------------------------------------------------------------------------------------------
    def step(self, row: tuple[Any, ...]) -> None:
        """One engine step; see the order of the tuple above."""
        self._pending.extend(row)
        if len(self._pending) >= CHUNK * _N:
            self.flush()
            self._count_finished()
            self._intervals.pass_on(row[7])

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
            self._intervals.add_finished(who.astype(np.int64), when)

    def up(self, engine: int, now: float) -> None:
        """An engine is in service from now on; it is paid for then, if it was not already."""
        self._intervals.span(engine, now, up=True, paid=True)

    def down(self, engine: int, now: float) -> None:
        """An engine is out of service from now on, and still paid for."""
        self._intervals.span(engine, now, up=False)

    def paid(self, engine: int, now: float, yes: bool) -> None:
        """An engine is paid for from now on, or no longer."""
        self._intervals.span(engine, now, paid=yes)

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
            self._intervals.add_gaps(gaps[0], gaps[1], gaps[2].astype(np.int64))

    def _add(self, rows: npt.NDArray[np.float64]) -> None:
        engine, start, end = rows[0].astype(np.int64), rows[2], rows[7]
        draft, schedule, verify, other = rows[3:7]
        seconds = draft + schedule + verify + other
        named = dict(zip(_STEP_INTS, rows[8 : 8 + len(_STEP_INTS)], strict=True))
        floats = dict(zip(FLOAT_SUMS, (
            seconds, draft, schedule, verify, other, (named["requests"] + named["stalled"]) * seconds,
            named["waiting"] * seconds,
        ), strict=True))
        named |= {"steps": np.ones(start.size), "request_steps": named["requests"], "extrapolated_steps": rows[-1]}
        self._intervals.add(engine, end, floats, named)
        self.steps_recorded += int(start.size)
        self.extrapolated += int(rows[-1].sum())
        gap, gap_rows = rows[-3], rows[-2].astype(np.int64)
        have = gap_rows > 0
        self._intervals.add_gaps(end[have], gap[have], gap_rows[have])

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
        self.flush()
        self._count_finished()
        return self._intervals.table(end)

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
