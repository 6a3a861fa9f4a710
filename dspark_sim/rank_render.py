"""A ranking as a table on screen, Markdown for a paper, JSON or CSV."""

from __future__ import annotations

import csv
import io
import json
import re
from typing import TYPE_CHECKING, Any

from dspark_sim.rank_define import AS_IS, BELIEFS, CONDITIONS, Cell
from dspark_sim.rank_results import Entry, Ranking
from dspark_sim.render import bullet
from dspark_sim.stats import Figure

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["as_csv", "as_json", "as_markdown", "rows", "show"]

METRICS = {"throughput_tok_s_gpu": "tokens/s/GPU", "tps_user_mean": "tokens/s of a user"}
UNSET = "–"
_FOLD = re.compile(r"(over|under|^\S+ )(?=confident|[-+]\d)")  # overconfident*, steps -20 %*


def rows(ranking: Ranking) -> list[dict[str, Any]]:
    """One flat record per contestant (the bound last) and cell; None: undefined."""
    out = []
    for cell in ranking.cells:
        for label in [*(c.label for c in ranking.contestants), ranking.bound]:
            score = ranking.scores[cell, label]
            if not score.values and score.error is None:
                continue  # not run: interrupted, or the condition has no meaning for it
            known = [v for v in score.values if v is not None]
            change, regret = ranking.change(cell, label), ranking.regret(cell, label)
            out.append({
                "scenario": cell.scenario, "load": cell.load, "condition": cell.condition, "policy": label,
                "metric": ranking.metrics[cell], "value": sum(known) / len(known) if known else None,
                "change_pct": change.mean, "change_pct_ci95_low": change.ci95_low,
                "change_pct_ci95_high": change.ci95_high, "verdict": ranking.verdict(cell, label),
                "regret_pct": regret.mean, "regret_pct_ci95_low": regret.ci95_low,
                "regret_pct_ci95_high": regret.ci95_high, "verification_budget": score.budget,
                "decision_us": score.microseconds, "error": score.error,
            })
    return out


def as_csv(ranking: Ranking) -> str:
    """:func:`rows`, one line each."""
    records, text = rows(ranking), io.StringIO()
    writer = csv.DictWriter(text, list(records[0]) if records else ["scenario"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue()


def as_json(ranking: Ranking) -> str:
    """Leaderboard, cells and notes."""
    data = {
        "baseline": ranking.baseline, "replications": ranking.replications, "interrupted": ranking.interrupted,
        "drafters": dict(ranking.drafters), "conditions": {c: CONDITIONS[c] for c in ranking.conditions},
        "leaderboard": [
            {"policy": e.contestant, "lossless": e.lossless, "change_pct": e.change.to_dict(), "wins": e.wins,
             "ties": e.ties, "losses": e.losses, "regret_pct": e.regret.to_dict(), "decision_us": e.microseconds,
             "conditions_pct": {name: f.to_dict() for name, f in e.conditions.items()}, "cells": e.cells,
             "errors": list(e.errors)}
            for e in ranking.entries()
        ],
        "cells": rows(ranking), "notes": list(ranking.notes),
    }
    return json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _columns(ranking: Ranking) -> list[str]:
    return ["policy", "lossless", f"vs {ranking.baseline}, %", "W / T / L", "regret, %", "µs"]


def _line(ranking: Ranking, entry: Entry) -> list[str]:
    baseline = entry.contestant == ranking.baseline
    return [
        entry.contestant, "yes" if entry.lossless else "NO",
        "baseline" if baseline else _percent(entry.change, sign=True),
        UNSET if baseline else f"{entry.wins} / {entry.ties} / {entry.losses}", _percent(entry.regret),
        UNSET if entry.microseconds is None else f"{entry.microseconds:.0f}",
    ]


def _tables(ranking: Ranking) -> list[tuple[list[str], list[list[str]]]]:
    """(header, lines) of the leaderboard, and of the conditions if there are any."""
    entries = ranking.entries()
    tables = [(_columns(ranking), [_line(ranking, entry) for entry in entries])]
    if ranking.conditions:
        header = ["policy", *(f"{name}*" if name in BELIEFS else name for name in ranking.conditions)]
        tables.append((header, [
            [e.contestant, *(_percent(e.conditions[name], sign=True) for name in ranking.conditions)] for e in entries
        ]))
    return tables


def _percent(figure: Figure, *, sign: bool = False) -> str:
    if figure.mean is None:
        return UNSET
    half = "" if figure.half_width is None else f" ±{figure.half_width:.2f}"
    return f"{figure.mean:{'+' if sign else ''}.2f}{half}"


def legend(ranking: Ranking) -> list[str]:
    """What the columns mean."""
    cells = [c for c in ranking.cells if c.condition == AS_IS]
    lines = [
        f"{len(cells)} cells (scenario × load), {ranking.replications} replications each; intervals are 95 %, paired. "
        f"vs {ranking.baseline}: geometric mean over cells. W / T / L: cells whose interval lies above, around or "
        "below 0. regret: per cent below the clairvoyant one-step bound (negative: above it). µs: CPU time per "
        "decision at the highest load, with the views it asks and about 2 µs of the clock's own.",
        "compared: " + ", ".join(dict.fromkeys(METRICS[ranking.metrics[c]] for c in ranking.cells)),
    ]
    for name in ranking.conditions:
        against = "against itself with right beliefs" if name in BELIEFS else f"against {ranking.baseline} there"
        lines.append(f"{name}{'*' if name in BELIEFS else ''}: {CONDITIONS[name]}; {against}")
    return lines + list(ranking.notes)


def failures(ranking: Ranking) -> list[str]:
    """One sentence per contestant and reason."""
    return [f"{e.contestant}: {error}" for e in ranking.entries() for error in e.errors]


def _cell_name(cell: Cell) -> str:
    return cell.scenario if cell.load is None else f"{cell.scenario} @ {cell.load:g}"


def as_markdown(ranking: Ranking) -> str:
    """The leaderboard, the cells as they are, and what they mean."""
    lines: list[str] = []
    for header, body in _tables(ranking):
        lines += [_row(header), _row(["---"] * len(header)), *map(_row, body), ""]
    lines += [f"{text}\n" for text in legend(ranking)]
    cells = [c for c in ranking.cells if c.condition == AS_IS]
    order = [e.contestant for e in ranking.entries() if e.contestant != ranking.baseline]
    if any(ranking.of(c, ranking.bound) for c in cells):
        order.append(ranking.bound)
    lines += [_row(["cell", ranking.baseline, *order]), _row(["---"] * (len(order) + 2))]
    for cell in cells:
        known = [v for v in ranking.of(cell, ranking.baseline) if v is not None]
        line = [_cell_name(cell), f"{sum(known) / len(known):,.1f}" if known else UNSET]
        for label in order:
            text, verdict = _percent(ranking.change(cell, label), sign=True), ranking.verdict(cell, label)
            line.append(f"**{text}**" if verdict == "win" else f"*{text}*" if verdict == "loss" else text)
        lines.append(_row(line))
    lines += ["", f"Cells: {ranking.baseline} in the compared figure, others in per cent against it; **win**, *loss*."]
    lines += [f"- {text}" for text in failures(ranking)]
    return "\n".join(lines) + "\n"


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |"


def show(ranking: Ranking, console: Console) -> None:
    """The leaderboard and its legend on a terminal."""
    from rich.table import Table
    from rich.text import Text

    for header, body in _tables(ranking):
        widths = [max(map(len, column)) + 2 for column in zip(header, *body, strict=True)]
        if sum(widths) - 2 > console.width >= 60:  # no room: names on two lines, intervals below their figures
            header = [header[0], *(_FOLD.sub(r"\1\n", name) for name in header[1:])]
            body = [[line[0], *(cell.replace(" ±", "\n±") for cell in line[1:])] for line in body]
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold cyan")
        for i, name in enumerate(header):
            table.add_column(Text(name), no_wrap=i == 0, justify="left" if i == 0 else "right", vertical="top")
        for line in body:
            table.add_row(*(Text(cell) for cell in line))
        console.print(table)
        console.print()
    for text in legend(ranking):
        bullet(console, text, "dim")
    for text in failures(ranking):
        bullet(console, text, "yellow")
