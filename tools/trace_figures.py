"""What was published about acceptance, and how the same figures are measured on a trace (for tools/fit_traces.py).

Shapes: D documents, L rows each, N walked rounds, G block size.
"""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dspark_sim.trace import AcceptanceTrace

Array = npt.NDArray[Any]
BINS = 20
FIGURE6_POSITIONS = (1, 3, 5, 7)


def logit(p: Any) -> Array:
    """log(p / (1 − p))."""
    p = np.asarray(p, dtype=float)
    return np.asarray(np.log(p) - np.log1p(-p))


def walk(accepted: Array) -> Array:
    """(D, L) mask of the rows that decoding every document from its first row visits, with all tokens verified."""
    documents, rows = accepted.shape
    seen, at, every = np.zeros(accepted.shape, dtype=bool), np.zeros(documents, dtype=np.int64), np.arange(documents)
    while (live := at < rows).any():
        seen[every[live], at[live]] = True
        at[live] += 1 + accepted[every[live], at[live]]
    return seen


def grid(trace: AcceptanceTrace, domain: str) -> Array:
    """(D, L) accepted lengths of one domain; documents of a parametric trace are equally long."""
    rows = int(trace.document_start[1])
    return trace.accepted[trace.rows(domain)].reshape(-1, rows).astype(np.int64)


def walked(trace: AcceptanceTrace, domain: str, width: int | None = None) -> tuple[Array, Array]:
    """(row numbers, accepted) of the walked rounds; ``width``: verify at most so many tokens."""
    accepted = np.minimum(grid(trace, domain), width or trace.block_size)
    seen = walk(accepted)
    return trace.rows(domain)[seen.ravel()], accepted[seen]


def conditional(accepted: Array, G: int) -> Array:
    """(G,) P(token k accepted given 1..k − 1)."""
    reached = np.array([np.count_nonzero(accepted >= k) for k in range(G + 1)], dtype=float)
    return np.asarray(reached[1:] / reached[:-1])


def length(accepted: Array) -> float:
    """Acceptance length τ, bonus included."""
    return float(1 + accepted.mean())


def bins(predicted: Array, kept: Array) -> tuple[Array, Array, Array]:
    """Per bin of 20: share of the rounds, mean prediction, share kept."""
    b = np.minimum((predicted * BINS).astype(np.int64), BINS - 1)
    n = np.bincount(b, minlength=BINS)
    some = np.maximum(n, 1)
    return n / n.sum(), np.bincount(b, predicted, BINS) / some, np.bincount(b, kept, BINS) / some


def ece(predicted: Array, kept: Array) -> float:
    """Expected calibration error over 20 equal bins."""
    share, said, was = bins(predicted, kept)
    return float((share * np.abs(said - was)).sum())


def auc(score: Array, kept: Array) -> float:
    """Area under the ROC curve; ties count half."""
    values, group = np.unique(score, return_inverse=True)
    good = np.bincount(group, kept, values.size)
    bad = np.bincount(group, ~kept, values.size)
    below = np.cumsum(bad) - bad
    return float((good * (below + bad / 2)).sum() / (good.sum() * bad.sum()))


@dataclass(frozen=True)
class Figure6:
    """One panel: measured on a trace, and as published.

    Attributes:
        distance: total variation between the histograms of predicted survival, 0..1.
        reliability: mean |observed share − published| over bins, weighted by the published histogram.
        conditional_auc: of c_k alone among rounds that reached k; nothing is published for it.
    """

    position: int
    auc: float
    auc_wanted: float
    ece: float
    ece_wanted: float
    distance: float
    reliability: float
    survival: float
    conditional_auc: float


def figure6(confidence: Array, accepted: Array, published: Published) -> list[Figure6]:
    """The four panels from (N, G) raw confidence and (N,) accepted."""
    product, out = np.cumprod(confidence.astype(float), axis=1), []
    for k in FIGURE6_POSITIONS:
        kept, reached = accepted >= k, accepted >= k - 1
        share, _, was = bins(product[:, k - 1], kept)
        wanted = published.histogram[k]
        out.append(Figure6(
            k, auc(product[:, k - 1], kept), published.auc[k], ece(product[:, k - 1], kept), published.ece[k, "before"],
            float(np.abs(share - wanted).sum() / 2), float((wanted * np.abs(was - published.observed[k])).sum()),
            float(kept.mean()), auc(confidence[reached, k - 1], kept[reached]),
        ))
    return out


class Published:
    """The published numbers of one folder."""

    def __init__(self, folder: Path) -> None:
        paper = folder / "paper"
        self._figure2 = {(r["drafter"], r["domain"], int(r["position"])): float(r["cond_acceptance"])
                         for r in _rows(paper / "fig2_conditional_acceptance.csv")}
        summary = _rows(paper / "fig6_summary.csv")
        self.auc = {int(r["position"]): float(r["auc_printed"]) for r in summary}
        self.ece = {(int(r["position"]), r["calibration"]): float(r["ece_pct_printed"]) / 100 for r in summary}
        self.histogram = {k: np.zeros(BINS) for k in FIGURE6_POSITIONS}
        self.observed = {k: np.zeros(BINS) for k in FIGURE6_POSITIONS}
        for r in _rows(paper / "fig6_histogram.csv"):
            self.histogram[int(r["position"])][round(float(r["bin_left"]) * BINS)] = float(r["relative_height"])
        for r in _rows(paper / "fig6_reliability.csv"):
            if r["calibration"] == "before":
                self.observed[int(r["position"])][int(r["bin_of_20"])] = float(r["observed"])
        for k in FIGURE6_POSITIONS:
            self.histogram[k] /= self.histogram[k].sum()
        self._table1 = [r for r in _rows(paper / "table1_accepted_length.csv") if r["target"] == "Qwen3-4B"]
        self._cases = {c["id"]: c["data"] for c in json.loads((folder / "field_cases.json").read_text())}

    def conditional(self, drafter: str, domain: str) -> Array:
        """(7,) Figure 2."""
        return np.array([self._figure2[drafter, domain, k] for k in range(1, 8)])

    def tau(self, drafter: str, domain: str) -> float:
        """Mean over the domain's three benchmarks of Table 1, Qwen3-4B."""
        rows = [r for r in self._table1 if (r["drafter"], r["domain"]) == (drafter, domain)]
        return float(np.mean([float(r["tau"]) for r in rows]))

    def a3_shares(self, drafter: str) -> Array:
        """(8,) shares of accepted = 0..7 in case A3."""
        counts = np.array(self._cases["A3"]["hist_accepted_draft_0_7"][drafter], dtype=float)
        return np.asarray(counts / counts.sum())

    def a3(self, drafter: str) -> Array:
        """(7,) conditional acceptance of case A3."""
        reached = np.cumsum(self.a3_shares(drafter)[::-1])[::-1]
        return np.asarray(reached[1:] / reached[:-1])

    def a5(self, drafter: str, k: int) -> float:
        """Acceptance length of V4-Pro on coding with k tokens, ``dspark`` or ``mtp``."""
        key = {"dspark": "dsv4_pro_0813_dspark_thinking", "mtp": "dsv4_pro_mtp_thinking"}[drafter]
        return float(self._cases["A5"][key][k - 1])

    @property
    def a16(self) -> dict[str, float]:
        """Mean verification window (anchor counted) of V4-Flash by kind of prompt."""
        return dict(self._cases["A16"]["window"])


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
