"""Predicted beside measured by the live engine: figures with intervals, errors, and the sentences that go with them.

No torch here: pages and pictures are made from ``live.json`` alone.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dspark_sim.errors import InputError
from dspark_sim.metrics import Measured
from dspark_sim.stats import Figure, interval

__all__ = [
    "AIMS", "FORMAT", "QUANTITIES", "compared", "drift", "error_of", "flat", "read_result", "sentences", "shown_figure",
    "tables",
]

QUANTITIES = {
    "throughput_tok_s_gpu": "throughput, tokens/s", "acceptance_length": "acceptance length τ",
    "verification_budget": "verification budget, tokens", "step_ms_mean": "mean step, ms",
}
AIMS = {"throughput_tok_s_gpu": (10.0, 5.0), "acceptance_length": (3.0, 3.0)}
"""Per cent that a prediction aims at: on a CPU, on a GPU."""
Record = dict[str, Any]
FORMAT = "dspark-sim live result 1"


def error_of(predicted: Figure, measured: Figure) -> Figure:
    """Predicted against measured in per cent; its interval from those of both, taken as independent."""
    if predicted.mean is None or not measured.mean:
        return Figure(None)
    error = 100.0 * (predicted.mean / measured.mean - 1.0)
    if measured.half_width is None:
        return Figure(error)
    half = 100.0 * predicted.mean / measured.mean * math.hypot(
        (predicted.half_width or 0.0) / predicted.mean if predicted.mean else 0.0, measured.half_width / measured.mean)
    return Figure(error, error - half, error + half)


def compared(
    concurrency: int, arm: str, predicted: Sequence[Measured], measured: Sequence[Measured], on_gpu: bool
) -> list[Record]:
    """A record per quantity of one arm at one load."""
    out = []
    for quantity in QUANTITIES:
        p, m = (interval([run.get(quantity) for run in runs]) for runs in (predicted, measured))
        error = error_of(p, m)
        aim = AIMS[quantity][on_gpu] if quantity in AIMS else None
        out.append({
            "concurrency": concurrency, "arm": arm, "quantity": quantity, "predicted": p.to_dict(),
            "measured": m.to_dict(), "error_pct": error.to_dict(), "aim_pct": aim,
            "inside_aim": None if aim is None or error.mean is None else abs(error.mean) <= aim,
        })
    return out


def drift(before: Mapping[str, Any], after: Mapping[str, Any]) -> float:
    """Per cent that the same steps took longer after the runs than before them (mean over the sizes of the pass)."""
    first, last = dict(map(tuple, before["verify"])), dict(map(tuple, after["verify"]))
    ratios = [last[size] / seconds for size, seconds in first.items() if size in last]
    return 100.0 * (math.exp(sum(map(math.log, ratios)) / len(ratios)) - 1.0)


def flat(records: Sequence[Record]) -> list[Record]:
    """The records as rows of a table."""
    out = []
    for r in records:
        row = {"concurrency": r["concurrency"], "arm": r["arm"], "quantity": r["quantity"]}
        for word in ("predicted", "measured", "error_pct"):
            row |= {word: r[word]["mean"], f"{word}_low": r[word]["ci95_low"], f"{word}_high": r[word]["ci95_high"]}
        out.append(row | {"aim_pct": r["aim_pct"], "inside_aim": r["inside_aim"]})
    return out


def read_result(path: Path) -> Record:
    """``live.json``.

    Raises:
        InputError: it is not there, or is something else.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"cannot be read ({error})", file=path, allowed="live.json of `validate live`") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise InputError("no result of `validate live`", file=path, allowed=FORMAT)
    return found


def shown_figure(figure: Mapping[str, float | None], digits: int = 4) -> str:
    """``1.234 ± 0.02``; without an interval the mean alone, and a dash for nothing."""
    mean, low, high = figure["mean"], figure["ci95_low"], figure["ci95_high"]
    if mean is None:
        return "–"
    half = "" if low is None or high is None else f" ± {(high - low) / 2:.2g}"
    return f"{mean:.{digits}g}{half}"


def tables(result: Record) -> list[tuple[str, list[str], list[list[str]]]]:
    """(title, header, rows) for every load and quantity: a row per arm."""
    out = []
    for load in result["loads"]:
        for quantity, words in QUANTITIES.items():
            rows = []
            for r in (r for r in load["records"] if r["quantity"] == quantity):
                error = r["error_pct"]["mean"]
                half = None if r["error_pct"]["ci95_low"] is None else error - r["error_pct"]["ci95_low"]
                verdict = "" if r["inside_aim"] is None else "yes" if r["inside_aim"] else "NO"
                rows.append([r["arm"], shown_figure(r["predicted"]), shown_figure(r["measured"]),
                             "–" if error is None else f"{error:+.1f} %" + ("" if half is None else f" ± {half:.1f}"),
                             verdict])
            aim = next((r["aim_pct"] for r in load["records"] if r["quantity"] == quantity), None)
            inside = "" if aim is None else f"within {aim:g} %"
            out.append((f"{words}, {load['concurrency']} at once", ["arm", "predicted", "measured", "error", inside],
                        [row if aim is not None else row[:4] for row in rows]))
            if aim is None:
                out[-1] = (out[-1][0], out[-1][1][:4], out[-1][2])
    return [t for t in out if t[2]]


def sentences(result: Record) -> list[tuple[str, bool]]:
    """What the tables do not hold, each with whether it is bad news."""
    out: list[tuple[str, bool]] = []
    for load in result["loads"]:
        c = load["concurrency"]
        timing, drifted = load["timing"], load["drift_pct"]
        sense, around = "longer" if drifted >= 0 else "less", f"± {100 * timing['spread']:.1f} %"
        out.append((f"{c} at once: the same steps took {abs(drifted):.1f} % {sense} after the runs than before them; "
                    f"while timed, half of a size's timings lay within {around}, and the mean was "
                    f"{100 * (timing['factor'] - 1):.1f} % above the median", abs(drifted) > 10))
        if load["hindsight_pct"]:
            errors = ", ".join(f"{arm} {error:+.1f} %" for arm, error in load["hindsight_pct"].items())
            out.append((f"{c} at once: in hindsight, with the mean of the timings before and after, throughput would "
                        f"have been off by {errors}", False))
        for arm in load["arms"]:
            if arm["error"] is not None:
                out.append((f"{c} at once: arm {arm['arm']} ended: {arm['error']}", True))
            elif arm["replay_pct"] is not None:
                r = arm["replay_pct"]
                low, high = r["ci95_low"], r["ci95_high"]
                half = "" if low is None else f" ± {(high - low) / 2:.1f}"
                sure = low is not None and not low <= 0 <= high
                out.append((f"{c} at once: replaying {arm['arm']} on its own texts accepts {r['mean']:+.1f}{half} % "
                            f"({r['requests']} requests){', more than chance' if sure else ''}", False))
    for g in result["greedy"]:
        if g["error"] is not None:
            out.append((f"greedy: arm {g['arm']} ended: {g['error']}", True))
        elif not g["different"]:
            out.append((f"greedy: {g['arm']} gives plain decoding's text, token for token ({g['requests']} requests, "
                        f"{g['tokens']} tokens)", False))
        else:
            kind = "rounding: nothing is lost" if g["lossless"] else "NOT LOSSLESS"
            out.append((f"greedy: {g['arm']} differs from plain decoding in {g['different']} of {g['requests']} "
                        f"requests, first where the target's logits are {g['gap']:.2g} apart ({kind})",
                        not g["lossless"]))
    return out
