"""Two checks beside the clock: is the text of every arm the target's own, and how good is replaying a trace?

**Greedy.** Every arm decodes greedily and must give plain decoding's tokens. Batches of other shapes round differently,
so two tokens may change places where the target's two best logits differ by rounding; such a place is told with its gap
and is no loss. A gap beyond rounding is.

**Replay.** An arm's own texts, as it wrote them, are read again: blocks are drafted at every position, coupled to the
text, and the arm is simulated on this trace. Same text, fresh drafts: the difference in steps per request is what
replaying a trace costs, free of the luck of the text. It must vanish but for chance where a policy reads current rows
only; a policy that reads unverified tails of earlier rows (``past``) is replayed approximately.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dspark_sim.arms import ArmSetup
from dspark_sim.errors import RunError
from dspark_sim.lab.collect import collect
from dspark_sim.lab.corpus import Document
from dspark_sim.lab.drafters import Drafter
from dspark_sim.lab.live_engine import LiveRun, live_run
from dspark_sim.lab.live_plan import LivePrompt
from dspark_sim.lab.live_world import class_names, split_samples
from dspark_sim.lab.target import Target
from dspark_sim.registry import find_policy
from dspark_sim.simulate import simulate
from dspark_sim.stats import interval

__all__ = ["Greedy", "compare_greedy", "documents_of", "greedy_outputs", "plain_setup", "replay_difference"]

ROUNDING = {torch.float32: 0.01, torch.bfloat16: 0.5, torch.float16: 0.1}  # logits


@dataclass(frozen=True)
class Greedy:
    """An arm's greedy text against plain decoding.

    Attributes:
        requests, tokens: compared.
        different: requests that differ.
        gap: the largest difference of the target's logits of the two tokens where a request first differs.
        lossless: nothing differs beyond rounding.
        error: why the arm could not be run.
    """

    requests: int
    tokens: int
    different: int
    gap: float
    lossless: bool
    error: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def plain_setup(setup: ArmSetup) -> ArmSetup:
    """Plain decoding under the limits of an arm."""
    cls, source = find_policy("no_spec")
    return replace(setup, name="no_spec", label="no_spec", drafter=None, trace=None, drafter_cost=None,
                   policy_reference="no_spec", policy_parameters={}, policy_source=source, policy_class=cls)


def greedy_outputs(
    setup: ArmSetup, target: Target, drafter: Drafter, prompts: Sequence[LivePrompt], tokens: int, seed: int
) -> LiveRun:
    """One greedy run of an arm, whatever temperature its scenario has."""
    cold = replace(setup, engine=replace(setup.engine, temperature=0.0))
    return live_run(cold, target, drafter, [p.tokens for p in prompts], tokens, class_names(prompts), seed=seed)


def compare_greedy(
    target: Target, prompts: Sequence[LivePrompt], plain: Sequence[Sequence[int]], arm: Sequence[Sequence[int]],
    error: str | None = None,
) -> Greedy:
    """Token for token; where a request first differs the target is asked for the gap."""
    different, gap = 0, 0.0
    for prompt, a, b in zip(prompts, plain, arm, strict=True):
        n = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), None)
        if n is None:
            different += len(a) != len(b)
            gap = float("inf") if len(a) != len(b) else gap
            continue
        different += 1
        ids = torch.tensor([[*prompt.tokens, *a[:n]]], device=target.device)
        logits = target.logits(target.forward(ids).last[0, -1])
        best = logits.max()
        gap = max(gap, float(best - logits[a[n]]), float(best - logits[b[n]]))
    lossless = error is None and gap <= ROUNDING[target.dtype]
    return Greedy(len(prompts), sum(map(len, plain)), different, gap if np.isfinite(gap) else 1e9, lossless, error)


def documents_of(prompts: Sequence[LivePrompt], texts: Sequence[Sequence[int]]) -> list[Document]:
    """Responses as collection takes them; ``texts`` are all prompts' first ones, then all their second ones, …"""
    return [Document(p.id, p.domain, "held-out", np.array(p.tokens, dtype=np.int64), np.array(t, dtype=np.int64), False)
            for p, t in zip([*prompts] * (len(texts) // len(prompts)), texts, strict=True)]


def replay_difference(
    scenario: Any, setup: ArmSetup, target: Target, drafter: Drafter, prompts: Sequence[LivePrompt],
    runs: Sequence[tuple[list[list[int]], list[int]]], seed: int, folder: Path | None = None,
) -> dict[str, Any]:
    """Acceptance length replayed on an arm's own texts against the length that it had live, in per cent.

    Args:
        scenario, setup: the arm as the simulator has it.
        runs: per repeat the output tokens and the decode steps of every request.
        seed: of the coupling.
        folder: where the collection keeps its parts.

    Returns:
        ``{mean, ci95_low, ci95_high, requests}``; positive: the replay accepts more.
    """
    assert setup.trace is not None
    texts = documents_of(prompts, [text for outputs, _ in runs for text in outputs])
    whole = collect(target, {setup.trace.drafter: drafter}, texts, temperature=setup.engine.temperature,
                    seed=seed + 1, folder=folder)[setup.trace.drafter]
    before: list[int] = []
    after: list[int] = []
    for n, (trace, (_, steps)) in enumerate(zip(split_samples(whole, prompts, len(runs)), runs, strict=True)):
        trace = replace(trace, sts_temperature=setup.trace.sts_temperature, sts_bias=setup.trace.sts_bias)
        run = simulate(replace(setup, trace=trace), scenario, n)
        if run.error is not None:
            raise RunError(f"arm {setup.name} fails in the simulator: {run.error}")
        table = run.requests.select(["id", "steps"]).to_pydict()
        replayed = dict(zip(table["id"], table["steps"], strict=True))
        before += steps
        after += [replayed[i] for i in range(len(steps))]
    live, again = np.array(before, dtype=float), np.array(after, dtype=float)
    # Equal texts: acceptance length goes as one over steps. Ratio of sums, linearised, over requests.
    ratio = live.sum() / again.sum()
    found = interval(list(100 * (live - ratio * again) / again.mean()))
    half = found.half_width
    mean = 100 * (ratio - 1)
    return {"mean": float(mean), "ci95_low": None if half is None else float(mean - half),
            "ci95_high": None if half is None else float(mean + half), "requests": len(before)}
