"""Views and setups made by hand: what an engine would hand to a policy, without an engine.

``make_view`` gives a :class:`StepView` whose arrays are read-only, as the engine's are; ``make_setup`` the setup that
goes with a step-time curve. Everything has a plain default, so that a test names only what it is about.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from dspark_sim.curve import DraftCost, StepCost, StepCurve
from dspark_sim.policy import EngineSetup, StepView


class FakeRows:
    """The draft rows of one step; ``pasts`` maps n to the (R, G) survivals of n steps ago (absent: all NaN)."""

    def __init__(
        self, survival: npt.ArrayLike, *, confidence: npt.ArrayLike | None = None, oracle: npt.ArrayLike | None = None,
        pasts: dict[int, npt.ArrayLike] | None = None, draft_probability: npt.ArrayLike | None = None,
        block_size: int | None = None,
    ) -> None:
        self._survival = frozen(survival, np.float32)
        self.block_size = self._survival.shape[1] if block_size is None else block_size
        if confidence is None:
            before = np.hstack([np.ones((len(self._survival), 1)), self._survival[:, :-1]])
            confidence = np.divide(self._survival, before, out=np.zeros(self._survival.shape), where=before > 0)
        self._confidence = frozen(confidence, np.float32)
        self._oracle = None if oracle is None else frozen(oracle, np.int64)
        self._draft = None if draft_probability is None else frozen(draft_probability, np.float32)
        self._pasts = {n: frozen(p, np.float32) for n, p in (pasts or {}).items()}

    def confidence(self) -> Any:
        return self._confidence

    def survival(self) -> Any:
        return self._survival

    def draft_probability(self) -> Any:
        return self._draft

    def oracle(self) -> Any:
        assert self._oracle is not None, "this fake has no oracle"
        return self._oracle

    def past(self, n: int) -> Any:
        known = self._pasts.get(n)
        return frozen(np.full(self._survival.shape, np.nan), np.float32) if known is None else known


def frozen(values: npt.ArrayLike, dtype: Any) -> Any:
    array = np.array(values, dtype=dtype)
    array.flags.writeable = False
    return array


def make_view(
    survival: npt.ArrayLike, *, drafted: npt.ArrayLike | None = None, remaining: npt.ArrayLike | None = None,
    step: int = 10, prefill_tokens: int = 0, kv_tokens: int = 0, host_lag: int = 1, oracle: npt.ArrayLike | None = None,
    **rows: Any,
) -> StepView:
    """A view of (R, G) survivals; ``drafted`` is the number of positive ones of each row by default."""
    fake = FakeRows(survival, oracle=oracle, **rows)
    R = len(fake.survival())
    view = StepView()
    view._rows, view.host_lag, view._oracle_allowed = fake, host_lag, oracle is not None
    view.step, view.now, view.requests, view.waiting, view.kv_free_blocks = step, 1.5, R, 0, -1
    view.prefill_tokens, view.kv_tokens = prefill_tokens, kv_tokens
    view.drafted = frozen((fake.survival() > 0).sum(axis=1) if drafted is None else drafted, np.int64)
    view.slot = frozen(np.arange(R), np.int64)
    view.request_class = frozen(np.zeros(R), np.int64)
    view.context = frozen(np.full(R, 500), np.int64)
    view.emitted = frozen(np.full(R, 100), np.int64)
    view.remaining = frozen(np.full(R, 100) if remaining is None else remaining, np.int64)
    view.arrival = frozen(np.zeros(R), np.float64)
    view.first_token = frozen(np.full(R, 0.1), np.float64)
    view.tpot_sla = frozen(np.full(R, np.inf), np.float64)
    return view


def make_cost(
    seconds: dict[int, float] | StepCurve, *, block_size: int = 7, max_requests: int = 64, draft: float = 0.0,
    ragged: Literal["flattened", "padded"] = "flattened", **more: Any,
) -> StepCost:
    """A belief: the curve through ``{tokens: seconds}``, and a parallel drafter of constant seconds."""
    if isinstance(seconds, StepCurve):
        curve = seconds
    else:
        curve = StepCurve(np.array(list(seconds)), np.array(list(seconds.values())), extrapolate="linear")
    one = StepCurve(np.array([1]), np.array([draft]), extrapolate="linear")
    return StepCost(
        curve, block_size=block_size, max_requests=max_requests, max_tokens=4 * max_requests * (1 + block_size),
        draft=DraftCost("parallel", one) if draft else None, ragged=ragged, **more,
    )


def make_setup(cost: StepCost, *, host_lag: int = 1, seed: int = 0, **more: Any) -> EngineSetup:
    """The setup around a belief."""
    facts: dict[str, Any] = {
        "drafter": "fake", "block_size": cost.block_size, "temperature": 1.0, "max_num_seqs": cost.max_requests,
        "max_num_batched_tokens": cost.max_tokens, "host_lag": host_lag, "cost": cost,
        "rng": np.random.default_rng(seed), "ragged": cost.ragged,
    }
    return EngineSetup(**(facts | more))


def decide(policy: Any, view: StepView, setup: EngineSetup | None = None) -> Any:
    """One step of a policy, in the engine's order: start, draft_lengths, verify_lengths."""
    if setup is not None and hasattr(policy, "start"):
        policy.start(setup)
    if hasattr(policy, "draft_lengths"):
        policy.draft_lengths(view)
    return policy.verify_lengths(view)


def staircase(edges: list[int], levels: list[float], limit: int | None = None) -> StepCurve:
    """A captured curve: padded up to the next edge, as CUDA graphs are."""
    return StepCurve(np.array(edges), np.array(levels), between="hold", graph_limit=limit, extrapolate="linear")
