"""dspark-sim validate."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

import typer

from dspark_sim.commands.local import refuse_local
from dspark_sim.commands.output import emit, emit_console, emit_rows, note
from dspark_sim.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from dspark_sim.validate import CaseResult
    from dspark_sim.validate_case import Case

__all__ = ["validate_command"]


def validate_command(
    names: Sequence[str], *, bench: Sequence[Path], base: str | None, arm: str | None, quick: bool, form: str,
    out: Path | None, docs: Path | None, quiet: bool, plots: bool,
) -> None:
    """Run cases and lay predicted beside published; exits with 1 when one falls out of its tolerance."""
    cases = _cases(names, bench, base, arm)
    for case in (c for c in cases if c.scenario is not None):
        refuse_local(case.build({}), False, quiet)
    from dspark_sim.pictures import PlotProcess
    from dspark_sim.rundir import RunFolder
    from dspark_sim.validate import run_case
    from dspark_sim.validate_docs import rows

    if docs is not None:
        _writable(docs)
    with RunFolder("validate", out) as folder:
        child = PlotProcess().start() if plots else None
        try:
            results: list[CaseResult] = []
            with _progress(quiet) as advance:
                for case in cases:
                    results.append(run_case(case, quick=quick, advance=advance))
            records = rows(results)
            folder.write("validation.json", json.dumps({"cases": [_plain(r) for r in results], "points": records},
                                                       indent=1, ensure_ascii=False, allow_nan=False) + "\n")
            folder.write("validation.csv", _csv(records))
            if child is not None:
                child.draw(folder.path)
            if form == "table":
                emit_console(lambda console: _show_all(console, results))
            elif form == "json":
                emit(json.dumps({"cases": [_plain(r) for r in results], "points": records}, indent=2,
                                ensure_ascii=False, allow_nan=False) + "\n")
            else:
                emit_rows(records, form)
            problem = child.wait() if child is not None else None
        finally:
            if child is not None:
                child.stop()
        if problem is not None and not quiet:
            note(problem)
        final = folder.finish()
    if docs is not None:
        _write_docs(docs, results, final)
    if not quiet:
        note(f"\nresults in {final}")
    failed = [r.case.name for r in results if not r.passed]
    if failed:
        note(f"out of tolerance: {', '.join(failed)}")
        raise typer.Exit(1)


def _cases(names: Sequence[str], bench: Sequence[Path], base: str | None, arm: str | None) -> list[Case]:
    from dspark_sim.validate_bench import case_from_bench
    from dspark_sim.validate_case import list_cases, load_case

    if bench:  # the shell puts further files of FILE... among the cases
        bench = [*bench, *(Path(name) for name in names if name.endswith(".json"))]
        names = [name for name in names if not name.endswith(".json")]
        if base is None:
            raise InputError("needs the scenario that describes your system", key="--base",
                             allowed="a name on the shelf, or a path: its profile, traces and arms are used")
        return [*(load_case(name) for name in names), case_from_bench(bench, base, arm)]
    if base is not None or arm is not None:
        raise InputError("belong to --from-vllm-bench", key="--base and --arm")
    return [load_case(name) for name in names or list_cases()]


def _plain(result: CaseResult) -> dict[str, object]:
    return {
        "case": result.case.name, "title": result.case.title, "passed": result.passed,
        "axis_name": result.case.axis_name, "source": result.case.source,
        "fitted_parameters": result.case.fitted.parameters,
        "summaries": [{
            "quantity": s.quantity, "role": s.role, "points": s.n, "median": s.median, "worst": s.worst,
            "allowed": s.allowed, "passed": s.passed, "missing": s.missing, "published_as_zero": s.zero,
        } for s in result.summaries],
    }


def _csv(records: Sequence[dict[str, object]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(records[0]) if records else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows({k: "" if v is None else v for k, v in record.items()} for record in records)
    return text.getvalue()


def _show_all(console: Console, results: Sequence[CaseResult]) -> None:
    for result in results:
        _show(console, result)
    _show_verdicts(console, results)


def _show(console: Console, result: CaseResult) -> None:
    from rich.table import Table
    from rich.text import Text

    from dspark_sim.render import bullet
    from dspark_sim.validate_docs import summary_lines, tables

    case = result.case
    console.print()
    console.print(Text(f"{case.name}: {case.title}", style="bold"))
    console.print(Text(f"fitted ({case.fitted.parameters} numbers): {'; '.join(case.fitted.on)}", style="dim"))
    for title, header, lines in tables(result):
        console.print()
        both = any("/" in cell for line in lines for cell in line[1:])
        console.print(Text(f"{title}: predicted{' / published' if both else ''}"))
        for columns in _fitting([header, *lines], console.width):
            table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold cyan")
            for title_of, *_ in columns:
                table.add_column(Text(title_of), no_wrap=console.width >= 60, vertical="top")
            for row in zip(*(cells for _, *cells in columns), strict=True):
                table.add_row(*map(Text, row))
            console.print(table)
    console.print()
    for text in summary_lines(result):
        bullet(console, text, "red" if "OUTSIDE" in text else "")
    for text in dict.fromkeys(p.note for p in result.points if p.note):
        bullet(console, f"note: {text}", "dim")


def _show_verdicts(console: Console, results: Sequence[CaseResult]) -> None:
    """What was judged, in one table: median and worst error of each quantity beside what the case allows."""
    from rich.table import Table
    from rich.text import Text

    from dspark_sim.validate_docs import AIM, misses_aim, verdicts

    console.print()
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold cyan")
    for name in ("case", "quantity", "points", "median", "worst", "allowed", ""):
        table.add_column(name, justify="right" if name in ("points", "median", "worst", "allowed") else "left",
                         overflow="fold")
    before = None
    for case, quantity, *numbers, verdict in verdicts(results):
        style = {"PASS": "green", "FAIL": "bold red"}.get(verdict, "dim")
        table.add_row("" if case == before else case, quantity, *numbers, Text(verdict, style))
        before = case
    console.print(table)
    wide = [r.case.name for r in results if r.passed and misses_aim(r)]
    if wide:
        console.print(Text(f"A tolerance wider than {AIM[0]:g} and {AIM[1]:g} % is a case's own; by that aim these "
                           f"miss: {', '.join(wide)}.", style="dim"))


def _fitting(rows: Sequence[Sequence[str]], width: int) -> list[list[list[str]]]:
    """The table by columns; where it is too wide, with errors below their figures and in pieces that fit."""
    columns = [list(column) for column in zip(*rows, strict=True)]
    if sum(max(map(len, column)) + 2 for column in columns) <= width + 2:
        return [columns]
    pieces: list[list[list[str]]] = []
    first, room = columns[0], 0
    for head, *cells in columns[1:]:
        folded = [re.sub(r" ([+-]\S+(?: %)?)$", r"\n\1", cell) for cell in cells]
        size = max(map(len, (*head.split(), *"\n".join(folded).split("\n"))))
        if not pieces or size + 2 > room:
            pieces.append([first])
            room = width - max(map(len, first))
        pieces[-1].append([fill(head, size), *folded])
        room -= size + 2
    return pieces


def _writable(path: Path) -> None:
    if path.is_dir() or not path.resolve().parent.is_dir():
        raise InputError("cannot be written", file=path, key="--write-docs", allowed="a file in a folder that exists")


def _write_docs(path: Path, results: Sequence[CaseResult], folder: Path) -> None:
    """The page, and beside it the pictures, under ``img/``."""
    import shutil

    from dspark_sim.atomic import written_aside
    from dspark_sim.validate_page import page

    pictures: dict[str, str] = {}
    for result in results:
        drawn = folder / "plots" / f"{result.case.name}.png"
        if drawn.is_file():
            target = path.parent / "img" / f"validation-{result.case.name}.png"
            target.parent.mkdir(exist_ok=True)
            shutil.copyfile(drawn, target)
            pictures[result.case.name] = f"img/{target.name}"
    with written_aside(path) as aside:
        aside.write_text(page(results, pictures), encoding="utf-8", newline="\n")


@contextmanager
def _progress(quiet: bool) -> Iterator[Callable[[str, int, int], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda *_: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True, refresh_per_second=4) as bar:
        task = bar.add_task("", total=None)
        yield lambda words, done, total: bar.update(task, description=words, completed=done, total=total)
