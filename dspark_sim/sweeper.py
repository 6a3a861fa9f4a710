"""sweep(): a grid of scenarios × arms × replications on many cores, that survives anything and goes on where it was.

The order of things: read and check every grid point (nothing has run yet if anything is wrong); lock the folder; look
which tasks are done already; compute the others, keeping each as a cell the moment it comes back; write the tables
from the cells alone. Only this process writes.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dspark_sim.errors import RunError
from dspark_sim.pictures import drawn
from dspark_sim.stopping import undisturbed
from dspark_sim.sweep_backends import Backend, check_backend
from dspark_sim.sweep_cells import CellStore, Found
from dspark_sim.sweep_define import define, load_grid
from dspark_sim.sweep_folder import choose, write_manifest, write_timing
from dspark_sim.sweep_grid import Definition, Point
from dspark_sim.sweep_lock import FolderLock
from dspark_sim.sweep_pool import outcomes
from dspark_sim.sweep_tables import GridPoint, aggregate_rows, point_results, task_rows, to_table, write_table
from dspark_sim.sweep_worker import Task

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from dspark_sim.results import Results
    from dspark_sim.scenario import Scenario

__all__ = ["Failure", "SweepResults", "execute", "sweep"]

Progress = Callable[[int, int], AbstractContextManager[Callable[[], None]]]  # (total, found) -> one call per cell


@dataclass(frozen=True)
class Failure:
    """A task without a result: where it stood, and why; ``trace`` where it is a mistake of ours."""

    point: int
    values: Point
    arm: str
    replication: int
    error: str
    trace: str | None = None


@dataclass(frozen=True)
class SweepResults:
    """A finished (or interrupted) sweep.

    Attributes:
        folder: where everything lies; :func:`~dspark_sim.sweep_folder.open_sweep` reads it again.
        definition: what was asked for.
        points: the grid, loaded.
        results: the comparison of the arms at each point, in the same order.
        failures: tasks without a result.
        found: what lay in the folder before.
        computed: tasks that this call finished.
        interrupted: stopped by Ctrl-C; the same call goes on.
        seconds: this call took, waiting for workers included.
    """

    folder: Path
    definition: Definition
    points: Sequence[GridPoint]
    results: Sequence[Results]
    task_table: pa.Table
    aggregate_table: pa.Table
    failures: Sequence[Failure]
    found: Found
    computed: int
    interrupted: bool
    seconds: float

    @property
    def failed(self) -> bool:
        """Whether a task has no result (the command line then exits with code 1)."""
        return bool(self.failures)

    @property
    def total(self) -> int:
        """Tasks of the whole grid."""
        return sum(len(keys) for point in self.points for keys in point.keys)

    def tasks(self) -> pd.DataFrame:
        """A row per grid point, arm and replication; the grid's keys are columns."""
        frame: pd.DataFrame = self.task_table.to_pandas()
        return frame

    def aggregate(self) -> pd.DataFrame:
        """A row per grid point and arm: means with ``_ci95_low`` and ``_ci95_high``, paired differences."""
        frame: pd.DataFrame = self.aggregate_table.to_pandas()
        return frame


def execute(
    definition: Definition, points: Sequence[GridPoint], *, out: str | Path | None = None, jobs: int | None = None,
    backend: str = "loky", address: str | None = None, progress: Progress | None = None,
    say: Callable[[str], None] = lambda text: None, command: Sequence[str] | None = None,
) -> SweepResults:
    """Compute what is not there yet, and write the tables.

    Args:
        definition, points: from :func:`define` and :func:`load_grid`.
        out: folder, new or of an earlier sweep; None: ``sweeps/<name>-<definition>``.
        jobs: tasks at a time; None: all cores.
        backend, address: see :mod:`dspark_sim.sweep_backends`.
        progress: called with (all tasks, those found); gives a context with a function to call per finished task.
        say: called with sentences for the user.
        command: argv, for the manifest.

    Raises:
        InputError: the folder or the backend cannot be used.
        RunError: the disk was full; the same call goes on.
    """
    check_backend(backend, address)
    folder = choose(points[0].scenario.name, definition.digest(), out)
    began, started = time.perf_counter(), _now()
    with FolderLock(folder) as lock:
        if lock.stale is not None:
            say(f"note: an earlier sweep in this folder (process {lock.stale.get('pid')}) was killed; going on from it")
        store = CellStore(folder)
        tasks = _tasks(definition, points)
        if not definition.axes:
            say("note: nothing varies, so this is one point; --over workload.arrival.concurrency=8,16,32 (any dotted "
                "key), or a section sweep.over in the scenario, varies something")
        found = store.find(tasks)
        _say_what_was_found(found, len(tasks), say)
        write_manifest(folder, definition, points, found, status="running", command=command, started=started)
        cells, errors, interrupted = dict(found.cells), dict[str, tuple[str, str | None]](), False
        todo = [task for key, task in tasks.items() if key not in cells]
        try:
            with (progress or _silent)(len(tasks), len(cells)) as advance:
                if todo:
                    with Backend(backend, min(jobs, len(todo)) if jobs else None, address) as pool:
                        for outcome in outcomes(todo, pool):
                            if outcome.error is None:
                                with undisturbed():
                                    cells[outcome.key] = store.write(outcome.key, outcome.body)
                            else:
                                errors[outcome.key] = outcome.error, outcome.trace
                            advance()
        except KeyboardInterrupt:
            interrupted = True
        except OSError as problem:
            raise _not_written(problem, folder, len(cells), len(tasks)) from None
        try:
            with undisturbed():
                return _finish(SweepResults(
                    folder, definition, points, (), None, None, _failures(points, errors), found,
                    len(cells) - len(found.cells), interrupted, time.perf_counter() - began,
                ), cells, {key: error for key, (error, _) in errors.items()}, command=command, started=started)
        except OSError as problem:
            raise _not_written(problem, folder, len(cells), len(tasks)) from None


def _not_written(problem: OSError, folder: Path, done: int, total: int) -> RunError:
    where = f"{Path(problem.filename).name}: " if problem.filename else ""
    return RunError(f"{where}{problem.strerror or problem}; {done} of {total} tasks are finished and kept in {folder}, "
                    "and the same command goes on from there")


def _tasks(definition: Definition, points: Sequence[GridPoint]) -> dict[str, Task]:
    """By key, in order of replication: what is finished at any moment is balanced over the grid."""
    run = uuid.uuid4().hex
    most = max(point.scenario.replications for point in points)
    return {
        keys[r]: Task(keys[r], definition, point.values, arm, r, point.parts[arm], run)
        for r in range(most) for point in points for arm, keys in enumerate(point.keys) if r < len(keys)
    }


def _failures(points: Sequence[GridPoint], errors: Mapping[str, tuple[str, str | None]]) -> list[Failure]:
    return [
        Failure(point.number, point.values, setup.name, r, *errors[key])
        for point in points for setup, keys in zip(point.setups, point.keys, strict=True)
        for r, key in enumerate(keys) if key in errors
    ]


def _finish(
    sweep: SweepResults, cells: Mapping[str, Mapping[str, Any]], errors: Mapping[str, str], **more: Any
) -> SweepResults:
    """Tables and manifest of what is there."""
    results, rows, aggregated = [], list[dict[str, Any]](), list[dict[str, Any]]()
    for point in sweep.points:
        result, done = point_results(point, cells, errors, sweep.interrupted)
        results.append(result)
        rows += task_rows(point, done)
        aggregated += aggregate_rows(point, result, done)
    axes = list(sweep.definition.axes)
    tables = {"tasks": to_table(rows, axes), "aggregate": to_table(aggregated, axes)}
    for name, table in tables.items():
        write_table(sweep.folder, name, table)
    write_timing(sweep.folder, sweep.points, cells)
    write_manifest(
        sweep.folder, sweep.definition, sweep.points, sweep.found, results=results,
        status="interrupted" if sweep.interrupted else "failed" if sweep.failures else "finished",
        tasks={"computed": sweep.computed, "failed": len(sweep.failures)}, finished=_now(),
        failures=[vars(f) for f in sweep.failures], seconds=round(sweep.seconds, 3), **more,
    )
    return SweepResults(**{**vars(sweep), "results": results, "task_table": tables["tasks"],
                           "aggregate_table": tables["aggregate"]})


def _say_what_was_found(found: Found, total: int, say: Callable[[str], None]) -> None:
    if found.cells:
        say(f"{len(found.cells)} of {total} tasks are there already")
    if found.others:
        say(f"{found.others} cells in this folder belong to other grids, other inputs or other code; they stay unused")
    for key in found.damaged:
        say(f"warning: the cell {key[:12]}… is damaged; its task is done again")


def _silent(total: int, found: int) -> AbstractContextManager[Callable[[], None]]:
    return nullcontext(lambda: None)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def sweep(
    scenario: str | Path | Scenario, over: Mapping[str, Any] | None = None, *, replications: int | None = None,
    seed: int | None = None, overrides: Mapping[str, Any] | None = None, jobs: int | None = None,
    backend: str = "loky", address: str | None = None, out: str | Path | None = None, progress: Progress | None = None,
    say: Callable[[str], None] = lambda text: None, plots: bool = False,
) -> SweepResults:
    """Compare the arms of a scenario at every point of a grid.

    >>> import dspark_sim
    >>> found = dspark_sim.sweep("quickstart", {"workload.arrival.concurrency": [8, 32, 128]})  # doctest: +SKIP
    >>> found.aggregate()  # doctest: +SKIP

    Args:
        scenario: a name on the shelf, a path, or a loaded scenario.
        over: dotted keys and the values each takes, as lists or as text (``"1:256:*2"``); None: the scenario's
            ``sweep.over``.
        replications, seed, overrides: instead of the scenario's.
        jobs: tasks at a time; None: all cores.
        backend: ``loky`` (this machine), ``dask`` or ``ray``.
        address: of a running dask or ray cluster; None: one is started on this machine.
        out: folder, new or of an earlier sweep, which then goes on; None: ``sweeps/<name>-<definition>``.
        progress: called with (all tasks, those found); gives a context with a function to call per finished task.
        say: called with sentences for the user.
        plots: also draw the pictures, into ``report.html``.

    Returns:
        The results; tasks that failed are in ``failures``, and everything else is there.

    Raises:
        InputError: something cannot be used; nothing has run.
        KeyboardInterrupt: after what had finished was kept and written; the same call goes on from there.
    """
    definition = define(scenario, over, replications=replications, seed=seed, overrides=overrides)
    results = execute(definition, load_grid(definition), out=out, jobs=jobs, backend=backend, address=address,
                      progress=progress, say=say)
    if results.interrupted:
        raise KeyboardInterrupt
    problem = drawn(results.folder) if plots else None
    if problem is not None:
        say(problem)
    return results
