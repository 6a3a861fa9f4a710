"""Files that appear whole or not at all: written aside, then renamed."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["written_aside"]


@contextmanager
def written_aside(path: str | Path) -> Iterator[Path]:
    """A temporary path in the same folder (made if need be); renamed to ``path`` at the end of the block, removed when
    the block fails, so that no partial file ever bears the name.

    Raises:
        OSError: the folder cannot be made or written.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    try:
        yield Path(name)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
