"""The intervals table: what engines did, summed per engine and bin of time, and a histogram of step gaps.

Sums are taken in the order of time, so a naive loop gives the same bits. Bins that are over, of many engines or of a
long run, leave memory for a temporary file: the table then comes in pieces of time, engine by engine within each.

E engines, I bins in memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dspark_sim.spill import Spill

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["FLOAT_SUMS", "GAP_BINS_PER_E", "INT_SUMS", "Intervals", "gap_value", "interval_of"]

GAP_BINS_PER_E = 100  # bin b covers gaps from exp(b / 100) to exp((b + 1) / 100) seconds
FLOAT_SUMS = ("busy_s", "draft_s", "schedule_s", "verify_s", "other_s", "request_seconds", "waiting_seconds")
INT_SUMS = (
    "steps", "request_steps", "drafted", "verified", "accepted", "emitted", "prefill_tokens", "batch_tokens",
    "padded_tokens", "extrapolated_steps",
)
MOST_CELLS = 1 << 18  # bins times engines that are held in memory: 40 MB
_KEY = 1 << 14  # gap bins reach from -2,100 (1 ns) to about 2,300 (300 years)


def interval_of(end: npt.NDArray[np.float64], width: float) -> npt.NDArray[np.int64]:
    """The bin of each moment: bin i covers (i·width, (i + 1)·width]; 0 belongs to bin 0."""
    return np.maximum(np.ceil(end / width).astype(np.int64) - 1, 0)


def gap_value(bins: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Seconds at the geometric middle of histogram bins: at most 0.5 % from any gap in them."""
    return np.asarray(np.exp((bins + 0.5) / GAP_BINS_PER_E))


class Intervals:
    """Sums by bin.

    Args:
        arm, replication: written into every row.
        width: seconds of a bin.
        engines: E.
    """

    def __init__(self, arm: str, replication: int, width: float, engines: int) -> None:
        self.arm, self.replication, self.width, self.engines = arm, replication, width, engines
        self._first = 0  # bins before it have left memory
        self._floats = np.zeros((engines, len(FLOAT_SUMS), 64))
        self._whole = np.zeros((engines, len(INT_SUMS), 64), dtype=np.int64)
        self._ended = np.zeros((engines, 64), dtype=np.int64)
        self._histogram: dict[tuple[int, int], int] = {}  # (bin, gap bin) -> rows, of all engines
        self._up: list[list[float]] = []  # [engine, from, to]
        self._paid: list[list[float]] = []
        self._over = Spill()

    def add(
        self, engine: npt.NDArray[np.int64], end: npt.NDArray[np.float64], floats: Mapping[str, npt.NDArray[Any]],
        whole: Mapping[str, npt.NDArray[Any]],
    ) -> None:
        """Steps: who, when they ended, and one array per name of :data:`FLOAT_SUMS` and :data:`INT_SUMS`."""
        where = self._where(end)
        for i, name in enumerate(FLOAT_SUMS):
            np.add.at(self._floats[:, i], (engine, where), floats[name])
        for i, name in enumerate(INT_SUMS):
            np.add.at(self._whole[:, i], (engine, where), whole[name].astype(np.int64))

    def add_gaps(
        self, end: npt.NDArray[np.float64], gap: npt.NDArray[np.float64], rows: npt.NDArray[np.int64]
    ) -> None:
        """Gaps: when they ended, their seconds, and how many requests had them."""
        if gap.size == 0:
            return
        bins = np.floor(np.log(np.maximum(gap, 1e-9)) * GAP_BINS_PER_E).astype(np.int64)
        where = interval_of(end, self.width)
        keys, index = np.unique(where * _KEY + bins + _KEY // 2, return_inverse=True)
        counts = np.bincount(index, weights=rows).astype(np.int64)
        for key, count in zip(keys.tolist(), counts.tolist(), strict=True):
            spot = (key // _KEY, key % _KEY - _KEY // 2)
            self._histogram[spot] = self._histogram.get(spot, 0) + count

    def add_finished(self, engine: npt.NDArray[np.int64], when: npt.NDArray[np.float64]) -> None:
        """Requests that finished: who served them, and when."""
        where = self._where(when)
        np.add.at(self._ended, (engine, where), 1)

    def span(self, engine: int, now: float, *, up: bool | None = None, paid: bool | None = None) -> None:
        """An engine is in service, or paid for, from now on (True), or no longer (False)."""
        for spans, begins in ((self._up, up), (self._paid, paid)):
            last = next((s for s in reversed(spans) if s[0] == engine and s[2] == np.inf), None)
            if begins and last is None:
                spans.append([engine, now, np.inf])
            elif begins is False and last is not None:
                last[2] = now

    def _where(self, end: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
        """Columns of the bins of some moments; makes room for them."""
        where = interval_of(end, self.width) - self._first
        self._grow(int(where.max()) + 1)
        return where

    def _grow(self, bins: int) -> None:
        have = self._floats.shape[2]
        if bins > have:
            more = max(bins, 2 * have) - have
            self._floats = np.pad(self._floats, ((0, 0), (0, 0), (0, more)))
            self._whole = np.pad(self._whole, ((0, 0), (0, 0), (0, more)))
            self._ended = np.pad(self._ended, ((0, 0), (0, more)))

    def pass_on(self, now: float) -> None:
        """Nothing will be added before ``now`` any more: bins that are over may leave memory, if there are many."""
        over = int(interval_of(np.array([now]), self.width)[0]) - self._first
        if over * self.engines < MOST_CELLS:
            return
        self._over.add(self._made(over, np.inf))
        self._floats, self._whole = self._floats[:, :, over:].copy(), self._whole[:, :, over:].copy()
        self._ended = self._ended[:, over:].copy()
        self._first += over
        self._histogram = {spot: n for spot, n in self._histogram.items() if spot[0] >= self._first}
        begin = self._first * self.width
        for spans in (self._up, self._paid):
            spans[:] = [s for s in spans if s[2] > begin]

    def table(self, end: float) -> pa.Table:
        """A row for every bin of every engine up to ``end``, idle ones too."""
        bins = max(int(interval_of(np.array([end]), self.width)[0]) + 1, 1) - self._first
        self._grow(bins)
        self._over.add(self._made(bins, end))
        found = self._over.table()
        assert found is not None
        return found

    def _made(self, bins: int, end: float) -> pa.Table:
        """The first ``bins`` bins in memory."""
        import pyarrow as pa

        start = np.arange(self._first, self._first + bins) * self.width
        stop = np.minimum(start + self.width, end)
        columns: dict[str, Any] = {
            "arm": [self.arm] * (bins * self.engines),
            "replication": np.full(bins * self.engines, self.replication, dtype=np.int16),
            "engine": np.repeat(np.arange(self.engines, dtype=np.int16), bins),
            "start": np.tile(start, self.engines),
            "seconds": np.tile(np.minimum(self.width, end - start), self.engines),
            "up_s": self._seconds(self._up, start, stop).ravel(),
            "paid_s": self._seconds(self._paid, start, stop).ravel(),
        }
        for i, name in enumerate(FLOAT_SUMS):
            columns[name] = self._floats[:, i, :bins].ravel()
        for i, name in enumerate(INT_SUMS):
            columns[name] = self._whole[:, i, :bins].ravel()
        columns["finished"] = self._ended[:, :bins].ravel()
        gap_bins: list[list[int]] = [[] for _ in range(bins * self.engines)]
        gap_counts: list[list[int]] = [[] for _ in range(bins * self.engines)]
        for (where, gap), count in sorted(self._histogram.items()):  # of all engines, in the rows of the first
            if where - self._first < bins:
                gap_bins[where - self._first].append(gap)
                gap_counts[where - self._first].append(count)
        columns["gap_bin"] = pa.array(gap_bins, pa.list_(pa.int32()))
        columns["gap_count"] = pa.array(gap_counts, pa.list_(pa.int64()))
        return pa.table(columns)

    def _seconds(
        self, spans: list[list[float]], start: npt.NDArray[Any], stop: npt.NDArray[Any]
    ) -> npt.NDArray[np.float64]:
        """(E, bins) seconds of each bin that spans cover."""
        seconds = np.zeros((self.engines, start.size))
        for engine, since, until in spans:
            if since <= start[0] and until >= stop[-1]:
                seconds[int(engine)] = stop - start
            else:
                seconds[int(engine)] += np.maximum(np.minimum(stop, until) - np.maximum(start, since), 0.0)
        return seconds
