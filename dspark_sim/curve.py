"""What a whole engine step costs: the measured curve of its forward pass, and everything around it.

Shapes: R requests decoding, G block size, B tokens of the target's forward pass. The measured curve itself,
:class:`StepCurve`, lies in :mod:`dspark_sim.staircase` and is imported from here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from dspark_sim.staircase import MAX_SECONDS, MAX_TOKENS, FloatArray, StepCurve

__all__ = ["MAX_SECONDS", "MAX_TOKENS", "DraftCost", "FloatArray", "StepCost", "StepCurve"]


@dataclass(frozen=True, eq=False)
class DraftCost:
    """What one drafter adds to a step.

    Attributes:
        kind: ``"parallel"``: seconds by the number of requests that draft, whatever the length;
            ``"autoregressive"``: seconds by requests *per token*, times the longest draft length.
        seconds: curve over requests.
        per_token: parallel drafters only: curve over requests, times the longest draft length, on top of ``seconds``
            (a block drafter with a sequential head, as DSpark's); None when length does not matter.
        catch_up: curve over requests whose drafting was skipped the step before and must refill the drafter's KV
            when they draft again; None when it costs nothing.
    """

    kind: Literal["parallel", "autoregressive"]
    seconds: StepCurve
    catch_up: StepCurve | None = None
    per_token: StepCurve | None = None

    def __call__(self, requests: int, longest: int, resumed: int = 0) -> float:
        """Seconds to draft for ``requests`` rows, the longest of ``longest`` tokens, ``resumed`` after a pause.

        A parallel drafter computes whole blocks: rows that stop inside them (``stop_drafting``) save its sequential
        head only, so ``requests`` are those that began. An autoregressive one saves the tokens that it does not draft.
        """
        if requests == 0 or (longest == 0 and self.kind == "autoregressive"):
            return 0.0
        s = self.seconds(requests)
        if self.kind == "autoregressive":
            s *= longest
        elif self.per_token is not None:
            s += self.per_token(requests) * longest
        if resumed and self.catch_up is not None:
            s += self.catch_up(resumed)
        return s


class StepCost:
    """What a whole engine step costs (docs/method.md), as tables that are indexed, not computed.

    ``draft + schedule + curve(pad(B)) + alpha·R + kappa·(kv tokens − those inside the curve) + fixed(R) + overhead(R)``

    The engine holds the truth; a policy gets its *belief*, an object of the same class (``EngineSetup.cost``).

    Args:
        verify: seconds of the target's forward pass by B.
        block_size: G.
        max_requests: tables reach this R.
        max_tokens: tables reach this B.
        draft: the drafter's cost, None without a drafter.
        schedule: seconds of a synchronous decision by R, None when the decision overlaps the step.
        fixed: seconds by R that every step pays (sampler, host), None for nothing.
        overhead: seconds by R that a *speculative* engine adds to every step (``speculation_overhead``).
        per_request: alpha, seconds per decoding request.
        per_kv_token: kappa, seconds per KV token read.
        measured_context: KV tokens per request that ``verify`` already contains.
        ragged: ``"flattened"``: B = Σ(1 + ℓ); ``"padded"``: B = R · (1 + max ℓ).
        prefill: own curve of prefill tokens, None when prefill tokens enter B.
        scale: multiplies ``verify`` (a belief that is off by a factor).
    """

    def __init__(
        self,
        verify: StepCurve,
        *,
        block_size: int,
        max_requests: int,
        max_tokens: int,
        draft: DraftCost | None = None,
        schedule: StepCurve | None = None,
        fixed: StepCurve | None = None,
        overhead: StepCurve | None = None,
        per_request: float = 0.0,
        per_kv_token: float = 0.0,
        measured_context: int = 0,
        ragged: Literal["flattened", "padded"] = "flattened",
        prefill: StepCurve | None = None,
        scale: float = 1.0,
    ) -> None:
        self.verify_curve, self.block_size, self.draft_cost, self.ragged = verify, block_size, draft, ragged
        self.per_request, self.per_kv_token, self.measured_context = per_request, per_kv_token, measured_context
        self.prefill_curve, self.scale = prefill, scale
        self.max_requests, self.max_tokens = max_requests, max_tokens
        self._verify = verify.dense(max_tokens)
        if scale != 1.0:
            self._verify = self._verify * scale
            self._verify.flags.writeable = False  # policies get views of it
        n, b = verify.graph_points, np.arange(max_tokens + 1)
        if n:
            captured = verify.batch_tokens[:n]
            b = np.where(b > captured[-1], b, captured[np.minimum(np.searchsorted(captured, b), n - 1)])
            b[0] = 0
        self._padded = b
        self._prefill = None if prefill is None else prefill.dense(max_tokens)
        r = np.arange(max_requests + 1)
        other = per_request * r
        for curve in (fixed, overhead):
            if curve is not None:  # a step without decoding rows pays what the smallest measured batch pays
                other = other + curve.at(np.maximum(r, curve.first))
        self._other = other
        self._schedule = np.zeros(max_requests + 1) if schedule is None else schedule.at(r)
        self._schedule[0] = 0.0
        self._draft = np.zeros(max_requests + 1) if draft is None else draft.seconds.at(r)
        self._draft[0] = 0.0
        self._autoregressive = draft is not None and draft.kind == "autoregressive"
        self.parallel = not self._autoregressive
        self._beyond_tokens = 1 << 62 if verify.extrapolate is None else verify.last
        self._beyond_prefill = 1 << 62 if prefill is None or prefill.extrapolate is None else prefill.last
        by_requests = [schedule, fixed, overhead]
        if draft is not None:
            by_requests += [draft.seconds, draft.per_token, draft.catch_up]
        self._beyond_requests = min([c.last for c in by_requests if c is not None and c.extrapolate], default=1 << 62)
        self._per_token = None if draft is None or draft.per_token is None else draft.per_token.at(r)
        self._catch_up = None if draft is None or draft.catch_up is None else draft.catch_up.at(r)

    # -- one step, by part -------------------------------------------------------------------------------------
    def draft_seconds(self, requests: int, longest: int, resumed: int = 0) -> float:
        """Seconds of drafting; see :class:`DraftCost`."""
        if requests == 0 or (longest == 0 and self._autoregressive):
            return 0.0
        s = float(self._draft[requests])
        if self._autoregressive:
            s *= longest
        elif self._per_token is not None:
            s += float(self._per_token[requests]) * longest
        if resumed and self._catch_up is not None:
            s += float(self._catch_up[resumed])
        return s

    def schedule_seconds(self, requests: int) -> float:
        """Seconds that the step waits for a synchronous decision; 0 when decisions overlap."""
        return float(self._schedule[requests])

    def verify_seconds(self, tokens: int, prefill: int = 0) -> float:
        """Seconds of the forward pass over ``tokens`` (without ``prefill`` if prefill has its own curve).

        ``inf`` where the curve may not answer: the engine turns that into :class:`~dspark_sim.errors.OutOfRange`.
        """
        if self._prefill is None:
            tokens += prefill
            return float(self._verify[tokens]) if tokens <= self.max_tokens else np.inf
        s = 0.0
        if tokens:
            s = float(self._verify[tokens]) if tokens <= self.max_tokens else np.inf
        return s + self._prefill_seconds(prefill)

    def padded_tokens(self, tokens: int) -> int:
        """The size that the engine really runs for ``tokens`` (see :meth:`StepCurve.pad`); 0 for none."""
        return int(self._padded[tokens]) if tokens <= self.max_tokens else self.verify_curve.pad(tokens)

    def extrapolated(self, tokens: int, prefill: int, requests: int) -> bool:
        """Whether a step of this size is larger than what some curve of it was measured at."""
        return tokens > self._beyond_tokens or prefill > self._beyond_prefill or requests > self._beyond_requests

    def other_seconds(self, requests: int, kv_tokens: int = 0) -> float:
        """Seconds that depend on R and the KV read only: alpha, kappa, fixed and speculation overhead."""
        s = float(self._other[requests])
        if self.per_kv_token:
            s += self.per_kv_token * (kv_tokens - self.measured_context * requests)
        return s

    # -- what policies ask -------------------------------------------------------------------------------------
    def verify(self, B: int, R: int, kv: int = 0) -> float:
        """Believed seconds of the target's part of a step: B batch tokens, R requests, kv tokens read."""
        return self.verify_seconds(B) + self.other_seconds(R, kv)

    def step(self, B: int, R: int, kv: int = 0, drafted: int | None = None) -> float:
        """Believed seconds of the whole step; ``drafted`` is the longest draft length (None: the block size)."""
        longest = self.block_size if drafted is None else drafted
        return self.draft_seconds(R if longest else 0, longest) + self.schedule_seconds(R) + self.verify(B, R, kv)

    def table(
        self, R: int, prefill: int = 0, kv: int = 0, *, part: Literal["step", "verify"] = "step",
        longest: int | None = None,
    ) -> FloatArray:
        """(R*G + 1,) believed seconds by number of draft tokens verified, 0..R*G; do not write into it.

        ``part="verify"`` leaves drafter and schedule out (Appendix A's SPS). ``longest``: the longest draft length
        of this step, None for the block size. A padded engine is priced at width ceil(K / R), the narrowest that
        can hold K tokens.
        """
        tokens, extra = (R + prefill, 0.0) if self._prefill is None else (R, self._prefill_seconds(prefill))
        n = R * self.block_size
        if self.ragged == "padded":
            width = -(-np.arange(n + 1) // max(R, 1))
            base = self._gather(tokens + R * width)
        else:
            end = tokens + n + 1
            base = self._verify[tokens:end] if end <= self.max_tokens + 1 else self._gather(np.arange(tokens, end))
        extra += self.other_seconds(R, kv)
        if part == "step":
            length = self.block_size if longest is None else longest
            extra += self.draft_seconds(R if length else 0, length)
            extra += self.schedule_seconds(R)
        return base if extra == 0.0 else base + extra

    def _prefill_seconds(self, prefill: int) -> float:
        if not prefill or self._prefill is None:
            return 0.0
        return float(self._prefill[prefill]) if prefill <= self.max_tokens else np.inf

    def _gather(self, tokens: npt.NDArray[np.int64]) -> FloatArray:
        inside = np.minimum(tokens, self.max_tokens)
        return np.where(tokens <= self.max_tokens, self._verify[inside], np.inf)
