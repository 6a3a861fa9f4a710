"""vLLM's ``bench serve`` results as a validation case: one file per load, measured on the user's own system.

The field names are those that vllm/benchmarks/serve.py saves with ``--save-result``. A case made from them has nothing
fitted: everything that the files hold and the base scenario can predict is compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dspark_sim.errors import ScenarioError, nearest, shown
from dspark_sim.jsonvalues import json_values
from dspark_sim.scenario import load_scenario
from dspark_sim.validate_case import Case, case_from_document
from dspark_sim.yamlio import Document

__all__ = ["FIELDS", "case_from_bench"]

FIELDS = {
    "output_throughput": "throughput_tok_s", "mean_tpot_ms": "tpot_ms_mean", "median_tpot_ms": "tpot_ms_p50",
    "median_ttft_ms": "ttft_ms_p50", "median_e2el_ms": "e2e_ms_p50",
    "spec_decode_acceptance_length": "acceptance_length",
}
"""vLLM's field -> ours."""
_NEEDED = ("max_concurrency", "request_rate", "completed", "output_throughput", "total_input_tokens",
           "total_output_tokens")  # TPOT is not among them: --percentile-metrics may leave it out
_PREFILL = ("ttft_ms_p50", "e2e_ms_p50")
SAVED = "a result of vllm bench serve --save-result, or several of --append-result"


def case_from_bench(files: Sequence[Path], base: str | Path, arm: str | None = None) -> Case:
    """One case from several result files.

    Args:
        files: at different ``max_concurrency`` (closed loop) or different ``request_rate`` (open loop), not mixed.
        base: the scenario that describes the system: its profile, traces and arms. Arrival, lengths and the number of
            requests are taken from the files.
        arm: which of its arms was served; None: the first.

    Raises:
        ScenarioError: a file that is no result of ``vllm bench serve``; names file and field.
    """
    scenario = load_scenario(base)
    names = [a.name for a in scenario.arms]
    arm = names[0] if arm is None else arm
    if arm not in names:
        raise ScenarioError(f"no arm {shown(arm)} in the scenario", key="--arm", allowed=", ".join(names),
                            suggestion=nearest(arm, names))
    results = [(path, result) for path in files for result in _read(path)]
    closed = [r["max_concurrency"] is not None for _, r in results]
    if any(closed) != all(closed):
        path = next(p for (p, _), c in zip(results, closed, strict=True) if c != closed[0])
        raise ScenarioError("one file is a closed loop and another is not", file=path, key="max_concurrency",
                            allowed="max_concurrency in all files, or in none")
    axis = "workload.arrival.concurrency" if closed[0] else "workload.arrival.rate_per_s"
    no_prefill = scenario.engine.prefill in (None, "none")
    table, at, loads = [], [], {}  # type: list[dict[str, Any]], list[dict[str, Any]], dict[float, Path]
    for path, r in results:
        load = r["max_concurrency"] if closed[0] else r["request_rate"]
        if not isinstance(load, (int, float)):
            raise ScenarioError(f"got {shown(load)}", file=path, key="request_rate",
                                allowed="a rate, where max_concurrency is null")
        if load in loads:
            raise ScenarioError(f"has the load {load:g} of {loads[load].name} again", file=path)
        loads[load] = path
        found = {ours: r[field] for field, ours in FIELDS.items()
                 if r.get(field) is not None and not (no_prefill and ours in _PREFILL)}
        table.append({"arm": arm, "columns": ["at", *found], "rows": [[load, *found.values()]]})
        at.append({"load": load, "set": _settings(r, load, axis, len(scenario.workload.classes))})
    data = {
        "title": f"{len(results)} result{'s' * (len(results) != 1)} of vllm bench serve",
        "source": [str(p) for p in files],
        "system": str(results[0][1].get("model_id", "as served")),
        "fitted": {"parameters": 0, "on": ["nothing: the profile and the traces of the base scenario as they are"]},
        "predicted": "every figure that the files hold and the scenario can predict",
        "axis": axis, "axis_name": "concurrency" if closed[0] else "requests per second",
        "at": at, "scenario": str(base), "published": table,
    }
    if no_prefill:
        data["limits"] = ["The base scenario simulates no prefill, so time to first token is not compared."]
    return case_from_document(Document(data, Path.cwd() / "vllm-bench.yaml"), "vllm-bench")


def _settings(r: Mapping[str, Any], load: float, axis: str, classes: int) -> dict[str, Any]:
    """What the file says about the traffic, as keys of the scenario."""
    n = int(r["completed"])
    out: dict[str, Any] = {"measure": {"mode": "whole_run", "requests": n}}
    if axis.endswith("concurrency"):
        out["workload.arrival"] = {"kind": "closed", "concurrency": int(load)}
    else:
        burst = r.get("burstiness")
        cv = float(burst) ** -0.5 if isinstance(burst, (int, float)) and burst > 0 else 1.0
        out["workload.arrival"] = ({"kind": "poisson", "rate_per_s": float(load)} if abs(cv - 1) < 1e-9
                                   else {"kind": "gamma", "rate_per_s": float(load), "cv": cv})
    for ours, lengths, total in (("prompt_tokens", "input_lens", "total_input_tokens"),
                                 ("output_tokens", "output_lens", "total_output_tokens")):
        listed = [int(v) for v in r.get(lengths) or [] if isinstance(v, (int, float)) and v >= 1]
        whole = len(listed) == len(r.get(lengths) or []) == n  # none failed: request by request, as they were sent
        how: dict[str, Any] = ({"kind": "empirical", "values": listed, "order": "listed" if whole else "drawn"}
                               if listed
                               else {"kind": "constant", "value": max(1, round(r[total] / n))})
        for i in range(classes):
            out[f"workload.classes.{i}.{ours}"] = how
    return out


def _read(path: Path) -> list[dict[str, Any]]:
    """The results in a file: one, or with ``--append-result`` one after the other."""
    found = json_values(path, ScenarioError, SAVED)
    return [_checked(data, path, line if len(found) > 1 else None) for data, line in found]


def _checked(data: Any, path: Path, line: int | None) -> dict[str, Any]:
    """One result, with every field that is used a number that it may be."""
    if not isinstance(data, dict):
        raise ScenarioError(f"holds {shown(type(data).__name__)}", file=path, line=line, allowed=SAVED)
    missing = [name for name in _NEEDED if name not in data]
    if missing:
        raise ScenarioError(f"has no field {missing[0]}: it is no result of vllm bench serve", file=path, line=line,
                            key=missing[0], allowed="the JSON that --save-result writes")
    for name in (*_NEEDED, *FIELDS):
        value, positive = data.get(name), name not in ("request_rate", "max_concurrency")
        if positive and value is None and name not in _NEEDED:
            continue
        good = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < float("inf")
        if positive and not good:
            raise ScenarioError(f"got {shown(value)}", file=path, line=line, key=name, allowed="a number > 0")
        if name == "max_concurrency" and value is not None and (type(value) is not int or value < 1):
            raise ScenarioError(f"got {shown(value)}", file=path, line=line, key=name,
                                allowed="a whole number ≥ 1, or null")
    rate = data["request_rate"]
    if data["max_concurrency"] is not None and isinstance(rate, (int, float)) and rate < float("inf"):
        raise ScenarioError(f"got {rate:g} beside max_concurrency {data['max_concurrency']}, and either may have been "
                            "the limit", file=path, line=line, key="request_rate",
                            allowed='"inf" where users were the limit; where the rate was, null as max_concurrency')
    return data
