"""The comparison on screen: one row per arm, split into as many stacked tables as the terminal's width asks for."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from dspark_sim.results import ArmResult, Results
    from dspark_sim.stats import Figure

__all__ = ["as_text", "bullet", "shortened", "show"]

_PADDING = 2  # blanks between two columns


@dataclass(frozen=True)
class _Column:
    title: tuple[str, str]
    cell: Callable[[ArmResult], Text]
    left: bool = False
    wanted: Callable[[Sequence[ArmResult]], bool] = lambda arms: True


def _figure(name: str, digits: int = 1, scale: float = 1.0) -> Callable[[ArmResult], Text]:
    def cell(arm: ArmResult) -> Text:
        figure: Figure = arm.figures[name]
        if figure.mean is None:
            return Text("–", style="dim")
        places = 0 if abs(figure.mean * scale) >= 1000 else digits
        text = Text(f"{figure.mean * scale:,.{places}f}")
        if figure.half_width is not None:
            text.append(f" ±{figure.half_width * scale:,.{places}f}", style="dim")
        return text

    return cell


def _difference(arm: ArmResult) -> Text:
    figure = arm.figures["throughput_vs_first_pct"]
    if figure.mean is None:
        return Text("–", style="dim")
    if figure.half_width == 0.0 and figure.mean == 0.0:
        return Text("first arm", style="dim")
    sure = figure.ci95_low is not None and figure.ci95_high is not None and not figure.ci95_low <= 0 <= figure.ci95_high
    text = Text(f"{figure.mean:+.1f} %", style=("green" if figure.mean > 0 else "red") if sure else "")
    if figure.half_width is not None:
        text.append(f" ±{figure.half_width:.1f}", style="dim")
    return text


def _policy(arm: ArmResult) -> Text:
    inside = ", ".join(f"{k}={v}" for k, v in arm.parameters.items())
    return Text(f"{arm.policy}({inside})" if inside else arm.policy)


def _lossless(arm: ArmResult) -> Text:
    return Text("yes") if arm.lossless else Text("NO", style="bold yellow")


def _whole(name: str) -> Callable[[ArmResult], Text]:
    def cell(arm: ArmResult) -> Text:
        value = getattr(arm, name)
        return Text("–", style="dim") if value is None else Text(f"{value:,}")

    return cell


def _queued_or_prefilled(arms: Sequence[ArmResult]) -> bool:
    """Without prefill and without a queue the first token is there at once, and TTFT has nothing to say."""
    return any((arm.figures["ttft_ms_p99"].mean or 0.0) > 0.0 for arm in arms)


COLUMNS = (
    _Column(("policy", ""), _policy, left=True),
    _Column(("drafter", ""), lambda a: Text(a.drafter) if a.drafter else Text("none", style="dim"), left=True),
    _Column(("loss-", "less"), _lossless, left=True),
    _Column(("throughput", "tok/s/GPU"), _figure("throughput_tok_s_gpu")),
    _Column(("against first", "arm, paired"), _difference),
    _Column(("TPS/user", "mean"), _figure("tps_user_mean")),
    _Column(("TPS/user", "p50"), _figure("tps_user_p50")),
    _Column(("TPS/user", "p5"), _figure("tps_user_p5")),
    _Column(("TPS/user", "concurrent"), _figure("tps_user_concurrent")),
    _Column(("TPOT p50", "ms"), _figure("tpot_ms_p50", 2)),
    _Column(("TPOT p99", "ms"), _figure("tpot_ms_p99", 2)),
    _Column(("step gap", "p99 ms"), _figure("step_gap_ms_p99", 1)),
    _Column(("TTFT p50", "ms"), _figure("ttft_ms_p50", 1), wanted=_queued_or_prefilled),
    _Column(("TTFT p99", "ms"), _figure("ttft_ms_p99", 1), wanted=_queued_or_prefilled),
    _Column(("acceptance", "length"), _figure("acceptance_length", 2)),
    _Column(("verify", "budget"), _figure("verification_budget", 2)),
    _Column(("accepted /", "verified %"), _figure("acceptance_rate", 1, 100)),
    _Column(("accepted /", "drafted %"), _figure("accepted_per_drafted", 1, 100)),
    _Column(("wasted", "%"), _figure("wasted_share", 1, 100)),
    _Column(("SLA met", "%"), _figure("sla_attainment", 1, 100)),
    _Column(("goodput", "tok/s/GPU"), _figure("goodput_tok_s_gpu")),
    _Column(("steps", ""), _whole("steps")),
    _Column(("requests", ""), _whole("requests")),
)
_OPEN_FIRST = ("SLA met", "goodput", "TTFT p50", "TTFT p99", "TPOT p50", "TPOT p99")  # what an open loop is about
_ARM = _Column(("arm", ""), lambda a: Text(a.arm, style="bold" if a.error is None else "bold red"), left=True)


def _ordered(open_loop: bool) -> list[_Column]:
    """Who an arm is, then its columns; in an open loop those of users first, for throughput is the traffic's own."""
    if not open_loop:
        return list(COLUMNS)
    who = [c for c in COLUMNS if c.left or c.title[0] == "loss-"]
    first = [c for title in _OPEN_FIRST for c in COLUMNS if c.title[0] == title]
    return [*who, *first, *(c for c in COLUMNS if c not in who and c not in first)]


def _pack(arms: Sequence[ArmResult], width: int, open_loop: bool) -> list[list[_Column]]:
    """Columns in their order, cut into tables that fit: each begins with the arm's name."""

    def size(column: _Column) -> int:
        return max([len(t) for t in column.title] + [column.cell(a).cell_len for a in arms]) + _PADDING

    tables: list[list[_Column]] = []
    room = -1
    for column in (c for c in _ordered(open_loop) if c.wanted(arms)):
        if size(column) > room:
            tables.append([_ARM])
            room = width - size(_ARM) + _PADDING
        tables[-1].append(column)
        room -= size(column)
    return tables


def show(results: Results, console: Console) -> None:
    """Print tables, failures, warnings and assumptions to ``console`` (stdout of the command line)."""
    ran = f"{results.replications} replication{'s' if results.replications != 1 else ''}, seed {results.seed}"
    console.print(Text.assemble((results.name, "bold"), f"  {ran}; ± is half of the 95 % interval"
                                if results.replications > 1 else f"  {ran}"), highlight=False)
    for columns in _pack(results.arms, console.width, results.open_loop):
        table = Table(box=None, pad_edge=False, padding=(0, _PADDING, 0, 0), show_header=True, header_style="bold cyan")
        for column in columns:
            table.add_column(Text("\n".join(t for t in column.title if t)), justify="left" if column.left else "right",
                             no_wrap=console.width >= 60, vertical="bottom")
        for arm in results.arms:
            table.add_row(*(column.cell(arm) for column in columns))
        console.print()
        console.print(table)
    if results.warnings:
        console.print(Text("\nWarnings", style="bold"))
        for line in results.warnings:
            bullet(console, line, "yellow")
    if results.assumptions:
        short = [shortened(line) for line in results.assumptions]
        console.print(Text("\nWhat the figures rest on", style="bold").append(
            " (in full: manifest.json, profile show, trace show)" if any(s.endswith("…") for s in short) else "",
            style="not bold dim"))
        for line in short:
            bullet(console, line, "dim")


def shortened(line: str, limit: int = 200) -> str:
    """Whole sentences up to ``limit`` characters, one at least; "…" says that there is more."""
    sentences = re.split(r"(?<=[.;]) ", line)
    text = sentences[0]
    for sentence in sentences[1:]:
        if len(text) + len(sentence) + 1 > limit:
            break
        text += f" {sentence}"
    if len(text) > 2 * limit:
        text = text[: 2 * limit].rpartition(" ")[0]
    return text if text == line else f"{text.rstrip(';')} …"


def bullet(console: Console, line: str, style: str) -> None:
    """A sentence behind a dash, folded under itself."""
    grid = Table.grid(padding=0)
    grid.add_column(width=2)
    grid.add_column(overflow="fold")
    grid.add_row("- ", Text(line, style=style))
    console.print(grid)


def as_text(results: Results, width: int) -> str:
    """What :func:`show` prints, without colour, at most ``width`` columns wide."""
    out = io.StringIO()
    show(results, Console(file=out, width=width, no_color=True, highlight=False, force_terminal=False))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"
