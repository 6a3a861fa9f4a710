"""A run as a trace that https://ui.perfetto.dev and chrome://tracing open: ``dspark-sim run --perfetto FILE``.

The JSON object format of the Trace Event Format: one process per arm and engine; its steps as slices with their parts
inside, counters for batch tokens, requests and queue, and every request as an asynchronous slice (waiting, prefill,
decoding inside it). Times are microseconds with three decimals, so nothing is lost below a nanosecond.

Read from the run folder and written event by event in order of time; memory does not grow with the run. Only the
first replication is written, and at most :data:`MAX_STEPS` steps of all arms together: the file says so.
"""

from __future__ import annotations

import gzip
import heapq
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from dspark_sim.errors import InputError

if TYPE_CHECKING:
    from dspark_sim.scenario import Scenario

__all__ = ["MAX_STEPS", "check_target", "write_trace"]

MAX_STEPS = 100_000  # about 90 MB of JSON, which a browser still opens quickly
PARTS = ("draft", "schedule", "verify", "other")
_STEP_FACTS = ("requests", "drafted", "verified", "accepted", "emitted", "prefill_tokens", "batch_tokens",
               "padded_tokens", "kv_tokens", "waiting")
_REQUEST_FACTS = ("id", "prompt_tokens", "output_tokens", "skipped", "steps", "drafted", "verified", "accepted",
                  "preemptions", "outcome")
Event = dict[str, Any]


def check_target(scenario: Scenario, path: Path) -> None:
    """Called before the run, so that nobody waits for a trace that cannot be written.

    Raises:
        InputError: the scenario records no steps, or the file cannot lie there.
    """
    if scenario.record != "all":
        raise InputError("a trace is made of steps, and the scenario has record: requests, which keeps none",
                         key="--perfetto", allowed="record: all (or --set record=all)")
    if path.is_dir():
        raise InputError("is a folder", file=path, key="--perfetto", allowed="the name of a file")
    if not path.resolve().parent.is_dir():
        raise InputError("its folder does not exist", file=path, key="--perfetto")


@dataclass(frozen=True)
class _Track:
    """One process of the trace: an engine of an arm, and how much of it is written."""

    pid: int
    arm: str
    engine: int
    steps: int  # in the table
    kept: int  # are written
    end_ns: int  # of what is written


def write_trace(folder: Path, path: Path, *, max_steps: int = MAX_STEPS) -> str:
    """Write the first replication of a finished run folder as a trace; ``.gz`` compresses.

    Args:
        folder: holds ``steps.parquet``, ``requests.parquet`` and ``manifest.json``.
        path: the file; written aside and renamed, so it is never partial.
        max_steps: shared evenly by the arms' engines; the earliest steps are kept.

    Returns:
        A sentence for the screen: what the file holds and what it does not.
    """
    if not (folder / "steps.parquet").exists():  # every arm failed before its first step
        return f"no trace in {path}: there was no step"
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    tracks = _tracks(folder / "steps.parquet", max_steps)
    held = f"replication 1 of {manifest['replications']}"
    aside = path.with_name(f".{path.name}.part")
    try:
        with _open(aside, path.suffix == ".gz") as file:
            _write(file, folder, tracks, manifest, held)
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)
    return f"trace for ui.perfetto.dev in {path}: {_scope(tracks, held)}"


def _open(path: Path, packed: bool) -> IO[str]:
    if packed:
        return gzip.open(path, "wt", encoding="utf-8", compresslevel=5)
    return path.open("w", encoding="utf-8", newline="\n")


def _write(file: IO[str], folder: Path, tracks: list[_Track], manifest: dict[str, Any], held: str) -> None:
    streams = [heapq.merge(_steps(folder / "steps.parquet", t), _requests(folder / "requests.parquet", t),
                           key=lambda pair: pair[0]) for t in tracks]
    events = chain(_names(tracks, held), (e for _, e in heapq.merge(*streams, key=lambda pair: pair[0])))
    for i, event in enumerate(events):
        file.write((",\n" if i else '{"traceEvents":[\n') + json.dumps(event, ensure_ascii=False, allow_nan=False))
    other = {
        "producer": "dspark-sim", "simulated": "true", "scenario": manifest["scenario"]["name"],
        "seed": str(manifest["seed"]), "version": manifest["packages"].get("dspark-sim", ""),
        "holds": _scope(tracks, held),
    }
    if not tracks:
        file.write('{"traceEvents":[')
    file.write('\n],\n"displayTimeUnit":"ms",\n"otherData":' + json.dumps(other, ensure_ascii=False) + "}\n")


def _scope(tracks: list[_Track], held: str) -> str:
    """What is in the file, in words."""
    text = f"{held}, {sum(t.kept for t in tracks):,} steps"
    cut = [f"{t.arm} ends at {t.end_ns / 1e9:.3f} s" for t in tracks if t.kept < t.steps]
    if cut:
        text += f" of {sum(t.steps for t in tracks):,}: {', '.join(cut)}, for a longer trace does not open well"
    return text


def _tracks(path: Path, max_steps: int) -> list[_Track]:
    """Every arm's engines; each may write an even share of ``max_steps``."""
    starts: dict[tuple[str, int], list[Any]] = {}
    columns = ["arm", "engine", "start", *(f"{p}_s" for p in PARTS)]
    for batch in _first_replication(path, columns):
        arm, engine = np.asarray(batch["arm"].to_pylist(), dtype=object), batch["engine"].to_numpy()
        begin = batch["start"].to_numpy()
        end = begin + sum(batch[f"{p}_s"].to_numpy() for p in PARTS)
        for key in dict.fromkeys(zip(arm.tolist(), engine.tolist(), strict=True)):
            rows = (arm == key[0]) & (engine == key[1])
            starts.setdefault(key, []).append(end[rows])
    share = max(1, max_steps // max(len(starts), 1))
    out = []
    for pid, ((name, number), parts) in enumerate(starts.items(), 1):
        ends = np.concatenate(parts)
        kept = min(ends.size, share)
        out.append(_Track(pid, name, number, ends.size, kept, round(float(ends[kept - 1]) * 1e9)))
    return out


def _first_replication(path: Path, columns: list[str]) -> Iterator[Any]:
    """Batches of the rows of replication 0; whole row groups of others are not read."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        number = file.schema_arrow.get_field_index("replication")
        groups = [file.metadata.row_group(g).column(number).statistics for g in range(file.num_row_groups)]
        wanted = [g for g, s in enumerate(groups) if s is None or not s.has_min_max or s.min <= 0]
        for batch in file.iter_batches(1 << 15, row_groups=wanted, columns=["replication", *columns]):
            kept = batch.filter(pc.equal(batch["replication"], 0))
            if kept.num_rows:
                yield kept


def _names(tracks: list[_Track], held: str) -> Iterator[Event]:
    one = len({t.engine for t in tracks}) == 1
    for t in tracks:
        name = t.arm if one else f"{t.arm}, engine {t.engine}"
        note = held if t.kept == t.steps else f"{held}, first {t.kept:,} of {t.steps:,} steps"
        for kind, args in (("process_name", {"name": name}), ("process_labels", {"labels": note}),
                           ("process_sort_index", {"sort_index": t.pid})):
            yield {"ph": "M", "name": kind, "pid": t.pid, "tid": 0, "ts": 0, "args": args}
        yield {"ph": "M", "name": "thread_name", "pid": t.pid, "tid": 1, "ts": 0, "args": {"name": "engine steps"}}


def _mine(path: Path, columns: tuple[str, ...], track: _Track) -> Iterator[dict[str, list[Any]]]:
    """The batches of one arm's engine in the first replication, as columns."""
    import pyarrow.compute as pc

    for batch in _first_replication(path, ["arm", "engine", *columns]):
        kept = batch.filter(pc.and_(pc.equal(batch["arm"], track.arm), pc.equal(batch["engine"], track.engine)))
        yield {name: kept[name].to_pylist() for name in columns}


def _steps(path: Path, track: _Track) -> Iterator[tuple[int, Event]]:
    """Slices and counters of one engine, in order of time."""
    written = free = 0
    for rows in _mine(path, ("step", "start", *(f"{p}_s" for p in PARTS), *_STEP_FACTS), track):
        for i, start in enumerate(rows["start"]):
            if written == track.kept:
                return
            written += 1
            begin = max(free, round(start * 1e9))  # sums of floats may step back by a nanosecond
            ends = start + np.cumsum([rows[f"{p}_s"][i] for p in PARTS])  # rounded late, so that nothing drifts
            edges = np.maximum(np.rint(ends * 1e9).astype(np.int64), begin).tolist()
            free = edges[-1]
            facts = {name: rows[name][i] for name in _STEP_FACTS}
            yield begin, _slice(track, "step" if facts["requests"] else "prefill step", begin, free,
                                {"step": rows["step"][i], **facts})
            yield begin, _counter(track, "batch tokens", begin, tokens=facts["batch_tokens"])
            yield begin, _counter(track, "requests", begin, decoding=facts["requests"], waiting=facts["waiting"])
            at = begin
            for part, edge in zip(PARTS, edges, strict=True):
                if edge > at:
                    yield at, _slice(track, part, at, edge)
                at = edge


def _slice(track: _Track, name: str, begin: int, end: int, args: dict[str, Any] | None = None) -> Event:
    event = {"ph": "X", "name": name, "cat": "engine", "ts": begin / 1000, "dur": (end - begin) / 1000,
             "pid": track.pid, "tid": 1}
    return event if args is None else {**event, "args": args}


def _counter(track: _Track, name: str, at: int, **values: int) -> Event:
    return {"ph": "C", "name": name, "pid": track.pid, "tid": 0, "ts": at / 1000, "args": values}


def _requests(path: Path, track: _Track) -> Iterator[tuple[int, Event]]:
    """Begin and end of every request and of its phases, in order of time; cut where the steps end."""
    out: list[tuple[int, int, Event]] = []
    for rows in _mine(path, ("class", "arrival", "admitted", "first_token", "finished", *_REQUEST_FACTS), track):
        for i in range(len(rows["id"])):
            for at, event in _life({name: column[i] for name, column in rows.items()}, track):
                out.append((at, len(out), event))
    out.sort(key=lambda entry: entry[:2])
    yield from ((at, event) for at, _, event in out)


def _life(r: dict[str, Any], track: _Track) -> Iterator[tuple[int, Event]]:
    """One request: a slice with the class's name, its phases inside. What did not happen yet ends at the cut."""
    lost = r["outcome"] in ("refused", "timed_out")  # when it gave up is not recorded: a mark where it arrived
    stamps = [_stamp(r[name], track.end_ns) for name in ("arrival", "admitted", "first_token", "finished")]
    begin, end = stamps[0], stamps[0] if lost else stamps[3]
    if begin >= track.end_ns:
        return
    name = f"{r['class']}: {r['outcome']}" if lost else r["class"]
    same = {"cat": "request", "id": f"{track.pid}.{r['id']}", "pid": track.pid, "tid": 2}
    yield begin, {"ph": "b", "name": name, "ts": begin / 1000, **same,
                  "args": {name: r[name] for name in _REQUEST_FACTS}}
    at = begin
    for phase, edge in zip(("waiting", "prefill", "decoding"), stamps[1:], strict=True):
        edge = min(max(edge, at), end)
        if edge > at:
            yield at, {"ph": "b", "name": phase, "ts": at / 1000, **same}
            yield edge, {"ph": "e", "name": phase, "ts": edge / 1000, **same}
        at = edge
    yield end, {"ph": "e", "name": name, "ts": end / 1000, **same}


def _stamp(seconds: float | None, cut: int) -> int:
    """Nanoseconds; the cut for what lies beyond it or has not happened."""
    return cut if seconds is None or not np.isfinite(seconds) else min(round(seconds * 1e9), cut)
