"""Writing a hardware profile: a folder with ``profile.yaml`` and its CSV files, whole or not at all.

Used by everything that makes profiles out of something else (:mod:`dspark_sim.importers`, the lab's timer). The folder
is written aside, read back by the loader that ``run`` uses, and only then given its name.
"""

from __future__ import annotations

import csv
import io
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dspark_sim.errors import InputError, ProfileError, shown
from dspark_sim.profile import FILE, HardwareProfile, load_profile

__all__ = ["ProfileDraft", "check_place", "csv_text", "number", "write_profile"]

WIDTH = 110
MAX_TEXT = 2000  # of one text in a profile; the schema's own limit


@dataclass
class ProfileDraft:
    """What is about to become a profile.

    Attributes:
        data: the mapping of ``profile.yaml``, keys in the order in which they shall stand.
        files: CSV texts by file name; those that ``data`` names, and any that are kept beside (sources).
    """

    data: dict[str, Any]
    files: dict[str, str] = field(default_factory=dict)

    @property
    def assumptions(self) -> list[str]:
        """The sentences of the provenance; may be appended to."""
        found: list[str] = self.data["provenance"].setdefault("assumptions", [])
        return found


def number(value: float | int | str) -> str:
    """A cell: whole numbers and words as they are, others with up to six digits, so that last bits do not show."""
    return str(value) if isinstance(value, (int, str)) else f"{float(value):.6g}"


def csv_text(header: Sequence[str], rows: Iterable[Sequence[float | int | str]], comments: Sequence[str] = ()) -> str:
    """A table as the loader reads it; comments stand above it, one line each."""
    text = io.StringIO()
    text.writelines(f"# {' '.join(line.split())}\n" for line in comments)
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([number(cell) for cell in row] for row in rows)
    return text.getvalue()


def yaml_text(data: Mapping[str, Any]) -> str:
    """``profile.yaml``: the keys in their order, long texts folded."""
    import yaml

    class Dumper(yaml.SafeDumper):
        """Short lists on one line, long texts as folded blocks."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

    def text(dumper: Dumper, value: str) -> yaml.Node:
        value = " ".join(value.split())
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=">" if len(value) > 90 else None)

    def sequence(dumper: Dumper, value: list[Any]) -> yaml.Node:
        flat = all(isinstance(item, (int, float)) for item in value)
        return dumper.represent_sequence("tag:yaml.org,2002:seq", value, flow_style=flat)

    Dumper.add_representer(str, text)
    Dumper.add_representer(list, sequence)
    return yaml.dump(dict(data), Dumper=Dumper, sort_keys=False, allow_unicode=True, width=WIDTH)


def write_profile(draft: ProfileDraft, folder: Path, *, force: bool = False) -> HardwareProfile:
    """Write the folder and return what the loader makes of it.

    Args:
        draft: what to write.
        folder: must not exist, unless ``force``.
        force: replace a folder that holds a profile; it is exchanged as a whole.

    Raises:
        InputError: the folder exists, or holds something else.
        ProfileError: the draft is no profile; nothing is left behind.
    """
    folder = folder.expanduser()
    check_place(folder, force)
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()  # an empty folder, made for us
    for text in (*draft.assumptions, draft.data["description"]):
        if len(text) > MAX_TEXT:
            raise ProfileError(f"a text of {len(text)} characters: {shown(text)}", allowed=f"at most {MAX_TEXT}")
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    old = folder.with_name(f".{folder.name}.{os.getpid()}.old")
    try:
        aside.mkdir()
        for name, content in (*draft.files.items(), (FILE, yaml_text(draft.data))):
            with (aside / name).open("w", encoding="utf-8", newline="") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        _read_back(aside)
        if folder.exists():
            os.replace(folder, old)
        os.replace(aside, folder)
    finally:
        if old.exists() and not folder.exists():
            os.replace(old, folder)
        shutil.rmtree(aside, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
    return load_profile(folder)


def _read_back(aside: Path) -> None:
    """Raises what the loader says, without the name of a file that will not be there any more."""
    try:
        load_profile(aside)
    except ProfileError as problem:
        raise ProfileError(f"{problem.problem} (in the profile that would be written)", key=problem.key,
                           allowed=problem.allowed, suggestion=problem.suggestion) from None


def check_place(folder: Path, force: bool) -> None:
    """Whether a profile may be written there; called early where making one takes long.

    Raises:
        InputError: the folder exists, or holds something else.
    """
    if not (folder.exists() or folder.is_symlink()) or (folder.is_dir() and not any(folder.iterdir())):
        return
    if not folder.is_dir() or not (folder / FILE).is_file():
        raise InputError(f"{str(folder)!r} exists and is no profile", key="--out", allowed="a folder that does not "
                                                                                           "exist")
    strange = sorted(p.name for p in folder.iterdir() if p.suffix not in (".yaml", ".csv", ".jsonl"))
    if not force:
        raise InputError(f"{str(folder)!r} holds a profile already", key="--out",
                         allowed="a folder that does not exist, or --force to replace it")
    if strange:
        raise InputError(f"{str(folder)!r} also holds {shown(strange[0])}, which --force would delete", key="--out",
                         allowed="a folder that holds the profile only")
