"""How long jobs of the lab tell how far they are: a bar where stderr is a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from dspark_sim.commands.output import note
from dspark_sim.errors import InputError

__all__ = ["counted", "lab_needed"]

LIBRARIES = ("torch", "transformers", "safetensors")  # the extra lab
EVERY_S = 60.0  # between two lines


def lab_needed(command: str) -> None:
    """Called before anything of the lab is imported.

    Raises:
        InputError: the extra ``lab`` is not installed; names what is missing and how to get it.
    """
    missing = [name for name in LIBRARIES if find_spec(name) is None]
    if missing:
        raise InputError(f"{command} needs {' and '.join(missing)}, which this environment lacks",
                         allowed="after pip install 'dspark-sim[lab]'")


@contextmanager
def counted(what: str, total: int, found: int) -> Iterator[Callable[[int, str], None]]:
    """Gives a function to call with how many are done and some words (speed, loss)."""
    from rich.console import Console

    console = Console(stderr=True)
    if console.is_terminal:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
                   TextColumn("{task.fields[words]}"))
        with Progress(*columns, console=console, transient=True, refresh_per_second=4) as bar:
            task = bar.add_task("", total=total, completed=found, words="")
            yield lambda done, words: bar.update(task, completed=done, words=words)
        return
    last = [time.monotonic(), float(found)]

    def line(done: int, words: str) -> None:
        if time.monotonic() - last[0] >= EVERY_S or done == total or done - last[1] >= 0.1 * total:
            last[:] = [time.monotonic(), float(done)]
            note(f"{what} {done}/{total}  {words}")

    yield line

