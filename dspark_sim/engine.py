"""One serving engine: a SimPy process that repeats admit, draft, choose, wait, settle.

The order of a step (docs/method.md tells why):

1. every decoding row gets the KV blocks that its scheduled width may need; while they do not all fit, the youngest
   running request is preempted and goes back to the head of the line, to be recomputed;
2. if nobody was preempted, the head of the line is admitted while sequences, token budget and blocks allow;
3. prompts are prefilled: in the decode step (``chunked``), in steps of their own (``separate``), or not at all;
4. the policy decides, the step takes its time (:class:`~dspark_sim.curve.StepCost`);
5. decoding rows settle, finished ones leave, completed prompts emit their first token.

Shapes: R requests decoding, G block size, B batch tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, NoReturn

import numpy as np
import simpy

from dspark_sim.batch import JOINED, LAST_EMIT, Batch
from dspark_sim.curve import StepCost
from dspark_sim.decide import Decider
from dspark_sim.errors import OutOfRange
from dspark_sim.kv import BlockPool
from dspark_sim.policy import IntArray, StepOutcome
from dspark_sim.record import Recorder
from dspark_sim.request import Request
from dspark_sim.roster import EngineLimits, Roster
from dspark_sim.rows import TraceRows

__all__ = ["Engine"]


class _Step:
    """The step under way, kept from its decision to its end; one object per engine, reused."""

    __slots__ = (
        "draft", "drafted", "kv_tokens", "lengths", "other", "prefill_tokens", "requests", "schedule", "stalled",
        "start", "tokens", "total", "verify", "waiting",
    )
    start: float
    requests: int  # R
    lengths: IntArray | None
    drafted: int
    tokens: int  # B without prefill tokens
    prefill_tokens: int
    kv_tokens: int
    waiting: int
    stalled: int  # requests that could decode, in a step of prompts alone
    draft: float
    schedule: float
    verify: float
    other: float
    total: float


class Engine:
    """A node that serves one target model.

    Args:
        env: the simulation's environment.
        limits: sizes.
        cost: what a step really costs.
        pool: its KV blocks.
        batch, rows: its decoding requests and their draft rows.
        decider: makes the policy, asked and checked; called again when the engine comes back from a failure.
        recorder: where steps and requests are written.
        left: called with each request that is over or handed over, at once; traffic may submit the next one.
        number: the engine's number in the tables.
    """

    def __init__(
        self, env: simpy.Environment, limits: EngineLimits, cost: StepCost, pool: BlockPool, batch: Batch,
        rows: TraceRows, decider: Callable[[], Decider], recorder: Recorder, left: Callable[[Request], None],
        number: int = 0,
    ) -> None:
        self.env, self.cost, self.batch, self.rows = env, cost, batch, rows
        self.recorder, self.left, self.number = recorder, left, number
        self._make_decider = decider
        self.decider = decider()
        self.roster = Roster(limits, pool, batch, rows, left)
        self.drafts = rows.trace is not None
        self.steps = 0
        self.up = True
        self._separate = limits.prefill == "separate"
        self._step = _Step()
        self._wake: simpy.Event | None = None
        self._back: simpy.Event = env.event()  # made anew by every stop
        self.process = env.process(self.run())

    def submit(self, request: Request) -> None:
        """Put a request into the queue; RunError if it could never be served (see :meth:`Roster.submit`)."""
        request.engine = self.number
        self.roster.submit(request)
        if self._wake is not None:
            self._wake.succeed()
            self._wake = None

    def run(self) -> Generator[simpy.Event, Any, None]:
        """The process: serve until the engine is stopped, wait until it is back, serve again.

        An engine may be stopped once more at the very moment it comes back, before this process has noticed.
        """
        while True:
            try:
                if not self.up:
                    yield self._back
                yield from self._serve()
            except simpy.Interrupt:
                pass

    def _serve(self) -> Generator[simpy.Event, Any, None]:
        """One iteration is one engine step."""
        roster, limited = self.roster, self.roster.pool.limited
        while True:
            if roster.idle:
                roster.check_integrity()
                self._wake = self.env.event()
                yield self._wake
            if roster.waiting:
                for request in roster.expire(self.env.now):
                    request.outcome = "timed_out"
                    self.left(request)
            preempted = roster.grow() if limited else False
            if roster.waiting and not preempted:
                roster.admit(self.env.now)
            prompt_tokens = roster.share_prompts() if roster.prompts else 0
            decode = 0 if prompt_tokens and self._separate else self.batch.size
            if decode or prompt_tokens:  # neither: everything admitted was complete on arrival
                yield self.env.timeout(self._begin(decode, prompt_tokens))
                self._settle()

    def stop(self) -> list[Request]:
        """Stop at once: the step under way is lost, everybody is sent away, memory and policy are forgotten.

        Returns the requests in the order in which they should be served elsewhere; called by a failure, or by the
        autoscaler for an engine that is idle.
        """
        self.up, self._back = False, self.env.event()
        self._wake = None
        self.process.interrupt()
        running, waiting = self.roster.evict()
        for request in running:
            request.requeued += 1
        return running + waiting

    def start(self) -> None:
        """Come (back) into service, empty."""
        self.up = True
        self.decider = self._make_decider()
        self._back.succeed()

    # -- the step ----------------------------------------------------------------------------------------------
    def _begin(self, R: int, prefill_tokens: int) -> float:
        """Ask the policy and price the step; returns its seconds."""
        cost, step = self.cost, self._step
        step.start, step.requests, step.prefill_tokens = self.env.now, R, prefill_tokens
        step.kv_tokens, step.waiting = self.roster.kv_tokens if R else 0, len(self.roster.waiting)
        step.stalled = self.batch.size - R
        step.lengths, step.drafted, step.tokens = None, 0, R
        step.draft = step.schedule = 0.0
        if R:
            decider = self.decider
            step.lengths, longest, drafting, resumed = decider.decide(
                R, step.start, prefill_tokens, step.waiting, self.roster.pool.free, step.kv_tokens
            )
            step.drafted = decider.drafted_sum
            step.tokens = R * (1 + decider.widest) if cost.ragged == "padded" else R + decider.verified_sum
            step.draft = cost.draft_seconds(decider.begun if cost.parallel else drafting, longest, resumed)
            if decider.synchronous:
                step.schedule = cost.schedule_seconds(R)
        step.verify = cost.verify_seconds(step.tokens, prefill_tokens)
        step.other = cost.other_seconds(R, step.kv_tokens)
        step.total = step.draft + step.schedule + step.verify + step.other
        if not step.start < step.start + step.total < np.inf:
            self._out_of_range(step)
        return step.total

    def _out_of_range(self, step: _Step) -> NoReturn:
        curve, cost = self.cost.verify_curve, self.cost
        if step.total < np.inf:
            credit = cost.per_kv_token * cost.measured_context * step.requests
            why = f" after per_kv_token took {credit:g} s off for measured_context" if step.total <= 0 else ""
            raise OutOfRange(
                f"a step of {step.requests} requests would take {step.total:g} s{why}: the clock would not move; "
                "correct the profile"
            )
        if step.verify == np.inf:
            tokens = step.tokens + step.prefill_tokens
            what = f"the verify (or prefill) curve covers {curve.first} to {curve.last} tokens, a step needs {tokens}"
        else:
            part = "drafter" if step.draft == np.inf else "schedule" if step.schedule == np.inf else "fixed or overhead"
            what = f"the {part} curve does not cover {step.requests} requests"
        raise OutOfRange(f"{what}; measure further, state `extrapolate: linear` in the profile, or lower the load")

    # -- after the step ----------------------------------------------------------------------------------------
    def _settle(self) -> None:
        step, now = self._step, self.env.now
        accepted = emitted = gap_rows = 0
        gap = 0.0
        if step.requests:
            gap, gap_rows = self._gaps(step.requests, now)
            accepted, emitted = self._advance(step)
        if step.prefill_tokens:
            done, late = self.roster.complete_prompts(now)
            emitted += done
            for own in late:
                self.recorder.gap(now, own)
        cost, verified = self.cost, self.decider.verified_sum if step.requests else 0
        batch_tokens = step.requests + verified + step.prefill_tokens
        charged = step.tokens + (step.prefill_tokens if cost.prefill_curve is None else 0)
        self.recorder.step((
            self.number, self.steps, step.start, step.draft, step.schedule, step.verify, step.other, now,
            step.requests, step.drafted, verified, accepted, emitted, step.prefill_tokens, batch_tokens,
            cost.padded_tokens(charged), step.kv_tokens, step.waiting, step.stalled, gap, gap_rows,
            cost.extrapolated(charged, step.prefill_tokens, step.requests),
        ))
        self.steps += 1

    def _gaps(self, R: int, now: float) -> tuple[float, int]:
        """Time since users last received tokens: (common gap, rows that have it); other rows are noted one by one."""
        batch, roster = self.batch, self.roster
        slowest = batch.bundle().slowest
        gap, common = now - roster.last_decode, R - roster.fresh
        new: Sequence[int] = range(common, R)
        if roster.mixed:  # fresh rows stand anywhere
            new = np.flatnonzero(batch.ints[JOINED, :R] == self.rows.decode_step).tolist()
            kept = slowest[new]
            np.maximum(slowest, gap, out=slowest)
            slowest[new] = kept
        else:
            old = slowest[:common]
            np.maximum(old, gap, out=old)
        for i in new:
            own = now - float(batch.floats[LAST_EMIT, i])
            slowest[i] = max(float(slowest[i]), own)
            self.recorder.gap(now, own)
        roster.last_decode, roster.fresh, roster.mixed = now, 0, False
        return gap, common

    def _advance(self, step: _Step) -> tuple[int, int]:
        """Move every row on by what was accepted; returns the sums of accepted and emitted tokens."""
        batch, rows, R = self.batch, self.rows, step.requests
        moving, _, remaining, verified, accepted_total, drafted_total, *_ = batch.bundle()
        observes = self.decider.observes
        if self.drafts and step.lengths is not None:
            accepted = np.minimum(rows.accepted(), step.lengths)
            accepted_sum = int(accepted.sum())
            self.recorder.lengths.add(self.env.now, step.lengths, accepted)
            progress = accepted + 1
            verified += step.lengths
            accepted_total += accepted
            if rows.partial:
                drafted_total += rows.block_size if self.decider.drafted is None else self.decider.drafted
            moving += progress
            remaining -= progress
        else:
            accepted, accepted_sum = None, 0
            moving += 1
            remaining -= 1
        self.roster.kv_tokens += R + accepted_sum
        emitted_sum = R + accepted_sum
        ended = batch.ended(self.roster.width)
        if ended:
            emitted_sum += int(remaining[ended].sum())
        if observes:
            self._report(step, accepted, remaining)
        rows.decode_step += 1
        if ended:
            self.roster.finish_rows(ended, self.env.now)
        if self.drafts:
            batch.cross_documents(self.roster.width)
        return accepted_sum, emitted_sum

    def _report(self, step: _Step, accepted: IntArray | None, remaining: IntArray) -> None:
        R, out = step.requests, StepOutcome()
        zero = np.zeros(R, dtype=np.int64)
        out.step, out.slot = self.rows.decode_step, self.decider.view.slot.copy()
        out.accepted = zero if accepted is None else accepted
        out.verified = zero if step.lengths is None else step.lengths.copy()
        full = np.full(R, self.rows.block_size, dtype=np.int64)
        out.drafted = full if self.decider.drafted is None else self.decider.drafted
        out.emitted, out.finished = out.accepted + 1 + np.minimum(remaining, 0), remaining <= 0
        out.draft_seconds, out.schedule_seconds = step.draft, step.schedule
        out.verify_seconds, out.other_seconds = step.verify, step.other
        out.batch_tokens = R + self.decider.verified_sum + step.prefill_tokens
        out.prefill_tokens = step.prefill_tokens
        charged = step.tokens + (step.prefill_tokens if self.cost.prefill_curve is None else 0)
        out.padded_tokens = self.cost.padded_tokens(charged)
        self.decider.settled(out)
