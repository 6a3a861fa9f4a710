"""How far a sweep is: a bar where stderr is a terminal, a line now and then where it is not."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dspark_sim.commands.output import note

__all__ = ["progress"]

EVERY_S = 30.0  # between two lines
SHARE = 0.1  # or when so much of the work has been done since the last


class _Pace:
    """Cells per second and time left, of the cells that this sweep computes itself."""

    def __init__(self, total: int, found: int) -> None:
        self.total, self.found, self.done = total, found, found
        self.began = time.monotonic()

    def words(self) -> str:
        """``3.4 cells/s, 2 min left``; nothing before the first cell."""
        seconds, own = time.monotonic() - self.began, self.done - self.found
        if own == 0 or seconds <= 0:
            return ""
        rate = own / seconds
        speed = f"{rate:.1f} cells/s" if rate >= 0.95 else f"{1 / rate:.1f} s a cell"
        return f"{speed}, {_duration((self.total - self.done) / rate)} left"


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{seconds / 60:.0f} min"
    return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60)} min"


@contextmanager
def progress(total: int, found: int) -> Iterator[Callable[[], None]]:
    """Gives a function to call for every finished cell."""
    from rich.console import Console

    console, pace = Console(stderr=True), _Pace(total, found)
    if total == found:
        yield lambda: None
    elif console.is_terminal:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        columns = (TextColumn("cells"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[pace]}"))
        with Progress(*columns, console=console, transient=True, refresh_per_second=4) as bar:
            task = bar.add_task("", total=total, completed=found, pace="")

            def advance() -> None:
                pace.done += 1
                bar.update(task, completed=pace.done, pace=pace.words())

            yield advance
    else:
        last = [pace.began, float(found)]

        def line() -> None:
            pace.done += 1
            now = time.monotonic()
            if now - last[0] >= EVERY_S or pace.done - last[1] >= SHARE * (total - found) or pace.done == total:
                last[:] = now, pace.done
                note(f"{pace.done} of {total} cells, {pace.words()}")

        yield line
