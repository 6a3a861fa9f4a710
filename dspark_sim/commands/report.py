"""dspark-sim report."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from dspark_sim.commands.output import emit, note

__all__ = ["report_command"]


def report_command(folder: Path, *, out: Path | None, show: str, csv: bool, png: bool, quiet: bool,
                   baseline: str | None = None) -> None:
    """Write the report and print its path; ``show``: ``yes``, ``no`` or ``auto`` (a person at a screen)."""
    from dspark_sim.report import write_report

    files = write_report(folder, out, csv=csv, png=png, baseline=baseline)
    emit(f"{files[0]}\n")
    if not quiet and len(files) > 1:
        note(f"and {len(files) - 1} files beside it")
    if show == "yes" or (show == "auto" and _person_at_a_screen()):
        import webbrowser

        if not webbrowser.open(files[0].resolve().as_uri()) and show == "yes":
            note("no browser could be opened")


def _person_at_a_screen() -> bool:
    if not sys.stdout.isatty() or os.environ.get("CI"):
        return False
    return sys.platform in ("win32", "darwin") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
