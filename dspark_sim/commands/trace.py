"""dspark-sim trace list | show."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from dspark_sim.commands.output import emit_console, emit_rows

if TYPE_CHECKING:
    from rich.console import Console

    from dspark_sim.trace import AcceptanceTrace

__all__ = ["list_command", "show_command"]


def list_command(form: str) -> None:
    """Targets and drafters on the shelf."""
    from dspark_sim.traceset import list_traces

    emit_rows([{"target": t, "drafters": drafters} for t, drafters in list_traces().items()], form)


def show_command(reference: str, drafter: str | None, form: str) -> None:
    """Acceptance length and conditional acceptance by position, per drafter and domain."""
    from dspark_sim.traceset import find_traces

    found = find_traces(reference)
    names = list(found.drafters) if drafter is None else [drafter]
    opened = [found.open(name) for name in names]
    rows = [row for trace in opened for row in _rows(trace)]
    if form != "table":
        emit_rows(rows, form)
    else:
        emit_console(lambda console: _show(console, opened, rows))


def _rows(trace: AcceptanceTrace) -> list[dict[str, Any]]:
    """One row per domain: averages over all text positions, full verification."""
    out = []
    for domain in trace.domains:
        accepted = trace.accepted[trace.rows(domain)]
        reached = [accepted.size, *((accepted >= k).sum() for k in range(1, trace.block_size + 1))]
        steps = _walk(trace, domain)
        out.append({
            "target": trace.target, "drafter": trace.drafter, "domain": domain, "kind": trace.kind,
            "block_size": trace.block_size, "temperature": trace.temperature,
            "acceptance_length": round(steps, 4),
            "conditional_acceptance": [round(float(b / a), 4) if a else None
                                       for a, b in pairwise(reached)],
            "positions": int(accepted.size),
            "documents": int(sum(d == domain for d in trace.domain)),
            "confidence": trace.confidence is not None,
            "calibration": trace.sts_temperature is not None or trace.sts_bias is not None,
            "sts_temperature": trace.sts_temperature, "sts_bias": trace.sts_bias,
        })
    return out


def _walk(trace: AcceptanceTrace, domain: str) -> float:
    """Tokens per step when every document of the domain is decoded in rounds, as a server does."""
    tokens = rounds = 0
    accepted = trace.accepted.astype(np.int64)
    for d, name in enumerate(trace.domain):
        if name != domain:
            continue
        t, end = int(trace.document_start[d]), int(trace.document_start[d + 1])
        jumps = accepted[t:end] + 1
        at, n, size = 0, 0, end - t
        steps = jumps.tolist()
        while at < size:
            at += steps[at]
            n += 1
        tokens += at
        rounds += n
    return tokens / max(rounds, 1)


def _show(console: Console, opened: list[AcceptanceTrace], rows: list[dict[str, Any]]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold cyan")
    titles = ("drafter", "domain", "kind", "tokens per step", "P(token k accepted | 1..k-1 accepted)")
    for i, title in enumerate(titles):
        table.add_column(title, justify="right" if i == 3 else "left", no_wrap=i < 2)
    for row in rows:
        conditional = "  ".join("  –" if c is None else f"{c:.2f}" for c in row["conditional_acceptance"])
        table.add_row(row["drafter"], row["domain"], row["kind"], f"{row['acceptance_length']:.3f}", conditional)
    console.print(Text(f"target {opened[0].target}", style="bold"))
    console.print(table)
    console.print(Text("tokens per step: every document decoded in rounds with full verification, bonus token included",
                       style="dim"))
    told = set[tuple[str, str]]()  # drafters of one target share most of it
    for trace in opened:
        console.print()
        head = f"{trace.target}/{trace.drafter}: {trace.kind}, block size {trace.block_size}, temperature "
        head += f"{trace.temperature:g}, {trace.positions:,} positions in {trace.documents:,} documents, "
        how = "recorded" if trace.kind == "measured" else "generated"
        head += f"confidence {'none' if trace.confidence is None else how}"
        console.print(Text(head))
        for line in _calibration(trace):
            console.print(Text(f"  {line}"))
        for key, value in trace.provenance.items():
            words = [value] if isinstance(value, str) else value if isinstance(value, list) else []
            for word in words:
                if isinstance(word, str) and not key.endswith("sha256") and (key, word) not in told:
                    told.add((key, word))
                    console.print(Text(f"  {key}: {' '.join(word.split())}", style="dim"))


def _calibration(trace: AcceptanceTrace) -> list[str]:
    """The calibration that ``calibrated: true`` applies, and how it was got."""
    if trace.confidence is None:
        return []
    if trace.sts_temperature is None and trace.sts_bias is None:
        return ["calibration: none (dspark-sim trace calibrate fits one)"]
    lines = []
    for name, values in (("temperature", trace.sts_temperature), ("bias", trace.sts_bias)):
        if values is not None:
            lines.append(f"calibration, {name} by position: {', '.join(f'{v:.3g}' for v in values)}")
    facts = trace.provenance.get("calibration")
    if isinstance(facts, dict):
        before, after = facts.get("held_out_ece_before"), facts.get("held_out_ece_after")
        if isinstance(before, list) and isinstance(after, list):
            pairs = ", ".join(f"{b} → {a}" for b, a in zip(before, after, strict=False))
            lines.append(f"calibration, held-out ECE by position: {pairs}")
        lines.append(f"calibration: {facts.get('method')}, fitted on {facts.get('fitted_on')} of "
                     f"{facts.get('documents_fitted')} documents, measured on {facts.get('documents_held_out')} "
                     f"others, seed {facts.get('seed')}")
    return lines
