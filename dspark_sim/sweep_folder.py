"""A sweep's folder: where it is, what it says of itself, and how a finished one is opened again.

``<sweeps>/<name>-<definition>/`` holds ``cells/``, ``tasks.parquet|csv``, ``aggregate.parquet|csv``, ``timing.csv`` and
``manifest.json``. Times, paths and versions stand in the last two only.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dspark_sim.errors import InputError
from dspark_sim.sweep_cells import CELLS, Found, write_whole
from dspark_sim.sweep_grid import Definition, where

if TYPE_CHECKING:
    import pandas as pd

    from dspark_sim.results import Results
    from dspark_sim.sweep_tables import GridPoint

__all__ = ["FORMAT", "SWEEPS", "SweepFolder", "choose", "open_sweep", "shared_warnings", "write_manifest",
           "write_timing"]

SWEEPS = "sweeps"
FORMAT = "dspark-sim sweep 1"


class SweepFolder:
    """A sweep on disk, read-only.

    Attributes:
        path: the folder.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """``manifest.json``: the grid, the inputs with their hashes, warnings, failures, versions."""
        data: dict[str, Any] = json.loads((self.path / "manifest.json").read_text(encoding="utf-8"))
        return data

    def tasks(self) -> pd.DataFrame:
        """A row per grid point, arm and replication."""
        return self._frame("tasks")

    def aggregate(self) -> pd.DataFrame:
        """A row per grid point and arm: means with ``_ci95_low`` and ``_ci95_high``, paired differences."""
        return self._frame("aggregate")

    def _frame(self, name: str) -> pd.DataFrame:
        import pyarrow.parquet as pq

        frame: pd.DataFrame = pq.read_table(self.path / f"{name}.parquet").to_pandas()
        return frame


def open_sweep(path: str | Path) -> SweepFolder:
    """Open a folder that a sweep wrote.

    Raises:
        InputError: it is none, or its sweep has not written its tables yet.
    """
    folder = SweepFolder(path)
    try:
        known = folder.manifest.get("format") == FORMAT
    except (OSError, ValueError, AttributeError):
        known = False
    if not known:
        raise InputError("is no folder of a sweep", file=folder.path)
    if not (folder.path / "aggregate.parquet").is_file():
        raise InputError("holds a sweep that has not finished; run its command again", file=folder.path)
    return folder


def choose(name: str, digest: str, out: str | Path | None) -> Path:
    """The folder of a sweep, made if need be: ``--out``, else by name and definition.

    Raises:
        InputError: it is a file, cannot be made, or holds something that is no sweep.
    """
    path = Path(SWEEPS) / f"{name}-{digest}" if out is None else Path(out)
    if path.exists() and not path.is_dir():
        raise InputError("is a file", file=path, key="--out", allowed="a folder, new or of a sweep")
    try:
        if path.is_dir() and not (path / CELLS).is_dir() and any(path.iterdir()):
            raise InputError("holds other files, and a sweep does not mix its own with them", file=path, key="--out",
                             allowed="a new or empty folder, or one of an earlier sweep, which then goes on")
        path.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise InputError(f"cannot be used ({problem.strerror or problem})", file=path, key="--out") from None
    return path


def shared_warnings(results: Sequence[Results]) -> tuple[list[str], list[list[str]]]:
    """Warnings of every point, once; and for each point those that not all of them have."""
    everywhere = [w for w in results[0].warnings if all(w in r.warnings for r in results[1:])]
    return everywhere, [[w for w in r.warnings if w not in everywhere] for r in results]


def write_manifest(
    folder: Path, definition: Definition, points: Sequence[GridPoint], found: Found, *, status: str,
    results: Sequence[Results] = (), **more: Any,
) -> None:
    """Write ``manifest.json``: once when the sweep begins (``status: running``), once when it ends.

    Args:
        more: what only the end knows: failures, counts, times.
    """
    from dspark_sim.manifest import arm_entry, as_json, environment, inputs

    everywhere, apart = shared_warnings(results) if results else ([], [[] for _ in points])
    used: dict[str, dict[str, Any]] = {"profiles": {}, "traces": {}}
    for key, point in _different(points).items():
        for kind, entries in inputs(point.scenario, point.setups).items():
            for name, entry in entries.items():
                used[kind].setdefault(name if used[kind].get(name, entry) == entry else f"{name} ({key})", entry)
    write_whole(folder / "manifest.json", as_json({
        "format": FORMAT, "status": status, "definition": definition.digest(),
        "scenario": {"name": points[0].scenario.name, "file": definition.file or None, "text": definition.text,
                     "overrides": dict(definition.settings)},
        "over": {key: list(values) for key, values in definition.axes.items()},
        "seed": points[0].scenario.seed, "replications": points[0].scenario.replications,
        "tasks": {"total": sum(len(keys) for point in points for keys in point.keys), "found": len(found.cells),
                  "damaged": sorted(found.damaged), "of_other_sweeps": found.others, **more.pop("tasks", {})},
        "points": [{"point": p.number, "values": dict(p.values), "arms": [s.name for s in p.setups], "warnings": w}
                   for p, w in zip(points, apart, strict=True)],
        "arms": [arm_entry(setup) for setup in points[0].setups], **used, "warnings": everywhere,
        "assumptions": list(dict.fromkeys(a for r in results for a in r.assumptions)), **more, **environment(),
    }))


def _different(points: Sequence[GridPoint]) -> dict[str, GridPoint]:
    """One point for each set of profiles and traces that occurs."""
    out: dict[tuple[object, ...], GridPoint] = {}
    for point in points:
        kinds = {id(x) for s in point.setups for x in (s.profile, s.belief_profile, s.trace)}
        out.setdefault(tuple(sorted(kinds)), point)
    return {where(point.values): point for point in out.values()}


def write_timing(folder: Path, points: Iterable[GridPoint], cells: Mapping[str, Mapping[str, Any]]) -> None:
    """``timing.csv``: how long each task took, and where."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["point", "arm", "replication", "wall_s", "worker", "key"])
    for point in points:
        for setup, keys in zip(point.setups, point.keys, strict=True):
            writer.writerows([point.number, setup.name, r, cells[key]["wall_s"], cells[key]["worker"], key]
                             for r, key in enumerate(keys) if key in cells)
    write_whole(folder / "timing.csv", text.getvalue())
