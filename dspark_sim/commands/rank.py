"""dspark-sim rank."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import typer

from dspark_sim.atomic import written_aside
from dspark_sim.commands.local import announce, refuse_local
from dspark_sim.commands.output import emit, emit_console, note
from dspark_sim.commands.run import overrides_of
from dspark_sim.errors import InputError
from dspark_sim.stopping import exit_code

__all__ = ["rank_command"]


def rank_command(
    scenarios: Sequence[str], *, policies: str | None, loads: str, replications: int | None, robustness: bool,
    drafter: str | None, jobs: int | None, limit: float, markdown: Path | None, picture: Path | None,
    settings: Sequence[str], seed: int | None, form: str, quiet: bool, local_policies: bool,
) -> None:
    """Rank policies and print the leaderboard; exits with 1 when an arm failed, 130 after Ctrl-C."""
    from dspark_sim.rank import rank
    from dspark_sim.rank_define import CONDITIONS, contestants
    from dspark_sim.rank_render import as_csv, as_json, as_markdown, show
    from dspark_sim.scenario import load_scenario

    for place in (markdown, picture):
        if place is not None and not place.absolute().parent.is_dir():
            raise InputError(f"no folder {place.parent}", key="--markdown" if place is markdown else "--picture")
    loaded = [load_scenario(name, overrides_of(settings), seed=seed) for name in scenarios]
    for scenario in loaded:  # to find its drafter its own arms are loaded too, and policies/ beside it counts
        refuse_local(scenario, not local_policies, quiet)
        announce([c.policy for c in contestants(policies or "async_global")], allowed=local_policies, quiet=quiet,
                 base=scenario.base)
    with _progress(quiet) as progress:
        ranking = rank(
            loaded, policies, loads=_numbers(loads), replications=replications, drafter=drafter,
            conditions=tuple(CONDITIONS) if robustness else (), jobs=jobs or os.cpu_count() or 1, limit_s=limit,
            progress=progress,
        )
    if form == "json":
        emit(as_json(ranking))
    elif form == "csv":
        emit(as_csv(ranking))
    else:
        emit_console(lambda console: show(ranking, console))
    if markdown is not None:
        _write(markdown, as_markdown(ranking))
    if picture is not None:
        from dspark_sim.plots.ranking import draw
        from dspark_sim.plots.style import save

        save(draw(ranking), picture)
    if ranking.interrupted:
        note("stopped; the ranking covers what had finished")
        raise typer.Exit(exit_code())
    if any(s.error is not None and not s.unfit for s in ranking.scores.values()):
        raise typer.Exit(1)


def _write(path: Path, text: str) -> None:
    with written_aside(path) as aside:
        aside.write_text(text, encoding="utf-8")


def _numbers(text: str) -> list[float]:
    try:
        numbers = [float(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise InputError(f"got {text!r}", key="--loads", allowed="numbers separated by commas") from None
    if any(not 0 < n < 1e9 for n in numbers) or len(set(numbers)) < len(numbers):
        raise InputError(f"got {text!r}", key="--loads", allowed="different numbers above 0")
    return numbers


@contextmanager
def _progress(quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr when it is a terminal; nothing otherwise."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda *_: None
        return
    columns = (TextColumn("ranking"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, refresh_per_second=4) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
