"""What other people's code prints to stdout goes to stderr instead, under a name, and not for ever.

stdout belongs to results: ``--format json`` must stay JSON whatever a policy prints. Called by :mod:`dspark_sim.guard`.
"""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["FIRST_LINES", "aside"]

FIRST_LINES = 20  # of one supervised block; a policy that prints at every step prints a hundred thousand


class _Aside(io.TextIOBase):
    """Stands for stdout. Objects that keep it (a logging handler) may write to it at any later time."""

    def __init__(self, label: str) -> None:
        self.label, self.lines, self._part = label, 0, ""
        self._lock = threading.RLock()

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        with self._lock:
            *whole, self._part = (self._part + str(text)).split("\n")
            for line in whole:
                self._line(line + "\n")
            if len(self._part) > 10_000:  # somebody who never ends a line
                self._line(self._part + "\n")
                self._part = ""
        return len(text)

    def flush(self) -> None:
        """Nothing is held back but the part of a line: a debugger's prompt needs it now."""
        with self._lock:
            if self._part:
                self._line(self._part)
                self._part = ""

    def _line(self, line: str) -> None:
        self.lines += 1
        if self.lines <= FIRST_LINES and sys.stderr is not None:
            sys.stderr.write(f"[{self.label}] {line}")

    def close(self) -> None:
        """Stays open: what a policy closes is not ours to lose."""

    def end(self) -> None:
        """The block is over: say what was not shown."""
        with self._lock:
            if self._part:
                self.write("\n")
            if self.lines > FIRST_LINES and sys.stderr is not None:
                more = self.lines - FIRST_LINES
                sys.stderr.write(f"[{self.label}] … and {more:,} more line{'s' if more > 1 else ''}\n")
            self.lines = 0

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return getattr(sys.stderr, "encoding", None) or "utf-8"

    @property
    def buffer(self) -> Any:
        """For code that writes bytes: they go to stderr as they are."""
        return sys.stderr.buffer

    def fileno(self) -> int:
        return sys.stderr.fileno()

    def isatty(self) -> bool:
        return False


_lock = threading.Lock()
_open: list[_Aside] = []  # blocks under way, of all threads
_stdout: list[Any] = []  # what stdout was before the first of them


@contextmanager
def aside(label: str) -> Iterator[None]:
    """Until the end of the block, stdout is stderr with ``label`` before every line.

    stdout is one for all threads: where blocks of several overlap, the latest one's label stands before every line, and
    stdout comes back when the last has ended.
    """
    taker = _Aside(label)
    with _lock:
        if not _open:
            _stdout[:] = [sys.stdout]
        _open.append(taker)
        sys.stdout = taker
    try:
        yield
    finally:
        with _lock:
            taker.end()
            _open.remove(taker)
            sys.stdout = _open[-1] if _open else _stdout.pop()
