"""Pictures of a run folder: the only place that imports matplotlib and seaborn.

Each picture is a function of what :class:`~dspark_sim.plots.data.RunData` read; it answers the question in its title
and says below it where the inputs come from. The child process of a run (:mod:`dspark_sim.report`) calls this.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dspark_sim.profile import HardwareProfile

__all__ = ["draw_profile", "draw_run"]


def draw_run(folder: Path, target: Path | None = None, missing: list[str] | None = None) -> list[Path]:
    """Draw every picture of a run folder; gives the files in the order of a report.

    A picture without data (no steps were recorded, say) is left out.

    Args:
        folder: of the run.
        target: where the pictures go; None for ``plots/`` in the folder.
        missing: gets a sentence for each trace that can no longer be read.
    """
    from dspark_sim.plots import arms, drafters, engine
    from dspark_sim.plots.data import RunData
    from dspark_sim.plots.style import save
    from dspark_sim.plots.tracedata import read_drafted

    data = RunData(folder)
    drafted, problems = read_drafted(data.manifest, {a: data.mean(a, "requests_decoding_mean") for a in data.arms})
    if missing is not None:
        missing += problems
    target = folder / "plots" if target is None else target
    target.mkdir(exist_ok=True)
    pictures: tuple[tuple[str, Callable[[], Figure | None]], ...] = (
        ("throughput", lambda: arms.throughput(data)), ("budget", lambda: arms.budget(data)),
        ("time", lambda: arms.time(data)), ("batch_tokens", lambda: engine.batch_tokens(data)),
        ("acceptance", lambda: arms.acceptance(data)), ("positions", lambda: drafters.positions(drafted, data.source)),
        ("drafters", lambda: drafters.lengths(drafted, data.source)), ("step_gap", lambda: engine.step_gap(data)),
        ("timeline", lambda: engine.timeline(data)),
    )
    out = []
    for name, draw in pictures:
        figure = draw()
        if figure is not None:
            out.append(save(figure, target / f"{name}.png"))
    return out


def draw_profile(profile: HardwareProfile, path: Path) -> Path:
    """Draw the staircase of a profile and its drafters' costs into one file (PNG, SVG or PDF)."""
    from dspark_sim.plots.profile import draw
    from dspark_sim.plots.style import save

    return save(draw(profile), path)
