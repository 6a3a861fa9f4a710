"""Times the steps of a target and of its drafters over a grid, point by point, into a file that survives a kill.

A verify step of R requests and width w is one forward pass over R w tokens with the head over all of them; each request
has a KV cache of ``context`` random tokens, read once. A drafter's round takes in the features of the tokens just
verified, drafts a block for each request, and draws greedily.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from dspark_sim.lab.drafters import Context, Drafter
from dspark_sim.lab.held_cache import held_cache
from dspark_sim.lab.points_file import PointsFile, TimedPoint
from dspark_sim.lab.stopwatch import OutOfMemory, Timing, timed
from dspark_sim.lab.target import Target

__all__ = ["Grid", "StepTimer", "rectangle"]

Say = Callable[[str], None]


@dataclass(frozen=True)
class Grid:
    """What is timed.

    Attributes:
        tokens: batch tokens of verify steps, rising.
        contexts: tokens that each request has already; the first is the one of the curve and of the drafters.
        width: tokens per request of a verify step, at most.
        requests: requests of drafters' rounds, rising.
        repeat: repetitions of each point.
        graph_limit: larger steps are timed without CUDA graphs; None for no limit.
    """

    tokens: tuple[int, ...]
    contexts: tuple[int, ...]
    width: int
    requests: tuple[int, ...]
    repeat: int
    graph_limit: int | None = None


def rectangle(tokens: int, width: int) -> tuple[int, int]:
    """(requests, tokens of each) of a step: the widest that divides ``tokens`` and is at most ``width``."""
    w = next(w for w in range(min(tokens, width), 0, -1) if tokens % w == 0)
    return tokens // w, w


class StepTimer:
    """One measurement.

    Args:
        target: what is timed.
        drafters: by the name that they get in the profile.
        grid: see :class:`Grid`.
        file: where points go, and where those of an earlier call are found.
        say: called with a line per point.
    """

    def __init__(self, target: Target, drafters: dict[str, Drafter], grid: Grid, file: PointsFile, say: Say) -> None:
        self.target, self.drafters, self.grid, self.file, self.say = target, drafters, grid, file, say

    def points(self) -> list[TimedPoint]:
        """Everything that will be timed, in order: the curve first, so that a measurement that is stopped has one."""
        g = self.grid
        out = [TimedPoint("verify", b, rectangle(b, g.width)[0], c) for c in g.contexts for b in g.tokens]
        for name, drafter in self.drafters.items():
            block = drafter.config.block_size
            parts = ("draft", "token") if drafter.config.parallel else ("draft",)
            out += [TimedPoint(f"{part} {name}", r * block, r, g.contexts[0]) for r in g.requests for part in parts]
        return out

    def run(self) -> None:
        """Time what the file does not have yet; Ctrl-C leaves what is there."""
        wanted = self.points()
        left = [p for p in wanted if p.key not in self.file.points]
        if len(left) < len(wanted):
            self.say(f"{len(wanted) - len(left)} of {len(wanted)} points are in {self.file.path} already")
        full: dict[tuple[str, int], int] = {}  # the smallest size that did not fit
        for n, point in enumerate(left, 1):
            limit = full.get((point.part, point.context))
            if limit is not None and point.tokens >= limit:
                done = _with(point, None, f"{limit} tokens did not fit into memory")
            else:
                try:
                    done = _with(point, self._time(point))
                except OutOfMemory:
                    full[point.part, point.context] = point.tokens
                    done = _with(point, None, "out of memory")
            self.file.add(done)
            self.say(f"{n}/{len(left)}  {_line(done)}")

    def _time(self, point: TimedPoint) -> Timing:
        part, _, name = point.part.partition(" ")
        limit = self.grid.graph_limit
        graph = limit is None or point.tokens <= limit
        make = {"verify": self._verify, "draft": self._draft, "token": self._token}[part]
        call: Callable[[], object] | None = None
        try:
            call = make(point, name)
        except (torch.OutOfMemoryError, MemoryError) as problem:
            raise OutOfMemory(str(problem)) from None
        except RuntimeError as problem:
            if "memory" in str(problem).lower():
                raise OutOfMemory(str(problem)) from None
            raise
        return timed(call, device=self.target.device, repeat=self.grid.repeat, graph=graph)

    # -- what is timed -------------------------------------------------------------------------------------------
    def _verify(self, point: TimedPoint, name: str) -> Callable[[], object]:
        target, device = self.target, self.target.device
        requests, width = point.requests, point.tokens // point.requests
        cache = held_cache(target.config, requests=requests, context=point.context, width=width, device=device,
                           dtype=target.dtype)
        ids = torch.randint(target.vocab_size, (requests, width), device=device)
        positions = torch.arange(point.context, point.context + width, device=device).expand(requests, -1)

        def step() -> Tensor:
            return target.logits(target.forward(ids, cache=cache, positions=positions).last)

        return step

    def _context(self, drafter: Drafter, requests: int, length: int) -> Context:
        c, device, dtype = drafter.config, self.target.device, self.target.dtype
        shape = (requests, length, c.num_key_value_heads, c.head_dim)
        layers = [(torch.randn(shape, device=device, dtype=dtype), torch.randn(shape, device=device, dtype=dtype))
                  for _ in range(c.num_hidden_layers)]
        return Context(layers, torch.randn(requests, length, c.hidden_size, device=device, dtype=dtype))

    def _inputs(self, point: TimedPoint, name: str) -> tuple[Drafter, Context, Tensor, Tensor, Tensor]:
        drafter, device, r = self.drafters[name], self.target.device, point.requests
        context = self._context(drafter, r, point.context)
        return (drafter, context, torch.arange(r, device=device), torch.full((r,), point.context, device=device),
                torch.randint(self.target.vocab_size, (r,), device=device))

    def _draft(self, point: TimedPoint, name: str) -> Callable[[], object]:
        """Parallel drafters: everything but the tokens one by one. Others: the whole chain."""
        drafter, context, row, position, anchor = self._inputs(point, name)
        c, device = drafter.config, self.target.device
        new = c.block_size + 1
        ids = torch.randint(self.target.vocab_size, (point.requests, new + 1), device=device)
        features = torch.randn(point.requests, new, len(c.target_layer_ids) * c.hidden_size, device=device,
                               dtype=self.target.dtype)

        def block() -> object:
            drafter.context(ids, features, point.context)
            state = drafter.begin(context, row, position, anchor)
            if c.parallel:
                return state
            previous = anchor
            for _ in range(c.block_size):
                logits, _ = drafter.step(state, previous)
                previous = drafter.draft_ids[logits.argmax(-1)]
            return previous

        return block

    def _token(self, point: TimedPoint, name: str) -> Callable[[], object]:
        """The sequential part of a parallel drafter: all tokens of a block, one after the other."""
        drafter, context, row, position, anchor = self._inputs(point, name)
        with torch.inference_mode():
            begun = drafter.begin(context, row, position, anchor)

        def tokens() -> Tensor:
            state, previous = begun, anchor
            state.step, state.markov = 0, None
            for _ in range(drafter.config.block_size):
                logits, _ = drafter.step(state, previous)
                previous = drafter.draft_ids[logits.argmax(-1)]
            return previous

        return tokens


def _with(point: TimedPoint, timing: Timing | None, skipped: str | None = None) -> TimedPoint:
    if timing is None:
        return TimedPoint(*point.key, skipped=skipped)
    return TimedPoint(*point.key, timing.median, timing.low, timing.high, timing.repeats, timing.mode)


def _line(p: TimedPoint) -> str:
    counts = f"{p.tokens} token{'s' * (p.tokens != 1)}, {p.requests} request{'s' * (p.requests != 1)}"
    what = f"{p.part}: {counts}, context {p.context:,}"
    if p.seconds is None:
        return f"{what}: skipped, {p.skipped}"
    low, high = cast(float, p.low), cast(float, p.high)
    return f"{what}: {1e3 * p.seconds:.3g} ms ({1e3 * low:.3g} to {1e3 * high:.3g}), {p.mode}"
