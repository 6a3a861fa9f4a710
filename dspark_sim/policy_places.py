"""Where policies are found by name, and which of them hides which. Nothing is imported here.

In this order: ``policies/`` beside the scenario, ``policies/`` in the working directory, the entry points of group
``dspark_sim.policies`` of installed packages, the shelf. A file ``policies/mine.py`` is the policy ``mine``; files that
begin with ``_`` or ``test_`` are none. A path or ``module:Class`` is taken as it stands.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from dspark_sim import shelves

__all__ = ["GROUP", "SHELF", "Found", "by_name", "is_name", "names_in", "outside", "shelf_files", "where"]

GROUP = "dspark_sim.policies"
BESIDE, HERE, INSTALLED, SHELF = "policies/ beside the scenario", "./policies", "installed", "shelf"


@dataclass(frozen=True)
class Found:
    """One place that a policy may come from.

    Attributes:
        name: as it is asked for.
        place: in words: ``shelf``, ``./policies``, ``policies/ beside the scenario``, ``installed (package 1.0)``,
            ``file`` or ``module``.
        path: its file, None for what is installed.
        target: ``module`` or ``module:Class`` of an entry point.
        hides: places, in words, that have the same name and are not looked at.
        trusted: on the shelf or installed as a policy: ``--no-local-policies`` lets it pass.
    """

    name: str
    place: str
    path: Path | None = None
    target: str = ""
    hides: tuple[str, ...] = field(default=())
    trusted: bool = False

    @property
    def at(self) -> str:
        """The place with its file or module, in words."""
        return f"{self.place}: {self.path or self.target}" if self.path or self.target else self.place


def is_name(reference: str) -> bool:
    """Whether a reference is looked up by name; otherwise it is a path or ``module:Class``."""
    return not (":" in reference or "/" in reference or "\\" in reference or reference.endswith(".py"))


def where(reference: str, base: Path | None = None) -> Found | None:
    """Where a reference leads; None for an unknown name. Whether a path or module exists is not looked at.

    Args:
        reference: as in a scenario.
        base: folder of the scenario, None for the working directory.
    """
    reference = reference.strip()
    if is_name(reference):
        return by_name(base).get(reference)
    place = reference.rpartition(":")[0] if ":" in reference else reference
    return Found(reference, "module" if is_name(place) else "file", target=reference)


def outside(reference: str, base: Path | None = None) -> Found | None:
    """As :func:`where`, None also for the shelf: what executes somebody else's code."""
    found = where(reference, base)
    return None if found is None or found.place == SHELF else found


def by_name(base: Path | None = None, *, local: bool = True) -> dict[str, Found]:
    """Every name and where it leads, with what it hides there; sorted by name. ``local``: files in folders too."""
    found: dict[str, list[Found]] = {}
    for candidate in _all(base):
        if not (local or candidate.trusted):
            continue
        found.setdefault(candidate.name, []).append(candidate)
    return {name: _first(places) for name, places in sorted(found.items())}


def shelf_files() -> dict[str, Path]:
    """Name -> file of the shelf."""
    return names_in(shelves.shelf(shelves.POLICIES))


def names_in(folder: Path) -> dict[str, Path]:
    """Name -> file of the policies in a folder; {} if there is no such folder."""
    try:
        files = sorted(folder.glob("*.py"))
    except OSError:
        return {}
    return {p.stem: p for p in files if not p.stem.startswith(("_", "test_")) and p.stem != "conftest"}


def _all(base: Path | None) -> Iterator[Found]:
    """Every candidate, what hides before what is hidden."""
    folder_of_ours = shelves.shelf(shelves.POLICIES)
    shelf = names_in(folder_of_ours)
    seen = {_resolved(folder_of_ours)}  # in a checkout ./policies is the shelf
    for place, folder in ((BESIDE, base), (HERE, Path())):
        if folder is None or (own := _resolved(folder / "policies")) in seen:
            continue
        seen.add(own)
        for name, path in names_in(own).items():
            if name not in shelf or not _alike(path, shelf[name]):  # a copy of the shelf hides nothing
                yield Found(name, place, path)
    yield from _installed(tuple(sys.path))
    yield from (Found(name, SHELF, path, trusted=True) for name, path in shelf.items())


def _first(places: list[Found]) -> Found:
    first, *others = places
    return Found(first.name, first.place, first.path, first.target, tuple(o.at for o in others), first.trusted)


def _alike(one: Path, other: Path) -> bool:
    try:
        return one.read_bytes() == other.read_bytes()
    except OSError:
        return False


def _resolved(folder: Path) -> Path:
    try:
        return folder.resolve()
    except (OSError, RuntimeError):  # a loop of links
        return folder.absolute()


@lru_cache(maxsize=4)
def _installed(path: tuple[str, ...]) -> tuple[Found, ...]:
    """Entry points of the packages on ``sys.path``, in the order of their packages' names."""
    from importlib import metadata

    found = []
    for point in metadata.entry_points(group=GROUP):
        package = point.dist.metadata["Name"] if point.dist is not None else "?"
        version = point.dist.version if point.dist is not None else "?"
        found.append(Found(point.name, f"{INSTALLED} ({package} {version})", None, point.value.split("[")[0].strip(),
                           trusted=True))
    return tuple(sorted(found, key=lambda f: (f.name, f.place)))
