"""The capacity report: one HTML file to read on screen or on paper, without knowing the simulator."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dspark_sim.plan_render import arm_table, world_cells
from dspark_sim.plan_words import money, sla_words
from dspark_sim.report.inputs import inputs_of
from dspark_sim.report.page import TEMPLATES, Picture

if TYPE_CHECKING:
    from dspark_sim.plan_results import PlanResults

__all__ = ["render_capacity"]

WORDS = (
    ("arm", "one way to serve: a drafter that proposes tokens, and a rule for how many of them the model checks"),
    ("unit", "what the simulation holds: one engine on its GPUs, or the cluster as the scenario describes it"),
    ("low – high", "at the lower load enough requests surely keep their SLA, at the higher one surely too few do"),
    ("SLA", "what a user was promised; a request keeps it when it keeps every limit"),
    ("TTFT", "time from the request to the first token of the answer"),
    ("TPS", "tokens per second that one user receives after the first token"),
    ("TPOT", "time per token after the first: 1 / TPS"),
    ("E2E", "time from the request to the last token"),
    ("goodput", "tokens per second and GPU of the requests that kept their SLA"),
    ("N + 1", "one unit more than the demand needs, so that one may fail"),
    ("free at the peak", "share of the fleet's capacity that the busiest hour leaves unused, spare unit not counted"),
    ("acceptance", "share of the drafter's tokens that the model keeps, given that the ones before were kept"),
)
CAPTIONS = {
    "goodput": "Left: what each GPU delivers to users who get what they were promised. It rises with the load until "
               "the promise breaks. Right: the share of requests that keep it.",
    "cost": "Fewer GPUs are better. The black line is the range that the uncertainty of the capacity leaves.",
    "worlds": "Each row asks the same question with one input changed. Marks far apart from their neighbours in the "
              "same row are a sure difference; overlapping lines are not.",
}


def _hours(found: PlanResults) -> list[dict[str, Any]]:
    """Rows of the 24-hour table; empty for a flat demand."""
    if found.need.flat:
        return []
    return [{"hour": f"{h:02d}", "load": f"{found.need.peak * share:,.4g}",
             "gpus": [f"{a.sizing.hourly_units[h] * a.gpus:,}" if a.sizing.hourly_units else "–" for a in found.arms]}
            for h, share in enumerate(found.need.hours)]


def _breaks(found: PlanResults) -> list[dict[str, str]]:
    rows = []
    for arm in found.arms:
        for what, even, unit in (("acceptance", arm.break_even_acceptance, ""),
                                 ("load", arm.break_even_load, f" {found.axis.unit}")):
            if even is not None:
                value = "–" if even.value is None else f"{even.value:.3g}{unit}"
                rows.append({"arm": arm.arm, "what": what, "value": value, "words": even.words})
    return rows


def render_capacity(found: PlanResults, pictures: Sequence[Path], command: Sequence[str] | None) -> str:
    """HTML text that needs no network.

    Args:
        found: the plan.
        pictures: PNG files by :func:`dspark_sim.plots.plan.draw_plan`; they are put inside.
        command: argv of the command line, None from Python.
    """
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )
    price = next((arm.price for arm in found.arms), None)
    columns, rows = arm_table(found)
    best = None if found.winner.arm is None else found[found.winner.arm]
    shown = {path.stem: Picture(path.stem, path.read_bytes(), CAPTIONS.get(path.stem, ""), CAPTIONS.get(path.stem, ""))
             for path in pictures}
    head, *body = world_cells(found) if found.worlds else [[]]
    return environment.get_template("capacity.html").render(
        p=found, best=best, pictures=shown, words=WORDS, hours=_hours(found), breaks=_breaks(found),
        columns=columns, rows=rows, world_head=head, worlds=body, money=money,
        promises=[(name, sla_words(limits)) for name, limits in found.promises.items()],
        inputs=inputs_of({**found.facts, "arms": ()}), price=price,
        command=None if command is None else shlex.join(["dspark-sim", *command[1:]]),
        versions=found.facts.get("packages", {}),
    )
