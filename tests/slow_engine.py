"""A second engine, slow and obvious, to check the fast one against: the same tables, bit for bit.

One request at a time, lists and dicts, no tables of costs, no arrays except those that policies are promised. The
line of requests and their memory are in slow_queue.py, costs in slow_cost.py, views in slow_view.py, the traffic and
the tables in slow_run.py. Time is a plain float that jumps from event to event. Sums are taken in the order of time
and parts, so the two engines must agree in every bit, not only nearly. Read :meth:`SlowEngine.step` aloud: it is the
engine.

It also keeps what no table holds: ``visited``, the text position and trace row of every decode step of every request.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dspark_sim.errors import IntegrityError, OutOfRange
from dspark_sim.policy import EngineSetup, StepOutcome
from dspark_sim.request import Request
from tests.slow_cost import price
from tests.slow_queue import Seat, SlowQueue
from tests.slow_view import SlowRows, SlowText, budget_view, outcome_of, step_view

__all__ = ["SlowEngine"]


class SlowEngine(SlowQueue):
    """One engine.

    Args:
        setup: the arm (``ArmSetup``).
        tpot_sla: seconds per token that each class allows, ``inf`` without a limit.
        pools: per class, the documents that its requests may read.
        rng: the policy's own stream.
        on_finish: told of every request that finished, at the moment it does.
    """

    def __init__(self, setup: Any, tpot_sla: list[float], pools: list[np.ndarray], rng: Any, on_finish: Any) -> None:
        super().__init__(setup.engine, 0 if setup.drafter is None else setup.trace.block_size, on_finish)
        self.setup, self.tpot_sla = setup, tpot_sla
        self.text = SlowText(setup, pools)
        self.trace = setup.trace
        self.policy = setup.make_policy()
        self.unobserved: list[StepOutcome] = []
        self.decode_steps = 0
        self.planned: list[int] = []  # draft lengths of this step before stop_drafting
        self.steps: list[dict[str, Any]] = []
        self.gaps: list[tuple[float, float]] = []  # (moment, seconds since the request's user was last served)
        self.visited: dict[int, list[tuple[int, int]]] = {}
        self.lengths: list[tuple[float, int, int]] = []  # (end, verified, accepted) of every row of every step
        self.tell_policy_about_the_engine(rng)

    def tell_policy_about_the_engine(self, rng: Any) -> None:
        start = getattr(self.policy, "start", None)
        if start is None:
            return
        setup, config = self.setup, self.config
        belief = setup.belief_profile.step_cost(
            drafter=setup.drafter_cost, block_size=self.G, max_requests=config.max_num_seqs,
            max_tokens=config.max_num_batched_tokens, ragged=config.ragged,
            synchronous=setup.policy_source.timing == "synchronous", scale=setup.step_scale,
        )
        start(EngineSetup(
            drafter=setup.drafter, block_size=self.G, temperature=config.temperature,
            max_num_seqs=config.max_num_seqs, max_num_batched_tokens=config.max_num_batched_tokens,
            host_lag=config.host_lag, cost=belief, rng=rng, ragged=config.ragged,
        ))

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
        rows = [] if prefill_step else [seat for seat in self.running if not seat.to_prefill]
        prefill = self.plan_prefill(len(rows))
        prefill_tokens = sum(take for _, take in prefill)
        kv_tokens = sum(seat.context for seat in rows)
        self.planned = []
        drafted, verified = self.decide(rows, now, prefill_tokens, kv_tokens) if rows else ([], [])
        resumed = sum(1 for seat, n in zip(rows, self.planned, strict=True) if n > 0 and seat.paused)
        seconds, tokens, padded = price(self.setup, self.planned, drafted, verified, resumed, prefill_tokens, kv_tokens)
        draft_s, schedule_s, verify_s, other_s = seconds
        total = draft_s + schedule_s + verify_s + other_s
        if total == math.inf:
            raise OutOfRange("a curve was asked for a size that it may not answer")
        end = now + total
        if end > until:
            return None
        waiting, stalled = len(self.waiting), sum(1 for seat in self.running if not seat.to_prefill) - len(rows)
        accepted, emitted = self.settle(rows, drafted, verified, end)
        done = [seat.request.emitted >= seat.request.output_tokens for seat in rows]
        self.remove_finished(end)
        first = self.settle_prefill(prefill, end)
        self.remove_finished(end)
        self.steps.append(dict(
            step=len(self.steps), start=now, draft_s=draft_s, schedule_s=schedule_s, verify_s=verify_s,
            other_s=other_s, requests=len(rows), drafted=sum(drafted), verified=sum(verified), accepted=sum(accepted),
            emitted=sum(emitted) + first, prefill_tokens=prefill_tokens, batch_tokens=tokens, padded_tokens=padded,
            kv_tokens=kv_tokens, waiting=waiting, stalled=stalled, end=end, seconds=total,
        ))
        if rows:
            columns = dict(slot=[seat.slot for seat in rows], drafted=drafted, verified=verified, accepted=accepted,
                           emitted=emitted, finished=done)
            self.tell(columns, self.steps[-1])
        return end

    def decide(self, rows: list[Seat], now: float, prefill: int, kv_tokens: int) -> tuple[list[int], list[int]]:
        """Ask the policy: how much to draft, where drafting stopped, how much to verify."""
        R = len(rows)
        if self.setup.drafter is None:
            self.planned = [0] * R
            return [0] * R, [0] * R
        memory = SlowRows(self, rows)
        facts = dict(step=self.decode_steps, now=now, prefill_tokens=prefill, waiting=len(self.waiting),
                     kv_free_blocks=-1 if self.free_blocks is None else self.free_blocks, kv_tokens=kv_tokens)
        drafted = [self.G] * R
        if hasattr(self.policy, "draft_lengths"):
            answer = self.policy.draft_lengths(budget_view(self, rows, memory, facts))
            drafted = [int(n) for n in np.broadcast_to(np.asarray(answer), (R,))]
        memory.drafted = self.planned = drafted
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
        for seat, p, d, v in zip(rows, self.planned, drafted, verified, strict=True):
            request = seat.request
            kept = 0
            if self.setup.drafter is not None:
                row = self.text.row_of(request)
                self.visited.setdefault(request.id, []).append((request.emitted, row))
                kept = min(v, int(self.trace.accepted[row]))
                seat.history.append(self.text.survival_of(row, d, math.nan))
                seat.paused = p == 0
            tokens = min(kept + 1, request.output_tokens - request.emitted)
            request.steps += 1
            request.drafted += d
            request.verified += v
            request.accepted += kept
            if self.setup.drafter is not None:
                self.lengths.append((end, v, kept))
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

    def tell(self, columns: dict[str, list[Any]], step: dict[str, Any]) -> None:
        """Deliver to the policy what happened ``host_lag`` decode steps ago."""
        out = outcome_of(self.decode_steps, columns, step)
        self.decode_steps += 1
        self.unobserved.append(out)
        if len(self.unobserved) > self.config.host_lag:
            known = self.unobserved.pop(0)
            if hasattr(self.policy, "observe"):
                self.policy.observe(known)
