"""Step time of one engine as it was measured: a curve over batch tokens or requests.

T points of a curve. Arrays are read-only and checked at birth; nothing is smoothed or made monotone in silence.
Everyone imports :class:`StepCurve` from :mod:`dspark_sim.curve`, which adds what a whole step costs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from dspark_sim.errors import OutOfRange, ProfileError, shown

__all__ = ["MAX_SECONDS", "MAX_TOKENS", "FloatArray", "StepCurve"]

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
