"""The engine's step with real models in it: admit, draft, choose, verify, settle; and the simulator's own tables.

The scheduler is the simulator's: the same roster admits, the same decider asks the same policy objects through the
same views. What the simulator looks up in a trace is drafted here, what it prices is done and timed, and what it
settles by the trace is settled by rejection sampling, in code of its own. The clock is the decoding time: prompts are
read between steps and their seconds kept apart, as ``prefill: none`` has it.

Shapes: R requests decoding, G block size.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from dspark_sim.arms import ArmSetup
from dspark_sim.batch import SLOT, Batch
from dspark_sim.decide import Decider
from dspark_sim.errors import RunError
from dspark_sim.guard import Overdue, limit_s, supervised
from dspark_sim.kv import BlockPool
from dspark_sim.lab.drafters import Drafter
from dspark_sim.lab.live_cache import live_attention
from dspark_sim.lab.live_model import LiveModel
from dspark_sim.lab.live_rows import LiveRows
from dspark_sim.lab.live_sampling import Dice, Verdict
from dspark_sim.lab.target import Target
from dspark_sim.policy import IntArray, StepOutcome
from dspark_sim.record import Recorder
from dspark_sim.request import Request
from dspark_sim.roster import EngineLimits, Roster
from dspark_sim.simulate import ArmRun

__all__ = ["LiveRun", "live_run", "waiter"]


@dataclass(frozen=True)
class LiveRun:
    """What a live arm did once.

    Attributes:
        run: the tables, as the simulator makes them; ``error`` set where the policy failed.
        outputs: output tokens per request, at most ``tokens`` each.
        prefill_seconds: spent on prompts, which no table holds.
    """

    run: ArmRun
    outputs: list[list[int]]
    prefill_seconds: float


def waiter(device: torch.device) -> Callable[[], None]:
    """What waits until the device has done all its work."""
    return torch.cuda.synchronize if device.type == "cuda" else lambda: None


def live_run(
    setup: ArmSetup, target: Target, drafter: Drafter | None, prompts: Sequence[Sequence[int]], tokens: int,
    classes: list[str], *, seed: int, replication: int = 0, interval_s: float = 1.0,
) -> LiveRun:
    """Serve all prompts once under one arm, ``max_num_seqs`` at a time, ``tokens`` output tokens each.

    Args:
        setup: the arm as the simulator has it: policy, belief, limits, calibration.
        drafter: None for an arm without one.
        classes: name of each prompt's class in the tables.
        seed, replication: choose the random numbers of sampling and of the policy.
        interval_s: bins of the intervals table.

    Returns:
        The tables; a policy that fails ends the run with ``error`` set, nothing is raised.
    """
    limit = setup.engine.max_num_seqs
    length = max(map(len, prompts)) + tokens
    model = LiveModel(target, drafter if setup.drafter is not None else None, limit, length,
                      setup.engine.temperature, Dice(seed, 0 if setup.drafter is None else setup.block_size))
    recorder = Recorder(setup.name, replication, classes, interval_s, block_size=setup.block_size)
    recorder.up(0, 0.0)
    began, error = time.perf_counter(), None
    requests = [Request(i, i, 0.0, len(p), tokens, 0) for i, p in enumerate(prompts)]
    engine: _Engine | None = None
    try:
        with supervised(setup.name), live_attention(target):
            engine = _Engine(setup, model, recorder, prompts, len(set(classes)), seed, replication)
            engine.serve(requests)
    except RunError as problem:
        error = str(problem)
    except Overdue:
        error = f"policy {setup.policy_source.name} needed more than {limit_s():g} s for one answer"
    end = 0.0 if engine is None else engine.now
    outputs = [[] for _ in prompts] if engine is None else [out[:tokens] for out in engine.outputs]
    for request in requests:
        if request.finished is None:
            recorder.request(request, 0)
    run = ArmRun(setup.name, replication, recorder.steps(), recorder.intervals(end), recorder.requests(), (0.0, end),
                 [], error, time.perf_counter() - began, recorder.lengths.table(setup.name, replication))
    return LiveRun(run, outputs, 0.0 if engine is None else engine.prefill_seconds)


class _Engine:
    """One run."""

    def __init__(
        self, setup: ArmSetup, model: LiveModel, recorder: Recorder, prompts: Sequence[Sequence[int]], classes: int,
        seed: int, replication: int,
    ) -> None:
        self.model, self.recorder, self.prompts, self.replication = model, recorder, prompts, replication
        self.settle = waiter(model.target.device)
        self.place: list[int] = []  # (R,) model row of each request
        self.outputs: list[list[int]] = [[] for _ in prompts]
        self.now = self.prefill_seconds = 0.0
        self.steps = 0
        config = setup.engine
        self.batch = Batch(config.max_num_seqs, None, [np.zeros(0, dtype=np.int64)] * classes)
        self.rows = LiveRows(self.batch, model, self.place, setup.trace if setup.calibrated else None, self.settle)
        limits = EngineLimits(config.max_num_seqs, config.max_num_batched_tokens, "none",
                              tuple([np.inf] * len(prompts)), prefix_cache=False)
        self.roster = Roster(limits, BlockPool(None, config.kv_block_tokens, 1 + model.G), self.batch, self.rows,
                             lambda request: recorder.request(request, 0))
        rng = np.random.default_rng(np.random.SeedSequence([seed, replication, setup.index], spawn_key=(84,)))
        self.decider = Decider(setup.make_policy(), setup.engine_setup(rng), self.batch, self.rows)

    def serve(self, requests: Sequence[Request]) -> None:
        """All requests, first come, first served; they are all there at the start."""
        for request in requests:
            self.roster.submit(request)
        mark = time.perf_counter()
        while not self.roster.idle:
            mark = self._step(mark)
        self.roster.check_integrity()

    def _admit(self) -> float:
        """Fill the batch; gives the seconds that prompts took."""
        before = self.batch.size
        self.roster.admit(self.now)
        began = time.perf_counter()
        for i in range(before, self.batch.size):
            request = self.batch.requests[i]
            row, token = self.model.admit(self.prompts[request.id], (request.id, self.replication))
            self.place.append(row)
            self.rows.joined(int(self.batch.ints[SLOT, i]))
            self.outputs[request.id].append(token)
        self.settle()
        return time.perf_counter() - began

    def _step(self, mark: float) -> float:
        """One step, from ``mark`` on; gives the moment at which it ended."""
        prefill = self._admit()
        self.prefill_seconds += prefill
        R, rows, decider, model = self.batch.size, self.rows, self.decider, self.model
        kv_tokens, waiting, start = self.roster.kv_tokens, len(self.roster.waiting), self.now
        rows.begin()
        model.roll(self.place)
        asked = time.perf_counter()
        lengths, _, _, _ = decider.decide(R, start, 0, waiting, -1, kv_tokens)
        chosen = time.perf_counter()
        verdict, passed = model.verify(self.place, rows.block, lengths)
        self.settle()
        verified = time.perf_counter()
        model.keep(self.place, verdict, passed)
        self._emit(verdict)
        self.settle()
        done = time.perf_counter()  # what follows is the next step's "other"
        draft, verify = rows.draft_seconds, verified - chosen
        schedule = max(0.0, chosen - asked - draft)
        other = max(0.0, (asked - mark - prefill) + (done - verified))
        self.now = start + draft + schedule + verify + other
        self._settle(start, draft, schedule, verify, other, lengths, verdict, kv_tokens, waiting)
        return done

    def _emit(self, verdict: Verdict) -> None:
        block = self.rows.block
        tokens = None if block is None else block.tokens.cpu().numpy()
        for i, request in enumerate(self.batch.requests):
            kept = [] if tokens is None else tokens[i, : verdict.accepted[i]].tolist()
            self.outputs[request.id] += [*kept, int(verdict.after[i])]

    def _settle(
        self, start: float, draft: float, schedule: float, verify: float, other: float, lengths: IntArray,
        verdict: Verdict, kv_tokens: int, waiting: int,
    ) -> None:
        batch, rows, roster, decider = self.batch, self.rows, self.roster, self.decider
        R, accepted = batch.size, verdict.accepted
        moving, _, remaining, verified, kept, drafted, _, slowest, _ = batch.bundle()
        gap = draft + schedule + verify + other
        np.maximum(slowest, gap, out=slowest)
        moving += accepted + 1
        remaining -= accepted + 1
        verified += lengths
        kept += accepted
        if rows.partial:
            drafted += rows.block_size if decider.drafted is None else decider.drafted
        if self.model.drafter is not None:
            self.recorder.lengths.add(self.now, lengths, accepted)
        roster.kv_tokens += R + int(accepted.sum())
        over = np.minimum(remaining, 0)
        emitted = R + int(accepted.sum()) + int(over.sum())
        tokens = R + decider.verified_sum
        self.recorder.step((
            0, self.steps, start, draft, schedule, verify, other, self.now, R, decider.drafted_sum,
            decider.verified_sum, int(accepted.sum()), emitted, 0, tokens, tokens, kv_tokens, waiting, 0, gap, R, 0,
        ))
        self.steps += 1
        if decider.observes:
            self._report(lengths, accepted, over, (draft, schedule, verify, other), tokens)
        rows.decode_step += 1
        roster.last_decode, roster.fresh, roster.mixed = self.now, 0, False
        ended = batch.ended(roster.width)
        if ended:
            for i in reversed(ended):
                row = self.place.pop(i)
                moved = self.model.leave(row)
                self.place[:] = [row if p == moved else p for p in self.place]
            roster.finish_rows(ended, self.now)

    def _report(
        self, lengths: IntArray, accepted: IntArray, over: IntArray, seconds: tuple[float, float, float, float],
        tokens: int,
    ) -> None:
        R, out = len(lengths), StepOutcome()
        out.step, out.slot = self.rows.decode_step, self.decider.view.slot.copy()
        out.accepted, out.verified = accepted, lengths.copy()
        full = np.full(R, self.rows.block_size, dtype=np.int64)
        out.drafted = full if self.decider.drafted is None else self.decider.drafted
        out.emitted, out.finished = accepted + 1 + over, self.batch.bundle().remaining <= 0
        out.draft_seconds, out.schedule_seconds, out.verify_seconds, out.other_seconds = seconds
        out.batch_tokens = out.padded_tokens = tokens
        out.prefill_tokens = 0
        self.decider.settled(out)
