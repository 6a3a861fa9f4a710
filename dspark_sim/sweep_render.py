"""A sweep on screen: a row per grid point and arm, then what to doubt and where the inputs come from."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from dspark_sim.render import bullet, shortened
from dspark_sim.sweep_folder import shared_warnings
from dspark_sim.sweep_grid import short_names, where, word

if TYPE_CHECKING:
    from rich.console import Console

    from dspark_sim.sweeper import SweepResults

__all__ = ["show"]

MAX_ROWS = 200
MAX_WARNINGS = 10
_PADDING = 2

Row = Mapping[str, Any]
_COLUMNS: tuple[tuple[str, str, int], ...] = (  # title, figure, decimals
    ("tok/s/GPU", "throughput_tok_s_gpu", 1), ("vs first", "throughput_vs_first_pct", 1),
    ("TPS/user", "tps_user_mean", 1), ("TPOT p99 ms", "tpot_ms_p99", 2), ("TTFT p99 ms", "ttft_ms_p99", 1),
    ("accept len", "acceptance_length", 2), ("budget", "verification_budget", 2), ("SLA met %", "sla_attainment", 1),
    ("goodput", "goodput_tok_s_gpu", 1),
)
_SCALE = {"sla_attainment": 100.0}
_OPTIONAL = ("sla_attainment", "goodput_tok_s_gpu", "ttft_ms_p99")  # shown where some row has something to say


def show(results: SweepResults, console: Console) -> None:
    """Print the table, warnings and assumptions."""
    rows: list[Row] = results.aggregate_table.to_pylist()
    axes = short_names(results.definition.axes)
    chosen = [c for c in _COLUMNS if c[1] not in _OPTIONAL or any(row.get(c[1]) for row in rows)]
    columns = [_Column(name, [Text(word(row[key])) for row in rows]) for key, name in axes.items()]
    columns.append(_Column("arm", [Text(row["arm"], style="" if row["error"] is None else "bold red") for row in rows],
                           left=True))
    room = console.width - sum(c.width for c in columns)
    fitting = []
    for title, name, digits in chosen:  # the first that do not fit, and all after them, stay in the file
        column = _Column(title, [_figure(row, name, digits) for row in rows])
        room -= column.width
        if room < -_PADDING:
            break
        fitting.append(column)
    table = Table(box=None, pad_edge=False, padding=(0, _PADDING, 0, 0), header_style="bold cyan")
    for column in (*columns, *fitting):
        table.add_column(Text(column.title), justify="left" if column.left else "right", no_wrap=True)
    for cells in itertools.islice(zip(*(c.cells for c in (*columns, *fitting)), strict=True), MAX_ROWS):
        table.add_row(*cells)
    console.print(_title(results))
    console.print()
    console.print(table)
    if len(fitting) < len(chosen):
        console.print(Text("… more columns: aggregate.csv, or a wider terminal", style="dim"))
    if len(rows) > MAX_ROWS:
        console.print(Text(f"… and {len(rows) - MAX_ROWS} more rows, in {results.folder / 'aggregate.csv'}"))
    _sentences(results, console)


@dataclass(frozen=True)
class _Column:
    title: str
    cells: Sequence[Text]
    left: bool = False

    @property
    def width(self) -> int:
        return max([len(self.title)] + [cell.cell_len for cell in self.cells]) + _PADDING


def _title(results: SweepResults) -> Text:
    first, points = results.points[0].scenario, len(results.points)
    words = f"  {points} grid point{'s' if points > 1 else ''}, {first.replications} replication"
    words += f"{'s' if first.replications > 1 else ''}, seed {first.seed}"
    more = "; ± is half of the 95 % interval" if first.replications > 1 else ""
    return Text.assemble((first.name, "bold"), words + more)


def _figure(row: Row, name: str, digits: int) -> Text:
    mean = row.get(name)
    if mean is None:
        return Text("–", style="dim")
    scale = _SCALE.get(name, 1.0)
    low, high = row.get(f"{name}_ci95_low"), row.get(f"{name}_ci95_high")
    half = (high - low) / 2 if low is not None and high is not None else None
    versus = name.endswith("_pct")
    if versus and mean == 0.0 and half == 0.0:
        return Text("first arm", style="dim")
    places = 0 if abs(mean * scale) >= 1000 else digits
    text = Text(f"{mean * scale:{'+' if versus else ''},.{places}f}" + (" %" if versus else ""))
    if versus and half is not None and abs(mean) > half:  # the interval does not reach 0
        text.stylize("green" if mean > 0 else "red")
    if half is not None:
        text.append(f" ±{half * scale:,.{places}f}", style="dim")
    return text


def _sentences(results: SweepResults, console: Console) -> None:
    everywhere, apart = shared_warnings(results.results)
    lines = [*everywhere, *(f"{where(point.values)}: {w}" for point, own in zip(results.points, apart, strict=True)
                            for w in own)]
    if lines:
        console.print(Text("\nWarnings", style="bold"))
    for line in lines[:MAX_WARNINGS]:
        bullet(console, line, "yellow")
    if len(lines) > MAX_WARNINGS:
        bullet(console, f"… and {len(lines) - MAX_WARNINGS} more, in manifest.json", "yellow")
    rests = list(dict.fromkeys(a for r in results.results for a in r.assumptions))
    if rests:
        console.print(Text("\nWhat the figures rest on", style="bold"))
    for line in rests:
        bullet(console, shortened(line), "dim")
