# ruff: noqa: E501  (prose of the profile stands in the source as one paragraph)
"""rtx5090-qwen3-4b: published prefill times, and a decode step fitted on the lighter half of an open-loop benchmark."""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from profiles.common import COMMAND, assumptions, block, field_case, read_csv, table, write_csv

NAME = "rtx5090-qwen3-4b"
FIT_QPS = (1, 4, 8)
OUT, PROMPT, ROUNDS = 128, 1024, 3
FIT = f"""
name: fit
profile: ./{NAME}
seed: 100
replications: 2
record: requests
engine: {{prefill: chunked}}
workload:
  arrival: {{kind: poisson, rate_per_s: 1}}
  prompt_tokens: {{kind: constant, value: {PROMPT}}}
  output_tokens: {{kind: constant, value: {OUT}}}
  classes: [{{name: random, share: 1.0}}]
measure: {{mode: whole_run, requests: 60}}
arms: [{{name: served, policy: no_spec}}]
"""
SOURCE = ("pegainfer-project/pegainfer, docs/models/qwen3/serving-performance.md (commit e38dfdd8): Qwen3-4B in bf16 on one RTX "
          "5090, random prompts of 1,024 and outputs of 128 tokens, Poisson arrivals, greedy; and its cold prefill times")

DESCRIPTION = """Qwen3-4B in bf16 on one RTX 5090, pegainfer, without speculation. Prefill times as published; a decode step of a
constant and a cost per request, fitted on the median TPOT at 1, 4 and 8 requests per second."""


def extract(data: Path, folder: Path) -> None:
    """Prefill times, and the median TPOT at the lighter loads only."""
    case = field_case(data, "S5")
    write_csv(folder / "prefill_source.csv", ["batch_tokens", "ms"], [(int(n), ms) for n, ms in case["qwen3_4b_prefill_cold_ms"].items()],
              f"Published. {SOURCE}")
    write_csv(folder / "source.csv", ["qps", "tpot_p50_ms"], [(r[0], r[5]) for r in case["qwen3_4b"]["rows"] if r[0] in FIT_QPS],
              f"Published. {SOURCE}")


def fit(folder: Path) -> tuple[float, list[tuple[int, float]]]:
    """(ms of a step of one token, [requests, ms beyond that step and the line through the prefill times]).

    First by arithmetic, as if every step met the mean number of requests; then corrected by what the simulator makes of
    the fitted loads, for arrivals that come in bunches slow each other down by more than arithmetic says. Not fitted on
    2 requests per second: half of its prompts were in the prefix cache (scenarios/validation/rtx5090-open-loop.yaml).
    """
    times = {int(r["batch_tokens"]): float(r["ms"]) for r in read_csv(folder / "prefill_source.csv")}
    wanted = {int(r["qps"]): float(r["tpot_p50_ms"]) for r in read_csv(folder / "source.csv")}
    base, points = start(folder)
    for _ in range(ROUNDS):
        got = simulated(folder, base, points, list(wanted))
        off = [(ms - got[q]) * (1 - q * (times[PROMPT] - base) / 1e3) for q, ms in wanted.items()]
        base += off[0]
        points = [(n, ms + more - off[0]) for (n, ms), more in zip(points, off, strict=True)]
    return float(f"{base:.4g}"), [(n, max(0.0, round(ms, 3))) for n, ms in points]


def simulated(folder: Path, base: float, points: list[tuple[int, float]], loads: list[int]) -> dict[int, float]:
    """Median TPOT in ms by requests per second, a minute of each, as in the benchmark."""
    from dspark_sim import load_scenario, run

    with TemporaryDirectory() as place:
        target = Path(place) / NAME
        shutil.copytree(folder, target)
        write(target, base, points)
        scenario = Path(place) / "fit.yaml"
        scenario.write_text(FIT)
        out = {}
        for q in loads:
            done = run(load_scenario(scenario, {
                "workload.arrival.rate_per_s": q, "workload.arrival.exact_after": 60 * q, "measure.requests": 60 * q}))
            out[q] = float(done.arms[0].figures["tpot_ms_p50"].mean or 0.0)
        return out


def start(folder: Path) -> tuple[float, list[tuple[int, float]]]:
    """The fit by arithmetic."""
    times = {int(r["batch_tokens"]): float(r["ms"]) for r in read_csv(folder / "prefill_source.csv")}
    rows = [(int(r["qps"]), float(r["tpot_p50_ms"])) for r in read_csv(folder / "source.csv")]
    first, base = min(times), rows[0][1]
    points: list[tuple[int, float]] = []
    for _ in range(50):  # a prompt adds its time less one step, which is what is sought
        steps = [(1 + q * (OUT - 1) * ms / 1e3, ms * (1 - q * (times[PROMPT] - base) / 1e3)) for q, ms in rows]
        slope = (times[first] - base) / (first - 1)
        points = [(round(n), ms - base - slope * (n - 1)) for n, ms in steps]
        base = steps[0][1] - slope * (steps[0][0] - 1)
    return base, points


def build(folder: Path) -> str:
    """``profile.yaml`` from the source tables; returns the residuals for the README."""
    base, points = fit(folder)
    write(folder, base, points)
    return table(["requests", "ms beyond the tokens' own"], [(n, f"{ms:.2f}") for n, ms in points])


def write(folder: Path, base: float, points: list[tuple[int, float]]) -> None:
    """``verify.csv`` and ``profile.yaml``."""
    write_csv(folder / "verify.csv", ["batch_tokens", "ms"],
              [(1, base), *((int(r["batch_tokens"]), float(r["ms"])) for r in read_csv(folder / "prefill_source.csv"))],
              "One token: fitted; the others are the published prefill times. See profile.yaml")
    (folder / "profile.yaml").write_text(f"""\
description: {block(DESCRIPTION)}
gpus: 1
measured_context: 0            # the context of the benchmark is in the cost per request
max_num_seqs: 256
max_num_batched_tokens: 8192
verify:
  file: verify.csv
  extrapolate: linear
fixed:                         # by requests: reading their KV (about 1,100 tokens each), sampler, small batches
  points: [{', '.join(f'[{n}, {ms:.3g}]' for n, ms in points)}]
  unit: ms
  extrapolate: linear
prefill: shared
provenance:
  kind: derived
  device: 1x NVIDIA RTX 5090
  model: Qwen3-4B (bf16)
  software: pegainfer
  date: "2026"
  source: {block(SOURCE, 4)}
  command: {COMMAND}
  assumptions:
{assumptions([
    f'''A decode step of one token takes {base:.2f} ms; more tokens follow straight lines through the published prefill times, and
    requests add what `fixed` says: a broken line through the three fitted loads, whose last segment goes on. A prompt is
    prefilled in the same pass that decodes the others, so the weights are read once: it adds its prefill time less {base:.1f} ms to
    one step. The line stands at the mean number of requests that an arrival meets, and itself; its heights are those with
    which the simulator gives the published median TPOT (two replications of a minute).''',
    '''Prefill times are those of a cold engine; warm ones were not published. Limits on running requests and tokens per step are vLLM's defaults.''',
])}
""", newline="\n")
