"""What a report is made from: a run's or a sweep's folder, read and checked before anything is drawn."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dspark_sim.errors import InputError

__all__ = ["Folder", "open_folder"]

_RUN, _SWEEP = "dspark-sim run ", "dspark-sim sweep "
_TABLES: dict[str, tuple[str, ...]] = {
    "run": ("intervals.parquet", "requests.parquet"),
    "sweep": ("aggregate.parquet", "tasks.parquet"),
}


@dataclass(frozen=True)
class Folder:
    """A run's or a sweep's folder that can be read.

    Attributes:
        path: the folder.
        kind: which of the two.
        manifest: ``manifest.json``.
        summary: ``summary.json`` of a run; empty for a sweep.
    """

    path: Path
    kind: Literal["run", "sweep"]
    manifest: dict[str, Any]
    summary: dict[str, Any]


def open_folder(path: Path) -> Folder:
    """Read the JSON files and check that the tables can be opened.

    Raises:
        InputError: not there, not made by us, made by another version, or damaged; one sentence says which file.
    """
    allowed = "a folder that dspark-sim run or sweep has written"
    if not path.exists():
        raise InputError("is not there", file=path, allowed=allowed)
    if not path.is_dir():
        raise InputError("is no folder", file=path, allowed=allowed)
    if not (path / "manifest.json").is_file():
        raise InputError("has no manifest.json, so it is no run and no sweep (or not a finished one)", file=path,
                         allowed=allowed)
    manifest = _json(path / "manifest.json", ("format", "scenario", "warnings", "assumptions", "profiles", "traces"))
    form = str(manifest["format"])
    if form not in (f"{_RUN}1", f"{_SWEEP}1"):
        raise InputError(f"has the format {form!r}", file=path / "manifest.json",
                         allowed=f"{_RUN}1 or {_SWEEP}1; another version of dspark-sim may have written it")
    kind: Literal["run", "sweep"] = "run" if form.startswith(_RUN) else "sweep"
    for name in _TABLES[kind]:
        _parquet(path / name)
    for name in ("steps.parquet", "lengths.parquet"):
        if kind == "run" and (path / name).exists():
            _parquet(path / name)
    summary = _json(path / "summary.json", ("arms", "replications", "seed", "scenario")) if kind == "run" else {}
    return Folder(path, kind, manifest, summary)


def _json(path: Path, keys: Sequence[str]) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise InputError(f"cannot be read ({problem.strerror or problem})", file=path) from None
    except ValueError as problem:  # no JSON, or no UTF-8
        raise InputError(f"is damaged: {problem}", file=path) from None
    missing = [key for key in keys if key not in data] if isinstance(data, dict) else list(keys)
    if missing:
        raise InputError(f"lacks {', '.join(missing)}: it is damaged, or no file of dspark-sim", file=path)
    return dict(data)


def _parquet(path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.is_file():
        raise InputError("is missing", file=path)
    try:
        pq.ParquetFile(path).close()
    except (pa.ArrowException, OSError) as problem:
        raise InputError(f"is damaged: {' '.join(str(problem).split())}", file=path) from None
