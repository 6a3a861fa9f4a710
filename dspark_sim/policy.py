"""The plug-in contract: how a policy chooses verification lengths, who calls it, when, with what.

Shapes: R requests decoding in this step, in admission order; G block size. A step of the engine goes::

    draft_lengths(view)   before drafting; the past only          -> how many tokens each request drafts
    stop_drafting(view)   confidences of this step known          -> where drafting stopped (autoregressive drafters)
    verify_lengths(view)  confidences of this step known          -> ℓ, the one method you must write
    observe(outcome)      host_lag steps later                    -> learn

Views are reused objects: their arrays are read-only and valid during the call only; copy what you keep.
Write a :class:`BudgetPolicy` when a number of draft tokens for the whole batch is all you want to decide: it is
lossless by construction, whatever your ``token_budget`` does.

Source of the order of candidates and of the causal barrier: the DSpark paper, section 4 and Appendix A.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from dspark_sim.curve import FloatArray, StepCost

__all__ = [
    "MAX_LAG", "BudgetPolicy", "BudgetView", "EngineSetup", "IntArray", "Policy", "StepOutcome", "StepView", "Timing",
    "expected_tokens", "top_k_lengths",
]

IntArray: TypeAlias = npt.NDArray[np.int64]
Float32Array: TypeAlias = npt.NDArray[np.float32]
Timing: TypeAlias = Literal["overlapped", "synchronous"]
MAX_LAG = 8  # steps of the past that an engine keeps
_ONES = np.ones(64, dtype=np.int8)


@dataclass(frozen=True)
class EngineSetup:
    """What a policy learns once, at ``start``.

    Attributes:
        drafter: the drafter's name, None for an arm without one.
        block_size: G, the longest draft; 0 without a drafter.
        temperature: sampling temperature (0: greedy).
        max_num_seqs, max_num_batched_tokens: the engine's limits.
        host_lag: steps until confidences and outcomes reach the host: 0 synchronous, vLLM 1, SGLang and the paper 2.
        cost: the policy's *belief* of what a step costs (an arm's ``belief`` may set it off from the truth).
        rng: the policy's own random stream.
        ragged: how the engine lays out lengths that differ, ``flattened`` or ``padded``.
    """

    drafter: str | None
    block_size: int
    temperature: float
    max_num_seqs: int
    max_num_batched_tokens: int
    host_lag: int
    cost: StepCost
    rng: np.random.Generator
    ragged: Literal["flattened", "padded"] = "flattened"


class Rows(Protocol):
    """Where an engine keeps the draft rows of its requests; views ask it only when a policy asks them."""

    block_size: int

    def confidence(self) -> Float32Array | None: ...
    def survival(self) -> Float32Array | None: ...
    def draft_probability(self) -> Float32Array | None: ...
    def oracle(self) -> IntArray: ...
    def past(self, n: int) -> Float32Array: ...


class BudgetView:
    """What is known before drafting; made by the engine, one per engine, reused in every step.

    Attributes:
        step: decode steps of this engine so far (0 at the first).
        now: simulated seconds at the start of the step.
        requests: R.
        prefill_tokens: prompt tokens that share this step.
        waiting: requests in the queue.
        kv_free_blocks: free KV blocks, -1 when the profile sets no limit.
        kv_tokens: KV tokens that this step's attention reads: Σ context over the R requests.
        slot: (R,) stable small integer per request while it runs (0 .. max_num_seqs - 1), for your own state.
        request_class: (R,) index of the request's class.
        context: (R,) tokens of prompt and output so far.
        emitted, remaining: (R,) output tokens so far, and still to come.
        arrival, first_token: (R,) seconds.
        tpot_sla: (R,) the request's TPOT limit in seconds, ``inf`` where its class has none.
    """

    __slots__ = (
        "_rows", "arrival", "context", "emitted", "first_token", "host_lag", "kv_free_blocks", "kv_tokens", "now",
        "prefill_tokens", "remaining", "request_class", "requests", "slot", "step", "tpot_sla", "waiting",
    )

    step: int
    now: float
    requests: int
    prefill_tokens: int
    waiting: int
    kv_free_blocks: int
    kv_tokens: int
    slot: IntArray
    request_class: IntArray
    context: IntArray
    emitted: IntArray
    remaining: IntArray
    arrival: FloatArray
    first_token: FloatArray
    tpot_sla: FloatArray
    host_lag: int
    _rows: Rows

    @property
    def block_size(self) -> int:
        """G."""
        return self._rows.block_size

    def past(self, n: int) -> Float32Array:
        """(R, G) survivals of the current requests ``n`` of *their* decode steps ago; NaN where there is none.

        A request that is new, was preempted since, or did not draft that position has NaN.

        Raises:
            ValueError: ``n`` below ``host_lag`` (it has not reached the host) or above 8 (not kept).
        """
        if not self.host_lag <= n <= MAX_LAG or n < 1:
            raise ValueError(f"past({n}): this engine can answer for {max(1, self.host_lag)} to {MAX_LAG} steps ago")
        return self._rows.past(n)


class StepView(BudgetView):
    """What is known after drafting: everything above, and the rows of this step.

    Attributes:
        drafted: (R,) draft tokens proposed in this step, 0..G.
    """

    __slots__ = ("_oracle_allowed", "drafted")

    drafted: IntArray
    _oracle_allowed: bool

    @property
    def confidence(self) -> Float32Array:
        """(R, G) calibrated conditional acceptance c_k; 0 at positions that were not drafted."""
        table = self._rows.confidence()
        if table is None:
            raise ValueError("this arm's trace has no confidence (drafters without a confidence head have none)")
        return table

    @property
    def survival(self) -> Float32Array:
        """(R, G) a_k = c_1 … c_k, never rising along a row; 0 at positions that were not drafted."""
        table = self._rows.survival()
        if table is None:
            raise ValueError("this arm's trace has no confidence (drafters without a confidence head have none)")
        return table

    @property
    def draft_probability(self) -> Float32Array | None:
        """(R, G) the drafter's probability of the token it drew, None if not recorded. Deciding on it is
        *anticipating* under sampling: it is known only after the token is drawn."""
        return self._rows.draft_probability()

    @property
    def oracle(self) -> IntArray:
        """(R,) draft tokens that the target would keep. Only for policies with ``needs_oracle`` (never lossless)."""
        if not self._oracle_allowed:
            raise ValueError("the oracle is open only to a policy with needs_oracle = True and lossless = False")
        return self._rows.oracle()


class StepOutcome:
    """What one decode step did, delivered ``host_lag`` steps later (at once with lag 0).

    Attributes:
        step: the decode step it tells of.
        slot, drafted, verified, accepted, emitted: (R,) of that step; emitted is cut at a request's end.
        finished: (R,) bool.
        draft_seconds, schedule_seconds, verify_seconds, other_seconds: the step's time by part.
        batch_tokens, padded_tokens, prefill_tokens: sizes of the target's forward pass.
    """

    __slots__ = (
        "accepted", "batch_tokens", "draft_seconds", "drafted", "emitted", "finished", "other_seconds",
        "padded_tokens", "prefill_tokens", "schedule_seconds", "slot", "step", "verified", "verify_seconds",
    )

    step: int
    slot: IntArray
    drafted: IntArray
    verified: IntArray
    accepted: IntArray
    emitted: IntArray
    finished: npt.NDArray[np.bool_]
    draft_seconds: float
    schedule_seconds: float
    verify_seconds: float
    other_seconds: float
    batch_tokens: int
    padded_tokens: int
    prefill_tokens: int

    @property
    def seconds(self) -> float:
        """The whole step."""
        return self.draft_seconds + self.schedule_seconds + self.verify_seconds + self.other_seconds


@runtime_checkable
class Policy(Protocol):
    """A verification policy. Only ``verify_lengths`` is required; ``start``, ``draft_lengths``, ``stop_drafting``
    and ``observe`` are called where a class has them. Parameters are the class's dataclass fields.

    Class attributes:
        lossless: the claim that the output distribution is the target's own.
        timing: ``overlapped`` decisions cost no time; ``synchronous`` ones pay the profile's ``schedule``.
        needs_confidence: refuse a trace without confidence before the run starts (optional, default False).
        needs_oracle: open ``view.oracle`` (optional, default False; forbids ``lossless``).
    """

    lossless: ClassVar[bool]
    timing: ClassVar[Timing]

    def verify_lengths(self, view: StepView) -> IntArray:
        """(R,) whole numbers, 0 ≤ ℓ_r ≤ view.drafted[r]: draft tokens of each request that the target verifies."""
        ...


def expected_tokens(survival: Float32Array, requests: int) -> FloatArray:
    """(N + 1,) τ by number K of draft tokens verified, best first: ``requests`` + Σ of the K largest survivals.

    N counts the survivals above 0: a token that cannot be accepted is no candidate. Survivals are added one by one
    in float64, starting from ``requests``, so every entry has the same bits as a literal loop. ``survival`` may have
    any shape and order and must hold no NaN. Called by policies that weigh τ against the seconds of ``cost.table``.
    """
    ascending = survival.flatten()
    ascending.sort()  # values alone: which of two equal tokens comes first does not matter
    n = ascending.size - int(ascending.searchsorted(0.0, side="right"))
    tau = np.empty(n + 1)
    tau[0] = requests
    tau[1:] = ascending[: -n - 1 : -1]
    return tau.cumsum(out=tau)


def top_k_lengths(survival: Float32Array, k: int) -> IntArray:
    """(R,) lengths of the ``k`` best draft tokens by (−survival, row, position); tokens of survival 0 never count.

    Equal to a stable sort of all candidates, found by partition: survivals never rise along a row, so the chosen
    tokens of a row are always its first ones. Called by :class:`BudgetPolicy` and by policies that rank globally.
    """
    R, G = survival.shape
    if k <= 0 or R == 0:
        return np.zeros(R, dtype=np.int64)
    flat, cut = survival.ravel(), np.float32(0.0)
    if k < flat.size:
        parted = flat.copy()
        parted.partition(flat.size - k)
        cut = parted[-k]  # the k-th best
    chosen = flat >= cut if cut > 0 else flat > 0
    surplus = int(np.count_nonzero(chosen)) - k
    if surplus > 0:
        chosen[(flat == cut).nonzero()[0][-surplus:]] = False  # of the tokens equal to the cut the first ones stay
    # A product with ones counts a row several times faster than a sum along so short an axis.
    return (chosen.view(np.int8).reshape(R, G) @ _ONES[:G]).astype(np.int64)


class BudgetPolicy:
    """Base of policies that decide only *how many* draft tokens the batch may verify, from the past.

    Write ``token_budget``; the current survivals fill it, best first. Since the budget cannot see this step's
    confidences and ranking by survival is a joint stopping rule, the policy is lossless by construction.
    """

    lossless: ClassVar[bool] = True
    timing: ClassVar[Timing] = "overlapped"
    needs_confidence: ClassVar[bool] = True
    _budget: int = 0

    def token_budget(self, view: BudgetView) -> int:
        """Draft tokens that the whole batch verifies in this step, 0..R*G; asked before drafting."""
        raise NotImplementedError(f"{type(self).__name__} must define token_budget(view) -> int")

    def verify_lengths(self, view: StepView) -> IntArray:
        """(R,) the best ``token_budget`` draft tokens by current survival."""
        return top_k_lengths(view.survival, self._budget)

    def draft_lengths(self, view: BudgetView) -> IntArray | int:
        """Fixes the budget before any confidence of this step exists; drafts full blocks."""
        budget = self.token_budget(view)
        if not hasattr(budget, "__int__") or not -1e18 < budget < 1e18:
            raise ValueError(f"token_budget answered {budget!r}; allowed: a whole number, 0 or more")
        self._budget = int(budget)
        return view.block_size
