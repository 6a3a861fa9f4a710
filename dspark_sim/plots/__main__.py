"""The drawing child of a run: imports its libraries while the run computes, then draws the folder named on stdin."""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> int:
    """0: drawn, or not wanted after all; 1: the last line of stderr says why not."""
    from dspark_sim.plots import arms, engine  # noqa: F401  the slow part, while the parent simulates

    folder = sys.stdin.readline().strip()
    if not folder:
        return 0
    from dspark_sim.plots import draw_run
    from dspark_sim.plots.validation import draw_validation

    try:
        (draw_validation if (Path(folder) / "validation.json").is_file() else draw_run)(Path(folder))
    except Exception as problem:
        print(f"{type(problem).__name__}: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
