"""Pictures of a run folder: the only place that imports matplotlib and seaborn.

Each picture is a function of what :class:`~dspark_sim.plots.data.RunData` read; it answers the question in its title
and says below it where the inputs come from. ``python -m dspark_sim.plots`` is the child process of a run.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dspark_sim.profile import HardwareProfile

__all__ = ["draw_profile", "draw_run"]


def draw_run(folder: Path) -> list[Path]:
    """Draw every picture of a run folder into its ``plots/``; gives the files.

    A picture without data (no steps were recorded, say) is left out.
    """
    from dspark_sim.plots import arms, engine
    from dspark_sim.plots.data import RunData
    from dspark_sim.plots.style import save

    data = RunData(folder)
    target = folder / "plots"
    target.mkdir(exist_ok=True)
    out = []
    for name, draw in (
        ("throughput", arms.throughput), ("budget", arms.budget), ("time", arms.time), ("acceptance", arms.acceptance),
        ("batch_tokens", engine.batch_tokens), ("step_gap", engine.step_gap), ("timeline", engine.timeline),
    ):
        figure = draw(data)
        if figure is not None:
            out.append(save(figure, target / f"{name}.png"))
    return out


def draw_profile(profile: HardwareProfile, path: Path) -> Path:
    """Draw the staircase of a profile and its drafters' costs into one file (PNG, SVG or PDF)."""
    from dspark_sim.plots.profile import draw
    from dspark_sim.plots.style import save

    return save(draw(profile), path)
