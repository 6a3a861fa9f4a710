"""One piece of a requests table as columns: which rows count, how fast they were, which promises they broke.

n rows of the piece, M of them finished inside the window, C classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dspark_sim.curve import FloatArray
from dspark_sim.request import OUTCOMES

if TYPE_CHECKING:
    import pyarrow as pa

    from dspark_sim.scenario_schema import RequestClass

__all__ = ["LIMITS", "Limits", "Rows"]

LIMITS = {  # key of an SLA -> (the column of Rows that it limits, sign: +1 an upper limit, unit of the key per second)
    "ttft_ms_max": ("ttft", 1.0, 1e3), "tps_user_min": ("tps", -1.0, 1.0), "tpot_ms_max": ("tpot", 1.0, 1e3),
    "e2e_s_max": ("e2e", 1.0, 1.0),
}
_REFUSED, _TIMED_OUT, _UNFINISHED = (OUTCOMES.index(name) for name in ("refused", "timed_out", "unfinished"))
_FROM_ARRIVAL = ("ttft_ms_max", "e2e_s_max")


class Limits:
    """What the classes of a scenario promise.

    Attributes:
        names: (C,) of the classes.
        by_key: key of an SLA -> (C,) limits, NaN where a class has no such limit; keys nobody uses are left out.
        promised: (C,) whether a class promises anything.
    """

    def __init__(self, classes: Sequence[RequestClass]) -> None:
        self.names = [c.name for c in classes]
        self.by_key: dict[str, FloatArray] = {}
        for key in LIMITS:
            found = [None if c.sla is None else getattr(c.sla, key) for c in classes]
            if any(limit is not None for limit in found):
                self.by_key[key] = np.array([np.nan if limit is None else limit for limit in found], dtype=np.float64)
        self.promised = np.zeros(len(self.names), dtype=bool)
        for values in self.by_key.values():
            self.promised |= ~np.isnan(values)


class Rows:
    """A piece; columns of the M finished rows are made when somebody asks for them.

    Args:
        batch: rows of a requests table.
        limits: of the scenario's classes.
        window: seconds (start, end] in which requests finish or are lost; None: all count.
    """

    def __init__(self, batch: pa.RecordBatch, limits: Limits, window: tuple[float, float] | None) -> None:
        self._batch, self._limits, self._window = batch, limits, window
        self._finished = self._whole("finished")  # null becomes NaN: never inside
        self._codes = _codes(batch.column("class"), limits.names)
        inside = np.isfinite(self._finished)
        if window is not None:
            inside &= (self._finished > window[0]) & (self._finished <= window[1])
        self._inside = inside
        self.of = self._codes[inside]

    def _whole(self, name: str) -> FloatArray:
        return np.asarray(self._batch.column(name).to_numpy(zero_copy_only=False), dtype=np.float64)

    def column(self, name: str) -> FloatArray:
        """(M,) of a column of the table."""
        return self._whole(name)[self._inside]

    @cached_property
    def finished(self) -> FloatArray:
        return self._finished[self._inside]

    @cached_property
    def arrival(self) -> FloatArray:
        return self.column("arrival")

    @cached_property
    def output(self) -> FloatArray:
        return self.column("output_tokens")

    @cached_property
    def skipped(self) -> FloatArray:
        return self.column("skipped")

    @cached_property
    def tps(self) -> FloatArray:
        """(M,) tokens after the first / seconds after it; NaN without such a token."""
        return _speed(self.output, self.skipped, self.finished - self.column("first_token"))

    @cached_property
    def tpot(self) -> FloatArray:
        return np.asarray(1.0 / self.tps)

    @cached_property
    def ttft(self) -> FloatArray:
        """(M,) seconds; NaN for those whose arrival was not simulated."""
        return np.where(self.skipped == 0, self.column("first_token") - self.arrival, np.nan)

    @cached_property
    def e2e(self) -> FloatArray:
        return np.where(self.skipped == 0, self.finished - self.arrival, np.nan)

    # -- promises ----------------------------------------------------------------------------------------------
    @cached_property
    def unknown(self) -> npt.NDArray[np.bool_]:
        """(M,) an SLA that limits TTFT or E2E cannot be judged: the arrival is not known."""
        out = np.zeros(self.of.size, dtype=bool)
        for key in _FROM_ARRIVAL:
            if key in self._limits.by_key:
                out |= ~np.isnan(self._limits.by_key[key][self.of]) & (self.skipped > 0)
        return out

    @cached_property
    def judged(self) -> npt.NDArray[np.bool_]:
        """(M,) an SLA applies and can be evaluated."""
        return np.asarray(self._limits.promised[self.of] & ~self.unknown)

    @cached_property
    def broken(self) -> Mapping[str, npt.NDArray[np.bool_]]:
        """Key of an SLA -> (M,) whether that limit was broken; a one-token output has no TPOT and breaks none."""
        return {key: _breaks(key, getattr(self, LIMITS[key][0]), limit[self.of])
                for key, limit in self._limits.by_key.items()}

    # -- who did not finish ------------------------------------------------------------------------------------
    def lost(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """(C,) requests that came in the window and were refused, and those that gave up waiting."""
        outcome = _codes(self._batch.column("outcome"), OUTCOMES)
        lost = (outcome == _REFUSED) | (outcome == _TIMED_OUT)
        if not lost.any():
            return self._count(lost), self._count(lost)
        if self._window is not None:
            came = self._whole("arrival")
            lost &= (came > self._window[0]) & (came <= self._window[1])
        return self._count(lost & (outcome == _REFUSED)), self._count(lost & (outcome == _TIMED_OUT))

    def overdue(self, end: float) -> tuple[npt.NDArray[np.int64], dict[str, npt.NDArray[np.int64]]]:
        """(C,) requests that are unfinished at ``end`` and surely break a promise, and how many break which.

        A clock that still runs has passed its limit: the wait for the first token, the time since arrival, or the
        time since the first token against all tokens that are to come. (A first token that came late is not among
        them: that request is counted when it finishes, and would be counted twice.)
        """
        left = _codes(self._batch.column("outcome"), OUTCOMES) == _UNFINISHED
        none = np.zeros(len(self._limits.names), dtype=np.int64)
        if not left.any() or not self._limits.by_key:
            return none, {}
        of = self._codes[left]
        arrival, first, output, skipped = (
            self._whole(name)[left] for name in ("arrival", "first_token", "output_tokens", "skipped"))
        waited = np.where(skipped == 0, end - arrival, np.nan)
        tps = _speed(output, skipped, end - first)
        clocks = {"ttft": np.where(np.isnan(first), waited, np.nan), "e2e": waited, "tps": tps, "tpot": 1.0 / tps}
        late, by_key = np.zeros(of.size, dtype=bool), {}
        for key, limit in self._limits.by_key.items():
            found = _breaks(key, clocks[LIMITS[key][0]], limit[of])
            by_key[key] = np.bincount(of[found], minlength=none.size)
            late |= found
        return np.bincount(of[late], minlength=none.size), by_key

    def _count(self, rows: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
        return np.bincount(self._codes[rows], minlength=len(self._limits.names))


def _speed(output: FloatArray, skipped: FloatArray, seconds: FloatArray) -> FloatArray:
    after_first = output - np.maximum(1.0, skipped)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where((after_first > 0) & (seconds > 0), after_first / seconds, np.nan)


def _breaks(key: str, values: FloatArray, limit: FloatArray) -> npt.NDArray[np.bool_]:
    _, sign, scale = LIMITS[key]
    return np.asarray(sign * values * scale > sign * limit)  # NaN on either side breaks nothing


def _codes(column: Any, vocabulary: Sequence[str]) -> npt.NDArray[np.int64]:
    """(n,) index of each word in ``vocabulary``; words are compared once per piece, not once per row."""
    order = {word: i for i, word in enumerate(vocabulary)}
    encoded = column.dictionary_encode()
    known = np.array([order[word] for word in encoded.dictionary.to_pylist()], dtype=np.int64)
    return known[np.asarray(encoded.indices)] if known.size else known
