"""Words and tables about the fitted traces: provenance for the specifications, README.md for people."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from trace_figures import FIGURE6_POSITIONS, Published, conditional, ece, figure6, length, walked

from dspark_sim.parametric import Spec, generate
from dspark_sim.trace import AcceptanceTrace
from dspark_sim.yamlio import read_yaml, validated

COMMAND = "python tools/fit_traces.py --data FOLDER"
HEADER = "# Written by tools/fit_traces.py: change the script, not the numbers. Meaning: dspark_sim/parametric.py\n"
PAPER = "DSpark paper (DeepSeek-AI and Peking University, 2026)"
NOTES = {
    "dspark": ["Confidence: fitted on Figure 6 in the chat domain, borrowed for math, code and a3-mix."],
    "dflash": ["Spread over text (how much it suffers from difficulty) borrowed from DSpark. No confidence head."],
    "eagle3": [
        "Spread over text borrowed from DSpark. No confidence head.",
        "Domain a3-mix is derived, not published: as far in logits from its chat level as DSpark's is from its own.",
    ],
    "dspark-5": [
        "Code: acceptance lengths of V4-Pro for 1 to 5 draft tokens. Math and chat: moved in logits by as much as "
        "DSpark on Qwen3-4B moves from code.", "Spread over text and confidence borrowed from DSpark on Qwen3-4B.",
    ],
    "dspark-7": [
        "Code: one number, V4-Pro's acceptance length with 7 draft tokens, which lies below the one with 6 because the "
        "drafter was trained for 5; the profile over positions is dspark-5's, prolonged as on Qwen3-4B.",
        "Math, chat, spread and confidence borrowed as for dspark-5.",
    ],
    "mtp": ["Code: V4-Pro's acceptance length with 1 MTP token. Math and chat borrowed as for dspark-5, position 1. "
            "No confidence head."],
}
V4_WIDTHS = (("dspark-5", (1, 2, 3, 4, 5)), ("dspark-7", (7,)), ("mtp", (1,)))


def qwen_words(date: str) -> dict[str, Any]:
    """Description, kind and provenance of qwen3-4b."""
    return {
        "kind": "published",
        "description": "Qwen3-4B with DSpark, DFlash and Eagle3 drafters of 7 tokens, made from published statistics.",
        "provenance": {
            "source": [
                f"{PAPER}: Figure 2 (conditional acceptance), Figure 6 (confidence), Table 1 (acceptance length); read "
                "from the vector drawings",
                "pegainfer, docs/models/qwen3/dspark-integration.md: histogram of accepted tokens of the released "
                "drafters, greedy, chat, poem, random and code prompts (domain a3-mix)",
            ],
            "date": date, "command": COMMAND,
            "assumptions": [
                "Nothing here was recorded: rows are drawn from a model that reproduces the published averages.",
                "Figure 6 shows one data set that is not named; its mean acceptance (length about 3.5) is that of the "
                "chat benchmarks, so its confidence was fitted in the chat domain and borrowed elsewhere.",
                "Figure 6 scores the product of confidences against the acceptance of the whole prefix, as the "
                "authors' evaluation does: the printed areas under the curve follow from its own histograms that way.",
                "Beside the share of its whole document, the difficulty of neighbouring tokens correlates by 0.2: "
                "chosen; Figure 6 fits as well with 0 and clearly worse with 0.5.",
                "All drafters feel the difficulty of the text as strongly as DSpark does.",
                "Temperature 1, the default of the authors' evaluation; a3-mix was measured greedy.",
            ],
        },
    }


def v4_words(date: str) -> dict[str, Any]:
    """Description, kind and provenance of deepseek-v4."""
    return {
        "kind": "derived",
        "description": "DeepSeek-V4 with DSpark drafters of 5 and 7 tokens and MTP; only coding was measured.",
        "provenance": {
            "source": [
                "SemiAnalysisAI/InferenceX, golden_al_distribution @843c6254f: acceptance length of DeepSeek-V4-Pro by "
                "number of draft tokens, DSpark and MTP, thinking, SPEED-Bench coding, vLLM on B300",
                f"{PAPER}: Figures 2 and 6 of Qwen3-4B, for what is borrowed",
                "LMSYS blog of 2026-07-06 on DSpark in SGLang: verification windows of V4-Flash, a plausibility check",
            ],
            "date": date, "command": COMMAND,
            "assumptions": [
                "Only the code domain was measured, on V4-Pro; V4-Flash is taken to accept as V4-Pro does.",
                "Math and chat stand as far in logits from code, position by position, as DSpark on Qwen3-4B does.",
                "Difficulty of the text and confidence are those fitted for Qwen3-4B.",
                "Temperature 1 is assumed; the source does not state it.",
            ],
        },
    }


def measured(path: Path) -> dict[str, AcceptanceTrace]:
    """Every drafter of a specification, generated."""
    spec = validated(Spec, read_yaml(path))
    return {name: generate(spec, name) for name in spec.drafters}


def write(folder: Path, published: Published) -> None:
    """README.md of the shelf, from the specifications that lie there."""
    qwen, v4 = measured(folder / "qwen3-4b.yaml"), measured(folder / "deepseek-v4.yaml")
    parts = [INTRODUCTION, *_qwen(qwen, published), *_v4(v4, published), OWN]
    (folder / "README.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    print("\n\n".join(parts[1:-1]))


def table(head: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """A Markdown table."""
    head = list(head)
    lines = [head, ["---"] * len(head), *([str(c) for c in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _numbers(values: npt.NDArray[Any], digits: int = 3) -> str:
    return " ".join(f"{v:.{digits}f}".removeprefix("0") for v in values)


def _qwen(traces: dict[str, AcceptanceTrace], published: Published) -> list[str]:
    labels = {"dspark": "DSpark", "dflash": "DFlash", "eagle3": "Eagle3"}
    rows, bars = [], []
    for name, label in labels.items():
        for domain in ("math", "code", "chat"):
            _, accepted = walked(traces[name], domain)
            got, wanted = conditional(accepted, 7), published.conditional(label, domain)
            every = length(traces[name].accepted[traces[name].rows(domain)])
            tau = published.tau(label, domain)
            rows.append((name, domain, _numbers(got), f"{np.abs(got - wanted).max():.4f}", f"{length(accepted):.3f}",
                         f"{tau:.3f}", f"{100 * (length(accepted) / tau - 1):+.2f} %", f"{every:.3f}"))
        if name != "eagle3":
            _, accepted = walked(traces[name], "a3-mix")
            share = 100 * np.bincount(accepted, minlength=8) / accepted.size
            wanted = 100 * published.a3_shares(label)
            bars += [(name, "trace", *(f"{x:.1f}" for x in share)), ("", "published", *(f"{x:.1f}" for x in wanted))]
    dspark = traces["dspark"]
    which, accepted = walked(dspark, "chat")
    assert dspark.confidence is not None
    survival = dspark.survival()
    assert survival is not None
    panels = []
    for f in figure6(dspark.confidence[which], accepted, published):
        after = ece(survival[which, f.position - 1], accepted >= f.position)
        panels.append((f.position, f"{f.auc:.3f}", f"{f.auc_wanted:.3f}",
                       f"{100 * f.ece:.1f}", f"{100 * f.ece_wanted:.1f}",
                       f"{100 * after:.1f}", f"{100 * published.ece[f.position, 'after']:.1f}",
                       f"{f.distance:.3f}", f"{100 * f.reliability:.1f}", f"{f.conditional_auc:.3f}"))
    temperatures = ", ".join(f"{t:.2f}" for t in dspark.sts_temperature or ())
    others = ", ".join(
        f"{domain} {', '.join(f'{100 * ece(survival[w, k - 1], a >= k):.1f}' for k in FIGURE6_POSITIONS)}"
        for domain in ("math", "code", "a3-mix") for w, a in [walked(dspark, domain)]
    )
    return [
        "## qwen3-4b (kind: published)",
        "Conditional acceptance of rounds walked with full verification (largest error against Figure 2), acceptance "
        "length against Table 1's mean over the domain's three benchmarks, and, for comparison, the average over *all* "
        "positions, which no engine ever sees:",
        table(("drafter", "domain", "c_1 … c_7", "max error", "τ walked", "τ Table 1", "error", "τ all positions"),
              rows),
        "Domain `a3-mix`, share of rounds by accepted tokens in per cent:",
        table(("drafter", "", *map(str, range(8))), bars),
        "DSpark's confidence in the chat domain against Figure 6. ECE and AUC score the product of confidences against "
        "acceptance of the whole prefix, on walked rounds; *distance* is the total variation between the histograms of "
        "20 bins; *curve* the mean gap to the drawn reliability curve in points. The last column has no published "
        "counterpart: the AUC of c_k alone among rounds that reached k.",
        table(("k", "AUC", "published", "ECE before %", "published", "ECE after %", "published", "distance", "curve",
               "AUC of c_k"), panels),
        f"Sequential temperature scaling, fitted on every other chat round: T = {temperatures}. The same temperatures "
        f"elsewhere leave an ECE (%, k = 1, 3, 5, 7) of: {others}.",
    ]


def _v4(traces: dict[str, AcceptanceTrace], published: Published) -> list[str]:
    rows = []
    for name, widths in V4_WIDTHS:
        for k in widths:
            got, wanted = length(walked(traces[name], "code", k)[1]), published.a5(name.split("-")[0], k)
            rows.append((name, k, f"{got:.3f}", f"{wanted:.2f}", f"{100 * (got / wanted - 1):+.2f} %"))
    full = [(name, *(f"{length(walked(t, d)[1]):.2f}" for d in ("math", "code", "chat"))) for name, t in traces.items()]
    return [
        "## deepseek-v4 (kind: derived)",
        "Acceptance length in the code domain, walking with k tokens verified:",
        table(("drafter", "k", "trace", "published", "error"), rows),
        "Full verification, all domains (math and chat are borrowed, not measured):",
        table(("drafter", "math", "code", "chat"), full),
        _windows(traces["dspark-5"], published),
    ]


def _windows(trace: AcceptanceTrace, published: Published) -> str:
    """Plausibility against A16: one threshold on survival, set on math, then looked at elsewhere."""
    survival = trace.survival()
    assert survival is not None
    from trace_figures import grid, walk

    def look(domain: str, threshold: float) -> tuple[float, float, float]:
        width = (survival[trace.rows(domain)] >= threshold).sum(axis=1).reshape(grid(trace, domain).shape)
        kept = np.minimum(grid(trace, domain), width)
        seen = walk(kept)
        window = 1 + width[seen]
        return float(window.mean()), float((window == 6).mean()), float((1 + kept[seen]).sum() / window.sum())

    low, high, wanted = 0.0, 1.0, published.a16["gsm8k"]
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if look("math", middle)[0] > wanted else (low, middle)
    math, chat = look("math", low), look("chat", low)
    return (
        f"A check of plausibility only: V4-Flash in SGLang with an adaptive window (anchor counted) verified {wanted} "
        f"tokens on GSM8K (55 % full windows), {published.a16['arena_hard']} on Arena-Hard and "
        f"{published.a16['poetry']} on poetry. A plain threshold on survival set to {low:.2f} gives dspark-5 the same "
        f"{math[0]:.2f} on math ({100 * math[1]:.0f} % full), and then {chat[0]:.2f} on chat: the order and the step "
        f"fit. But the source reports 88 to 97 % utilisation; if that means the share of the window that is kept, "
        f"V4-Flash accepts more there than these levels do ({100 * math[2]:.0f} % of the window on math, "
        f"{100 * chat[2]:.0f} % on chat)."
    )


INTRODUCTION = """# Acceptance traces

One entry per target. `qwen3-4b` and `deepseek-v4` are *parametric*: a specification and a seed, from which
`dspark_sim.parametric` draws every row; materialised into the cache on first use (`DSPARK_SIM_CACHE`). They reproduce
published averages and are no recordings. `tools/fit_traces.py` writes the specifications and this page;
`tests/test_published_acceptance.py` recomputes the figures from the shipped files. `gemma-3-270m` (temperature 1) and
`gemma-3-270m-t0.6` are *recordings*, described at the end."""

OWN = """## gemma-3-270m, gemma-3-270m-t0.6 (kind: measured)

Real drafters on a real target, recorded by the lab (`trace sample`, `train`, `collect`, `calibrate`): `dspark` (γ = 7,
one layer), `dspark-2layer`, `dflash`, `eagle3` and `mtp`, trained for minutes on two CPU cores. Numbers only: accepted
lengths, confidences, draft probabilities; no weights and no token ids. docs/lab-results.md has all figures,
`tests/test_lab_results.py` computes them again.

## Your own

A scenario's `traces:` takes a name from this shelf, the path of a specification like these, or a folder with one
`<drafter>.parquet` per drafter, all collected on the same text. Every key of a specification is explained in
`dspark_sim/parametric.py`, the columns of a recording in `dspark_sim/trace.py` (`AcceptanceTrace.save` writes one)."""
