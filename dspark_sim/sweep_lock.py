"""One sweep at a time in a folder: ``<sweep>/.lock`` names the process that writes there.

The lock itself is the kernel's (``flock``), so it ends with the process that holds it, however that dies. What the
file says (pid, host, since when) is for people; where it speaks of a process that is gone, its lock was stale.
"""

from __future__ import annotations

import json
import os
import socket
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from dspark_sim.errors import InputError

try:
    import fcntl
except ImportError:  # Windows has no flock: two sweeps in one folder are then up to the user
    fcntl = None  # type: ignore[assignment]

__all__ = ["FolderLock"]

NAME = ".lock"


class FolderLock:
    """A context manager that holds a sweep folder.

    Args:
        folder: exists.

    Attributes:
        stale: what the lock of a killed sweep said, None if there was none.

    Raises:
        InputError: another sweep writes there; says which process, on which machine, since when.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        self.stale: dict[str, Any] | None = None
        self._file: IO[str] | None = None

    def __enter__(self) -> FolderLock:
        file = open(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644), "r+", encoding="utf-8")
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                said = _holder(file.read())
                file.close()
                raise InputError(
                    f"another sweep writes to this folder ({_words(said)})", file=self.path.parent, key="--out",
                    allowed="another folder, or this one when that sweep has ended",
                ) from None
            except OSError:  # a file system without locks
                pass
        self.stale = _holder(file.read())
        self._file = file
        self._say(json.dumps({"pid": os.getpid(), "host": socket.gethostname(),
                              "since": datetime.now().astimezone().isoformat(timespec="seconds")}) + "\n")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._say("")  # emptied, never removed: a name that is taken anew could be locked twice
            self._file.close()

    def _say(self, text: str) -> None:
        assert self._file is not None
        self._file.seek(0)
        self._file.truncate()
        self._file.write(text)
        self._file.flush()


def _holder(text: str) -> dict[str, Any] | None:
    try:
        said = json.loads(text)
    except ValueError:
        return None
    return said if isinstance(said, dict) else None


def _words(said: dict[str, Any] | None) -> str:
    if said is None:
        return "which has just begun"
    return f"process {said.get('pid')} on {said.get('host')}, since {said.get('since')}"
