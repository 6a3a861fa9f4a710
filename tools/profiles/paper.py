# ruff: noqa: E501  (prose of the profile stands in the source as one paragraph)
"""deepseek-v4-{flash,pro}-paper[-fig7]: step time read out of the curve that the DSpark paper draws for MTP-1."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from profiles.common import COMMAND, assumptions, block, read_csv, table, write_csv

ACCEPTED = 0.85
SIZES = [2, 4, 6, 8, 10, 15, 20, 30, 40, 50, *range(60, 400, 20), *range(400, 2000, 50)]


@dataclass(frozen=True)
class Paper:
    """One engine (Flash or Pro) after one figure (7 or 8)."""

    engine: str
    figure: int

    @property
    def NAME(self) -> str:  # noqa: N802  (a maker's name is a constant elsewhere)
        """The profile's folder."""
        return f"deepseek-{self.engine.lower()}-paper" + ("-fig7" if self.figure == 7 else "")

    def extract(self, data: Path, folder: Path) -> None:
        """MTP-1's curve: concurrency (Figure 8) or tokens per second of a user (Figure 7), and throughput."""
        name, x = (("fig8_throughput", "concurrent_requests") if self.figure == 8 else ("fig7_frontier", "tps_per_user"))
        with (data / "paper" / f"{name}.csv").open() as file:
            rows = [(float(r[x]), float(r["throughput_tok_s_gpu"])) for r in csv.DictReader(file)
                    if r["engine"] == self.engine and r["method"] == "MTP-1" and float(r[x]) > 0]
        write_csv(folder / "source.csv", [x, "throughput_tok_s_gpu"], sorted(rows), f"Published. {self.source}")

    @property
    def source(self) -> str:
        """Where the curve is drawn."""
        return (f"DSpark paper (DeepSeek-AI and Peking University, 2026; deepseek-ai/DeepSpec, DSpark_paper.pdf), "
                f"Figure {self.figure}, {self.engine}, curve MTP-1, read from the vector drawing")

    def published(self, folder: Path) -> tuple[np.ndarray, np.ndarray]:
        """Nodes of the drawn curve by rising concurrency: (concurrency, throughput)."""
        rows = [[float(v) for v in r.values()] for r in read_csv(folder / "source.csv")]
        x, throughput = np.array(rows).T
        concurrency = x if self.figure == 8 else throughput / x
        order = np.argsort(concurrency)
        return concurrency[order], throughput[order]

    def user_speed(self, folder: Path, concurrency: float) -> float:
        """Tokens per second of a user, on the straight line that the figure draws between two nodes."""
        c, throughput = self.published(folder)
        i = int(np.clip(np.searchsorted(c, concurrency) - 1, 0, len(c) - 2))
        (c0, c1), (h0, h1) = c[i : i + 2], throughput[i : i + 2]
        if self.figure == 8:
            return float((h0 + (h1 - h0) * (concurrency - c0) / (c1 - c0)) / concurrency)
        t0, t1 = h0 / c0, h1 / c1
        s = (concurrency * t0 - h0) / ((h1 - h0) - concurrency * (t1 - t0))
        return float(t0 + s * (t1 - t0))

    def build(self, folder: Path) -> str:
        """Curve and ``profile.yaml`` from ``source.csv``; returns the check for the README."""
        c, throughput = self.published(folder)
        last = int(2 * c[-1])
        sizes = [b for b in SIZES if np.ceil(2 * c[0]) <= b < last - 12] + [last]
        ms = [1e3 * (1 + ACCEPTED) / self.user_speed(folder, b / 2) for b in sizes]
        write_csv(folder / "verify.csv", ["batch_tokens", "ms"], zip(sizes, ms, strict=True), "Derived: see profile.yaml")
        ms = [float(r["ms"]) for r in read_csv(folder / "verify.csv")]
        inside = (2 * c >= sizes[0]) & (2 * c <= sizes[-1])
        again = 1e3 * (1 + ACCEPTED) * c / np.interp(2 * c, sizes, ms)
        error = float(np.max(np.abs(again / throughput - 1)[inside]))
        slope, level = np.polyfit(sizes, ms, 1)
        (folder / "profile.yaml").write_text(self.text(sizes, self.disagreement(folder)), newline="\n")
        return table(["figure", "batch tokens", "ms at the ends", "straight line through it", "worst error of throughput at the nodes"],
                     [(self.figure, f"{sizes[0]}–{sizes[-1]}", f"{ms[0]:.2f}, {ms[-1]:.2f}",
                       f"{level:.1f} ms + {slope:.4f} ms per token", f"{100 * error:.2f} %")])

    def disagreement(self, folder: Path) -> float:
        """Largest relative gap between the two figures' user speeds from 5 to 200 concurrent requests."""
        other = Paper(self.engine, 15 - self.figure)
        there = folder.parent / other.NAME
        return max(abs(self.user_speed(folder, c) / other.user_speed(there, c) - 1) for c in range(5, 201))

    def text(self, sizes: list[int], gap: float) -> str:
        """``profile.yaml``."""
        other = 15 - self.figure
        sibling = Paper(self.engine, other).NAME
        return f"""\
description: {block(f'''DeepSeek-{self.engine} in DeepSeek's own production service, per GPU, as the DSpark paper lets one infer it from the
  curve it draws for MTP-1 in Figure {self.figure}: step time = (1 + a) x concurrency / throughput at 2 batch tokens per request,
  with a = {ACCEPTED} accepted draft tokens per step. {sibling} is the same from Figure {other}.''')}
gpus: 1                        # the figures are per GPU
max_num_seqs: 400
max_num_batched_tokens: 4096   # the curve ends at {sizes[-1]} tokens and is extrapolated beyond
verify:
  file: verify.csv
  between: linear
  extrapolate: linear
drafters:
  mtp:
    kind: parallel
    seconds: {{points: [[1, 0.0], [400, 0.0]], unit: ms}}
    assumption: inside the curve, which is the whole step of an engine with MTP-1
  dspark:
    kind: parallel
    seconds: {{points: [[1, 0.0], [400, 0.0]], unit: ms}}
    assumption: {block('''the same as MTP-1's, which is inside the curve. The paper gives no drafter time for this service; DSpark's three
      layers over five positions cost more than MTP's one over two.''', 6)}
prefill: shared
provenance:
  kind: derived
  device: not published (DeepSeek's production service)
  model: DeepSeek-{self.engine}
  software: not published
  date: "2026"
  source: {block(self.source, 4)}
  command: {COMMAND}
  assumptions:
{assumptions([
    f'''MTP-1 keeps a = {ACCEPTED} draft tokens per step at every load, so that a step emits {1 + ACCEPTED} tokens. The paper does not say; {ACCEPTED} is
    the middle of 0.79 (thinking) and 0.92 (not thinking), measured for DeepSeek-V4-Pro's MTP on coding prompts
    (SemiAnalysisAI/InferenceX golden_al_distribution, commit 843c625). Every step time here is proportional to 1 + a.''',
    '''Concurrency is the number of requests being decoded per GPU and throughput = concurrency x tokens per second of a user, as the
    paper has it. The curve is the whole step: drafter, host, and whatever prefill and context lengths the service had.''',
    f'''The figures are curves that the authors fitted to telemetry, and Figures 7 and 8 do not agree with each other: at equal
    concurrency (5 to 200) MTP-1's tokens per second of a user differ by up to {100 * gap:.0f} %. No profile can reproduce both; this
    one follows Figure {self.figure}.''',
    f'''From {sizes[-1]} batch tokens on the last segment is continued, as far as 1,200 tokens and more where a scenario asks for it;
    below {sizes[0]} the first one.''',
])}
"""


MAKERS = [Paper(engine, figure) for engine in ("V4-Flash", "V4-Pro") for figure in (8, 7)]
