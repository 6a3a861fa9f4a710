"""What pictures say to those who do not see them (alt texts, with the numbers), and what to look at in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from dspark_sim.plots.sweepdata import SweepData

__all__ = ["alt_text", "caption", "sweep_alt_text"]

_CAPTIONS = {
    "throughput": "Left: bars with 95 % intervals, the change against the first arm in brackets. Right: the dot is the "
                  "mean over requests, the pale bar reaches down to the slowest 5 %.",
    "budget": "Every bar starts with the bonus token, which the target always produces. Rejected tokens were paid for "
              "and thrown away.",
    "time": "Right: the same parts divided by the acceptance length, which is what a user waits per token.",
    "acceptance": "One box per class and arm: median, quartiles, and 5 % to 95 % of the finished requests.",
    "batch_tokens": "The curve above is the profile's; the rows below are shares of steps by size of the forward pass. "
                    "A policy that knows the stairs stands at their right edges.",
    "step_gap": "A curve further left is better: its users wait less between two deliveries.",
    "timeline": "Flat lines after the grey part mean that the warm-up was long enough.",
    "seen": "Counted in this run, in rows where the position was verified. Left: of those that had kept all tokens "
            "before it, the share that kept it too. Right: how often it was verified at all.",
    "positions": "From the acceptance traces, not from this run's choices. Solid: over every text position. Hollow "
                 "marks: over the positions that a server visits when it verifies whole blocks.",
    "drafters": "From the traces and the hardware profile: rounds with every draft token verified. Longer blocks "
                "accept more, and cost more per round.",
    "frontier": "Up and to the right is better. Each mark is one load; bands are 95 % intervals. Compare along a "
                "vertical line (same speed for users) or a horizontal one (same throughput).",
    "load": "Left: what the whole GPU gives. Right: how many tokens per request each arm verifies as the load rises.",
    "time_by_load": "One panel per arm: milliseconds of a step by part, and how they grow with the load.",
}


def caption(name: str) -> str:
    """What to look at; "" for a picture that is not known here. ``frontier-2`` has the caption of ``frontier``."""
    return _CAPTIONS.get(name.partition("-")[0], "")


def alt_text(name: str, arms: Sequence[Mapping[str, Any]]) -> str:
    """A run's picture in words: what it draws, and its main numbers.

    Args:
        name: of the picture.
        arms: ``summary.json``'s arms.
    """
    known = [a for a in arms if a["throughput_tok_s_gpu"]["mean"] is not None]

    def each(show: Callable[[Mapping[str, Any]], str]) -> str:
        return "; ".join(f"{a['arm']} {show(a)}" for a in known) + "."

    def mean(arm: Mapping[str, Any], figure: str, digits: int = 1, unit: str = "") -> str:
        value = arm[figure]["mean"]
        return "undefined" if value is None else f"{value:,.{digits}f}{unit}"

    texts: dict[str, Callable[[], str]] = {
        "throughput": lambda: "Bars of throughput per GPU and dots of TPS per user, by arm: " + each(
            lambda a: f"{mean(a, 'throughput_tok_s_gpu', 0)} tok/s/GPU, {mean(a, 'tps_user_mean', 0)} tok/s per user"),
        "budget": lambda: "Stacked bars of tokens per request in the target's batch, by arm: " + each(
            lambda a: f"{mean(a, 'acceptance_length', 2)} of {mean(a, 'verification_budget', 2)} kept"),
        "time": lambda: "Stacked bars of a step's milliseconds by part, by arm: " + each(
            lambda a: f"{mean(a, 'step_ms_mean', 1, ' ms')} per step"),
        "acceptance": lambda: "Box plots of the acceptance length of requests, by arm and class; mean per arm: " + each(
            lambda a: mean(a, "acceptance_length", 2)),
        "batch_tokens": lambda: "Histograms of batch tokens per step under the measured step-time curve; mean per "
                                "arm: " + each(lambda a: mean(a, "batch_tokens_mean", 0)),
        "step_gap": lambda: "Share of step gaps that are longer than a time, one line per arm; 99th percentile: "
        + each(
            lambda a: mean(a, "step_gap_ms_p99", 1, " ms")),
        "timeline": lambda: "Throughput per GPU over simulated time, one line per arm, warm-up shaded.",
        "seen": lambda: "Share of draft tokens kept, and share of rows that verified them, by position, one line per "
                        "arm; acceptance length: " + each(lambda a: mean(a, "acceptance_length", 2)),
        "positions": lambda: "Chance that draft token k is accepted given that those before it were, by position, one "
                             "panel per domain and one line per drafter.",
        "drafters": lambda: "Accepted length against the number of draft tokens, one line per drafter and one panel "
                            "per domain, and the duration of a round.",
    }
    return texts.get(name, lambda: f"Picture {name}.")()


def sweep_alt_text(name: str, data: SweepData) -> str:
    """A sweep's picture in words, with where each arm's curve begins and ends."""
    kind, _, number = name.partition("-")
    facet = data.facets[int(number) - 1 if number else 0]
    ends = []
    for curve in facet.curves:
        known = np.flatnonzero(np.isfinite(curve.tps) & np.isfinite(curve.throughput))
        if known.size:
            first, last = known[0], known[-1]
            a, b = (f"{curve.throughput[i]:,.0f} tok/s/GPU at {curve.tps[i]:,.0f} tok/s per user (load "
                    f"{curve.load[i]:g})" for i in (first, last))
            ends.append(f"{curve.arm} from {a} to {b}")
    what = {
        "frontier": "Throughput per GPU against TPS per user, one curve per arm",
        "load": f"Throughput and verification budget against {data.axis}, one curve per arm",
        "time_by_load": f"Stacked bars of a step's milliseconds by part against {data.axis}, one panel per arm",
    }.get(kind, f"Picture {name}")
    return f"{what}{f' ({facet.label})' if facet.label else ''}: {'; '.join(ends)}."
