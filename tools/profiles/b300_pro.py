# ruff: noqa: E501  (prose of the profile stands in the source as one paragraph)
"""b300x8-deepseek-v4-pro: a curve fitted on three arms of a published throughput benchmark; the fourth is kept back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.interpolate import PchipInterpolator
from scipy.optimize import least_squares

from profiles.common import COMMAND, assumptions, block, field_case, read_csv, table, write_csv

NAME = "b300x8-deepseek-v4-pro"
FITTED = {"no_spec": 0, "fixed_k1": 1, "fixed_k3": 3}
LOST_STEPS = 15 / 1240  # steps between two requests of a user, per token of a request's output
KNOTS = [1, 16, 32, 64, 128, 256, 512, 1024]
SIZES = [1, 2, 4, *range(8, 33, 4), *range(40, 65, 8), *range(80, 129, 16), *range(160, 257, 32), *range(320, 513, 64),
         *range(640, 1025, 128), 1536]
Point = tuple[str, int, int, float, float, float]
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


def observations(folder: Path) -> list[Point]:
    """Per point: arm, k, concurrency, requests alive as a request meets them, batch tokens, step ms."""
    out = []
    for row in read_csv(folder / "source.csv"):
        k, c = int(row["k"]), int(row["concurrency"])
        user, total, length = (float(row[name]) for name in ("tok_s_user", "tok_s", "acceptance_length"))
        lost = LOST_STEPS * length / (1 + LOST_STEPS * length)  # share of its time that a seat waits for its next request
        drain = min(1.0, total / (user * c * (1 - lost)))  # mean share of seats that have one, by Little's law
        met = (1 - lost) * (1 + drain) / 2  # share in use as a step of a request meets it
        out.append((row["arm"], k, c, met * c, met * c * (1 + k), 1e3 * length / user))
    return out


def curve(ms: Any, batch: Any, how: str = "pchip", knots: Sequence[int] = KNOTS) -> Any:
    """Milliseconds at ``batch`` tokens through ``ms`` at the knots: monotone cubic, or straight lines; beyond the last
    knot the last segment goes on straight."""
    inside = np.minimum(batch, knots[-1])
    out = PchipInterpolator(knots, ms)(inside) if how == "pchip" else np.interp(inside, knots, ms)
    return out + (batch - inside) * (ms[-1] - ms[-2]) / (knots[-1] - knots[-2])


def solve(points: Sequence[Point], how: str = "pchip", knots: Sequence[int] = KNOTS) -> tuple[Any, Any]:
    """(ms at the knots and the drafter's two numbers, relative errors) by least squares, nothing below 0."""
    k, batch, ms = (np.array([p[i] for p in points]) for i in (1, 4, 5))

    def errors(x: Any) -> Any:
        return (curve(x[:-2], batch, how, knots) + (k > 0) * x[-2] + k * x[-1]) / ms - 1

    start = np.r_[np.interp(knots, [1, 64, 1024], [10, 22, 68]), 1.0, 0.2]
    found = least_squares(errors, start, bounds=(0, 500), xtol=1e-14, ftol=1e-14, gtol=1e-14)
    x = np.array([float(f"{v:.4g}") for v in found.x])
    return x, errors(x)


def left_out(points: Sequence[Point], how: str) -> dict[int, float]:
    """Knot -> mean error of the points near it when neither they nor the knot take part in the fit."""
    out = {}
    for knot in KNOTS[2:-1]:
        near = [p for p in points if abs(np.log2(p[4] / knot)) < 0.3]
        knots = [q for q in KNOTS if q != knot]
        x, _ = solve([p for p in points if p not in near], how, knots)
        k, batch, ms = (np.array([p[i] for p in near]) for i in (1, 4, 5))
        out[knot] = float(np.mean((curve(x[:-2], batch, how, knots) + (k > 0) * x[-2] + k * x[-1]) / ms - 1))
    return out


def build(folder: Path) -> str:
    """Curve, residuals and ``profile.yaml`` from ``source.csv``; returns the residuals as a table for the README."""
    points = observations(folder)
    x, errors = solve(points)
    base, each = float(x[-2]), float(x[-1])
    residuals = [(p[0], p[2], p[4], p[5], float(e)) for p, e in zip(points, errors, strict=True)]
    write_csv(folder / "verify.csv", ["batch_tokens", "ms"],
              [(b, round(float(curve(x[:-2], b)), 3)) for b in SIZES], "Fitted: see profile.yaml")
    check = {how: left_out(points, how) for how in ("pchip", "lines")}
    spread = {how: 100 * float(np.sqrt(np.mean(np.square(list(found.values()))))) for how, found in check.items()}
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
    f'''A request meets fewer others than the stated concurrency: a seat waits {1e3 * LOST_STEPS:.1f} steps per 1,000 tokens of output
    between two requests, and the run drains at its end. The mean share of seats in use is throughput / (tokens per second
    of a user x concurrency): 0.84 to 1; waiting and drain were told apart by how it falls with k and with concurrency.
    As a step meets it the drain's share d counts (1 + d) / 2, which simulating the run shows. Batch tokens are the share
    met ({min(p[3] / p[2] for p in points):.2f} to 1) x concurrency x (1 + k).''',
    f'''The curve is a monotone cubic (PCHIP) through 8 sizes, written out in between; with the drafter 10 numbers were fitted to 18
    points by least squares of relative errors, none below 0. Leaving one of the sizes 32 to 512 out with the points near it
    puts those off by {spread['pchip']:.1f} % (root mean square); with straight lines by {spread['lines']:.1f} %. It contains whatever prefill interrupted the steps of the benchmark, and its contexts.''',
    '''Beyond 1,024 batch tokens the last segment (512 to 1,024) is continued. The arm with 5 draft tokens was not used.''',
])}
""", newline="\n")
    return (f"Root mean square {100 * rms:.2f} %, worst {100 * worst:.1f} %; drafter {base:.2f} ms + {each:.2f} ms per draft token.\n\n"
            + table(["arm", "concurrency", "batch tokens", "observed ms", "fit − observed"], rows))
