"""Write docs/lab-results.md and its pictures from the shipped Gemma traces and the training logs beside them.

    python tools/lab_report.py            # reads acceptance_traces/gemma-3-270m*, docs/lab/*.csv

Every figure is computed from the shipped files, so a reader (and tests/test_lab_results.py) can compute it again.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from dspark_sim.calibration import fit_scale_bias, fit_sts, quality
from dspark_sim.plots.tracedata import reached
from dspark_sim.trace import AcceptanceTrace, load_trace
from dspark_sim.trace_calibrate import split_documents, walk_rows

ROOT = Path(__file__).resolve().parent.parent
SHELF = ROOT / "acceptance_traces"
SETS = {1.0: "gemma-3-270m", 0.6: "gemma-3-270m-t0.6"}
ORDER = ("dspark", "dspark-2layer", "dflash", "eagle3", "mtp")
DOMAINS = ("math", "code", "chat")
FEW = 100  # rounds
Array = npt.NDArray[Any]


def documents_of(trace: AcceptanceTrace, domain: str) -> Array:
    return np.array([d for d, name in enumerate(trace.domain) if name == domain])


def walked(trace: AcceptanceTrace, domain: str) -> Array:
    """Accepted lengths (N,) of the rounds that decoding the domain's documents visits."""
    return trace.accepted[walk_rows(trace, documents_of(trace, domain))].astype(np.int64)


def conditional(accepted: Array, G: int) -> list[float]:
    """c_1 … c_G."""
    return [float(share) for share in reached(accepted, G)]


def later(accepted: Array, G: int) -> float:
    """Share of the tokens 2 … G kept, of those that were reached: their conditional acceptances, pooled."""
    kept = sum(int((accepted > k).sum()) for k in range(1, G))
    return kept / max(1, sum(int((accepted >= k).sum()) for k in range(1, G)))


def seldom(accepted: Array, G: int) -> list[bool]:
    """Which positions too few rounds reach to print a share of them."""
    return [int((accepted >= k).sum()) < FEW for k in range(G)]


def length(accepted: Array) -> float:
    """τ."""
    return 1 + float(accepted.mean())


def per_document(trace: AcceptanceTrace, domain: str) -> Array:
    """(D, 2): rounds and accepted tokens of each document, walked."""
    rows = [trace.accepted[walk_rows(trace, np.array([d]))] for d in documents_of(trace, domain)]
    return np.array([(len(r), int(r.sum())) for r in rows], dtype=float)


def interval(trace: AcceptanceTrace, domain: str, other: AcceptanceTrace | None = None) -> tuple[float, float, float]:
    """τ (or its paired difference to ``other``) with a 95 % interval: documents drawn again, 4,000 times."""
    a = per_document(trace, domain)
    b = None if other is None else per_document(other, domain)
    rng = np.random.default_rng(7)

    def tau(table: Array, pick: Array) -> Array:
        total = table[pick].sum(axis=1)
        return np.asarray(1 + total[:, 1] / total[:, 0])

    everyone = np.arange(len(a))[None]
    picks = rng.integers(0, len(a), (4000, len(a)))
    point = tau(a, everyone)[0] - (0 if b is None else tau(b, everyone)[0])
    drawn = tau(a, picks) - (0 if b is None else tau(b, picks))
    low, high = np.quantile(drawn, [0.025, 0.975])
    return float(point), float(low), float(high)


def row(*cells: object) -> str:
    return "| " + " | ".join(str(c) for c in cells) + " |"


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    return "\n".join([row(*head), row(*["---"] * len(head)), *(row(*r) for r in rows)])


def dots(values: Sequence[float], hidden: Sequence[bool]) -> str:
    return " ".join("–" if no else f"{v:.2f}".lstrip("0") for v, no in zip(values, hidden, strict=True))


def acceptance_section(traces: dict[str, AcceptanceTrace]) -> str:
    rows = []
    for name, trace in traces.items():
        for domain in DOMAINS:
            accepted = walked(trace, domain)
            point, low, high = interval(trace, domain)
            everywhere = length(trace.accepted[trace.rows(domain)].astype(np.int64))
            G = trace.block_size
            rows.append((name, domain, dots(conditional(accepted, G), seldom(accepted, G)),
                         f"{point:.2f} ({low:.2f} to {high:.2f})", f"{everywhere:.2f}", f"{len(accepted):,}"))
    return table(("drafter", "domain", "c_1 … c_γ, walked", "τ walked (95 %)", "τ at all positions", "rounds"), rows)


def paired_section(traces: dict[str, AcceptanceTrace], pairs: Sequence[tuple[str, str]]) -> str:
    rows = []
    for first, second in pairs:
        if first not in traces or second not in traces:
            continue
        a, b = traces[first], traces[second]
        for domain in DOMAINS:
            point, low, high = interval(a, domain, b)
            late = [later(walked(t, domain), t.block_size) for t in (a, b)]
            rows.append((f"{first} − {second}", domain, f"{point:+.3f} ({low:+.3f} to {high:+.3f})",
                         f"{late[0]:.2f} against {late[1]:.2f}"))
    return table(("pair", "domain", "difference of τ (95 %, paired by document)", "tokens 2 … 7 kept where reached"),
                 rows)


def histogram_section(traces: dict[str, AcceptanceTrace]) -> str:
    rows: list[Sequence[object]] = []
    for name, trace in traces.items():
        for domain in DOMAINS:
            accepted = walked(trace, domain)
            share = np.bincount(accepted, minlength=8)[:8] / len(accepted)
            cells = (f"{100 * s:.1f}" if k <= trace.block_size else "" for k, s in enumerate(share))
            rows.append((name, domain, *cells))
    return table(("drafter", "domain", *map(str, range(8))), rows)


def confidence_section(traces: dict[str, AcceptanceTrace]) -> str:
    rows = []
    for name, trace in traces.items():
        if trace.confidence is None:
            continue
        fit, held = split_documents(trace, 0.5, 0)
        on, off = walk_rows(trace, fit), walk_rows(trace, held)
        raw, accepted = trace.confidence[off].astype(float), trace.accepted[off]
        before = quality(raw, accepted)
        sts = fit_sts(trace.confidence[on], trace.accepted[on])
        both = fit_scale_bias(trace.confidence[on], trace.accepted[on])
        after, scaled = quality(sts.apply(raw), accepted), quality(both.apply(raw), accepted)
        for k in range(trace.block_size):
            area = before.auc[k]
            limit = " (limit)" if k + 1 in sts.at_limit else ""
            rows.append((name, k + 1, "" if area is None else f"{area:.2f}", f"{before.ece[k]:.3f}",
                         f"{after.ece[k]:.3f}{limit}", f"{scaled.ece[k]:.3f}"))
    return table(("drafter", "k", "AUC of c_k", "ECE before", "after STS", "after scale + bias"), rows)


def logs_of(folder: Path) -> dict[str, list[Any]]:
    out: dict[str, list[Any]] = {}
    for name in ORDER:
        path = folder / f"{name}.csv"
        if path.exists():
            with path.open() as file:
                out[name] = [SimpleNamespace(step=int(r["step"]), split=r["split"], loss=float(r["loss"]),
                                             tau=float(r["length"]), seconds=float(r["seconds"]))
                             for r in csv.DictReader(file)]
    return out


def training_section(logs: dict[str, list[Any]]) -> str:
    rows = []
    for name, log in logs.items():
        held = [p for p in log if p.split == "validation"]
        train = [p for p in log if p.split == "train"][-10:]
        rows.append((name, f"{log[-1].step:,}", f"{log[-1].seconds / 60:.0f}", f"{np.mean([p.tau for p in train]):.2f}",
                     f"{held[-1].tau:.2f}" if held else "not logged"))
    return table(("drafter", "steps of 128 blocks", "minutes", "length along the text, training", "the same, held out"),
                 rows)


def pictures(sets: dict[float, dict[str, AcceptanceTrace]], logs: dict[str, list[Any]], into: Path) -> None:
    from dspark_sim.plots import draw_training
    from dspark_sim.plots.style import LINES, MARKERS, colours, figure, finish, save

    draw_training(logs, into / "lab-training.png", "docs/lab/*.csv")
    fig, axes = figure(9.5, 6.0, len(sets), 3, sharey="row", sharex=True)
    for line, (temperature, traces) in enumerate(sets.items()):
        for ax, domain in zip(axes[3 * line:3 * line + 3], DOMAINS, strict=True):
            for i, (name, trace) in enumerate(traces.items()):
                accepted = walked(trace, domain)
                shown = [k for k, no in enumerate(seldom(accepted, trace.block_size)) if not no]
                share = conditional(accepted, trace.block_size)
                ax.plot([k + 1 for k in shown], [share[k] for k in shown], color=colours(5)[i],
                        ls=LINES[i % len(LINES)], marker=MARKERS[i], ms=5, lw=1.5, label=name)
            ax.set_title(f"{domain}, T = {temperature:g}")
        axes[3 * line].set_ylabel("P(k accepted | 1..k−1 accepted)")
    for ax in axes[-3:]:
        ax.set_xlabel("draft token k")
    fig.legend(*axes[0].get_legend_handles_labels(), loc="outside right upper", fontsize=8)
    finish(fig, "How does acceptance change along a draft block? Held-out rounds as decoded",
           ["acceptance_traces/gemma-3-270m and gemma-3-270m-t0.6; the paper's Figure 2 asks the same of Qwen3-4B."])
    save(fig, into / "lab-acceptance.png")


def main() -> None:
    """Read, compute, write."""
    sets = {t: {name: load_trace(SHELF / folder / f"{name}.parquet") for name in ORDER
                if (SHELF / folder / f"{name}.parquet").exists()} for t, folder in SETS.items()}
    sets = {t: traces for t, traces in sets.items() if traces}
    logs = logs_of(ROOT / "docs" / "lab")
    pictures(sets, logs, ROOT / "docs" / "img")
    words = (ROOT / "docs" / "lab" / "results.template.md").read_text()
    pairs = (("dspark", "dflash"), ("dspark-2layer", "dspark"), ("dspark", "eagle3"))
    for temperature, traces in sets.items():
        mark = f"{temperature:g}"
        words = words.replace(f"<<acceptance {mark}>>", acceptance_section(traces))
        words = words.replace(f"<<paired {mark}>>", paired_section(traces, pairs))
        words = words.replace(f"<<histogram {mark}>>", histogram_section(traces))
        words = words.replace(f"<<confidence {mark}>>", confidence_section(traces))
    (ROOT / "docs" / "lab-results.md").write_text(words.replace("<<training>>", training_section(logs)))


if __name__ == "__main__":
    main()
