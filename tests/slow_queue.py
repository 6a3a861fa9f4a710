"""The line of the slow engine: who waits, who runs, and which KV blocks everybody owns. See slow_engine.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dspark_sim.errors import RunError
from dspark_sim.request import Request

__all__ = ["Seat", "SlowQueue"]


@dataclass(eq=False)
class Seat:
    """A request while it runs: what the engine must remember of it, and loses when it is preempted."""

    request: Request
    slot: int
    blocks: int = 0
    to_prefill: int = 0
    history: list[np.ndarray] = field(default_factory=list)  # (G,) survivals of its decode steps here, oldest first
    paused: bool = False  # it did not draft in its step before this one

    @property
    def context(self) -> int:
        return self.request.prompt_tokens + self.request.emitted


class SlowQueue:
    """First come, first served; the youngest goes when memory runs out.

    Args:
        config: the arm's engine settings.
        G: look-ahead, the drafter's block size.
        on_finish: told of every request that finished, at the moment it does.
    """

    def __init__(self, config: Any, G: int, on_finish: Callable[[Request, float], None]) -> None:
        self.config, self.G, self.on_finish = config, G, on_finish
        self.free_blocks = config.kv_blocks  # None: no limit
        self.free_slots = list(range(config.max_num_seqs))
        self.waiting: list[Request] = []
        self.running: list[Seat] = []  # in admission order
        self.last_receipt: dict[int, float] = {}  # request id -> when its user last received tokens

    # -- blocks ------------------------------------------------------------------------------------------------
    def blocks_for(self, context: int) -> int:
        """Blocks of a request with the look-ahead of a full draft and its bonus token."""
        return -(-(context + 1 + self.G) // self.config.kv_block_tokens)

    def preempt_youngest(self) -> Seat:
        """Throw the last admitted request out: it loses its KV and its past, keeps its text, and is next in line."""
        seat = self.running.pop()
        self.leave(seat)
        seat.request.preemptions += 1
        self.waiting.insert(0, seat.request)
        return seat

    def leave(self, seat: Seat) -> None:
        self.free_slots = sorted([*self.free_slots, seat.slot])
        if self.free_blocks is not None:
            self.free_blocks += seat.blocks

    def prepare(self, now: float) -> None:
        """Before a step: memory for those that run, then, if it sufficed, places for those that wait."""
        if not self.grow():
            self.admit(now)

    def grow(self) -> bool:
        """Every decoding request must own the blocks of a step; the youngest go while there are too few."""
        preempted = False
        if self.free_blocks is None:
            return preempted
        for seat in list(self.running):
            if seat.to_prefill or seat not in self.running:
                continue
            missing = self.blocks_for(seat.context) - seat.blocks
            while missing > self.free_blocks:
                if len(self.running) == 1:
                    raise RunError("kv_blocks too small")
                preempted = True
                if self.preempt_youngest() is seat:
                    break
            else:
                if missing > 0:
                    seat.blocks += missing
                    self.free_blocks -= missing
        return preempted

    # -- admission ---------------------------------------------------------------------------------------------
    def submit(self, request: Request, now: float) -> None:
        request.arrival = now
        total = request.prompt_tokens + request.output_tokens
        if self.config.kv_blocks is not None and self.blocks_for(total) > self.config.kv_blocks:
            raise RunError("kv_blocks too small")
        self.waiting.append(request)

    def prefills(self, request: Request) -> bool:
        """Whether its prompt must be computed: not without prefill, and not for one that came with its prompt done."""
        return self.config.prefill != "none" and not (request.skipped > 0 and request.admitted is None)

    def head_fits(self) -> bool:
        request, config = self.waiting[0], self.config
        if len(self.running) >= config.max_num_seqs:
            return False
        if (len(self.running) + 1) * (1 + self.G) > config.max_num_batched_tokens:
            return False
        return self.free_blocks is None or self.blocks_for(self.context_of(request)) <= self.free_blocks

    def context_of(self, request: Request) -> int:
        """Tokens of a request at its admission; the first token of one that needs no prefill exists then."""
        emitted = request.emitted
        if emitted == 0 and not self.prefills(request):
            emitted = max(1, request.skipped)
        return request.prompt_tokens + emitted

    def admit(self, now: float) -> None:
        while self.waiting and self.head_fits():
            request = self.waiting.pop(0)
            seat = Seat(request, self.free_slots.pop(0))
            if self.free_blocks is not None:
                seat.blocks = self.blocks_for(self.context_of(request))
                self.free_blocks -= seat.blocks
            self.running.append(seat)
            if self.prefills(request):
                seat.to_prefill = seat.context
                if request.preemptions:
                    request.recomputed_tokens += seat.context
            elif request.emitted == 0:
                request.emitted = max(1, request.skipped)
                request.first_token = now
                self.last_receipt[request.id] = now
            if request.admitted is None:
                request.admitted = now
            self.remove_finished(now)

    # -- leaving -----------------------------------------------------------------------------------------------
    def remove_finished(self, end: float) -> None:
        done = [seat for seat in self.running if seat.request.emitted >= seat.request.output_tokens]
        self.running = [seat for seat in self.running if seat not in done]
        for seat in done:
            self.finish(seat, end)

    def unfinished(self) -> list[Request]:
        """Who is still here at the end: in admission order, then in the order of the queue."""
        return [seat.request for seat in self.running] + self.waiting

    def finish(self, seat: Seat, now: float) -> None:
        self.leave(seat)
        seat.request.finished = now
        seat.request.outcome = "finished"
        self.on_finish(seat.request, now)
