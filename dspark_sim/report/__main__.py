"""The drawing child of a run: imports its libraries while the run computes, then draws the folder named on stdin and
writes its report; or reports a sweep, or draws what a validation wrote."""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> int:
    """0: drawn, or not wanted after all; 1: the last line of stderr says why not."""
    import jinja2  # noqa: F401  the slow part, while the parent simulates

    from dspark_sim.plots import arms, engine  # noqa: F401

    name = sys.stdin.readline().strip()
    if not name:
        return 0
    try:
        _draw(Path(name))
    except Exception as problem:
        print(f"{type(problem).__name__}: {problem}", file=sys.stderr)
        return 1
    return 0


def _draw(folder: Path) -> None:
    from dspark_sim.plots import draw_run
    from dspark_sim.plots.validation import draw_validation
    from dspark_sim.report import write_report

    if (folder / "validation.json").is_file():
        draw_validation(folder)
        return
    if (folder / "live.json").is_file():
        from dspark_sim.plots.live import draw_live

        draw_live(folder)
        return
    if (folder / "aggregate.parquet").is_file():
        write_report(folder)
        return
    missing: list[str] = []
    write_report(folder, drawn=(draw_run(folder, missing=missing), missing))


if __name__ == "__main__":
    sys.exit(main())
