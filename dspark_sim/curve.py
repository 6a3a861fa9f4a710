"""Step time: the measured curve of one engine, and what a whole step costs.

Shapes: T points of a curve, R requests decoding, G block size, B tokens of the target's forward pass.
Every array here is read-only and checked at birth; nothing is smoothed or made monotone in silence.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from dspark_sim.errors import OutOfRange, ProfileError, shown

__all__ = ["DraftCost", "FloatArray", "StepCost", "StepCurve"]

FloatArray: TypeAlias = npt.NDArray[np.float64]

MAX_TOKENS = 1 << 20  # a larger batch is a typing mistake, and a dense table of it would eat the memory
MAX_SECONDS = 1e4


def _frozen(values: npt.ArrayLike, dtype: type) -> npt.NDArray[Any]:
    array: npt.NDArray[Any] = np.array(values, dtype=dtype)
    array.flags.writeable = False
    return array


@dataclass(frozen=True, eq=False)
class StepCurve:
    """Measured seconds of one forward pass (or one cost) by number of tokens (or requests).

    Attributes:
        batch_tokens: (T,) rising sizes at which the engine was measured.
        seconds: (T,) what was measured there.
        between: ``"hold"`` pads a size up to the next measured one, as captured CUDA graphs do, up to ``graph_limit``;
            ``"linear"`` interpolates.
        graph_limit: the largest captured size (``hold`` only; None means every point is captured). Above it the
            curve interpolates among the points above only, and holds the first of them down to limit + 1: the
            cliff stays where it was measured.
        extrapolate: ``"linear"`` continues the last segment (and, without graphs, the first one downwards), never
            below 0; None refuses. A profile may not ask for it where that segment falls or lies across the cliff.
        running_max: make the curve monotone by a running maximum (vLLM's own habit), never silently.

    Raises:
        ProfileError: at construction, for anything that cannot be a measured curve.
    """

    batch_tokens: npt.NDArray[np.int64]
    seconds: FloatArray
    between: Literal["hold", "linear"] = "linear"
    graph_limit: int | None = None
    extrapolate: Literal["linear"] | None = None
    running_max: bool = False
    _dense: dict[int, FloatArray] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        try:
            raw = np.asarray(self.batch_tokens)
            seconds = np.asarray(self.seconds, dtype=np.float64)
            sizes = raw.astype(np.float64)
        except (TypeError, ValueError, OverflowError):
            raise ProfileError("a curve needs two lists of numbers") from None
        if raw.ndim != 1 or seconds.ndim != 1 or raw.shape != seconds.shape or raw.size == 0:
            raise ProfileError(f"a curve needs two lists of equal length, got shapes {raw.shape} and {seconds.shape}")
        if not np.all(np.isfinite(seconds)) or seconds.min() < 0 or seconds.max() > MAX_SECONDS:
            raise ProfileError("a curve has a time that is not possible", allowed=f"seconds from 0 to {MAX_SECONDS:g}")
        if not np.all(np.isfinite(sizes)) or np.any(np.floor(sizes) != sizes):
            raise ProfileError("a curve has a size that is not a whole number")
        if sizes.min() < 0 or sizes.max() > MAX_TOKENS:
            raise ProfileError(f"a curve has sizes {sizes.min():g}..{sizes.max():g}", allowed=f"0 to {MAX_TOKENS}")
        tokens = sizes.astype(np.int64)
        falls = np.flatnonzero(np.diff(tokens) <= 0)
        if falls.size:
            i = int(falls[0])
            raise ProfileError(
                f"a curve's sizes must rise: {tokens[i + 1]} stands after {tokens[i]} (point {i + 2} of {tokens.size})"
            )
        if self.between not in ("hold", "linear"):
            raise ProfileError(f"between: got {shown(self.between)}", allowed="hold, linear")
        if self.graph_limit is not None and (self.between != "hold" or self.graph_limit not in tokens):
            raise ProfileError(
                f"graph_limit {self.graph_limit} must be one of the measured sizes of a curve with between: hold"
            )
        if self.extrapolate not in (None, "linear"):
            raise ProfileError(f"extrapolate: got {shown(self.extrapolate)}", allowed="linear, or nothing")
        if self.running_max:
            seconds = np.maximum.accumulate(seconds)
        object.__setattr__(self, "batch_tokens", _frozen(tokens, np.int64))
        object.__setattr__(self, "seconds", _frozen(seconds, np.float64))

    @property
    def first(self) -> int:
        """The smallest measured size."""
        return int(self.batch_tokens[0])

    @property
    def last(self) -> int:
        """The largest measured size; beyond it the curve raises or extrapolates."""
        return int(self.batch_tokens[-1])

    @property
    def graph_points(self) -> int:
        """How many of the T points are captured sizes (0 for a linear curve)."""
        if self.between == "linear":
            return 0
        if self.graph_limit is None:
            return int(self.batch_tokens.size)
        return int(np.searchsorted(self.batch_tokens, self.graph_limit, side="right"))

    def at(self, tokens: npt.ArrayLike) -> FloatArray:
        """Seconds at the given sizes, vectorised; ``inf`` where the curve may not answer."""
        b = np.asarray(tokens, dtype=np.int64)
        out = np.interp(b, self.batch_tokens, self.seconds)
        n = self.graph_points
        if n:
            index = np.searchsorted(self.batch_tokens[:n], b, side="left")
            held = self.seconds[np.minimum(index, n - 1)]
            above = b > self.batch_tokens[n - 1]
            if n < self.batch_tokens.size:
                beyond = np.interp(b, self.batch_tokens[n:], self.seconds[n:])
                out = np.where(above, beyond, held)
            else:
                out = np.where(above, self.seconds[-1], held)
        else:
            out = np.where(b < self.first, np.inf if self.extrapolate is None else self._line(b, 0), out)
        past = b > self.last
        return np.where(past, np.inf if self.extrapolate is None else self._line(b, -1), out)

    def _line(self, b: npt.NDArray[np.int64], end: int) -> FloatArray:
        if self.batch_tokens.size == 1:
            return np.full(b.shape, self.seconds[0])
        i, j = (0, 1) if end == 0 else (-2, -1)
        slope = (self.seconds[j] - self.seconds[i]) / (self.batch_tokens[j] - self.batch_tokens[i])
        return np.asarray(np.maximum(self.seconds[end] + slope * (b - self.batch_tokens[end]), 0.0))

    def dense(self, size: int) -> FloatArray:
        """(size + 1,) seconds at 0, 1, ..., size; read-only and cached. Index it, do not copy it."""
        table = self._dense.get(size)
        if table is None:
            table = self.at(np.arange(size + 1))
            table.flags.writeable = False
            self._dense[size] = table
        return table

    def pad(self, tokens: int) -> int:
        """The size that the engine really runs for ``tokens``: the next captured one, or ``tokens`` itself."""
        n = self.graph_points
        if n == 0 or tokens > self.batch_tokens[n - 1]:
            return tokens
        return int(self.batch_tokens[int(np.searchsorted(self.batch_tokens[:n], tokens, side="left"))])

    def __call__(self, tokens: int) -> float:
        """Seconds at one size.

        Raises:
            OutOfRange: outside the measured sizes of a curve that may not extrapolate.
        """
        seconds = float(self.at(tokens))
        if seconds == np.inf:
            raise OutOfRange(
                f"the curve was measured from {self.first} to {self.last}, a step asked for {tokens}; "
                "state `extrapolate: linear` in the profile to go on, or keep the batch smaller"
            )
        return seconds


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
        """Seconds to draft for ``requests`` rows, the longest of ``longest`` tokens, ``resumed`` after a pause."""
        if requests == 0 or longest == 0:
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
    """What a whole engine step costs: the sum of DESIGN section 4, as tables that are indexed, not computed.

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
        self._per_token = None if draft is None or draft.per_token is None else draft.per_token.at(r)
        self._catch_up = None if draft is None or draft.catch_up is None else draft.catch_up.at(r)

    # -- one step, by part -------------------------------------------------------------------------------------
    def draft_seconds(self, requests: int, longest: int, resumed: int = 0) -> float:
        """Seconds of drafting; see :class:`DraftCost`."""
        if requests == 0 or longest == 0:
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
        return self.draft_seconds(R, longest) + self.schedule_seconds(R) + self.verify(B, R, kv)

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
            extra += self.draft_seconds(R, self.block_size if longest is None else longest)
            extra += self.schedule_seconds(R)
        return base if extra == 0.0 else base + extra

    def _prefill_seconds(self, prefill: int) -> float:
        if not prefill or self._prefill is None:
            return 0.0
        return float(self._prefill[prefill]) if prefill <= self.max_tokens else np.inf

    def _gather(self, tokens: npt.NDArray[np.int64]) -> FloatArray:
        inside = np.minimum(tokens, self.max_tokens)
        return np.where(tokens <= self.max_tokens, self._verify[inside], np.inf)
