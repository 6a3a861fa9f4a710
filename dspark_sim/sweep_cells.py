"""Finished tasks on disk: one small JSON file each, ``<sweep>/cells/<key>.json``, whole or not there.

A file is written aside, flushed to the disk and renamed, so a killed process leaves at most a hidden ``.….tmp``, which
the next sweep removes. Each file carries a checksum: one that is damaged all the same (a full disk, a bad copy) is
noticed and its task done again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dspark_sim.errors import InputError
from dspark_sim.sweep_grid import canonical
from dspark_sim.sweep_key import FORMAT

__all__ = ["CELLS", "CellStore", "Found", "read_cell", "write_whole"]

CELLS = "cells"


@dataclass(frozen=True)
class Found:
    """What lay in the folder when a sweep began.

    Attributes:
        cells: key -> body, of those that were asked for.
        damaged: keys that were asked for and whose file cannot be used.
        others: files of tasks that this sweep does not ask for (another grid, other inputs, older code).
    """

    cells: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    damaged: tuple[str, ...] = ()
    others: int = 0


class CellStore:
    """The cells of one sweep folder; one process writes at a time (see :mod:`dspark_sim.sweep_lock`).

    Args:
        folder: the sweep's; ``cells/`` is made in it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder / CELLS
        self.folder.mkdir(parents=True, exist_ok=True)

    def path(self, key: str) -> Path:
        """Where the cell of a task is or will be."""
        return self.folder / f"{key}.json"

    def find(self, keys: Iterable[str]) -> Found:
        """Read the cells of these tasks, as far as they are there; leftovers of killed writers are removed.

        Raises:
            InputError: a folder stands where a cell belongs; nothing has been computed yet.
        """
        wanted, cells, damaged, others = set(keys), dict[str, dict[str, Any]](), list[str](), 0
        for entry in sorted(os.scandir(self.folder), key=lambda e: e.name):
            key = entry.name.removesuffix(".json")
            if entry.name.startswith(".") and entry.name.endswith(".tmp"):
                with contextlib.suppress(OSError):
                    os.unlink(entry.path)
            elif key in wanted and key != entry.name:
                if entry.is_dir():
                    raise InputError("is a folder where the result of a task belongs", file=entry.path,
                                     allowed="a file; remove the folder, and its task is done again")
                body = read_cell(Path(entry.path), key)
                if body is None:
                    damaged.append(key)
                else:
                    cells[key] = body
            elif key != entry.name:
                others += 1
        return Found(cells, tuple(damaged), others)

    def write(self, key: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Keep a finished task; returns the body as a later reader will see it."""
        text = canonical(body)
        check = hashlib.sha256(text.encode()).hexdigest()
        write_whole(self.path(key), f'{{"format":"{FORMAT}","key":"{key}","sha256":"{check}",\n"body":{text}}}\n')
        out: dict[str, Any] = json.loads(text)
        return out


def read_cell(path: Path, key: str) -> dict[str, Any] | None:
    """The body of a cell; None if the file is not exactly what :meth:`CellStore.write` wrote for this key."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):  # ValueError: neither UTF-8 nor JSON
        return None
    if not isinstance(data, dict) or data.get("format") != FORMAT or data.get("key") != key:
        return None
    body = data.get("body")
    if not isinstance(body, dict) or data.get("sha256") != hashlib.sha256(canonical(body).encode()).hexdigest():
        return None
    return body


def write_whole(path: Path, data: str | bytes) -> None:
    """Write a file so that its name never stands for half of it, not even after the power failed."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with aside.open("wb") as file:
            file.write(data.encode() if isinstance(data, str) else data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    except BaseException as problem:
        with contextlib.suppress(OSError):
            aside.unlink()
        if isinstance(problem, OSError):  # of a full disk, which does not say which file
            raise OSError(problem.errno, problem.strerror, str(path)) from None
        raise
