"""The code blocks of a Markdown page: find them, run them, compare or renew what the page says they print.

Used by ``tools/refresh_docs.py`` (writes the page anew) and ``tests/test_readme.py`` (checks it). All blocks of a page
run in order in one empty folder, so that a later one finds the files of an earlier one. An HTML comment on the line
before a block says what is special about it:

* ``<!-- file: NAME -->``: the block is not run, it is the content of that file in the folder.
* ``<!-- skip: WHY -->``: the block is not run.
* ``<!-- slow: COMMAND -->``: too slow for tests, which run COMMAND instead and compare the shape of its output.

A ``text`` block right after a ``bash`` or ``python`` block is what that block prints. ``<!-- image: TO from FROM -->``
takes a picture from the folder into the repository. ``<!-- generated: NAME -->`` … ``<!-- end -->`` is written by
``refresh_docs``.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

__all__ = [
    "Block", "blocks", "differences", "furnish", "images", "linked_images", "place", "replaced", "run", "shape",
]

ROOT = Path(__file__).resolve().parent.parent
RUN = ("bash", "python")
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_MARK = re.compile(r"<!-- (file|skip|slow): (.+?) -->\n$")
_IMAGE = re.compile(r"<!-- image: (\S+) from (\S+) -->")
_NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")


@dataclass
class Block:
    """One fenced block. ``marks``: the comment before it; ``output``: the block that shows what it prints."""

    language: str
    text: str
    line: int
    span: tuple[int, int]  # of the text, in the page
    marks: dict[str, str] = field(default_factory=dict)
    output: Block | None = None

    @property
    def runs(self) -> bool:
        """Whether it is a command or program that is executed as it stands."""
        return self.language in RUN and not self.marks


def blocks(page: str) -> list[Block]:
    """All fenced blocks of a page, outputs joined to what prints them (and not listed themselves)."""
    found: list[Block] = []
    end = 0
    for match in _FENCE.finditer(page):
        block = Block(match[1], match[2], page.count("\n", 0, match.start()) + 1, match.span(2))
        mark = _MARK.search(page, 0, match.start())
        if mark:
            block.marks[mark[1]] = mark[2]
        between = page[end : match.start()]
        if block.language == "text" and found and found[-1].language in RUN and not between.strip():
            found[-1].output = block
        else:
            found.append(block)
        end = match.end()
    return found


def images(page: str) -> list[tuple[str, str]]:
    """(place in the repository, file in the folder) of every picture that a page's blocks make."""
    return [(m[1], m[2]) for m in _IMAGE.finditer(page)]


def linked_images(page: str) -> list[str]:
    """The targets of all ``![…](…)``."""
    return re.findall(r"!\[[^\]]*\]\(([^)\s]+)", page)


def run(block: Block, folder: Path, *, command: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run a block (or ``command`` instead of it) in ``folder``, with this Python's programs first on the path."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    environment = os.environ | {
        "PATH": path, "COLUMNS": "80", "NO_COLOR": "1", "PYTHONUTF8": "1", "TERM": "dumb", "REPOSITORY": str(ROOT),
    }
    if command is None and block.language == "python":
        argv = [sys.executable, "-c", block.text]
    else:
        argv = ["bash", "-euo", "pipefail", "-c", block.text if command is None else command]
    return subprocess.run(argv, cwd=folder, env=environment, capture_output=True, text=True, timeout=900)


def furnish(folder: Path) -> None:
    """Put what commands of a page refer to into the folder: the checkout's tools."""
    (folder / "tools").symlink_to(ROOT / "tools")


def place(block: Block, folder: Path) -> None:
    """Write a ``file:`` block into the folder."""
    path = folder / block.marks["file"]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(block.text, encoding="utf-8")


def shape(text: str) -> list[str]:
    """Lines with numbers masked and spaces squeezed; empty lines dropped."""
    lines = (" ".join(_NUMBER.sub("#", line).split()) for line in text.splitlines())
    return [line for line in lines if line]


def _numbers(text: str) -> list[float]:
    """All numbers but half-widths (after ±), which say little when another machine rounds differently."""
    plain = re.sub(r"±\s*[\d.,]+", "±", text)
    return [float(m[0].replace(",", "")) for m in _NUMBER.finditer(plain)]


def differences(shown: str, printed: str, tolerance: float | None = 0.03) -> list[str]:
    """What distinguishes the output on a page from a real one; empty when it is the same.

    Args:
        shown: on the page.
        printed: just now.
        tolerance: relative, for every number; None compares shapes only.
    """
    a, b = shape(shown), shape(printed)
    if a != b:
        missing, new = [x for x in a if x not in b], [x for x in b if x not in a]
        return [f"shown but not printed: {x}" for x in missing] + [f"printed but not shown: {x}" for x in new] or [
            "the same lines in another order"
        ]
    if tolerance is None:
        return []
    pairs = zip(_numbers(shown), _numbers(printed), strict=True)
    return [f"shown {x:g}, printed {y:g}" for x, y in pairs if abs(x - y) > tolerance * max(abs(x), abs(y)) + 0.1]


def replaced(page: str, block: Block, text: str) -> str:
    """The page with another text in ``block`` (spans of later blocks are then wrong: replace from the end)."""
    start, end = block.span
    return page[:start] + text.rstrip("\n") + "\n" + page[end:]
