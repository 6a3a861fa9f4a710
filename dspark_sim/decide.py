"""Asking a policy, and checking every answer: the one seam between an engine and a plug-in.

A policy that raises, exits, hangs or answers against its contract becomes a
:class:`~dspark_sim.errors.PolicyFailure` that says what it did and where; the arm ends, the others go on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from dspark_sim.batch import LAST_DRAFT, Batch
from dspark_sim.blame import described, is_interrupt, raised_at, what_happened, written_at
from dspark_sim.errors import PolicyFailure
from dspark_sim.guard import watched
from dspark_sim.policy import BudgetView, EngineSetup, IntArray, Policy, StepOutcome, StepView
from dspark_sim.rows import TraceRows

__all__ = ["Decider"]


class Decider:
    """One engine's policy.

    Args:
        policy: a fresh object for this engine.
        setup: handed to ``policy.start``.
        batch, rows: what its views show.

    Attributes:
        synchronous: the step waits for the decision (the profile's ``schedule``).
        drafted: (R,) of the last decision, None when every row drafted a full block.
        begun: rows that began to draft, before ``stop_drafting``; a parallel drafter is paid for them all.
        drafted_sum, verified_sum, widest: sums and the longest ℓ of the last decision.
    """

    def __init__(self, policy: Policy, setup: EngineSetup, batch: Batch, rows: TraceRows) -> None:
        self.policy, self.batch, self.rows = policy, batch, rows
        self.name = type(policy).__name__
        self.host_lag, self.block_size = setup.host_lag, setup.block_size
        self.synchronous = policy.timing == "synchronous"
        self._draft: Callable[[Any], Any] | None = getattr(policy, "draft_lengths", None) if self.block_size else None
        self._stop: Callable[[Any], Any] | None = getattr(policy, "stop_drafting", None) if self.block_size else None
        self._observe: Callable[[StepOutcome], None] | None = getattr(policy, "observe", None)
        self.observes = self._observe is not None
        self._shortens = self._draft is not None or self._stop is not None
        self.drafted: IntArray | None = None
        self._planned: IntArray | None = None
        self.begun = self.drafted_sum = self.verified_sum = self.widest = 0
        self._outcomes: deque[StepOutcome] = deque()
        self._full: dict[int, IntArray] = {}  # by R: slices, for arrays of every R up to R would fill R² / 2 numbers
        self._blocks = np.full(batch.ints.shape[1], setup.block_size, dtype=np.int64)
        self._blocks.flags.writeable = False
        self._bundle: object = None
        early, view = self.early, self.view = BudgetView(), StepView()  # before drafting there is no row to be seen
        early.host_lag = view.host_lag = setup.host_lag
        early._rows = view._rows = rows
        view._oracle_allowed = bool(getattr(policy, "needs_oracle", False)) and not policy.lossless
        start = getattr(policy, "start", None)
        if start is not None:
            self._call(start, setup)

    def decide(
        self, R: int, now: float, prefill_tokens: int, waiting: int, free_blocks: int, kv_tokens: int
    ) -> tuple[IntArray, int, int, int]:
        """Ask for this step. Returns (ℓ, longest draft, rows that draft, rows that draft again after a pause)."""
        early, view, G, rows = self.early, self.view, self.block_size, self.rows
        early.step = view.step = rows.decode_step
        early.now = view.now = now
        early.requests = view.requests = R
        early.prefill_tokens = view.prefill_tokens = prefill_tokens
        early.waiting = view.waiting = waiting
        early.kv_free_blocks = view.kv_free_blocks = free_blocks
        early.kv_tokens = view.kv_tokens = kv_tokens
        bundle = self.batch.bundle()
        if bundle is not self._bundle:
            self._bundle = bundle
            for v in (early, view):
                (v.slot, v.request_class, v.context, v.emitted, v.remaining, v.arrival, v.first_token,
                 v.tpot_sla) = bundle.public
        full = self._full.get(R)
        if full is None:
            full = self._full[R] = self._blocks[:R]
        view.drafted, drafted = full, None
        longest, drafting, resumed = G, R, 0
        self.begun = R
        if self._shortens:
            rows.drafted = None
            drafted = self._draft_lengths(view, full)
            if drafted is not None:
                longest, drafting = int(drafted.max()), int(np.count_nonzero(drafted))
                if not rows.partial:
                    rows.become_partial()
            if rows.partial:
                resumed = self._resumed(full if self._planned is None else self._planned)
        self.drafted = rows.drafted = drafted
        self.drafted_sum = R * G if drafted is None else int(drafted.sum())
        if G:
            rows.remember(drafted)
        lengths = self._checked(self._call(self.policy.verify_lengths, view), R, drafted, "verify_lengths")
        self.verified_sum = int(lengths.sum())
        return lengths, longest, drafting, resumed

    def _draft_lengths(self, view: StepView, full: IntArray) -> IntArray | None:
        """Where drafting stops, None for full blocks everywhere."""
        R, drafted = full.size, None
        if self._draft is not None:
            answer = self._call(self._draft, self.early)
            if isinstance(answer, (int, np.integer)) and not isinstance(answer, bool):
                if not 0 <= answer <= self.block_size:
                    self._refuse("draft_lengths", f"answered {answer}", f"0 to {self.block_size}")
                drafted = None if answer == self.block_size else np.full(R, int(answer), dtype=np.int64)
            else:
                drafted = self._checked(answer, R, None, "draft_lengths").copy()
        self._planned = drafted
        if drafted is not None:
            self.begun = int(np.count_nonzero(drafted))
        if self._stop is not None:
            if drafted is not None:
                view.drafted = self.rows.drafted = drafted
            stop = self._checked(self._call(self._stop, view), R, drafted, "stop_drafting")
            drafted = stop.copy()
        if drafted is not None:
            if (drafted == self.block_size).all():
                drafted = None
                view.drafted = full
            else:
                drafted.flags.writeable = False
                view.drafted = drafted
        return drafted

    def _resumed(self, drafted: IntArray) -> int:
        """Rows that skipped drafting in their last decode step and draft now; ``drafted``: what was planned."""
        last = self.batch.ints[LAST_DRAFT, : drafted.size]
        resumed = int(np.count_nonzero((last == 0) & (drafted > 0)))
        last[:] = drafted
        return resumed

    def _checked(self, answer: Any, R: int, drafted: IntArray | None, method: str) -> IntArray:
        """``answer`` as (R,) int64, every length in 0..drafted."""
        given = answer
        if type(answer) is not np.ndarray:
            try:
                answer = np.asarray(answer)
            except Exception:  # ragged lists, and objects with ideas of their own
                self._refuse(method, f"answered {described(given)}", f"a numpy array of {R} whole numbers")
        if answer.shape != (R,) or answer.dtype.kind not in "iu":
            self._refuse(method, f"answered {described(given)}", f"a numpy array of shape ({R},) of whole numbers")
        if answer.dtype != np.int64:
            if answer.dtype.kind == "u":
                answer = np.minimum(answer, np.iinfo(np.int64).max)  # an underflow is a huge length, not a negative one
            answer = answer.astype(np.int64)
        if R:
            self.widest = int(answer.view(np.uint64).max())  # a negative length is a huge one
            if self.widest > self.block_size or (drafted is not None and (answer > drafted).any()):
                limit = np.full(R, self.block_size) if drafted is None else drafted
                r = int(np.flatnonzero((answer > limit) | (answer < 0))[0])
                self._refuse(method, f"answered {answer[r]} for request {r} of {R}", f"0 to {limit[r]}")
        return answer  # type: ignore[no-any-return]

    def settled(self, outcome: StepOutcome) -> None:
        """Hand the policy what has reached the host by now: outcomes ``host_lag`` decode steps old."""
        assert self._observe is not None
        self._outcomes.append(outcome)
        if len(self._outcomes) > self.host_lag:
            self._call(self._observe, self._outcomes.popleft())

    @watched
    def _call(self, method: Callable[[Any], Any], argument: Any) -> Any:
        try:
            return method(argument)
        except BaseException as error:
            if is_interrupt(error):
                raise
            name = getattr(method, "__name__", type(method).__name__)
            raise PolicyFailure(
                f"policy {self.name}.{name} {what_happened(error)} ({raised_at(error, self.policy)}) "
                f"at decode step {self.rows.decode_step}"
            ) from None

    def _refuse(self, method: str, what: str, allowed: str) -> NoReturn:
        place = written_at(getattr(self.policy, method, None))
        raise PolicyFailure(
            f"policy {self.name}.{method} {what} {f'({place}) ' if place else ''}"
            f"at decode step {self.rows.decode_step}; allowed: {allowed}"
        )
