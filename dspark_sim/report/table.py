"""Tables of a report: what a cell shows, what it sorts by, and the same as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["FIGURES", "Cell", "Column", "Table", "arm_cell", "figure_cell", "figure_columns", "moment", "text_cell"]


@dataclass(frozen=True)
class Column:
    """A column: ``title`` and ``unit`` as shown, ``help`` as the tool tip and in the glossary, ``left`` for words."""

    key: str
    title: str
    unit: str = ""
    help: str = ""
    left: bool = False
    digits: int = 1
    scale: float = 1.0


@dataclass(frozen=True)
class Cell:
    """A cell: ``text`` as shown, ``more`` small beside it (the interval), ``sort`` what sorting and CSV use."""

    text: str
    sort: float | str | None = None
    more: str = ""
    tone: str = ""  # good, bad, dim or ""


@dataclass(frozen=True)
class Table:
    """One table; ``key`` is its anchor and the name of its CSV."""

    key: str
    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    note: str = ""
    words: Sequence[str] = field(default_factory=tuple)
    open: bool = False  # unfolded, where it stands among the further tables

    def to_csv(self) -> str:
        """Numbers as they are, undefined empty."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([c.key for c in self.columns])
        writer.writerows([["" if c.sort is None else c.sort for c in row] for row in self.rows])
        return text.getvalue()


FIGURES = {c.key: c for c in (
    Column("throughput_tok_s_gpu", "throughput", "tok/s/GPU", "emitted tokens per second and GPU, over the measured "
           "window"),
    Column("throughput_vs_first_pct", "against first arm", "%", "difference of throughput to the first arm, paired: "
           "replication by replication, on the same requests"),
    Column("tps_user_mean", "TPS/user mean", "tok/s", "tokens per second that one request receives, after its first; "
           "mean over requests"),
    Column("tps_user_p50", "TPS/user p50", "tok/s", "the same, median over requests"),
    Column("tps_user_p5", "TPS/user p5", "tok/s", "the same, what 95 % of requests exceed"),
    Column("tps_user_concurrent", "TPS/user concurrent", "tok/s", "engine throughput over the mean number of decoding "
           "requests: the axis of the DSpark paper"),
    Column("tpot_ms_p50", "TPOT p50", "ms", "time per output token after the first, median over requests", digits=2),
    Column("tpot_ms_p99", "TPOT p99", "ms", "the same, 99th percentile", digits=2),
    Column("tpot_ms_mean", "TPOT mean", "ms", "the same, mean", digits=2),
    Column("step_gap_ms_p50", "step gap p50", "ms", "time between two deliveries of tokens to a user, median"),
    Column("step_gap_ms_p99", "step gap p99", "ms", "the same, 99th percentile: what a user sees stall"),
    Column("ttft_ms_p50", "TTFT p50", "ms", "time from arrival to the first token, median over requests"),
    Column("ttft_ms_p99", "TTFT p99", "ms", "the same, 99th percentile"),
    Column("e2e_ms_p50", "E2E p50", "ms", "time from arrival to the last token, median over requests", digits=0),
    Column("e2e_ms_p99", "E2E p99", "ms", "the same, 99th percentile", digits=0),
    Column("acceptance_length", "acceptance length", "tokens", "tokens per request and step before any cut at a "
           "request's end, the bonus token included (tau)", digits=2),
    Column("verification_budget", "verify budget", "tokens", "tokens per request in the target's batch: one anchor and "
           "the verified draft tokens", digits=2),
    Column("acceptance_rate", "accepted / verified", "%", "share of the verified draft tokens that the target kept",
           scale=100),
    Column("accepted_per_drafted", "accepted / drafted", "%", "share of all drafted tokens that was kept (vLLM's "
           "acceptance rate); it falls when a policy verifies less", scale=100),
    Column("wasted_share", "wasted", "%", "share of the verified draft tokens that the target rejected", scale=100),
    Column("sla_attainment", "SLA met", "%", "share of the requests under an SLA that met all of its limits",
           scale=100),
    Column("goodput_tok_s_gpu", "goodput", "tok/s/GPU", "throughput of the requests that met every SLA they have"),
    Column("step_ms_mean", "step", "ms", "mean duration of an engine step", digits=2),
    Column("batch_tokens_mean", "batch tokens", "", "mean size of the target's forward pass"),
    Column("padded_tokens_mean", "padded tokens", "", "the same, padded up to the size that the engine really runs"),
    Column("requests_decoding_mean", "decoding", "requests", "requests that decode, mean over time"),
    Column("requests_waiting_mean", "waiting", "requests", "requests in the queue, mean over time"),
    Column("utilisation", "busy", "%", "share of the time in which the engine runs a step", scale=100),
    *(Column(f"time_{part}_share", f"time {part}", "%", words, scale=100) for part, words in (
        ("draft", "share of the time that goes into drafting"),
        ("schedule", "share of the time that steps wait for the policy's decision"),
        ("verify", "share of the time in the target's forward pass"),
        ("other", "share of the time in overheads that depend on requests and KV only"),
        ("idle", "share of the time without a step"))),
    Column("preemptions", "preemptions", "", "requests thrown out of the batch because KV blocks ran out, to be "
           "recomputed; mean over replications"),
    Column("requeued", "requeued", help="times that an engine failed under a request; mean over replications"),
    Column("recomputed_tokens", "recomputed tokens", help="tokens that were prefilled again after a preemption or a "
           "failure; mean over replications"),
    Column("prefix_hit_share", "prefix hits", "%", "share of the prompt tokens that a prefix cache held already",
           scale=100),
    Column("refused", "refused", help="requests that a full queue turned away; mean over replications"),
    Column("timed_out", "timed out", help="requests that gave up waiting; mean over replications"),
    Column("overdue", "overdue", help="requests that were unfinished at the end and beyond their SLA; mean over "
           "replications"),
    Column("gpus_mean", "GPUs", help="GPUs that are paid for, mean over the window"),
)}


def figure_columns(names: Sequence[str]) -> list[Column]:
    """The columns of known figures; one that is not known here is shown under its own name."""
    return [FIGURES.get(name, Column(name, name, digits=3)) for name in names]


def figure_cell(column: Column, mean: float | None, low: float | None = None, high: float | None = None) -> Cell:
    """A figure with half of its interval; undefined is a dash. A difference has its sign, and colour if it is sure."""
    if mean is None or mean != mean:
        return Cell("–", None, tone="dim")
    value = mean * column.scale
    places = 0 if abs(value) >= 1000 else column.digits
    signed = column.key.endswith("_pct")
    half = None if low is None or high is None or low != low or high != high else (high - low) / 2 * column.scale
    sure = signed and low is not None and high is not None and not low <= 0 <= high
    return Cell(f"{value:{'+' if signed else ''},.{places}f}", mean, "" if half is None else f"±{half:,.{places}f}",
                ("good" if mean > 0 else "bad") if sure else "")


def text_cell(value: Any, tone: str = "") -> Cell:
    """Words, whole numbers, yes and no; None is a dash."""
    if value is None:
        return Cell("–", None, tone="dim")
    if isinstance(value, bool):
        return Cell("yes" if value else "NO", str(value).lower(), tone="" if value else "bad")
    if isinstance(value, (int, float)):
        return Cell(f"{value:,}" if isinstance(value, int) else f"{value:,.6g}", value, tone=tone)
    return Cell(str(value), str(value), tone=tone)


def arm_cell(name: str, lossless: bool) -> Cell:
    """An arm's name; one that changes the output says so wherever it stands."""
    return Cell(name, name) if lossless else Cell(name, name, "(not lossless)", "bad")


def moment(iso: Any) -> str:
    """An ISO time of a manifest for people."""
    text = str(iso or "unknown")
    return text.replace("T", " ").replace("+00:00", " UTC")
