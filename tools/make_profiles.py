"""Make the shipped hardware profiles again.

    python tools/make_profiles.py                 # from the source tables that lie beside each profile
    python tools/make_profiles.py DATA            # first take the source tables from a data folder
    python tools/make_profiles.py --into FOLDER   # write elsewhere (with copies of the source tables)

The result is the same, byte for byte, each time.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
from profiles import b300_flash, b300_pro, h20, paper, rtx5090, synthetic

SHELF = Path(__file__).resolve().parent.parent / "hardware_profiles"
MARK = "<!-- below: written by tools/make_profiles.py -->"
MAKERS: list[Any] = [b300_flash, b300_pro, h20, *paper.MAKERS, rtx5090, synthetic]


def make(shelf: Path, data: Path | None = None) -> None:
    """Write every profile into ``shelf``; its source tables must be there unless ``data`` is given."""
    for maker in MAKERS:
        (shelf / maker.NAME).mkdir(parents=True, exist_ok=True)
        if data is not None:
            maker.extract(data, shelf / maker.NAME)
    checks = {maker.NAME: maker.build(shelf / maker.NAME) for maker in MAKERS}
    readme = shelf / "README.md"
    if readme.is_file():
        text = readme.read_text(encoding="utf-8").partition(MARK)[0]
        parts = [f"### {name}\n\n{check}" for name, check in checks.items() if check]
        readme.write_text(text + MARK + "\n\n" + "\n".join(parts), encoding="utf-8", newline="\n")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", nargs="?", type=Path, help="folder with field_cases.json and paper/")
    parser.add_argument("--into", type=Path, default=SHELF, help="where to write (default: the shelf)")
    args = parser.parse_args()
    if args.into != SHELF:
        shutil.copytree(SHELF, args.into, dirs_exist_ok=True)
    make(args.into, args.data)


if __name__ == "__main__":
    main()
