"""The folder of a plan: ``plan.json``, ``plan.csv``, ``manifest.json``, pictures, and ``capacity.html``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dspark_sim.manifest import as_json

if TYPE_CHECKING:
    from dspark_sim.plan_results import PlanResults
    from dspark_sim.rundir import RunFolder

__all__ = ["FORMAT", "PLANS", "write_plan"]

FORMAT = "dspark-sim plan 1"
PLANS = "plans"


def write_plan(results: PlanResults, folder: RunFolder, *, command: Sequence[str] | None, plots: bool) -> str | None:
    """Write everything; a sentence if the pictures or the page could not be made.

    Args:
        results: of the plan.
        folder: under construction.
        command: argv, for the manifest and the page.
        plots: draw, and write the page.
    """
    folder.write("plan.json", results.to_json())
    folder.write("plan.csv", results.to_csv())
    folder.write("manifest.json", as_json({
        "format": FORMAT, "status": "interrupted" if results.interrupted else "failed" if results.failed
        else "finished", "command": None if command is None else list(command), **results.facts,
    }))
    if not plots:
        return None
    try:
        from dspark_sim.plots.plan import draw_plan
        from dspark_sim.report.capacity import render_capacity

        pictures = draw_plan(results, folder.path)
        folder.write("capacity.html", render_capacity(results, pictures, command))
    except KeyboardInterrupt:
        return "pictures were given up; the numbers are complete"
    return None
