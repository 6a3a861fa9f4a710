"""A stage: hands a policy hand-made steps through one reused view, in an engine's order and with its checks.

Shapes: R requests, G block size. The view is the same object in every step and phase, as an engine's is; a policy that
keeps it, or reads confidences before drafting, sees here what it would see there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from dspark_sim.blame import described, is_interrupt, raised_at, what_happened
from dspark_sim.errors import PolicyFailure
from dspark_sim.guard import asked, watched
from dspark_sim.lossless.bench import F32, Bench, Decision, Rows, frozen
from dspark_sim.policy import MAX_LAG, IntArray, Policy, StepOutcome, StepView

__all__ = ["Stage"]

LONG = 1_000_000  # output tokens of a request that never ends here


@cache
def _full(R: int, length: int) -> IntArray:
    return frozen(np.full(R, length), np.int64)  # type: ignore[no-any-return]


class Stage:
    """One policy in one engine without time or queues.

    Args:
        policy: a fresh object; ``start`` is called here, its ValueErrors pass through.
        bench: the engine it believes in.
        outputs: output tokens by request id; others never end.
        guarded: keep copies of what the view hands out.

    Attributes:
        block_size: G.
        read: names of the view's secrets that were read: confidence, draft_probability, oracle, past.
        early: those of this step's secrets that were read before drafting.
        handed: arrays that this step's view gave out, with copies of them (only if ``guarded``).
    """

    def __init__(self, policy: Policy, bench: Bench, outputs: Mapping[int, int] | None = None,
                 *, guarded: bool = False) -> None:
        self.policy, self.bench, self.block_size = policy, bench, bench.block_size
        self.outputs, self.guarded = outputs or {}, guarded
        self.read: set[str] = set()
        self.early: set[str] = set()
        self.handed: list[tuple[str, npt.NDArray[Any], npt.NDArray[Any]]] = []
        self.step, self.now = 0, 0.0
        self._phase, self._drafted = "", frozen([], np.int64)
        self._rows: Rows | None = None
        self._running: tuple[int, ...] = ()
        self._decision: Decision | None = None
        self._emitted: dict[int, int] = {}
        self._joined: dict[int, float] = {}
        self._slots: dict[int, int] = {}
        self._past: dict[int, deque[F32]] = {}
        self._outcomes: deque[StepOutcome] = deque()
        view = self.view = StepView()
        view.host_lag, view._rows = bench.host_lag, self
        view._oracle_allowed = bool(getattr(policy, "needs_oracle", False)) and not policy.lossless
        start = getattr(policy, "start", None)
        if start is not None:
            asked(start, bench.setup())

    # -- what views ask ----------------------------------------------------------------------------------------
    def _seen(self, name: str) -> Rows:
        assert self._rows is not None
        self.read.add(name)
        if self._phase == "draft_lengths":
            self.early.add(name)
        return self._rows

    def _hand(self, name: str, values: npt.ArrayLike, dtype: Any) -> Any:
        array = frozen(values, dtype)
        if self.guarded:
            self.handed.append((name, array, array.copy()))
        return array

    def _cut(self, name: str, table: F32) -> Any:
        inside = np.arange(self.block_size) < self._drafted[:, None]
        return self._hand(name, np.where(inside, table, np.float32(0)), np.float32)

    def confidence(self) -> F32 | None:
        """(R, G) of this step, 0 where not drafted."""
        return self._cut("confidence", self._seen("confidence").confidence)  # type: ignore[no-any-return]

    def survival(self) -> F32 | None:
        """(R, G) of this step, 0 where not drafted."""
        return self._cut("survival", self._seen("confidence").survival())  # type: ignore[no-any-return]

    def draft_probability(self) -> F32 | None:
        """(R, G) of the drawn tokens, 0 where not drafted."""
        table = self._seen("draft_probability").draft_probability
        return None if table is None else self._cut("draft_probability", table)

    def oracle(self) -> IntArray:
        """(R,) tokens that the target would keep of those drafted."""
        kept = np.minimum(self._seen("oracle").kept, self._drafted)
        return self._hand("oracle", kept, np.int64)  # type: ignore[no-any-return]

    def past(self, n: int) -> F32:
        """(R, G) survivals n steps ago, NaN where there is none."""
        assert self._rows is not None
        self.read.add("past")
        out = np.full((len(self._rows.ids), self.block_size), np.nan, dtype=np.float32)
        for r, i in enumerate(self._rows.ids):
            kept = self._past[i]
            if len(kept) >= n:
                out[r] = kept[-n]
        return self._hand(f"past({n})", out, np.float32)  # type: ignore[no-any-return]

    # -- one step ----------------------------------------------------------------------------------------------
    def decide(self, rows: Rows) -> Decision:
        """Show one step and return what the policy answered.

        Raises:
            PolicyFailure: it raised, or answered against its contract.
        """
        R, policy = len(rows.ids), self.policy
        self._rows, self.handed = rows, []
        self._enter(rows)
        full = _full(R, self.block_size)
        limit = full if rows.limit is None else np.minimum(full, rows.limit)
        asked = self._show(limit)
        if (method := getattr(policy, "draft_lengths", None)) is not None:
            answer = self._call(method, "draft_lengths")
            if isinstance(answer, (int, np.integer)) and not isinstance(answer, bool):
                answer = _full(R, int(answer))
            asked = self._show(np.minimum(self._checked(answer, full, "draft_lengths"), limit))
        drafted = asked
        if (method := getattr(policy, "stop_drafting", None)) is not None:
            drafted = self._show(self._checked(self._call(method, "stop_drafting"), asked, "stop_drafting"))
        lengths = self._checked(self._call(policy.verify_lengths, "verify_lengths"), drafted, "verify_lengths")
        self._decision = Decision(asked, drafted, lengths)
        return self._decision

    def _show(self, drafted: IntArray) -> IntArray:
        """What the view says of draft lengths from now on."""
        shown: IntArray = self._hand("drafted", drafted, np.int64)
        self._drafted = self.view.drafted = shown
        return shown

    def settle(self, accepted: IntArray | None = None) -> IntArray:
        """End the step: (R,) accepted tokens, by default what ``kept`` says; outcomes reach the policy when due."""
        rows, decision = self._rows, self._decision
        assert rows is not None
        assert decision is not None
        if accepted is None:
            accepted = np.minimum(decision.lengths, rows.kept)
        survival = rows.survival()
        survival[np.arange(self.block_size) >= decision.drafted[:, None]] = np.nan
        left = np.array([self.left(i) for i in rows.ids], dtype=np.int64)
        emitted = np.minimum(accepted + 1, left)
        slots = self.view.slot.copy()
        for r, i in enumerate(rows.ids):
            self._past[i].append(survival[r])
            self._emitted[i] += int(emitted[r])
        B, cost = len(rows.ids) + int(decision.lengths.sum()), self.bench.cost()
        out = StepOutcome()
        out.step, out.slot, out.drafted, out.verified = self.step, slots, decision.drafted, decision.lengths
        out.accepted, out.emitted, out.finished = accepted, emitted, emitted == left
        out.draft_seconds = out.schedule_seconds = out.other_seconds = 0.0
        out.verify_seconds = cost.verify_seconds(B, rows.prefill_tokens)
        out.batch_tokens = B + rows.prefill_tokens
        out.padded_tokens, out.prefill_tokens = cost.padded_tokens(out.batch_tokens), rows.prefill_tokens
        self.now += out.seconds
        self.step += 1
        observe = getattr(self.policy, "observe", None)
        if observe is not None:
            self._outcomes.append(out)
            if len(self._outcomes) > self.bench.host_lag:
                self._call(observe, "observe", self._outcomes.popleft())
        return accepted

    def left(self, i: int) -> int:
        """Output tokens that request i has still to get."""
        return self.outputs.get(i, LONG) - self._emitted.get(i, 1)

    def _enter(self, rows: Rows) -> None:
        """Who runs now: slots, pasts and the public arrays of the view."""
        view, hand, R = self.view, self._hand, len(rows.ids)
        if rows.ids != self._running or self.guarded:
            self._running = rows.ids
            for i in [i for i in self._slots if i not in rows.ids]:
                del self._slots[i], self._past[i]
            for i in rows.ids:
                if i not in self._slots:
                    taken = set(self._slots.values())
                    self._slots[i] = next(s for s in range(len(taken) + 1) if s not in taken)
                    self._past[i] = deque(maxlen=MAX_LAG)
                    self._emitted.setdefault(i, 1)
                    self._joined.setdefault(i, self.now)
            view.slot = hand("slot", [self._slots[i] for i in rows.ids], np.int64)
            view.request_class = hand("request_class", np.zeros(R), np.int64)
            view.arrival = hand("arrival", [self._joined[i] for i in rows.ids], np.float64)
            view.first_token, view.tpot_sla = view.arrival, hand("tpot_sla", np.full(R, np.inf), np.float64)
        emitted = np.array([self._emitted[i] for i in rows.ids], dtype=np.int64)
        view.step, view.now, view.requests, view.waiting, view.kv_free_blocks = self.step, self.now, R, 0, -1
        view.prefill_tokens = rows.prefill_tokens
        view.emitted = hand("emitted", emitted, np.int64)
        view.context = hand("context", emitted + 100, np.int64)
        view.remaining = hand("remaining", [self.left(i) for i in rows.ids], np.int64)
        view.kv_tokens = int(emitted.sum()) + 100 * R

    # -- asking ------------------------------------------------------------------------------------------------
    @watched
    def _call(self, method: Callable[[Any], Any], name: str, outcome: StepOutcome | None = None) -> Any:
        self._phase = name
        try:
            return method(self.view if outcome is None else outcome)
        except BaseException as error:
            if is_interrupt(error):
                raise
            raise PolicyFailure(f"{name} {what_happened(error)} ({raised_at(error, self.policy)}) "
                                f"at decode step {self.step}, R = {self.view.requests}") from None

    def _checked(self, answer: Any, limit: IntArray, method: str) -> IntArray:
        try:
            array = np.asarray(answer)
        except Exception:
            self._refuse(method, f"answered {described(answer)}", f"a numpy array of {limit.size} whole numbers")
        if array.shape != limit.shape or array.dtype.kind not in "iu":
            self._refuse(method, f"answered {described(answer)}",
                         f"a numpy array of shape {limit.shape} of whole numbers")
        lengths = array.astype(np.int64)
        wrong = (lengths < 0) | (lengths > limit)
        if wrong.any():
            r = int(wrong.argmax())
            self._refuse(method, f"answered {lengths[r]} for request {r + 1} of {limit.size}", f"0 to {limit[r]}")
        return lengths

    def _refuse(self, method: str, what: str, allowed: str) -> NoReturn:
        raise PolicyFailure(f"{method} {what} at decode step {self.step}; allowed: {allowed}")
