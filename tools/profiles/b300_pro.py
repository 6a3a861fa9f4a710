# ruff: noqa: E501  (prose of the profile stands in the source as one paragraph)
"""b300x8-deepseek-v4-pro: a curve fitted on three arms of a published throughput benchmark; the fourth is kept back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy.optimize import nnls

from profiles.common import COMMAND, assumptions, block, field_case, read_csv, table, write_csv

NAME = "b300x8-deepseek-v4-pro"
FITTED = {"no_spec": 0, "fixed_k1": 1, "fixed_k3": 3}
KNOTS = [1, 16, 32, 64, 128, 256, 512, 1024]
SOURCE = ("vLLM blog of 2026-08-14, dspark-adaptive-verification, figure 3 (vllm-project.github.io, commit c3a01c4): "
          "SPEED-Bench qualitative, 880 prompts (240 at concurrency 1), at most 2,048 tokens out, temperature 1; "
          "acceptance lengths from SemiAnalysisAI/InferenceX golden_al_distribution (commit 843c625), "
          "DeepSeek-V4-Pro-0813 with DSpark, thinking, SPEED-Bench coding")

DESCRIPTION = """DeepSeek-V4-Pro with its DSpark drafter on eight B300 GPUs (tensor and expert parallel, FP8 KV cache). No step
time was published; it is inferred from throughput: step time = acceptance length / tokens per second of a user. Only the
arms without speculation and with 1 and 3 draft tokens went into the fit (18 points); the arm with 5 is kept back, to be
predicted."""


def extract(data: Path, folder: Path) -> None:
    """The three fitted arms and their acceptance lengths; the arm with 5 draft tokens is not taken."""
    case, lengths = field_case(data, "T1"), [1.0, *field_case(data, "A5")["dsv4_pro_0813_dspark_thinking"]]
    rows = [(arm, k, row["c"], row["tok_s_user"], row["tok_s"], lengths[k])
            for arm, k in FITTED.items() for row in case[arm]]
    write_csv(folder / "source.csv", ["arm", "k", "concurrency", "tok_s_user", "tok_s", "acceptance_length"], rows,
              f"Published. {SOURCE}")


def observations(folder: Path) -> list[tuple[str, int, int, float, float, float]]:
    """Per point: arm, k, concurrency, requests alive as a request meets them, batch tokens, step ms."""
    out = []
    for row in read_csv(folder / "source.csv"):
        k, c = int(row["k"]), int(row["concurrency"])
        user, total, length = (float(row[name]) for name in ("tok_s_user", "tok_s", "acceptance_length"))
        mean = min(1.0, total / (user * c))  # mean share of the c seats in use over the run, by Little's law
        met = (4 * mean - 1) / (3 * mean)  # the same, weighted by requests alive, if the run drains linearly
        out.append((row["arm"], k, c, met * c, met * c * (1 + k), 1e3 * length / user))
    return out


def design(batch: float, k: int) -> list[float]:
    """A point's weights: where its size lies between the knots, whether it pays the drafter, and for how many tokens."""
    drafter = [float(k > 0), float(k)]
    if batch > KNOTS[-1]:
        s = (batch - KNOTS[-2]) / (KNOTS[-1] - KNOTS[-2])
        return [*[0.0] * (len(KNOTS) - 2), 1 - s, s, *drafter]
    weights = [float(np.interp(batch, KNOTS, unit)) for unit in np.eye(len(KNOTS))]
    return [*weights, *drafter]


def fit(folder: Path) -> tuple[list[float], list[float], list[tuple[str, int, float, float, float]]]:
    """Milliseconds at the knots, of the drafter (constant, per token), and per point (arm, concurrency, batch tokens, observed ms, error)."""
    points = observations(folder)
    a = np.array([design(p[4], p[1]) for p in points])
    ms = np.array([p[5] for p in points])
    x, _ = nnls(a / ms[:, None], np.ones(len(ms)))  # relative errors count alike at every load
    x = np.array([float(f"{v:.4g}") for v in x])
    errors = a @ x / ms - 1
    return ([float(v) for v in x[:-2]], [float(v) for v in x[-2:]],
            [(p[0], p[2], p[4], p[5], float(e)) for p, e in zip(points, errors, strict=True)])


def build(folder: Path) -> str:
    """Curve, residuals and ``profile.yaml`` from ``source.csv``; returns the residuals as a table for the README."""
    knots, (base, each), residuals = fit(folder)
    write_csv(folder / "verify.csv", ["batch_tokens", "ms"], zip(KNOTS, knots, strict=True), "Fitted: see profile.yaml")
    rows = [(arm, c, f"{b:.0f}", f"{ms:.2f}", f"{100 * e:+.1f} %") for arm, c, b, ms, e in residuals]
    worst = max(abs(e) for *_, e in residuals)
    rms = float(np.sqrt(np.mean([e**2 for *_, e in residuals])))
    (folder / "profile.yaml").write_text(f"""\
description: {block(DESCRIPTION)}
gpus: 8
measured_context: 0            # unknown: prompts and outputs of the benchmark as they were
max_num_seqs: 256
max_num_batched_tokens: 4096   # the graph limit of the benchmark; the curve beyond 1,024 tokens is extrapolated
verify:
  file: verify.csv
  between: linear
  extrapolate: linear
drafters:
  dspark:
    kind: parallel
    seconds: {{points: [[1, {base:.4g}], [256, {base:.4g}]], unit: ms}}
    per_token: {{points: [[1, {each:.4g}], [256, {each:.4g}]], unit: ms}}
    assumption: {block(f'''what the arms with speculation take more than the arm without at the same batch tokens:
      {base:.2f} ms and {each:.2f} ms per draft token, the same at every load (parts that grow with requests were tried and
      fitted to 0). DSpark's head draws its tokens one after the other, so a cost per token is expected; without it the
      fit is three times worse. Drafter and everything else that speculation adds cannot be told apart here: all of it is
      booked as drafter, and a mistake in the acceptance lengths would be in it too.''', 6)}
prefill: shared
provenance:
  kind: derived
  device: 8x NVIDIA B300, tensor parallel 8 with expert parallel
  model: DeepSeek-V4-Pro-0813 with DSpark
  software: vLLM, FP8 KV cache, CUDA graphs up to 4,096 tokens
  date: 2026-08-14
  source: {block(SOURCE, 4)}
  command: {COMMAND}
  assumptions:
{assumptions([
    f'''Step time = acceptance length / tokens per second of a user. The acceptance lengths (1, 1.84 and 3.01 for 0, 1 and 3
    draft tokens) were measured elsewhere, on coding prompts with thinking; the benchmark's own are not published.
    That all three arms fall on one curve (root mean square {100 * rms:.1f} %, worst {100 * worst:.1f} %) speaks for it.''',
    '''The run drains at its end, so a request meets fewer others than the stated concurrency. The mean share of seats in use
    is throughput / (tokens per second of a user x concurrency): 0.84 to 1. Weighted by requests, with a linear drain, it
    is (4 m - 1) / (3 m): 0.94 to 1. Batch tokens are that share x concurrency x (1 + k).''',
    '''The curve is a broken line through 8 sizes; with the drafter 10 numbers were fitted to 18 points by least squares of relative errors,
    none below 0. It contains whatever prefill interrupted the steps of the benchmark, and its contexts.''',
    '''Beyond 1,024 batch tokens the last segment (512 to 1,024) is continued. The arm with 5 draft tokens was not used.''',
])}
""", newline="\n")
    return (f"Root mean square {100 * rms:.2f} %, worst {100 * worst:.1f} %; drafter {base:.2f} ms + {each:.2f} ms per draft token.\n\n"
            + table(["arm", "concurrency", "batch tokens", "observed ms", "fit − observed"], rows))
