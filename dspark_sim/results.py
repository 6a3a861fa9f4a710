"""Results: what a comparison says, as an object, JSON, CSV, a data frame or a table on screen.

The machine names in :data:`HEADLINE` are a public interface: scripts read them from ``--format json|csv`` and from
``summary.json`` and ``summary.csv``. Figures carry ``{mean, ci95_low, ci95_high}``; ``arm``, ``policy``, ``drafter``,
``lossless``, ``steps`` and ``requests`` are plain values (the last two are totals over all replications' windows).
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dspark_sim.stats import Figure, interval, paired_percent
from dspark_sim.userview import Measured

if TYPE_CHECKING:
    import pandas as pd

    from dspark_sim.arms import ArmSetup

__all__ = ["HEADLINE", "MORE", "ArmResult", "Results", "arm_result"]

_PLAIN_FIRST = ("arm", "policy", "drafter", "lossless")
_PLAIN_LAST = ("steps", "requests")
HEADLINE = (
    "throughput_tok_s_gpu", "tps_user_mean", "tps_user_p50", "tps_user_p5", "tps_user_concurrent", "tpot_ms_p50",
    "tpot_ms_p99", "step_gap_ms_p99", "acceptance_length", "acceptance_rate", "accepted_per_drafted", "wasted_share",
    "verification_budget", "sla_attainment", "goodput_tok_s_gpu", "throughput_vs_first_pct",
)
MORE = (
    "tpot_ms_mean", "ttft_ms_p50", "ttft_ms_p99", "e2e_ms_p50", "e2e_ms_p99", "step_gap_ms_p50", "step_ms_mean",
    "batch_tokens_mean", "padded_tokens_mean", "requests_decoding_mean", "requests_waiting_mean", "utilisation",
    "time_draft_share", "time_schedule_share", "time_verify_share", "time_other_share", "time_idle_share",
    "preemptions", "requeued", "recomputed_tokens", "prefix_hit_share", "refused", "timed_out", "overdue",
    "gpus_mean",
)
_CLASS_FIGURES = (
    "throughput_tok_s_gpu", "tps_user_mean", "tps_user_p50", "tps_user_p5", "tpot_ms_p50", "tpot_ms_p99", "ttft_ms_p50",
    "ttft_ms_p99", "e2e_ms_p50", "e2e_ms_p99", "sla_attainment", "goodput_tok_s_gpu",
)
_SHARES = {"acceptance_rate", "accepted_per_drafted", "wasted_share", "sla_attainment", "utilisation"} | {
    f"time_{part}_share" for part in ("draft", "schedule", "verify", "other", "idle")
}


@dataclass(frozen=True)
class ArmResult:
    """One arm over its replications.

    Attributes:
        arm, policy, drafter, lossless: who it is; ``lossless`` is the policy's claim. drafter None: no speculation.
        parameters: the policy's parameters as the scenario set them.
        gpus: GPUs of one engine.
        figures: name -> :class:`~dspark_sim.stats.Figure`, all of :data:`HEADLINE` and :data:`MORE`.
        steps, requests: engine steps and finished requests inside the measured windows, all replications together;
            None when the arm failed.
        classes: class name -> figures of its requests.
        vllm_bench: means over replications under the field names of vLLM's ``bench serve`` result.
        error: why the arm ended early; its figures are then undefined.
    """

    arm: str
    policy: str
    drafter: str | None
    lossless: bool
    parameters: Mapping[str, Any]
    gpus: int
    figures: Mapping[str, Figure]
    steps: int | None
    requests: int | None
    classes: Mapping[str, Mapping[str, Figure]] = field(default_factory=dict)
    vllm_bench: Mapping[str, float | None] = field(default_factory=dict)
    error: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain data in the documented order."""
        return {
            "arm": self.arm, "policy": self.policy, "drafter": self.drafter, "lossless": self.lossless,
            **{name: self.figures[name].to_dict() for name in HEADLINE},
            "steps": self.steps, "requests": self.requests,
            **{name: self.figures[name].to_dict() for name in MORE},
            "gpus": self.gpus, "policy_parameters": dict(self.parameters),
            "classes": {c: {k: f.to_dict() for k, f in figures.items()} for c, figures in self.classes.items()},
            "vllm_bench": dict(self.vllm_bench), "error": self.error,
        }


@dataclass(frozen=True)
class Results:
    """A finished (or interrupted) comparison.

    Attributes:
        name, description: of the scenario.
        seed, replications: of the run; ``replications`` is what was asked for.
        arms: one :class:`ArmResult` per arm, in the scenario's order; the first is the baseline of differences.
        warnings: sentences about what to doubt.
        assumptions: sentences about where the inputs come from and what was assumed.
        folder: the run folder, None if nothing was written.
        interrupted: the run was stopped; figures cover the replications that had finished.
        runs: the raw tables (:class:`~dspark_sim.simulate.ArmRun`) when the caller kept them.
        open_loop: requests came whether or not earlier ones were done: throughput is the traffic's own, so the table
            begins with what users got.
    """

    name: str
    description: str
    seed: int
    replications: int
    arms: Sequence[ArmResult]
    warnings: Sequence[str] = ()
    assumptions: Sequence[str] = ()
    folder: Path | None = None
    interrupted: bool = False
    runs: Sequence[Any] = ()
    open_loop: bool = False

    @property
    def failed(self) -> bool:
        """Whether any arm ended with an error (the command line then exits with code 1)."""
        return any(arm.error is not None for arm in self.arms)

    def __getitem__(self, arm: str) -> ArmResult:
        """The result of one arm by name."""
        for result in self.arms:
            if result.arm == arm:
                return result
        raise KeyError(f"no arm {arm!r}; arms: {', '.join(a.arm for a in self.arms)}")

    def to_dict(self) -> dict[str, Any]:
        """Plain data; the same scenario and seed give the same dict (no times, no paths)."""
        return {
            "scenario": self.name, "description": self.description, "seed": self.seed,
            "replications": self.replications, "interrupted": self.interrupted,
            "arms": [arm.to_dict() for arm in self.arms],
            "warnings": list(self.warnings), "assumptions": list(self.assumptions),
        }

    def to_json(self) -> str:
        """Strict JSON (null for undefined, never NaN), ending in a newline."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    def to_rows(self) -> list[dict[str, Any]]:
        """One flat dict per arm: ``name``, ``name_ci95_low``, ``name_ci95_high`` for every figure; None: undefined."""
        rows = []
        for arm in self.arms:
            row: dict[str, Any] = {name: getattr(arm, name) for name in _PLAIN_FIRST}
            row |= _flat(arm, HEADLINE)
            row |= {name: getattr(arm, name) for name in _PLAIN_LAST}
            row |= _flat(arm, MORE)
            row["error"] = arm.error
            rows.append(row)
        return rows

    def to_csv(self) -> str:
        """One line per arm; undefined is empty, truth values are ``true`` and ``false``."""
        rows = self.to_rows()
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(rows[0] if rows else _PLAIN_FIRST)
        for row in rows:
            writer.writerow([_cell(value) for value in row.values()])
        return text.getvalue()

    def to_frame(self) -> pd.DataFrame:
        """:meth:`to_rows` as a pandas data frame."""
        import pandas as pd

        return pd.DataFrame(self.to_rows())

    def table(self, width: int = 120) -> str:
        """The table of the command line as plain text of at most ``width`` columns."""
        from dspark_sim.render import as_text

        return as_text(self, width)

    def __str__(self) -> str:
        return self.table()


def arm_result(
    setup: ArmSetup, measured: Sequence[Measured], first: Sequence[Measured], *,
    classes: Sequence[Mapping[str, Measured]] = (), error: str | None = None, baseline: bool = False,
) -> ArmResult:
    """Put the replications of one arm together.

    Args:
        setup: the arm.
        measured: :func:`~dspark_sim.metrics.measure` of each finished replication, in order.
        first: the same of the first arm, for paired differences.
        classes: :func:`~dspark_sim.metrics.measure_classes` of each finished replication.
        error: the arm failed: its figures are undefined, whatever had finished.
        baseline: this is the first arm (its difference to itself is exactly 0).
    """
    if error is not None:
        measured, classes = (), ()

    def values(name: str) -> list[float | None]:
        return [m.get(name) for m in measured]

    figures = {n: _figure(n, values(n)) for n in (*HEADLINE, *MORE) if n != "throughput_vs_first_pct"}
    name = "throughput_tok_s_gpu"
    if baseline and measured:
        figures["throughput_vs_first_pct"] = Figure(0.0, 0.0, 0.0)
    else:
        figures["throughput_vs_first_pct"] = paired_percent(values(name), [m.get(name) for m in first])
    groups = dict.fromkeys(g for replication in classes for g in replication)
    return ArmResult(
        arm=setup.name, policy=setup.policy_reference, drafter=setup.drafter, lossless=setup.policy_source.lossless,
        parameters=dict(setup.policy_parameters), gpus=setup.gpus, figures=figures,
        steps=int(sum(m["steps"] or 0 for m in measured)) if error is None else None,
        requests=int(sum(m["requests"] or 0 for m in measured)) if error is None else None,
        classes={g: {n: _figure(n, [c[g].get(n) for c in classes]) for n in _CLASS_FIGURES} for g in groups},
        vllm_bench=_vllm_bench(measured, setup.gpus), error=error,
    )


def _vllm_bench(measured: Sequence[Measured], gpus: int) -> dict[str, float | None]:
    """Means over replications under the names of vLLM's ``bench serve`` result (vllm/benchmarks/serve.py), where the
    meaning is the same. ITL there is the time between streamed chunks, and a step's tokens come in one chunk: it is
    our step gap. Throughputs are of the whole engine, not per GPU; the acceptance rate is in per cent of draft tokens.
    """

    def mean(name: str) -> float | None:
        return interval([m.get(name) for m in measured]).mean

    def rate(name: str) -> float | None:
        return interval([_over(m.get(name), m["window_s"]) for m in measured]).mean

    output = [None if m["throughput_tok_s_gpu"] is None else m["throughput_tok_s_gpu"] * gpus for m in measured]
    total = [
        None if o is None else o + (_over(m["input_tokens"], m["window_s"]) or 0.0)
        for o, m in zip(output, measured, strict=True)
    ]
    accepted = mean("accepted_per_drafted")
    fields: dict[str, float | None] = {
        "duration": mean("window_s"), "completed": mean("requests"), "total_input_tokens": mean("input_tokens"),
        "total_output_tokens": mean("output_tokens"), "request_throughput": rate("requests"),
        "request_goodput": rate("requests_met_sla"), "output_throughput": interval(output).mean,
        "total_token_throughput": interval(total).mean,
    }
    for theirs, ours in (("ttft", "ttft_ms"), ("tpot", "tpot_ms"), ("itl", "step_gap_ms"), ("e2el", "e2e_ms")):
        fields |= {
            f"mean_{theirs}_ms": mean(f"{ours}_mean"), f"median_{theirs}_ms": mean(f"{ours}_p50"),
            f"p99_{theirs}_ms": mean(f"{ours}_p99"),
        }
        if theirs != "itl":
            fields[f"std_{theirs}_ms"] = mean(f"{ours}_std")
    if any(m.get("draft_tokens") for m in measured):
        fields |= {
            "spec_decode_acceptance_rate": None if accepted is None else 100.0 * accepted,
            "spec_decode_acceptance_length": mean("acceptance_length"), "spec_decode_num_drafts": mean("drafts"),
            "spec_decode_draft_tokens": mean("draft_tokens"), "spec_decode_accepted_tokens": mean("accepted_tokens"),
        }
    return fields


def _figure(name: str, values: Sequence[float | None]) -> Figure:
    return interval(values, low=0.0, high=1.0) if name in _SHARES else interval(values)


def _over(top: float | None, bottom: float | None) -> float | None:
    return None if top is None or not bottom else top / bottom


def _flat(arm: ArmResult, names: Sequence[str]) -> dict[str, float | None]:
    out: dict[str, float | None] = {}
    for name in names:
        figure = arm.figures[name]
        out |= {name: figure.mean, f"{name}_ci95_low": figure.ci95_low, f"{name}_ci95_high": figure.ci95_high}
    return out


def _cell(value: Any) -> Any:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else value
