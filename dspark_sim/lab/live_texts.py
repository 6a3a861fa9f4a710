"""Texts that plain decoding writes to the prompts, and the traces that the simulator reads of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dspark_sim.lab.collect import collect
from dspark_sim.lab.corpus import read_part, write_part
from dspark_sim.lab.drafters import Drafter
from dspark_sim.lab.live_cache import live_attention
from dspark_sim.lab.live_check import documents_of
from dspark_sim.lab.live_model import LiveModel
from dspark_sim.lab.live_pieces import Pieces
from dspark_sim.lab.live_plan import LivePlan, LivePrompt
from dspark_sim.lab.live_sampling import Dice
from dspark_sim.lab.live_world import class_names, split_samples
from dspark_sim.lab.target import Target

__all__ = ["LiveWork", "make_traces"]

BATCH = 32  # texts written together
APART = 1 << 20  # their random numbers are none that a measured run has
Say = Callable[[str], None]


@dataclass(frozen=True)
class LiveWork:
    """What the steps of a validation share.

    Attributes:
        command: what was typed, for the provenance of profiles.
        replay: also measure the replay approximation (needs a temperature above 0).
        say: told what is going on.
    """

    plan: LivePlan
    target: Target
    drafter: Drafter
    prompts: Sequence[LivePrompt]
    pieces: Pieces
    command: str
    replay: bool
    say: Say

    @property
    def names(self) -> list[str]:
        """Classes of requests."""
        return class_names(self.prompts)


def make_traces(work: LiveWork) -> None:
    """``traces/<sample>/<drafter>.parquet``: what the simulator reads, from texts that plain decoding wrote."""
    plan, pieces, N = work.plan, work.pieces, len(work.prompts)
    paths = [pieces.path(f"traces/{s}/{plan.drafter_name}.parquet") for s in range(plan.samples)]
    if all(path.is_file() for path in paths):
        return
    texts = pieces.path("texts")
    documents = []
    for sample in range(plan.samples):
        if not (texts / f"part-{sample:05d}.parquet").is_file():
            work.say(f"texts: sample {sample + 1} of {plan.samples}, {N} responses of {plan.tokens} tokens")
            write_part(texts, sample, documents_of(work.prompts, _plain(work, sample)))
        documents += list(read_part(texts / f"part-{sample:05d}.parquet"))
    work.say(f"traces: blocks drafted at {N * plan.samples * plan.tokens:,} positions")
    trace = collect(work.target, {plan.drafter_name: work.drafter}, documents, temperature=plan.temperature,
                    seed=plan.seed, folder=pieces.path("collect"))[plan.drafter_name]
    if plan.calibrate and trace.confidence is not None:
        from dspark_sim.calibration import fit_scale_bias

        fitted = fit_scale_bias(trace.confidence, trace.accepted)
        trace = trace.with_sts(fitted.temperature, fitted.bias)
    for path, part in zip(paths, split_samples(trace, work.prompts, plan.samples), strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        part.save(path)


def _plain(work: LiveWork, sample: int) -> list[list[int]]:
    """A response to every prompt by plain decoding, with random numbers that no measured run has."""
    plan, out = work.plan, []
    for first in range(0, len(work.prompts), BATCH):
        some = work.prompts[first:first + BATCH]
        length = max(len(p.tokens) for p in some) + plan.tokens
        model = LiveModel(work.target, None, len(some), length, plan.temperature, Dice(plan.seed, 0))
        with live_attention(work.target):
            texts = [[model.admit(p.tokens, (APART, sample, first + i))[1]] for i, p in enumerate(some)]
            place = list(range(len(some)))
            none = np.zeros(len(some), dtype=np.int64)
            for _ in range(plan.tokens - 1):
                model.roll(place)
                verdict, passed = model.verify(place, None, none)
                model.keep(place, verdict, passed)
                for text, token in zip(texts, verdict.after.tolist(), strict=True):
                    text.append(token)
        out += texts
    return out
