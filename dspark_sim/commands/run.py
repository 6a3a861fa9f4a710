"""dspark-sim run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from dspark_sim.commands.local import refuse_local
from dspark_sim.commands.output import emit, emit_console, note
from dspark_sim.errors import InputError
from dspark_sim.stopping import exit_code

if TYPE_CHECKING:
    from dspark_sim.results import Results

__all__ = ["overrides_of", "refuse_local", "run_command"]


def overrides_of(settings: Sequence[str]) -> dict[str, Any]:
    """``["a.b=1", …]`` as ``{"a.b": 1, …}``; the right side is read as YAML.

    Raises:
        InputError: no ``=``, no key, the same key twice, or a value that is not YAML.
    """
    from dspark_sim.yamlio import parse_scalar

    out: dict[str, Any] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        key = key.strip()
        if not equals or not key:
            raise InputError(f"got {setting!r}", key="--set", allowed="dotted.key=value")
        if key in out:
            raise InputError("is set twice", key=f"--set {key}")
        try:
            out[key] = parse_scalar(value)
        except InputError as problem:
            raise InputError(problem.problem, key=f"--set {key}") from None
    return out


def run_command(
    reference: str, *, seed: int | None, out: Path | None, settings: Sequence[str], form: str, quiet: bool, plots: bool,
    local_policies: bool, perfetto: Path | None = None,
) -> None:
    """Run a scenario and print the comparison; exits with 1 when an arm failed, 130 after Ctrl-C."""
    from dspark_sim.scenario import load_scenario

    overrides = overrides_of(settings)
    scenario = load_scenario(reference, overrides, seed=seed)
    refuse_local(scenario, not local_policies, quiet)
    if perfetto is not None:
        from dspark_sim.perfetto import check_target

        check_target(scenario, perfetto)
    from dspark_sim.arms import load_arms
    from dspark_sim.rundir import RunFolder
    from dspark_sim.runner import execute

    setups = load_arms(scenario)
    say: Callable[[str], None] = (lambda text: None) if quiet else note

    def report(results: Results) -> None:
        show(results, form)

    with RunFolder(scenario.name, out) as folder:
        results = execute(
            scenario, setups, folder=folder, plots=plots, progress=None if quiet else _progress, report=report, say=say,
            command=sys.argv, overrides=overrides | ({} if seed is None else {"seed": seed}),
        )
    if results.interrupted:
        note(f"stopped; what had finished is in {results.folder}")
        raise typer.Exit(exit_code())
    page = None if results.folder is None else results.folder / "report.html"
    say(f"\nresults in {results.folder}" + (f"; to read: {page}" if page is not None and page.is_file() else ""))
    if perfetto is not None and results.folder is not None:
        from dspark_sim.perfetto import write_trace

        say(write_trace(results.folder, perfetto))
    for arm in results.arms:
        if arm.error is not None:
            note(f"error: arm {arm.arm} failed: {arm.error}")
    if results.failed:
        raise typer.Exit(1)


def show(results: Results, form: str) -> None:
    """Print results to stdout in one of the three forms."""
    if form == "json":
        emit(results.to_json())
    elif form == "csv":
        emit(results.to_csv())
    else:
        from dspark_sim.render import show as draw

        emit_console(lambda console: draw(results, console))


@contextmanager
def _progress() -> Iterator[Callable[[int, int, str, int], None]]:
    """A bar on stderr when it is a terminal; nothing otherwise."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda *_: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, refresh_per_second=4) as bar:
        task = bar.add_task("", total=None)

        def advance(done: int, total: int, arm: str, replication: int) -> None:
            words = f"{arm}, replication {replication + 1}" if arm else "done"
            bar.update(task, completed=done, total=total, description=words)

        yield advance
