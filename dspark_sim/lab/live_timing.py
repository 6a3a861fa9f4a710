"""What a step of the live engine costs on this machine now: its own parts, timed in place, as a hardware profile.

The same step is repeated on the same batch (nothing is trimmed forward), sizes take turns in every round, so that a
drift of the machine hits all alike. A curve's shape is the median of each size; its level is the mean, by one factor
over all sizes (the pooled ratio of mean to median): throughput is made of means, interruptions included.

Shapes: R requests, G block size, B tokens of the target's pass.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from dspark_sim.lab.collect_facts import machine
from dspark_sim.lab.drafters import Drafter
from dspark_sim.lab.live_cache import live_attention
from dspark_sim.lab.live_engine import waiter
from dspark_sim.lab.live_model import LiveModel
from dspark_sim.lab.live_sampling import Dice
from dspark_sim.lab.target import Target
from dspark_sim.profile_write import ProfileDraft

__all__ = ["Timing", "between", "measure_steps", "profile_of", "sizes"]

Point = tuple[int, float]
Task = tuple[str, int]


@dataclass
class Timing:
    """Seconds of every part, at one concurrency.

    Attributes:
        verify: by B: up to the concurrency R = B without drafts or drafter, above it all requests with drafts.
        draft_one, draft_all: by R: a draft of one token, of a whole block.
        spread: relative half-width that the middle half of a size's timings has, pooled (median over sizes).
        factor: mean over median, pooled.
        hooked: verify at R requests without drafts, with what a drafter needs taken along.
        other, other_spec, schedule: seconds of everything around, without and with a drafter, and of a synchronous
            decision: from a rehearsal of the arms.
        context: mean tokens of a request while timed.
        at: when it began, ISO.
    """

    concurrency: int
    verify: list[Point]
    draft_one: list[Point]
    draft_all: list[Point]
    spread: float
    factor: float
    hooked: float
    context: int
    at: str
    rounds: int
    other: float = 0.0
    other_spec: float = 0.0
    schedule: float = 0.0
    facts: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def sizes(concurrency: int, block_size: int) -> tuple[list[int], list[int]]:
    """Requests to time below the concurrency, and token counts above it."""
    requests = sorted({1, 2, 3, 4, *(1 << k for k in range(3, 11)), 3 * concurrency // 4, concurrency})
    requests = [r for r in requests if 1 <= r <= concurrency]
    most = concurrency * block_size
    steps = sorted({round(most * k / 8) for k in range(1, 9)} | {1}) if most >= 8 else list(range(1, most + 1))
    return requests, [concurrency + s for s in steps]


def measure_steps(
    target: Target, drafter: Drafter, texts: Sequence[Sequence[int]], concurrency: int, temperature: float,
    rounds: int, *, progress: Callable[[int, int], None] = lambda done, of: None,
) -> Timing:
    """Time all parts.

    Args:
        texts: prompts with half of their answers: the contexts; taken in turn.
        concurrency: R of a full batch.
        rounds: timings of each size, after one that does not count.
        progress: called with rounds done, rounds in all.
    """
    at = datetime.now(UTC).isoformat(timespec="seconds")
    settle = waiter(target.device)
    G = drafter.config.block_size
    length = max(map(len, texts)) + 1
    plain, spec = (LiveModel(target, d, concurrency, length, temperature, Dice(0, 0 if d is None else G))
                   for d in (None, drafter))
    tasks: dict[Task, Callable[[], object]] = {}
    with live_attention(target):
        for model in (plain, spec):
            for i in range(concurrency):
                model.admit(texts[i % len(texts)], (i,))
            model.roll(range(concurrency))
        every = list(range(concurrency))
        full = np.full(concurrency, G, dtype=np.int64)
        block = spec.draft(every, full)
        requests, tokens = sizes(concurrency, G)
        for R in requests:
            tasks["plain", R] = _verifies(plain, every[:R], None, np.zeros(R, dtype=np.int64))
            for word, long in (("one", 1), ("all", G)):
                tasks[word, R] = _drafts(spec, every[:R], np.full(R, long, dtype=np.int64))
        tasks["hooked", concurrency] = _verifies(spec, every, block, np.zeros(concurrency, dtype=np.int64))
        for B in tokens:
            lengths = np.full(concurrency, (B - concurrency) // concurrency, dtype=np.int64)
            lengths[: (B - concurrency) % concurrency] += 1
            tasks["verify", B] = _verifies(spec, every, block, lengths)
        seconds: dict[Task, list[float]] = {task: [] for task in tasks}
        for n in range(rounds + 1):
            for task, do in tasks.items():
                R = task[1] if task[0] in ("plain", "one", "all") else concurrency
                for model in (plain, spec):
                    model.roll(every[:R])
                settle()
                began = time.perf_counter()
                do()
                settle()
                if n:
                    seconds[task].append(time.perf_counter() - began)
            progress(n + 1, rounds + 1)
    middle = {task: statistics.median(values) for task, values in seconds.items()}
    factor = sum(statistics.fmean(v) for v in seconds.values()) / sum(middle.values())
    width = [float(np.diff(np.quantile(v, (0.25, 0.75)))[0]) / (2 * middle[task]) for task, v in seconds.items()]
    level = {task: value * factor for task, value in middle.items()}

    def curve(word: str, sizes_: list[int]) -> list[Point]:
        return [(n, level[word, n]) for n in sizes_]

    return Timing(
        concurrency, [*curve("plain", requests), *curve("verify", tokens)], curve("one", requests),
        curve("all", requests), statistics.median(width), factor, level["hooked", concurrency],
        round(float(np.mean(plain.known[:concurrency]))), at, rounds, facts=machine(target),
    )


def between(before: Timing, after: Timing) -> Timing:
    """The mean of two timings of the same sizes; what a rehearsal told is that of the first."""

    def mean(name: str) -> list[Point]:
        later = dict(getattr(after, name))
        return [(n, (s + later[n]) / 2) for n, s in getattr(before, name)]

    return replace(before, verify=mean("verify"), draft_one=mean("draft_one"), draft_all=mean("draft_all"),
                   hooked=(before.hooked + after.hooked) / 2)


def _verifies(model: LiveModel, place: list[int], block: Any, lengths: Any) -> Callable[[], object]:
    return lambda: model.verify(place, block, lengths)


def _drafts(model: LiveModel, place: list[int], lengths: Any) -> Callable[[], object]:
    return lambda: model.draft(place, lengths)


def profile_of(timing: Timing, drafter: Drafter, name: str, command: str) -> ProfileDraft:
    """A hardware profile of one engine of this machine, for :func:`~dspark_sim.profile_write.write_profile`."""
    c, G = timing.concurrency, drafter.config.block_size
    ends = sorted({1, c})
    # A block of one token and one of G give a start and a slope; an autoregressive drafter has no start.
    slope = [(r, max(0.0, b - a) / max(1, G - 1)) for (r, a), (_, b) in
             zip(timing.draft_one, timing.draft_all, strict=True)]
    start = [(r, max(1e-9, a - s)) for (r, a), (_, s) in zip(timing.draft_one, slope, strict=True)]
    own: dict[str, Any] = {"kind": "parallel", "seconds": _curve(start), "per_token": _curve(slope)}
    if G == 1 or not any(s for _, s in slope):
        own = {"kind": "parallel", "seconds": _curve(timing.draft_all)}
    overhead = max(0.0, timing.other_spec - timing.other) + max(0.0, timing.hooked - _at(timing.verify, c))
    facts = timing.facts
    data: dict[str, Any] = {
        "description": f"The live engine of dspark-sim on this machine, {c} requests at once: its own parts, timed "
                       "just before the run that they predict.",
        "gpus": 1, "measured_context": timing.context, "max_num_seqs": c,
        "max_num_batched_tokens": max(2, c * (1 + G)),
        "verify": _curve(timing.verify),
        "drafters": {name: own | {"source": f"timed with the target: blocks of 1 and of {G} tokens"}},
        "speculation_overhead": _curve([(r, overhead) for r in ends]),
        "fixed": _curve([(r, timing.other) for r in ends]), "prefill": "shared",
        "schedule": _curve([(r, timing.schedule) for r in ends]),
        "provenance": {
            "kind": "measured", "device": str(facts.get("device", "unknown")),
            "model": str(facts.get("model", "target")),
            "software": str(facts.get("software", "unknown")), "date": timing.at[:10],
            "source": f"{timing.rounds} rounds over all sizes; medians times {timing.factor:.3f}, the pooled ratio of "
                      f"mean to median; half of a size's timings lie within {100 * timing.spread:.1f} %",
            "command": command,
            "assumptions": [
                "Steps of fewer requests than the concurrency that verify drafts cost what as many tokens cost with "
                "all requests.",
                f"Contexts of about {timing.context} tokens; longer ones cost the same here.",
            ],
        },
    }
    return ProfileDraft(data)


def _at(points: Sequence[Point], size: int) -> float:
    return dict(points)[size]


def _curve(points: Sequence[Point]) -> dict[str, Any]:
    return {"points": [[n, float(f"{s:.8g}")] for n, s in points]}
