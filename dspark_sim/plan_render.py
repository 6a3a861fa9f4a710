"""The plan on screen: the answer, one row per arm, and who wins in which world."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dspark_sim.plan_words import money, sla_words
from dspark_sim.render import bullet, shortened

if TYPE_CHECKING:
    from dspark_sim.plan_arm import Capacity
    from dspark_sim.plan_results import ArmPlan, PlanResults

__all__ = ["arm_table", "interval_text", "show", "world_cells"]

ARM_COLUMNS = (  # title, unit ("{load}", "{money}" are filled in)
    ("arm", ""), ("capacity", "{load} per unit"), ("requests/s", "per GPU"), ("output", "tok/s/GPU"),
    ("GPUs for", "the demand"), ("GPU-hours", "a day"), ("cost", "{money} a day"),
    ("cost", "{money} / M tokens"), ("free at", "the peak %"), ("limited by", ""),
)
_SERVES = ("capacity", "requests/s", "output", "limited by")  # first table on screen; the second: what the demand takes


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def interval_text(low: float | None, high: float | None, *, undecided: bool = False) -> str:
    """``6.9 – 7.9``: passes at the one, fails at the other."""
    if low is None and undecided:
        return "undecided" if high is None else f"undecided < {_number(high)}"
    if low is None:
        return "none"
    return f"{_number(low)} or more" if high is None else f"{_number(low)} – {_number(high)}"


def _twice(fixed: float | None, by_hour: float | None, shown: Callable[[float | None], str]) -> str:
    """A fleet that runs all day, and in brackets one that is switched off in quiet hours."""
    return shown(fixed) if fixed == by_hour else f"{shown(fixed)} ({shown(by_hour)})"


def arm_cells(arm: ArmPlan) -> list[str]:
    """The cells of :data:`ARM_COLUMNS`."""
    c, s = arm.capacity, arm.sizing
    per_gpu = [None if v is None else v / arm.gpus for v in c.requests_s]
    gpus = "–" if s.gpus is None else f"{s.gpus:,}" if s.gpus == s.gpus_best else f"{s.gpus_best:,} – {s.gpus:,}"
    limit = "failed" if arm.error is not None else "–" if arm.limit is None else (
        f"{arm.limit.name}, {arm.limit.resource}")
    hours = _twice(s.gpu_hours_day, s.gpu_hours_day_by_hour, _number)
    day = _twice(s.cost_day, s.cost_day_by_hour, lambda value: money(value, "").strip())
    million = "–" if s.cost_million is None else money(s.cost_million, "").strip()
    return [
        arm.arm, interval_text(c.low, c.high, undecided=c.open),
        interval_text(per_gpu[0], per_gpu[1], undecided=c.open),
        "–" if c.tok_s_gpu[0] is None else _number(c.tok_s_gpu[0]), gpus, hours, day, million,
        "–" if s.headroom is None else f"{100 * s.headroom:.0f}", limit,
    ]


def arm_table(found: PlanResults) -> tuple[list[tuple[str, str]], list[list[str]]]:
    """Header (title, unit) and rows of all arms, without columns that say nothing; the arm first, the limit last."""
    fill = {"load": found.axis.unit, "money": found.arms[0].price.currency}
    rows = [arm_cells(arm) for arm in found.arms]
    same = all(row[1] == row[2] for row in rows)  # one GPU under an open loop: load per unit is requests/s per GPU
    keep = [i for i in range(len(ARM_COLUMNS))
            if i in (0, 9) or (any(row[i] != "–" for row in rows) and not (same and i == 2))]
    header = [(ARM_COLUMNS[i][0], ARM_COLUMNS[i][1].format(**fill)) for i in keep]
    return header, [[row[i] for i in keep] for row in rows]


def world_cells(found: PlanResults) -> list[list[str]]:
    """Header and rows of the sensitivity: capacity per arm and world (the estimate), and the winner."""
    names = [arm.arm for arm in found.arms]
    rows = [["world", *names, "most capacity"]]
    for world in found.worlds:
        best = "none" if world.winner.arm is None else world.winner.arm
        if not world.winner.sure and world.winner.second:
            best += f" ≈ {world.winner.second}"
        rows.append([world.name, *(_estimate(world.capacities[n]) for n in names), best])
    return rows


def _estimate(capacity: Capacity) -> str:
    return _number(capacity.estimate) if capacity.estimate is not None else "?" if capacity.open else "none"


def _narrow(found: PlanResults) -> list[list[str]]:
    """:func:`world_cells` for a screen: the winner is a star in its cell, arms' names may take two lines."""
    head, *rows = world_cells(found)
    out = [[head[0], *(name.replace("-", "-\n", 1) if len(name) > 8 else name for name in head[1:-1])]]
    for world, row in zip(found.worlds, rows, strict=True):
        mark = "*" if world.winner.sure else "≈"
        stars = {world.winner.arm} if world.winner.sure else {world.winner.arm, world.winner.second}
        out.append([row[0], *(f"{cell} {mark if name in stars else ' '}"
                              for name, cell in zip(head[1:-1], row[1:-1], strict=True))])
    return out


def _grid(console: Console, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold cyan")
    for i, title in enumerate(header):
        words = i == 0 or title.startswith("limited by")
        table.add_column(Text(title), justify="left" if words else "right", no_wrap=console.width >= 60,
                         vertical="bottom")
    for row in rows:
        table.add_row(*(Text(cell, style="bold" if i == 0 else "") for i, cell in enumerate(row)))
    console.print(table)


def show(found: PlanResults, console: Console) -> None:
    """Print to ``console`` (stdout of the command line)."""
    console.print(Text.assemble((found.name, "bold"), f"  capacity plan, seed {found.seed}"
                                + (", quick" if found.quick else "")), highlight=False)
    for line in found.answer:
        console.print(Text(line))
    console.print()
    header, rows = arm_table(found)
    serves = [i for i, (title, _) in enumerate(header) if title in _SERVES]
    for part in (serves, [i for i in range(1, len(header)) if i not in serves]):
        if part:
            _grid(console, ["\n".join(t for t in header[i] if t) for i in (0, *part)],
                  [[row[i] for i in (0, *part)] for row in rows])
            console.print()
    promises = "; ".join(f"{name}: {sla_words(limits)}" for name, limits in found.promises.items())
    console.print(Text(f"low – high: {100 * found.target:g} % of every class's requests surely keep their SLA at "
                       f"low, surely do not at high ({promises}). Demand: {found.need.peak:.4g} {found.need.unit}, "
                       f"{found.need.source}. In brackets: switched off in quiet hours.", style="dim"))
    if found.worlds:
        console.print(Text(f"\nWhat if ({found.axis.unit} per unit, estimates; * serves most, ≈ which of the two does "
                           "is not settled)", style="bold"))
        head, *body = _narrow(found)
        _grid(console, head, body)
    breaks = [(arm.arm, what, even) for arm in found.arms for what, even in
              (("acceptance", arm.break_even_acceptance), ("load", arm.break_even_load)) if even is not None]
    if breaks:
        console.print(Text(f"\nWhere it stops paying against {found.arms[0].arm}", style="bold"))
        for name, what, even in breaks:
            unit = "" if what == "acceptance" else f" {found.axis.unit}"
            value = "" if even.value is None else f"{even.value:.3g}{unit}: "
            bullet(console, f"{name}, {what}: {value}{even.words}", "")
    if found.warnings:
        console.print(Text("\nWarnings", style="bold"))
        for line in found.warnings:
            bullet(console, line, "yellow")
    console.print(Text("\nWhat the figures rest on", style="bold"))
    for line in found.assumptions:
        bullet(console, shortened(line), "dim")
