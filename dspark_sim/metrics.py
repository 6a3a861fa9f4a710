"""What one replication of one arm means: every figure as a pure function of its tables.

Which table each figure comes from:

* ``intervals`` (the engine's view, over the measured window): throughput, concurrent TPS, acceptance, budgets, batch
  sizes, where the time goes, step gaps.
* ``requests`` (the user's view, requests that *finished* inside the window): TPS and TPOT per request, TTFT, E2E,
  SLA attainment, and the share of tokens that counts as goodput.

Percentiles over requests interpolate linearly (numpy's ``linear``). Step gaps come from a histogram with 1 % wide
bins: the figure is the geometric middle of the bin that holds the nearest rank. Undefined is None, never NaN.

N requests of the window, I intervals of the window.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dspark_sim.bins import gap_value
from dspark_sim.curve import FloatArray
from dspark_sim.spill import pieces
from dspark_sim.userview import Measured, UserView, in_ms, product, ratio

if TYPE_CHECKING:
    from dspark_sim.arms import ArmSetup
    from dspark_sim.scenario import Scenario
    from dspark_sim.simulate import ArmRun

__all__ = ["Measured", "gap_percentile", "measure", "measure_classes"]


_SUMS = (
    "steps", "busy_s", "draft_s", "schedule_s", "verify_s", "other_s", "request_steps", "request_seconds", "drafted",
    "verified", "accepted", "emitted", "prefill_tokens", "batch_tokens", "padded_tokens", "waiting_seconds",
    "extrapolated_steps",
)


def measure(run: ArmRun, scenario: Scenario, setup: ArmSetup, view: UserView | None = None) -> Measured:
    """Every figure of one replication; called by :mod:`dspark_sim.runner` for each finished (arm, replication).

    ``view``: the users' view of this run, if it was made already: making it reads the whole table.

    ``measure: steady``: the window given by the run. ``measure: whole_run``: from the first arrival to the last
    finish, ramp and drain included; throughput is then output tokens of all requests over that time.
    """
    whole = scenario.measure.mode == "whole_run"
    start, end = run.window
    requests = (view or UserView(run, scenario)).everyone
    if whole and requests.requests:
        start, end = requests.first_arrival, requests.last_finish
    seconds = end - start
    intervals = _Intervals(run, -np.inf if whole else start, setup.engine_gpus)
    gpus = intervals.gpus
    total = intervals.total
    tokens = requests.output_tokens if whole else total["emitted"]
    throughput = ratio(tokens, seconds * gpus)

    out: Measured = {
        "throughput_tok_s_gpu": throughput,
        **requests.speed,
        "tps_user_concurrent": ratio(total["emitted"], total["request_seconds"]),
        **requests.latency,
        "step_gap_ms_p50": in_ms(gap_percentile(intervals.gap_bin, intervals.gap_count, 0.50)),
        "step_gap_ms_p99": in_ms(gap_percentile(intervals.gap_bin, intervals.gap_count, 0.99)),
        "step_gap_ms_mean": in_ms(_gap_mean(intervals.gap_bin, intervals.gap_count)),
        "acceptance_length": _plus_one(ratio(total["accepted"], total["request_steps"])),
        "acceptance_rate": ratio(total["accepted"], total["verified"]),
        "accepted_per_drafted": ratio(total["accepted"], total["drafted"]),
        "wasted_share": ratio(total["verified"] - total["accepted"], total["verified"]),
        "verification_budget": _plus_one(ratio(total["verified"], total["request_steps"])),
        "sla_attainment": requests.attainment(),
        "goodput_tok_s_gpu": product(throughput, requests.goodput_share()),
        "step_ms_mean": in_ms(ratio(total["busy_s"], total["steps"])),
        "batch_tokens_mean": ratio(total["batch_tokens"], total["steps"]),
        "padded_tokens_mean": ratio(total["padded_tokens"], total["steps"]),
        "requests_decoding_mean": ratio(total["request_seconds"], seconds),
        "requests_waiting_mean": ratio(total["waiting_seconds"], seconds),
        **_shares(total, intervals.up),
        "preemptions": requests.preemptions,
        "requeued": requests.requeued,
        "recomputed_tokens": requests.recomputed_tokens,
        "prefix_hit_share": ratio(requests.cached_tokens, requests.looked_up),
        "refused": float(requests.refused),
        "timed_out": float(requests.timed_out),
        "overdue": float(requests.overdue),
        "gpus_mean": gpus,
        "extrapolated_steps": total["extrapolated_steps"],
        "steps": total["steps"],
        "requests": float(requests.requests),
        "window_s": seconds,
        "drafts": total["request_steps"] if setup.drafter is not None else 0.0,
        "draft_tokens": total["drafted"],
        "accepted_tokens": total["accepted"],
        "input_tokens": requests.prompt_tokens,
        "output_tokens": requests.output_tokens,
        "requests_met_sla": float(requests.met) if requests.promised else None,
        "begun_before_start_share": ratio(float(requests.begun), float(requests.requests)),
        **({} if whole else intervals.halves()),
    }
    return out


def measure_classes(
    run: ArmRun, scenario: Scenario, setup: ArmSetup, view: UserView | None = None
) -> dict[str, Measured]:
    """The user's view again, per class of requests: TPS, latencies, SLA attainment, and the class's own throughput
    and goodput (the engine's throughput split by output tokens of finished requests)."""
    view = view or UserView(run, scenario)
    throughput = measure(run, scenario, setup, view)["throughput_tok_s_gpu"]
    out: dict[str, Measured] = {}
    for name, part in view.classes.items():
        own = product(throughput, ratio(part.output_tokens, view.everyone.output_tokens))
        out[name] = {
            "throughput_tok_s_gpu": own,
            **part.speed,
            **part.latency,
            "sla_attainment": part.attainment(),
            "goodput_tok_s_gpu": product(own, part.goodput_share()),
            "requests": float(part.requests),
        }
    return out


class _Intervals:
    """Sums of the ``intervals`` table from ``start`` on (steps that *end* in the window), read piece by piece."""

    def __init__(self, run: ArmRun, start: float, engine_gpus: Sequence[int]) -> None:
        middle = (run.window[0] + run.window[1]) / 2 - 1e-9
        per_engine = np.asarray(engine_gpus, dtype=np.float64)
        self.total = dict.fromkeys(_SUMS, 0.0)
        self._halves = {(half, name): 0.0 for half in ("first", "second")
                        for name in ("seconds", "emitted", "waiting_seconds")}
        self.up = 0.0  # seconds of service, all engines
        paid, all_seconds, engines = 0.0, 0.0, 1
        histogram = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        for batch in pieces(run.intervals):
            inside = _floats(batch, "start") >= start - 1e-9
            engine = np.asarray(batch.column("engine"), dtype=np.int64)
            engines = max(engines, int(engine.max(initial=0)) + 1)
            column = {name: _floats(batch, name)[inside] for name in (*_SUMS, "start", "seconds", "up_s", "paid_s")}
            for name in _SUMS:
                self.total[name] += float(column[name].sum())
            self.up += float(column["up_s"].sum())
            all_seconds += float(column["seconds"].sum())
            paid += float((column["paid_s"] * per_engine[engine[inside]]).sum())
            late = column["start"] >= middle
            for half, rows in (("first", ~late), ("second", late)):
                for name in ("seconds", "emitted", "waiting_seconds"):
                    self._halves[half, name] += float(column[name][rows].sum())
            picked = batch.filter(_mask(inside))
            gaps = [np.asarray(picked.column(name).flatten(), dtype=np.int64) for name in ("gap_bin", "gap_count")]
            histogram = _together(np.append(histogram[0], gaps[0]), np.append(histogram[1], gaps[1]))
        self.gap_bin, self.gap_count = histogram
        alone = all_seconds / engines
        # GPUs that are paid for, mean over the window; engines that are scaled away cost nothing
        self.gpus = paid / alone if alone > 0 else float(sum(engine_gpus))

    def halves(self) -> Measured:
        """Throughput (whole engine) and queue length of the two halves of the window, for the warm-up check."""
        out: Measured = {}
        for half in ("first", "second"):
            seconds = self._halves[half, "seconds"]
            out[f"tok_s_{half}_half"] = ratio(self._halves[half, "emitted"], seconds)
            out[f"waiting_{half}_half"] = ratio(self._halves[half, "waiting_seconds"], seconds)
        return out


def gap_percentile(bins: npt.NDArray[np.int64], counts: npt.NDArray[np.int64], share: float) -> float | None:
    """Seconds: the geometric middle of the histogram bin that holds the nearest rank ``share`` (0..1]."""
    total = int(counts.sum())
    if total == 0:
        return None
    order = np.argsort(bins, kind="stable")
    cumulative = np.cumsum(counts[order])
    rank = max(1, int(np.ceil(share * total - 1e-9)))
    return float(gap_value(bins[order])[int(np.searchsorted(cumulative, rank))])


def _gap_mean(bins: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]) -> float | None:
    return ratio(float((gap_value(bins) * counts).sum()), float(counts.sum()))


def _shares(total: dict[str, float], seconds: float) -> Measured:
    """Where the window's time goes; the five shares add up to 1. A step may straddle the edge of the window."""
    parts = ("draft", "schedule", "verify", "other")
    whole = max(seconds, sum(total[f"{part}_s"] for part in parts))
    out: Measured = {f"time_{part}_share": ratio(total[f"{part}_s"], whole) for part in parts}
    busy = ratio(sum(total[f"{part}_s"] for part in parts), whole)
    return {**out, "time_idle_share": None if busy is None else max(0.0, 1.0 - busy), "utilisation": busy}


def _together(
    bins: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """A histogram with each bin once, rising."""
    once, index = np.unique(bins, return_inverse=True)
    return once, np.bincount(index, counts, minlength=once.size).astype(np.int64)


def _floats(batch: Any, name: str) -> FloatArray:
    return np.asarray(batch.column(name), dtype=np.float64)


def _mask(inside: npt.NDArray[np.bool_]) -> Any:
    import pyarrow as pa

    return pa.array(inside)


def _plus_one(value: float | None) -> float | None:
    return None if value is None else 1.0 + value
