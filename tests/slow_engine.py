"""A second engine, slow and obvious, to check the fast one against: the same tables, bit for bit.

One request at a time, lists and dicts, no tables of costs, no arrays except those that policies are promised. Time
is a plain float that jumps from event to event. Sums are taken in the order that docs/method.md states, so that the
two engines must agree in every bit, not only nearly. Read :meth:`SlowEngine.step` aloud: it is the engine.

It also keeps what no table holds: ``visited``, the text position and trace row of every decode step of every request.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dspark_sim.errors import IntegrityError, OutOfRange, RunError
from dspark_sim.policy import EngineSetup, StepOutcome
from dspark_sim.request import Request
from tests.slow_cost import price
from tests.slow_view import SlowRows, SlowText, budget_view, outcome_of, step_view

__all__ = ["Seat", "SlowEngine"]


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


class SlowEngine:
    """One engine.

    Args:
        setup: the arm (``ArmSetup``).
        tpot_sla: seconds per token that each class allows, ``inf`` without a limit.
        pools: per class, the documents that its requests may read.
        rng: the policy's own stream.
        on_finish: told of every request that finished, at the moment it does.
    """

    def __init__(self, setup: Any, tpot_sla: list[float], pools: list[np.ndarray], rng: Any, on_finish: Any) -> None:
        self.setup, self.tpot_sla, self.on_finish = setup, tpot_sla, on_finish
        self.text = SlowText(setup, pools)
        self.config, self.trace = setup.engine, setup.trace
        self.G = 0 if setup.drafter is None else self.trace.block_size
        self.policy = setup.make_policy()
        self.free_blocks = self.config.kv_blocks  # None: no limit
        self.free_slots = list(range(self.config.max_num_seqs))
        self.waiting: list[Request] = []
        self.running: list[Seat] = []  # in admission order
        self.last_receipt: dict[int, float] = {}  # request id -> when its user last received tokens
        self.unobserved: list[StepOutcome] = []
        self.decode_steps = 0
        self.steps: list[dict[str, Any]] = []
        self.gaps: list[tuple[float, float]] = []  # (moment, seconds since the request's user was last served)
        self.visited: dict[int, list[tuple[int, int]]] = {}
        self.tell_policy_about_the_engine(rng)

    def tell_policy_about_the_engine(self, rng: Any) -> None:
        start = getattr(self.policy, "start", None)
        if start is None:
            return
        setup, config = self.setup, self.config
        belief = setup.belief_profile.step_cost(
            drafter=setup.drafter, block_size=self.G, max_requests=config.max_num_seqs,
            max_tokens=max(config.max_num_batched_tokens, config.max_num_seqs * (1 + self.G)), ragged=config.ragged,
            synchronous=setup.policy_source.timing == "synchronous", scale=setup.step_scale,
        )
        start(EngineSetup(
            drafter=setup.drafter, block_size=self.G, temperature=config.temperature,
            max_num_seqs=config.max_num_seqs, max_num_batched_tokens=config.max_num_batched_tokens,
            host_lag=config.host_lag, cost=belief, rng=rng, ragged=config.ragged,
        ))

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

    def grow(self) -> None:
        """Every decoding request must own the blocks of this step; the youngest go when there are too few."""
        if self.free_blocks is None:
            return
        for seat in list(self.running):
            if seat.to_prefill or seat not in self.running:
                continue
            missing = self.blocks_for(seat.context) - seat.blocks
            while missing > self.free_blocks:
                if len(self.running) == 1:
                    raise RunError("kv_blocks too small")
                if self.preempt_youngest() is seat:
                    break
            else:
                if missing > 0:
                    seat.blocks += missing
                    self.free_blocks -= missing

    # -- admission ---------------------------------------------------------------------------------------------
    def submit(self, request: Request, now: float) -> None:
        request.arrival = now
        total = request.prompt_tokens + request.output_tokens
        if self.config.kv_blocks is not None and self.blocks_for(total) > self.config.kv_blocks:
            raise RunError("kv_blocks too small")
        self.waiting.append(request)

    def head_fits(self) -> bool:
        request, config = self.waiting[0], self.config
        if len(self.running) >= config.max_num_seqs:
            return False
        if (len(self.running) + 1) * (1 + self.G) > config.max_num_batched_tokens:
            return False
        context = request.prompt_tokens + request.emitted
        return self.free_blocks is None or self.blocks_for(context) <= self.free_blocks

    def admit(self, now: float) -> None:
        while self.waiting and self.head_fits():
            request = self.waiting.pop(0)
            fresh = request.admitted is None
            seat = Seat(request, self.free_slots.pop(0))
            if self.free_blocks is not None:
                seat.blocks = self.blocks_for(seat.context)
                self.free_blocks -= seat.blocks
            self.running.append(seat)
            if fresh:
                request.admitted = now
            if self.config.prefill == "none" or (fresh and request.skipped > 0):
                if fresh:
                    request.emitted = max(1, request.skipped)
                    request.first_token = now
                    self.last_receipt[request.id] = now
                    if request.emitted >= request.output_tokens:
                        self.running.remove(seat)
                        self.finish(seat, now)
            else:
                seat.to_prefill = seat.context

    # -- one step ----------------------------------------------------------------------------------------------
    def plan_prefill(self, decoding: int) -> list[tuple[Seat, int]]:
        """Which prompts advance in this step, and by how many tokens."""
        room = self.config.max_num_batched_tokens
        if self.config.prefill == "chunked":
            room -= decoding * (1 + self.G)
        plan = []
        for seat in self.running:
            take = min(seat.to_prefill, room)
            if take > 0:
                plan.append((seat, take))
                room -= take
        return plan

    def step(self, now: float, until: float) -> float | None:
        """One step from ``now`` on; returns when it ends, None if that is after ``until`` (it then never was)."""
        prefill_step = self.config.prefill == "separate" and any(seat.to_prefill for seat in self.running)
        if not prefill_step:
            self.grow()
        rows = [] if prefill_step else [seat for seat in self.running if not seat.to_prefill]
        prefill = self.plan_prefill(len(rows))
        prefill_tokens = sum(take for _, take in prefill)
        kv_tokens = sum(seat.context for seat in rows)
        drafted, verified = self.decide(rows, now, prefill_tokens, kv_tokens) if rows else ([], [])
        resumed = sum(1 for seat, n in zip(rows, drafted, strict=True) if n > 0 and seat.paused)
        seconds, tokens, padded = price(self.setup, drafted, verified, resumed, prefill_tokens, kv_tokens)
        draft_s, schedule_s, verify_s, other_s = seconds
        total = draft_s + schedule_s + verify_s + other_s
        if total == math.inf:
            raise OutOfRange("a curve was asked for a size that it may not answer")
        end = now + total
        if end > until:
            return None
        waiting = len(self.waiting)
        accepted, emitted = self.settle(rows, drafted, verified, end)
        first = self.settle_prefill(prefill, end)
        self.steps.append(dict(
            step=len(self.steps), start=now, draft_s=draft_s, schedule_s=schedule_s, verify_s=verify_s,
            other_s=other_s, requests=len(rows), drafted=sum(drafted), verified=sum(verified), accepted=sum(accepted),
            emitted=sum(emitted) + first, prefill_tokens=prefill_tokens, batch_tokens=tokens, padded_tokens=padded,
            kv_tokens=kv_tokens, waiting=waiting, end=end, seconds=total,
        ))
        if rows:
            self.tell(rows, drafted, verified, accepted, emitted, self.steps[-1])
        self.remove_finished(end)
        return end

    def decide(self, rows: list[Seat], now: float, prefill: int, kv_tokens: int) -> tuple[list[int], list[int]]:
        """Ask the policy: how much to draft, where drafting stopped, how much to verify."""
        R = len(rows)
        if self.setup.drafter is None:
            return [0] * R, [0] * R
        memory = SlowRows(self, rows)
        facts = dict(step=self.decode_steps, now=now, prefill_tokens=prefill, waiting=len(self.waiting),
                     kv_free_blocks=-1 if self.free_blocks is None else self.free_blocks, kv_tokens=kv_tokens)
        drafted = [self.G] * R
        if hasattr(self.policy, "draft_lengths"):
            answer = self.policy.draft_lengths(budget_view(self, rows, memory, facts))
            drafted = [int(n) for n in np.broadcast_to(np.asarray(answer), (R,))]
        memory.drafted = drafted
        if hasattr(self.policy, "stop_drafting"):
            drafted = [int(n) for n in self.policy.stop_drafting(step_view(self, rows, memory, facts))]
            memory.drafted = drafted
        verified = [int(n) for n in self.policy.verify_lengths(step_view(self, rows, memory, facts))]
        if not all(0 <= v <= d <= self.G for v, d in zip(verified, drafted, strict=True)):
            raise IntegrityError("a scenario of the slow engine holds a policy that breaks its contract")
        return drafted, verified

    def settle(self, rows: list[Seat], drafted: list[int], verified: list[int], end: float
               ) -> tuple[list[int], list[int]]:
        """Every row's outcome: read the trace where the request stands in its text, and move on."""
        accepted, emitted = [], []
        for seat, d, v in zip(rows, drafted, verified, strict=True):
            request = seat.request
            kept = 0
            if self.setup.drafter is not None:
                row = self.text.row_of(request)
                self.visited.setdefault(request.id, []).append((request.emitted, row))
                kept = min(v, int(self.trace.accepted[row]))
                seat.history.append(self.text.survival_of(row, d, math.nan))
                seat.paused = d == 0
            tokens = min(kept + 1, request.output_tokens - request.emitted)
            request.steps += 1
            request.drafted += d
            request.verified += v
            request.accepted += kept
            self.receive(request, tokens, end)
            accepted.append(kept)
            emitted.append(tokens)
        return accepted, emitted

    def settle_prefill(self, plan: list[tuple[Seat, int]], end: float) -> int:
        """Advance the prompts; one that is complete emits a token. Returns the number of those."""
        complete = 0
        for seat, take in plan:
            seat.to_prefill -= take
            if seat.to_prefill == 0:
                complete += 1
                self.receive(seat.request, 1, end)
        return complete

    def receive(self, request: Request, tokens: int, end: float) -> None:
        """The user of ``request`` receives tokens."""
        request.emitted += tokens
        if request.first_token is None:
            request.first_token = end
        else:
            gap = end - self.last_receipt[request.id]
            request.slowest_gap = gap if request.slowest_gap is None else max(request.slowest_gap, gap)
            self.gaps.append((end, gap))
        self.last_receipt[request.id] = end

    def remove_finished(self, end: float) -> None:
        done = [seat for seat in self.running if seat.request.emitted >= seat.request.output_tokens]
        self.running = [seat for seat in self.running if seat not in done]
        for seat in done:
            self.finish(seat, end)

    def finish(self, seat: Seat, now: float) -> None:
        self.leave(seat)
        seat.request.finished = now
        seat.request.outcome = "finished"
        self.on_finish(seat.request, now)

    def tell(self, rows: list[Seat], drafted: list[int], verified: list[int], accepted: list[int],
             emitted: list[int], step: dict[str, Any]) -> None:
        """Deliver to the policy what happened ``host_lag`` decode steps ago."""
        columns = dict(slot=[seat.slot for seat in rows], drafted=drafted, verified=verified, accepted=accepted,
                       emitted=emitted, finished=[seat.request.emitted >= seat.request.output_tokens for seat in rows])
        out = outcome_of(self.decode_steps, columns, step)
        self.decode_steps += 1
        self.unobserved.append(out)
        if len(self.unobserved) > self.config.host_lag:
            known = self.unobserved.pop(0)
            if hasattr(self.policy, "observe"):
                self.policy.observe(known)
