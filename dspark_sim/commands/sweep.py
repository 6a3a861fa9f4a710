"""dspark-sim sweep."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from dspark_sim.commands.output import emit, emit_console, note
from dspark_sim.commands.run import overrides_of, refuse_local
from dspark_sim.stopping import exit_code

if TYPE_CHECKING:
    from dspark_sim.scenario import Scenario
    from dspark_sim.sweeper import SweepResults

__all__ = ["sweep_command"]

LINES = 10  # kinds of failures and warnings that are shown; manifest.json has all


def sweep_command(
    reference: str, *, over: Sequence[str], replications: int | None, seed: int | None, settings: Sequence[str],
    jobs: int | None, backend: str, address: str | None, out: Path | None, form: str, quiet: bool, local_policies: bool,
    plots: bool = True,
) -> None:
    """Sweep a scenario and print the table; exits with 1 when a task failed, 130 after Ctrl-C."""
    from dspark_sim.sweep_backends import check_backend
    from dspark_sim.sweep_define import define, load_grid
    from dspark_sim.sweep_grid import OPTION, parse_over

    check_backend(backend, address)
    definition = define(reference, parse_over(over), replications=replications, seed=seed,
                        overrides=overrides_of(settings), label=OPTION)
    local = _LocalPolicies(local_policies, quiet)
    points = load_grid(definition, local.check)
    from dspark_sim.commands.sweep_progress import progress
    from dspark_sim.pictures import drawn
    from dspark_sim.sweeper import execute

    results = execute(
        definition, points, out=out, jobs=jobs, backend=backend, address=address, command=sys.argv,
        progress=None if quiet else progress, say=(lambda text: None) if quiet else note,
    )
    show(results, form)
    plots = plots and not results.interrupted
    problem = drawn(results.folder) if plots else None
    if not quiet:
        report = f"to read: {results.folder / 'report.html'}" if plots and problem is None else \
            f"as pictures: dspark-sim report {shlex.quote(str(results.folder))}"
        note(f"\nresults in {results.folder}; {report}")
        if problem is not None:
            note(problem)
    if results.failures:
        note(failure_text(results))
    if results.interrupted:
        done = len(results.found.cells) + results.computed
        note(f"stopped; {done} of {results.total} tasks are finished and kept in {results.folder}; the same command "
             "goes on from there")
        raise typer.Exit(exit_code())
    if results.failed:
        raise typer.Exit(1)


class _LocalPolicies:
    """Refuses or announces policies that are not on the shelf, once each and not at every grid point."""

    def __init__(self, allowed: bool, quiet: bool) -> None:
        self.allowed, self.quiet = allowed, quiet
        self.seen: set[tuple[str, str]] = set()

    def check(self, scenario: Scenario) -> None:
        """Called with every point's scenario before its policies are imported."""
        arms = {(arm.name, arm.policy.name) for arm in scenario.arms}
        refuse_local(scenario, not self.allowed, self.quiet or arms <= self.seen)
        self.seen |= arms


def show(results: SweepResults, form: str) -> None:
    """Print the aggregated table to stdout in one of the three forms."""
    from dspark_sim.sweep_tables import to_csv

    if form == "csv":
        emit(to_csv(results.aggregate_table))
    elif form == "json":
        emit(json.dumps(as_data(results), indent=2, ensure_ascii=False, allow_nan=False) + "\n")
    else:
        from dspark_sim.sweep_render import show as draw

        emit_console(lambda console: draw(results, console))


def as_data(results: SweepResults) -> dict[str, Any]:
    """What ``--format json`` prints: rows of the aggregated table, failures, warnings; no times, no paths."""
    from dspark_sim.sweep_folder import shared_warnings

    everywhere, apart = shared_warnings(results.results)
    return {
        "sweep": results.results[0].name, "seed": results.results[0].seed, "interrupted": results.interrupted,
        "over": {key: list(values) for key, values in results.definition.axes.items()},
        "rows": results.aggregate_table.to_pylist(),
        "failures": [{"point": f.point, "values": dict(f.values), "arm": f.arm, "replication": f.replication,
                      "error": f.error} for f in results.failures],
        "warnings": everywhere, "point_warnings": [{"point": i, "warnings": w} for i, w in enumerate(apart) if w],
        "assumptions": list(dict.fromkeys(a for r in results.results for a in r.assumptions)),
    }


def failure_text(results: SweepResults) -> str:
    """Failed tasks by point, arm and reason, each with its replications."""
    from dspark_sim.sweep_grid import where

    groups: dict[tuple[str, str, str], list[int]] = {}
    for f in results.failures:
        groups.setdefault((where(f.values), f.arm, f.error), []).append(f.replication)
    lines = [f"error: {len(results.failures)} of {results.total} tasks failed; the others are kept and in the tables, "
             "and the same command tries the failed ones again"]
    for (point, arm, error), replications in list(groups.items())[:LINES]:
        which = f"replication{'s' if len(replications) > 1 else ''} {_ranges(replications)}"
        lines.append(f"  {point}: arm {arm}, {which}: {error}")
    if len(groups) > LINES:
        lines.append(f"  … and {len(groups) - LINES} more kinds, in {results.folder / 'manifest.json'}")
    return "\n".join(lines)


def _ranges(numbers: Sequence[int]) -> str:
    """``[0, 1, 2, 5]`` as ``0–2, 5``."""
    parts: list[list[int]] = []
    for n in numbers:
        if parts and n == parts[-1][-1] + 1:
            parts[-1][1:] = [n]
        else:
            parts.append([n])
    return ", ".join("–".join(map(str, part)) for part in parts)
