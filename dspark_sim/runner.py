"""run(): arms × replications, one after the other; the third floor's way in.

A task is one (arm, replication): it depends on nothing but the scenario, the arm and the replication's number, so
it can run anywhere (:func:`run_task`). Here tasks run in order of replication, all arms of it: what is finished at
any moment is balanced.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dspark_sim.errors import DsparkSimError, InputError, RunError
from dspark_sim.metrics import Measured, measure, measure_classes
from dspark_sim.notes import arm_warnings, assumptions, run_warnings
from dspark_sim.results import ArmResult, Results, arm_result
from dspark_sim.traffic_notes import traffic_assumptions
from dspark_sim.userview import UserView
from dspark_sim.what_if import what_if_notes

if TYPE_CHECKING:
    from dspark_sim.arms import ArmSetup
    from dspark_sim.rundir import RunFolder
    from dspark_sim.scenario import Scenario
    from dspark_sim.simulate import ArmRun

__all__ = ["TaskResult", "execute", "run", "run_task", "summarise"]


@dataclass(frozen=True)
class TaskResult:
    """What one (arm, replication) gave.

    Attributes:
        arm, replication: which task.
        measured: its figures, empty if it failed.
        classes: its figures by class of requests.
        error: why it failed, None if it did not.
        warnings: the simulation's own.
        wall_s: seconds of computing.
        tables: the raw run, None if nothing came back.
    """

    arm: str
    replication: int
    measured: Measured
    classes: Mapping[str, Measured]
    error: str | None
    warnings: Sequence[str]
    wall_s: float
    tables: ArmRun | None


def run_task(
    setup: ArmSetup, scenario: Scenario, replication: int, steps_sink: Callable[[Any], None] | None = None
) -> TaskResult:
    """Simulate and measure one (arm, replication). A failure of the arm is a result, not an exception."""
    from dspark_sim.simulate import simulate

    try:
        tables = simulate(setup, scenario, replication, steps_sink)
    except InputError:
        raise
    except DsparkSimError as problem:
        return TaskResult(setup.name, replication, {}, {}, str(problem), (), 0.0, None)
    if tables.error is not None:
        return TaskResult(setup.name, replication, {}, {}, tables.error, tables.warnings, tables.wall_s, tables)
    view = UserView(tables, scenario)
    return TaskResult(
        setup.name, replication, measure(tables, scenario, setup, view),
        measure_classes(tables, scenario, setup, view), None, tables.warnings, tables.wall_s, tables,
    )


def summarise(
    scenario: Scenario, setups: Sequence[ArmSetup], tasks: Sequence[TaskResult], *, interrupted: bool = False,
) -> Results:
    """Put finished tasks together: intervals over replications, paired differences, warnings, assumptions."""
    by_arm = {s.name: sorted((t for t in tasks if t.arm == s.name), key=lambda t: t.replication) for s in setups}
    failed = {arm: next(t.error for t in done if t.error is not None) or ""
              for arm, done in by_arm.items() if any(t.error is not None for t in done)}
    arms: list[ArmResult] = []
    doubts: list[str] = []
    for i, setup in enumerate(setups):
        done = {t.replication: t for t in by_arm[setup.name] if t.error is None}
        first = {t.replication: t for t in by_arm[setups[0].name] if t.error is None}
        measured = [t.measured for t in done.values()]
        result = arm_result(
            setup, measured, [first[r].measured if r in first else {} for r in done],
            classes=[t.classes for t in done.values()], error=failed.get(setup.name), baseline=i == 0,
        )
        arms.append(result)
        doubts += arm_warnings(scenario, result, measured)
        doubts += dict.fromkeys(w if w.startswith(setup.name) else f"{setup.name}: {w}"
                                for t in done.values() for w in t.warnings)
    warnings = run_warnings(setups, scenario.replications, failed)
    warnings += [w for w in scenario.warnings() if not w.startswith("replications")]  # said above, with the remedy
    if interrupted:
        warnings.insert(0, "the run was interrupted: figures cover the replications that had finished")
    return Results(
        name=scenario.name, description=scenario.description or "", seed=scenario.seed,
        replications=scenario.replications, arms=tuple(arms), warnings=tuple(dict.fromkeys(warnings + doubts)),
        assumptions=(*what_if_notes(scenario.what_if), *assumptions(setups), *traffic_assumptions(scenario.workload)),
        interrupted=interrupted, open_loop=scenario.workload.arrival.kind not in ("closed", "sessions"),
    )


def execute(
    scenario: Scenario, setups: Sequence[ArmSetup], *, folder: RunFolder | None = None, plots: bool = False,
    progress: Callable[[], Any] | None = None, keep: bool = False, report: Callable[[Results], None] | None = None,
    say: Callable[[str], None] | None = None, command: Sequence[str] | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Results:
    """Run every task, write the folder, return the results; Ctrl-C ends the loop, not the bookkeeping.

    Args:
        folder: where to write, None for nowhere.
        plots: draw into the folder.
        progress: called before each task with ``(done, total, arm, replication)``.
        keep: keep the raw tables in ``Results.runs`` (memory grows with them).
        report: called with the results before the plots are waited for.
        say: called with sentences for the user (about plots).
        command, overrides: for the manifest.
    """
    from dspark_sim.manifest import manifest
    from dspark_sim.pictures import PlotProcess
    from dspark_sim.stopping import unstoppable

    started = datetime.now(UTC).isoformat(timespec="seconds")
    child = PlotProcess().start() if plots and folder is not None else None
    sink = folder.steps if folder is not None else None
    tasks: list[TaskResult] = []
    failed: set[str] = set()
    interrupted, full = False, None  # full: the disk was
    todo = [(s, r) for r in range(scenario.replications) for s in setups]
    try:
        with (progress() if progress is not None else nullcontext(lambda *_: None)) as advance:
            for done, (setup, replication) in enumerate(todo):
                advance(done, len(todo), setup.name, replication)
                if setup.name in failed:
                    continue
                task = run_task(setup, scenario, replication, sink)
                if folder is not None and task.tables is not None:
                    folder.add(task.tables)
                if task.error is not None:
                    failed.add(setup.name)
                tasks.append(task if keep else replace(task, tables=None))
            advance(len(todo), len(todo), "", 0)
    except KeyboardInterrupt:
        interrupted = True
    except OSError as stop:
        if folder is None:
            raise
        interrupted, full = True, stop
    try:
        with unstoppable() if folder is not None else nullcontext():
            full = (None if folder is None else folder.close_tables()) or full
            results = summarise(scenario, setups, tasks, interrupted=interrupted)
            results = replace(results, runs=tuple(t.tables for t in tasks if t.tables is not None))
            if folder is not None and full is not None:
                results = replace(results, warnings=(_not_written(full, folder.lost), *results.warnings))
            if folder is not None:
                try:
                    folder.write("summary.json", results.to_json())
                    folder.write("summary.csv", results.to_csv())
                    folder.write("manifest.json", manifest(
                        scenario, setups, results, command=command, started=started,
                        finished=datetime.now(UTC).isoformat(timespec="seconds"), overrides=overrides,
                        wall_s={s.name: sum(t.wall_s for t in tasks if t.arm == s.name) for s in setups},
                        finished_replications={
                            s.name: sum(t.arm == s.name and t.error is None for t in tasks) for s in setups
                        },
                    ))
                except OSError as none:  # no room for a few kilobytes: what is on screen is all
                    if report is not None:
                        report(results)
                    raise RunError(f"{_not_written(none, ())}; nothing could be kept") from None
        if folder is None:
            if report is not None:
                report(results)
            return results
        if child is not None and not interrupted:
            child.draw(folder.path)
        shown = False
        try:
            if report is not None:
                report(results)
            shown = True
        finally:  # a full disk behind stdout, a terminal that is gone: the folder is finished all the same
            try:
                problem = child.wait() if child is not None and not interrupted else None
            except KeyboardInterrupt:
                problem = "plots were given up; the numbers are complete"
            if problem is not None and say is not None:
                say(problem)
            with unstoppable():
                results = replace(results, folder=folder.finish())
            if not shown and say is not None:
                say(f"the results could not be printed; they are in {results.folder}")
        if full is not None:
            raise RunError(f"{_not_written(full, folder.lost)}; {len(tasks)} of {len(todo)} replications had finished, "
                           f"and what there is of them is in {results.folder}")
        return results
    finally:
        if child is not None:
            child.stop()


def _not_written(problem: OSError, lost: Sequence[str]) -> str:
    where = f"{Path(problem.filename).name}: " if problem.filename else ""
    without = f"; there is no {' and no '.join(lost)}" if lost else ""
    return f"{where}{problem.strerror or problem}{without}"


def run(
    scenario: Scenario | str | Path, out: str | Path | None = None, *, overrides: Mapping[str, Any] | None = None,
    seed: int | None = None, plots: bool = False, keep: bool = True,
) -> Results:
    """Compare the arms of a scenario.

    Args:
        scenario: a :class:`~dspark_sim.scenario.Scenario`, a name on the shelf, or a path.
        out: write the run folder there (new or empty); None writes nothing.
        overrides: dotted keys to set, e.g. ``{"workload.arrival.concurrency": 64}``; only with a name or a path.
        seed: instead of the scenario's; only with a name or a path.
        plots: also draw the pictures (needs ``out``).
        keep: keep the raw tables in ``Results.runs``; with ``out`` the steps go to the folder only.

    Raises:
        InputError: the scenario, a profile, a trace, a policy or ``out`` cannot be used; nothing has run.
        RunError: the disk was full; what had finished is in the folder.
        KeyboardInterrupt: after the folder was finished with what there is.
    """
    from dspark_sim.arms import load_arms
    from dspark_sim.rundir import RunFolder
    from dspark_sim.scenario import load_scenario

    if isinstance(scenario, (str, Path)):
        scenario = load_scenario(scenario, overrides, seed=seed)
    elif overrides or seed is not None:
        raise InputError("overrides and seed need the scenario's name or path; a loaded scenario is fixed")
    setups = load_arms(scenario)
    shown = dict(overrides or {}) | ({} if seed is None else {"seed": seed})
    with (RunFolder(scenario.name, out) if out is not None else nullcontext()) as folder:
        results = execute(scenario, setups, folder=folder, plots=plots, keep=keep, overrides=shown,
                          say=lambda text: print(text, file=sys.stderr))
    if results.interrupted:
        raise KeyboardInterrupt
    return results
