"""A log played back: which rows, when, and the requests they become.

In this order: the window is cut out of the log (by the time stamps as they stand), coarse time stamps are spread, the
log is thinned, its rate is scaled, its time is scaled. All random choices are made per row of the *file* (or per
session, or client), from streams of their own: another window, share or rate leaves them as they were, and a smaller
share is a subset of a larger one.

N rows of the log, M requests played.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dspark_sim.arrival_schema import MAX_SECONDS, Replay
from dspark_sim.errors import ScenarioError, nearest, shown
from dspark_sim.replay_log import FloatArray, IntArray, TrafficLog
from dspark_sim.replay_read import read_log
from dspark_sim.request import Request
from dspark_sim.scenario_schema import Workload
from dspark_sim.spill import let_go
from dspark_sim.workload import random_stream

__all__ = ["Played", "ReplayStream", "class_of_name", "play", "prepare_replay"]

CHUNK = 4096
_SPREAD, _THIN, _RATE, _SHIFT = range(4)
_STEP = 0x9E3779B97F4A7C15  # text seeds of copies: another stream for each


@dataclass(frozen=True, eq=False)
class Played:
    """(M,) arrival seconds in order, row of the log, and 0 for the request itself or the number of its copy."""

    arrival: FloatArray
    row: IntArray
    copy: IntArray


def prepare_replay(replay: Replay, base: Path, seed: int, replications: int) -> None:
    """Read the log of a replay, and check that something is left of it in every replication.

    Args:
        replay: what the scenario says; keeps the log.
        base: the folder that a relative name starts from.
        seed, replications: of the scenario.

    Raises:
        ScenarioError: see :func:`~dspark_sim.replay_read.read_log`; nothing is left; ticks were to be spread and
            there are none; times are beyond what can be simulated.
    """
    log = read_log(base / Path(replay.file).expanduser(), replay.format, replay.class_column, replay.unordered)
    replay._keep(log)
    if replay.spread_ticks is True and log.tick is None:
        raise ScenarioError("found no coarse ticks in the time stamps", key="spread_ticks", allowed="auto, false")
    if replay.thin is not None and replay.thin.by in ("session", "client") and _unit(log, replay.thin.by) is None:
        raise ScenarioError(f"got {replay.thin.by!r}, which {log.file.name} does not tell", key="thin.by",
                            allowed="auto, request")
    first, last = log.arrival[0], log.arrival[-1]
    if replay.window is not None and len(_rows(replay, log)) == 0:
        raise ScenarioError(f"no request of {log.file.name} is in it", key="window",
                            allowed=f"part of {first:.6g} to {last:.6g} s")
    for replication in range(replications):
        played = play(replay, seed, replication)
        if not played.row.size:
            raise ScenarioError(f"nothing is left of {log.rows} requests (replication {replication})",
                                key="rate_scale" if replay.thin is None else "thin.keep", allowed="a larger share")
        if played.arrival[-1] > MAX_SECONDS:
            raise ScenarioError(f"the last request comes at second {played.arrival[-1]:.6g}", key="file",
                                allowed=f"at most {MAX_SECONDS:g}; window: [{first:.0f}, …] begins at the first one")


def _rows(replay: Replay, log: TrafficLog) -> range:
    """The rows in the window."""
    if replay.window is None:
        return range(log.rows)
    low, high = np.searchsorted(log.arrival, replay.window, side="left").tolist()
    return range(low, high)


def _unit(log: TrafficLog, by: str) -> IntArray | None:
    """(N,) what is kept or left out whole; None: every row by itself."""
    return log.client if by == "client" else log.session if by in ("session", "auto") else None


def _skip(rng: np.random.Generator, draws: int) -> None:
    """Leave out so many draws of 64 bits: a uniform number takes one, a 64-bit integer too."""
    rng.bit_generator.advance(draws)  # type: ignore[attr-defined]


def _draws(log: TrafficLog, unit: IntArray | None, rng: np.random.Generator, rows: range) -> FloatArray:
    """Uniforms of some rows of the file, the same for all rows of a unit; rows without one (-1) have their own."""
    _skip(rng, rows.start)
    own = rng.random(len(rows))
    if unit is None:
        return own
    _skip(rng, log.rows - rows.stop)
    shared = rng.random(int(unit.max(initial=-1)) + 1)
    of = unit[rows.start : rows.stop]
    return np.where(of >= 0, np.append(shared, 0.0)[of], own)


def play(replay: Replay, seed: int, replication: int) -> Played:
    """The requests of one replication, the same in every arm.

    Args:
        replay: read by :func:`prepare_replay`.
        seed, replication: choose the random streams.
    """
    log, by = replay.log, "auto" if replay.thin is None else replay.thin.by
    window, unit = _rows(replay, log), _unit(log, by)
    arrival = log.arrival[window.start : window.stop]
    if log.tick is not None and replay.spread_ticks is not False:
        after = log.arrival[window.stop] if window.stop < log.rows else np.inf
        rng = random_stream(seed, replication, "replay", _SPREAD)
        _skip(rng, window.start)
        arrival = _spread(arrival, float(after), log.tick, rng)
    kept: Any = slice(None) if replay.thin is None else np.flatnonzero(
        _draws(log, unit, random_stream(seed, replication, "replay", _THIN), window) < replay.thin.keep)
    rows = np.arange(window.start, window.stop)[kept]
    count = np.ones(rows.size, dtype=np.int64)
    if replay.rate_scale != 1.0:
        u = _draws(log, unit, random_stream(seed, replication, "replay", _RATE), window)
        count = np.floor(replay.rate_scale + u[kept]).astype(np.int64)
    offset = arrival[kept] - (0.0 if replay.window is None else replay.window[0])
    when, copy = _copies(offset, count, random_stream(seed, replication, "replay", _SHIFT))
    row = np.repeat(rows, count)
    order = np.argsort(when, kind="stable")
    return Played(when[order] * replay.time_scale, row[order], copy[order])


def _spread(arrival: FloatArray, after: float, tick: float, rng: np.random.Generator) -> FloatArray:
    """Time stamps moved forward, uniformly within their tick and in the order of the rows; ``after``: the next one."""
    stamp, group = np.unique(arrival, return_inverse=True)
    width = np.minimum(np.diff(stamp, append=after), tick)
    u = rng.random(arrival.size)
    ordered: FloatArray = u[np.lexsort((u, group))]
    return np.asarray(arrival + width[group] * ordered)


def _copies(when: FloatArray, count: IntArray, rng: np.random.Generator) -> tuple[FloatArray, IntArray]:
    """Arrivals and copy numbers when row i comes ``count[i]`` times.

    A copy comes later than its original by a uniform share of the shorter one of the gaps before and after it: inside
    a burst, never in the silence beside it, and counts over any longer time are multiplied.
    """
    copy = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
    times = np.repeat(when, count)
    if copy.size and copy.max() > 0:
        gap = np.diff(when)
        room = np.minimum(np.append(gap, gap[-1:]), np.append(gap[:1], gap)) if gap.size else np.zeros(1)
        later = copy > 0
        times[later] += np.repeat(room, count)[later] * rng.random(int(later.sum()))
    return times, copy


def class_of_name(workload: Workload, log: TrafficLog) -> IntArray | None:
    """Index into the workload's classes for every name of the log's class column; None without such a column.

    Raises:
        ScenarioError: the log names a class that the workload has not; with file and line.
    """
    if log.classes is None or log.class_code is None:
        return None
    names = [group.name for group in workload.classes]
    for code, name in enumerate(log.classes):
        if name not in names:
            where = np.flatnonzero(log.class_code == code)
            if where.size:
                raise ScenarioError(f"class {shown(name)} is none of the scenario's", file=log.file,
                                    line=int(log.line[where[0]]), allowed=", ".join(names),
                                    suggestion=nearest(name, names))
    return np.array([names.index(name) if name in names else -1 for name in log.classes], dtype=np.int64)


class ReplayStream:
    """The requests of one replication of a replayed log, as :class:`~dspark_sim.workload.RequestStream` draws them.

    Args:
        workload: its arrival is a replay, prepared.
        seed, replication: choose the random streams.
    """

    def __init__(self, workload: Workload, seed: int, replication: int) -> None:
        replay = workload.arrival
        assert isinstance(replay, Replay)
        self._log, self._played = replay.log, play(replay, seed, replication)
        self.total: int = int(self._played.row.size)
        log, index, played = self._log, class_of_name(workload, self._log), self._played
        rows = _rows(replay, log)
        self._first = rows.start
        self._coded = index if log.class_code is not None else None
        if self._coded is None:
            share = np.array([group.share for group in workload.classes])
            draws = _draws(log, log.session, random_stream(seed, replication, "classes"), rows)
            edges = np.cumsum(share / share.sum())[:-1]
            classes = np.searchsorted(edges, draws, side="right").astype(np.int16)  # small: one per row played
            self._class = classes[played.row - rows.start]
        rng = random_stream(seed, replication, "text")
        _skip(rng, rows.start)
        self._text = rng.integers(0, 1 << 64, size=len(rows), dtype=np.uint64)
        self._sessions = 0 if log.session is None else int(log.session.max()) + 1
        self._blocks = 0 if log.prefix_ids is None or not log.prefix_ids.size else int(log.prefix_ids.max()) + 1
        self._issued = 0
        self._ready: Iterator[tuple[int, int, int, int, int, int]] = iter(())

    def arrivals(self) -> Iterator[float]:
        """Absolute arrival times in seconds, in order; they end with the log."""
        for start in range(0, self.total, CHUNK):
            yield from self._played.arrival[start : start + CHUNK].tolist()

    def take(self) -> Request:
        """The next request; its id is the number of requests issued before, its arrival NaN until it is sent.

        Copies of a row have the row's lengths and another text; their sessions and prefix blocks are other ones, as
        if other users had sent them.
        """
        row = next(self._ready, None)
        if row is None:
            self._ready = self._chunk()
            row = next(self._ready)
        which, copy, of, prompt, output, text = row
        request = Request(self._issued, of, math.nan, prompt, output, text)
        self._issued += 1
        if self._log.session is not None and self._log.session[which] >= 0:
            request.session = int(self._log.session[which]) + copy * self._sessions
        if self._log.prefix_ids is not None:
            prefix = self._log.prefix(which)
            request.prefix = prefix if not copy else tuple(block + copy * self._blocks for block in prefix)
        return request

    def _chunk(self) -> Iterator[tuple[int, int, int, int, int, int]]:
        part = slice(self._issued, self._issued + CHUNK)
        rows, copy = self._played.row[part], self._played.copy[part]
        text = self._text[rows - self._first] + copy.astype(np.uint64) * np.uint64(_STEP)
        if self._coded is not None and self._log.class_code is not None:
            of = self._coded[self._log.class_code[rows]]
        else:
            of = self._class[part].astype(np.int64)
        found = zip(rows.tolist(), copy.tolist(), of.tolist(), self._log.prompt[rows].tolist(),
                    self._log.output[rows].tolist(), text.tolist(), strict=True)
        let_go()
        return found
