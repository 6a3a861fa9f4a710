# ruff: noqa: E501  (prose of the profile stands in the source as one paragraph)
"""h20-qwen3-8b: a small roofline fitted on published verify times, and drafters fitted on the two smallest batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from profiles.common import COMMAND, assumptions, block, field_case, read_csv, table, write_csv

NAME = "h20-qwen3-8b"
DRAFT = 15  # positions that DFlash-B16 drafts; a keep ratio is a share of them
WIDTH = {"AR": 1, "DFlash-B8": 8, "DFlash-B16": 16}
BATCHES = (4, 8, 16, 32, 64)
FIT_BATCHES = (4, 8)
EAGLE_SHARE = 0.75 / 16.4  # weights of the EAGLE-3 layer and head beside the target's, GB in bf16
SIZES = [1, *range(4, 65, 4), *range(72, 193, 8), 256, 512, 1024, 2048]
SOURCE = ("Tencent AngelSlim, docs/source/_extra/dcut.html (commit 67394ce), sections 02 (verify step of DFlash-B16 by batch and "
          "keep ratio) and the DATA block (throughput of Qwen3-8B, temperature 0, mean of 5 benchmarks); paper arXiv 2607.14647")

DESCRIPTION = """Qwen3-8B in bf16 on one H20, vLLM. A roofline of four numbers by batch tokens, a cost per request, and the drafters, fitted
on published verify times (20 points), on the throughput without speculation, and for the drafters on batches 4 and 8 only.
A dense model on a GPU with little compute: speculation turns into a loss here."""

Point = tuple[str, int, float, bool, float]


def extract(data: Path, folder: Path) -> None:
    """Verify times; throughput without speculation at all batches, with speculation at batches 4 and 8."""
    rows = [(r[0], q, ms) for r in field_case(data, "S2")["rows"] for q, ms in zip((0.25, 0.5, 0.75, 1.0), r[1:], strict=True)]
    write_csv(folder / "verify_source.csv", ["requests", "keep_ratio", "ms"], rows, f"Published. {SOURCE}")
    case = field_case(data, "T3")["Qwen3-8B"]
    wanted = [("AR", b) for b in BATCHES] + [(a, b) for a in ("EAGLE-3", "DFlash-B8", "DFlash-B16") for b in FIT_BATCHES]
    write_csv(folder / "throughput_source.csv", ["arm", "requests", "tok_s"],
              [(arm, b, case[arm][str(b)]["tok_s"]) for arm, b in wanted], f"Published. {SOURCE}")


def model(x: Any, requests: float, batch: float, dflash: bool) -> float:
    """Milliseconds of a step: host + softened maximum of memory and compute + per request (+ DFlash per request)."""
    host, memory, compute, sharp, alpha, draft = x
    return float(host + (memory**sharp + (compute * batch) ** sharp) ** (1 / sharp) + (alpha + draft * dflash) * requests)


def points(folder: Path) -> list[Point]:
    """What the six numbers are fitted on: (label, requests, batch tokens, with DFlash, ms)."""
    out: list[Point] = []
    for r in read_csv(folder / "verify_source.csv"):
        n, keep = int(r["requests"]), float(r["keep_ratio"])
        out.append((f"verify, keep {keep:.0%}", n, n * (1 + DRAFT * keep), True, float(r["ms"])))
    return out + [("no speculation", b, float(b), False, b / s * 1e3) for b, s in throughput(folder, "AR").items()]


def throughput(folder: Path, arm: str) -> dict[int, float]:
    """Tokens per second by batch."""
    return {int(r["requests"]): float(r["tok_s"]) for r in read_csv(folder / "throughput_source.csv") if r["arm"] == arm}


def fit(observed: list[Point]) -> list[float]:
    """The six numbers by least squares of relative errors."""
    def errors(x: Any) -> list[float]:
        return [model(x, p[1], p[2], p[3]) / p[4] - 1 for p in observed]

    found = least_squares(errors, [1, 6, 0.1, 2, 0.1, 0.2], bounds=([0, 0, 0, 1, 0, 0], [8, 20, 1, 20, 1, 1]),
                          xtol=1e-14, ftol=1e-14, gtol=1e-14)
    return [float(f"{v:.4g}") for v in found.x]


def eagle_ms(x: list[float], requests: float) -> float:
    """One pass of the EAGLE-3 drafter over ``requests`` tokens: the target's roofline, by its share of the weights."""
    return model([0, x[1] * EAGLE_SHARE, x[2] * EAGLE_SHARE, x[3], 0, 0], requests, requests, False)


def acceptance(folder: Path, x: list[float], arm: str, width: int, draft_passes: int = 0) -> tuple[float, float]:
    """(acceptance length, mismatch between batches 4 and 8) that explains an arm's throughput at those batches."""
    dflash = arm.startswith("DFlash")
    lengths = [s * (model(x, b, b * width, dflash) + draft_passes * eagle_ms(x, b)) / 1e3 / b
               for b, s in throughput(folder, arm).items()]
    return float(np.mean(lengths)), lengths[1] / lengths[0] - 1


def build(folder: Path) -> str:
    """Curves and ``profile.yaml`` from the source tables; returns the checks for the README."""
    observed = points(folder)
    x = fit(observed)
    host, memory, compute, sharp, alpha, draft = x
    errors = [model(x, p[1], p[2], p[3]) / p[4] - 1 for p in observed]
    rms, worst = float(np.sqrt(np.mean(np.square(errors)))), float(np.max(np.abs(errors)))
    write_csv(folder / "verify.csv", ["batch_tokens", "ms"], [(b, round(model(x, 0, b, False), 3)) for b in SIZES],
              "Fitted: see profile.yaml")
    write_csv(folder / "eagle3.csv", ["requests", "ms"], [(r, round(eagle_ms(x, r), 4)) for r in (1, 4, 8, 16, 32, 48, 64, 96, 128)],
              "Assumed: see profile.yaml")
    eagle = {k: acceptance(folder, x, "EAGLE-3", k + 1, k) for k in range(2, 8)}
    best = min(eagle, key=lambda k: abs(eagle[k][1]))
    flash = {arm: acceptance(folder, x, arm, width) for arm, width in WIDTH.items() if arm != "AR"}
    (folder / "profile.yaml").write_text(f"""\
description: {block(DESCRIPTION)}
gpus: 1
measured_context: 0            # unknown
max_num_seqs: 64
max_num_batched_tokens: 2048
verify:
  file: verify.csv
  between: linear
per_request: {alpha / 1e3:.4g}         # seconds per decoding request
drafters:
  dflash:
    kind: parallel
    seconds: {{points: [[1, {draft:.4g}], [64, {64 * draft:.4g}]], unit: ms}}
    assumption: {block(f'''what the published verify step of DFlash-B16 takes per request beyond the engine without speculation:
      {draft:.3f} ms per request, whatever is verified. Drafting 16 positions with 5 small layers and the head would take about
      that; a constant part, and one for batches 4 and 8 of DFlash-B8 and -B16, were tried and fitted to 0.''', 6)}
  eagle3:
    kind: autoregressive
    seconds: {{file: eagle3.csv}}
    assumption: {block(f'''not measured. One pass per token over one layer and a head of 32,000 words, 0.75 GB beside the target's
      16.4 GB: the target's own roofline times that share, without host time. The number of draft tokens is not published
      either: of 2 to 7, {best} explains batches 4 and 8 best (acceptance length {eagle[best][0]:.2f}, mismatch {100 * eagle[best][1]:+.1f} %).''', 6)}
prefill: shared
provenance:
  kind: derived
  device: 1x NVIDIA H20
  model: Qwen3-8B (bf16) with DFlash and EAGLE-3
  software: vLLM
  date: "2026"
  source: {block(SOURCE, 4)}
  command: {COMMAND}
  assumptions:
{assumptions([
    f'''Step ms = {host:.2f} + (({memory:.2f})^p + ({compute:.4f} B)^p)^(1/p) + {alpha:.3f} R, p = {sharp:.2f}; with DFlash {draft:.3f} R more. Six
    numbers fitted to 25 points: root mean square {100 * rms:.1f} %, worst {100 * worst:.1f} %.''',
    f'''A keep ratio q means B = R (1 + {DRAFT} q) tokens: the anchor and q of the {DRAFT} draft positions.''',
    '''The engine without speculation enters at all five batches. From batches 4 and 8 alone the cost per request cannot be told
    from the cost per token; README shows what that would have predicted.''',
    '''A step emits acceptance length x R tokens and nothing but steps takes time. Context lengths are not published, so the
    cost of reading them is in the cost per request.''',
])}
""", newline="\n")
    text = f"Fit of six numbers to 25 points: root mean square {100 * rms:.2f} %, worst {100 * worst:.1f} %.\n\n"
    text += table(["what", *(f"R = {b}" for b in BATCHES)],
                  [(what, *(f"{100 * e:+.1f} %" for p, e in zip(observed, errors, strict=True) if p[0] == what))
                   for what in dict.fromkeys(p[0] for p in observed)])
    small = fit([p for p in observed if p[3] or p[1] in FIT_BATCHES])
    missed = [f"{100 * (model(small, p[1], p[2], p[3]) / p[4] - 1):+.1f} % at {p[1]}" for p in observed if not p[3] and p[1] > 8]
    text += ("\nWithout speculation at batches 4 and 8 only, the same model would have put its step off by "
             + ", ".join(missed) + ".\n\nAcceptance lengths that explain batches 4 and 8, and how far the two batches disagree:\n\n")
    rows = [(arm, f"{al:.2f}", f"{100 * gap:+.1f} %") for arm, (al, gap) in flash.items()]
    rows += [(f"EAGLE-3 with {k} draft tokens" + (" (taken)" if k == best else ""), f"{al:.2f}", f"{100 * gap:+.1f} %")
             for k, (al, gap) in eagle.items()]
    return text + table(["arm", "acceptance length", "8 against 4"], rows)
