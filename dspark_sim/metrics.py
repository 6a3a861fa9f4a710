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

from dspark_sim.curve import FloatArray
from dspark_sim.record import gap_value
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
    intervals = _Intervals(run, -np.inf if whole else start)
    gpus = intervals.gpus(setup.engine_gpus)
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
        **({} if whole else intervals.halves(start, end)),
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
    """Sums of the ``intervals`` table from ``start`` on (steps that *end* in the window)."""

    def __init__(self, run: ArmRun, start: float) -> None:
        table = run.intervals

        def column(name: str) -> FloatArray:
            return np.asarray(table[name].to_numpy(), dtype=np.float64)

        inside = column("start") >= start - 1e-9
        self._column = {name: column(name)[inside] for name in _SUMS}
        self._start, self._seconds = column("start")[inside], column("seconds")[inside]
        self.total = {name: float(values.sum()) for name, values in self._column.items()}
        self.engines = max(1, len(set(table["engine"].to_pylist())))
        self._engine = np.asarray(table["engine"].to_numpy(), dtype=np.int64)[inside]
        self._up = column("up_s")[inside]
        self.up = float(self._up.sum())  # seconds of service, all engines
        picked = table.select(["gap_bin", "gap_count"]).filter(_mask(inside))
        self.gap_bin = _flat(picked["gap_bin"])
        self.gap_count = _flat(picked["gap_count"])

    def gpus(self, engine_gpus: Sequence[int]) -> float:
        """GPUs in service, mean over the window; engines that are down or scaled away cost nothing."""
        alone = float(self._seconds.sum()) / self.engines
        held = float((self._up * np.asarray(engine_gpus, dtype=np.float64)[self._engine]).sum())
        return held / alone if alone > 0 else float(sum(engine_gpus))

    def halves(self, start: float, end: float) -> Measured:
        """Throughput (whole engine) and queue length of the two halves of the window, for the warm-up check."""
        late = self._start >= (start + end) / 2 - 1e-9
        out: Measured = {}
        for half, rows in (("first", ~late), ("second", late)):
            seconds = float(self._seconds[rows].sum())
            out[f"tok_s_{half}_half"] = ratio(float(self._column["emitted"][rows].sum()), seconds)
            out[f"waiting_{half}_half"] = ratio(float(self._column["waiting_seconds"][rows].sum()), seconds)
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


def _flat(column: Any) -> npt.NDArray[np.int64]:
    chunks = [np.asarray(chunk.flatten().to_numpy(zero_copy_only=False)) for chunk in column.chunks]
    return np.concatenate([np.zeros(0, dtype=np.int64), *chunks]).astype(np.int64)


def _mask(inside: npt.NDArray[np.bool_]) -> Any:
    import pyarrow as pa

    return pa.array(inside)


def _plus_one(value: float | None) -> float | None:
    return None if value is None else 1.0 + value
