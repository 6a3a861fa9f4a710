"""Pictures of a run folder: the only place that imports matplotlib and seaborn.

Each picture is a function of what :class:`~dspark_sim.plots.data.RunData` read; it answers the question in its title
and says below it where the inputs come from. The child process of a run (:mod:`dspark_sim.report`) calls this.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dspark_sim.plots.sweepdata import SweepData
    from dspark_sim.profile import HardwareProfile
    from dspark_sim.trace import AcceptanceTrace
    from dspark_sim.trace_calibrate import Report

__all__ = ["draw_profile", "draw_reliability", "draw_run", "draw_sweep", "draw_training"]


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
        ("acceptance", lambda: arms.acceptance(data)), ("seen", lambda: arms.seen(data)),
        ("positions", lambda: drafters.positions(drafted, data.source)),
        ("drafters", lambda: drafters.lengths(drafted, data.source)), ("step_gap", lambda: engine.step_gap(data)),
        ("timeline", lambda: engine.timeline(data)),
    )
    out = []
    for name, draw in pictures:
        figure = draw()
        if figure is not None:
            out.append(save(figure, target / f"{name}.png"))
    return out


MAX_FACETS = 6


def draw_sweep(
    data: SweepData, target: Path, baseline: str, missing: list[str] | None = None
) -> list[Path]:
    """Draw a sweep: frontier, load and time for each combination of the grid keys that are not the axis.

    Args:
        data: of the sweep.
        target: the folder for the pictures.
        baseline: the arm whose collapse is marked.
        missing: gets sentences on what is not drawn.
    """
    from dspark_sim.plots import frontier
    from dspark_sim.plots.style import save

    target.mkdir(exist_ok=True)
    out = []
    for number, facet in enumerate(data.facets[:MAX_FACETS], 1):
        mark = "" if len(data.facets) == 1 else f"-{number}"
        for name in ("frontier", "load", "time_by_load"):
            figure = getattr(frontier, name)(data, facet, baseline)
            if figure is not None:
                out.append(save(figure, target / f"{name}{mark}.png"))
    if missing is not None:
        if data.axis is None:
            missing.append("No curves: no key of the grid has numbers as its values.")
        elif not data.is_load:
            missing.append(f"No frontier: {data.axis} is not a load, so equal speed or equal throughput mean nothing.")
        if len(data.facets) > MAX_FACETS:
            missing.append(f"Pictures of the first {MAX_FACETS} of {len(data.facets)} combinations of the other keys; "
                           "the tables hold all of them.")
    return out


def draw_profile(profile: HardwareProfile, path: Path) -> Path:
    """Draw the staircase of a profile and its drafters' costs into one file (PNG, SVG or PDF)."""
    from dspark_sim.plots.profile import draw
    from dspark_sim.plots.style import save

    return save(draw(profile), path)


def draw_reliability(trace: AcceptanceTrace, report: Report, path: Path) -> Path:
    """Draw a calibration, before and after, into one file (PNG, SVG or PDF)."""
    from dspark_sim.plots.reliability import draw
    from dspark_sim.plots.style import save

    return save(draw(trace, report), path)


def draw_training(logs: Mapping[str, Sequence[Any]], path: Path, source: str = "") -> Path:
    """Draw the training curves of some drafters (name -> log) into one file (PNG, SVG or PDF)."""
    from dspark_sim.plots.style import save
    from dspark_sim.plots.training import draw

    return save(draw(logs, source), path)
