"""One self-contained HTML file from the folder of a run or a sweep; ``python -m dspark_sim.report`` draws for a run.

Warnings come first, then tables that sort, pictures, and where every input comes from. The file needs no network and
no JavaScript. :func:`write_report` is all that others need.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from dspark_sim.errors import InputError
from dspark_sim.report.captions import alt_text, caption, sweep_alt_text
from dspark_sim.report.folder import Folder, open_folder
from dspark_sim.report.page import Page, Picture, render
from dspark_sim.report.run_page import run_page

__all__ = ["write_report"]

REPORT = "report.html"


def write_report(
    folder: Path, out: Path | None = None, *, csv: bool = False, png: bool = False,
    baseline: str | None = None, drawn: tuple[list[Path], list[str]] | None = None,
) -> list[Path]:
    """Write the report of a run's or sweep's folder.

    Args:
        folder: of ``dspark-sim run`` or ``sweep``.
        out: the HTML file; None for ``report.html`` in the folder.
        csv: also write each table as ``<stem>-<table>.csv`` beside it.
        png: also write each picture as ``<stem>-<picture>.png`` beside it.
        baseline: the arm that a sweep's frontier is read against; None for the first.
        drawn: pictures that are there already, in order, and why others are not; None draws them.

    Returns:
        The files, the report first.

    Raises:
        InputError: the folder is foreign or damaged, or the report cannot lie there.
    """
    source = open_folder(folder)
    target = folder / REPORT if out is None else out
    if target.is_dir():
        raise InputError("is a folder", file=target, key="--out", allowed="the name of a file")
    if not target.resolve().parent.is_dir():
        raise InputError("its folder does not exist", file=target, key="--out")
    if baseline is not None and source.kind == "run":
        raise InputError("a run's arms are compared with its first", key="--baseline", allowed="a sweep's folder")
    page = _page(source, drawn, baseline)
    files = {target: render(page).encode()}
    beside = target.with_suffix("")
    if csv:
        files |= {beside.with_name(f"{beside.name}-{t.key}.csv"): t.to_csv().encode()
                  for t in (*page.tables, *page.details)}
    if png:
        files |= {beside.with_name(f"{beside.name}-{p.name}.png"): p.png for p in page.pictures}
    for path, content in files.items():
        aside = path.with_name(f".{path.name}.part")
        try:
            aside.write_bytes(content)
            os.replace(aside, path)
        finally:
            aside.unlink(missing_ok=True)
    return list(files)


def _page(source: Folder, drawn: tuple[list[Path], list[str]] | None, baseline: str | None) -> Page:
    """Read, drawn and put together; whatever a damaged folder lacks becomes one sentence."""
    try:
        with tempfile.TemporaryDirectory() as place:
            if source.kind == "sweep":
                return _sweep(source, Path(place), baseline)
            paths, missing = _draw(source, Path(place)) if drawn is None else drawn
            return run_page(source, [_picture(path, source) for path in paths], missing)
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        if isinstance(problem, InputError):
            raise
        why = f"{problem}".partition("\n")[0][:200]  # Arrow lists every column of the table
        raise InputError(f"is damaged: its parts do not hold what they should ({type(problem).__name__}: {why})",
                         file=source.path) from problem


def _draw(source: Folder, place: Path) -> tuple[list[Path], list[str]]:
    from dspark_sim.plots import draw_run

    missing: list[str] = []
    return draw_run(source.path, place, missing), missing


def _picture(path: Path, source: Folder) -> Picture:
    name = path.stem
    return Picture(name, path.read_bytes(), alt_text(name, source.summary["arms"]), caption(name))


def _sweep(source: Folder, place: Path, baseline: str | None) -> Page:
    from dspark_sim.plots import draw_sweep
    from dspark_sim.plots.sweepdata import SweepData
    from dspark_sim.report.sweep_page import baseline_of, sweep_page

    data = SweepData(source.path)
    if not data.rows:
        raise InputError("holds no rows: nothing of the sweep had finished", file=source.path / "aggregate.parquet")
    base = baseline_of(data, baseline)
    missing: list[str] = []
    pictures = [Picture(path.stem, path.read_bytes(), sweep_alt_text(path.stem, data), caption(path.stem))
                for path in draw_sweep(data, place, base, missing)]
    return sweep_page(source, data, base, pictures, missing)
