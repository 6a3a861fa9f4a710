"""Pieces of a live validation on disk: each appears whole or not at all, and a run that starts again makes the rest."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dspark_sim.atomic import written_aside
from dspark_sim.errors import InputError, shown
from dspark_sim.lab.live_plan import LivePlan

__all__ = ["Pieces"]

SETTINGS = "settings.json"
FORMAT = "dspark-sim live 1"
MAY_CHANGE = ("repeat", "concurrency", "arms", "rounds")  # more of them: what is there stays true


class Pieces:
    """The folder of one validation.

    Args:
        folder: new, empty, or one that an earlier call with the same settings began.
        plan: the settings.

    Raises:
        InputError: the folder holds something else, or settings that differ.
    """

    def __init__(self, folder: Path, plan: LivePlan) -> None:
        self.folder = folder
        facts = {"format": FORMAT, **plan.facts()}
        path = folder / SETTINGS
        try:
            if folder.exists() and not folder.is_dir():
                raise InputError("is a file", file=folder, key="--out", allowed="a folder")
            if not path.is_file():
                if folder.is_dir() and any(p for p in folder.iterdir() if not p.name.startswith(".")):
                    raise InputError("is not empty, and no live validation", file=folder, key="--out",
                                     allowed="a new or empty folder, or one that `validate live` began")
                self.write(SETTINGS, facts)
                return
        except OSError as error:
            raise InputError(f"cannot be written ({error.strerror})", file=folder, key="--out") from None
        there = self.read(SETTINGS)
        for key, value in facts.items():
            if key not in MAY_CHANGE and there.get(key) != value:
                raise InputError(f"{key} is {shown(value)}, was {shown(there.get(key))}", file=path, key=key,
                                 allowed="the settings that this validation began with, or another --out")
        self.write(SETTINGS, facts)

    def path(self, name: str) -> Path:
        """Where a piece is or will be."""
        return self.folder / name

    def has(self, name: str) -> bool:
        """Whether it is there."""
        return self.path(name).is_file()

    def write(self, name: str, value: Any) -> None:
        """A JSON piece; OSError when the disk is full."""
        with written_aside(self.path(name)) as path:
            path.write_text(json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")

    def read(self, name: str) -> dict[str, Any]:
        """A JSON piece.

        Raises:
            InputError: it is damaged.
        """
        path = self.path(name)
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise InputError("damaged", file=path, allowed="delete it: the next run makes it again")
        return found

    def once(self, name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The piece; made now if it is not there, or tells of a failure: perhaps something was mended since."""
        if not self.has(name) or self.read(name).get("error"):
            self.write(name, make())
        return self.read(name)
