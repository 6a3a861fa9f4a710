"""How long prompts and outputs are: the three kinds of length distribution that a scenario may state."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import Field, PrivateAttr, model_validator

from dspark_sim.errors import ScenarioError, shown
from dspark_sim.yamlmodel import StrictModel

__all__ = ["MAX_LENGTH", "ConstantLengths", "EmpiricalLengths", "Lengths", "LognormalLengths", "read_lengths"]

MAX_LENGTH = 10_000_000  # tokens; more is a typing mistake
MAX_SAMPLES = 10_000_000
Tokens: TypeAlias = Annotated[int, Field(ge=1, le=MAX_LENGTH)]
IntArray: TypeAlias = npt.NDArray[np.int64]


def _phi(z: float) -> float:
    return 0.5 * math.erfc(-z / math.sqrt(2.0))


class ConstantLengths(StrictModel):
    """Every request has the same length."""

    kind: Literal["constant"] = Field(description="constant: every request has the same length")
    value: Tokens = Field(description="tokens, 1 or more")

    @property
    def smallest(self) -> int:
        """The shortest length that can occur."""
        return self.value

    @property
    def largest(self) -> int:
        """The longest length that can occur."""
        return self.value

    @property
    def mean_tokens(self) -> float:
        """The mean of what is drawn."""
        return float(self.value)


class LognormalLengths(StrictModel):
    """Lognormal lengths, given by mean and coefficient of variation *before* rounding and clipping.

    A draw is rounded to the nearest whole number and then clipped to [min, max] (not redrawn): the share of mass
    outside lands on the ends. That moves the mean; ``mean_tokens`` is the mean after clipping. Examples: mean 500,
    cv 1: max 4096 lowers the mean by 0.4 %, max 1024 by 12 %; mean 300, cv 2: max 2048 lowers it by 8 %.
    """

    kind: Literal["lognormal"] = Field(description="lognormal, rounded to whole tokens and clipped to [min, max]")
    mean: float = Field(ge=1, le=MAX_LENGTH, description="mean in tokens before rounding and clipping")
    cv: float = Field(gt=0, le=100, description="standard deviation / mean, before clipping; > 0 (else say constant)")
    min: Tokens = Field(default=1, description="shorter draws become this")
    max: Tokens = Field(description="longer draws become this (a served model's limit)")

    @model_validator(mode="after")
    def _ordered(self) -> LognormalLengths:
        if self.min > self.max:
            raise ScenarioError(f"got {self.min}, above max", key="min", allowed=f"1 to max ({self.max})")
        if not self.min <= self.mean <= self.max:
            raise ScenarioError(f"got {self.mean:g}", key="mean", allowed=f"min to max ({self.min} to {self.max})")
        return self

    @property
    def sigma(self) -> float:
        """Standard deviation of the logarithm."""
        return math.sqrt(math.log1p(self.cv**2))

    @property
    def mu(self) -> float:
        """Mean of the logarithm."""
        return math.log(self.mean) - 0.5 * math.log1p(self.cv**2)

    @property
    def smallest(self) -> int:
        """The shortest length that can occur."""
        return self.min

    @property
    def largest(self) -> int:
        """The longest length that can occur."""
        return self.max

    @property
    def mean_tokens(self) -> float:
        """The mean after clipping to [min, max] (rounding moves it by less than half a token)."""
        low, high = ((math.log(x) - self.mu) / self.sigma for x in (self.min, self.max))
        middle = self.mean * (_phi(high - self.sigma) - _phi(low - self.sigma))
        return self.min * _phi(low) + middle + self.max * _phi(-high)


class EmpiricalLengths(StrictModel):
    """Lengths that were observed: drawn with replacement, each equally likely, or taken in the order of the list.

    ``order: listed`` repeats a benchmark: request n (of all classes) has the length n of the list, which begins again
    at its end. Requests that a steady closed loop meets inside their life are drawn all the same.
    """

    kind: Literal["empirical"] = Field(description="empirical: observed lengths")
    file: str | None = Field(default=None, min_length=1, description="CSV with a column `tokens`, beside the scenario")
    values: Annotated[tuple[Tokens, ...], Field(strict=False, min_length=1)] | None = Field(
        default=None, description="the observed lengths themselves, instead of a file"
    )
    order: Literal["drawn", "listed"] = Field(
        default="drawn", description="drawn: at random, with replacement; listed: request n has length n of the list"
    )
    _samples: IntArray | None = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _one_source(self) -> EmpiricalLengths:
        if (self.file is None) == (self.values is None):
            raise ScenarioError("needs either file or values" + (", not both" if self.file is not None else ""))
        return self

    @property
    def samples(self) -> IntArray:
        """The observed lengths, read-only.

        Raises:
            RuntimeError: the lengths stand in a file and :func:`read_lengths` has not been called (loading does).
        """
        if self._samples is None:
            if self.values is None:
                raise RuntimeError("lengths of a file are read by load_scenario")
            self._keep(np.array(self.values, dtype=np.int64))
        assert self._samples is not None
        return self._samples

    def _keep(self, samples: IntArray) -> None:
        samples.flags.writeable = False
        self._samples = samples

    @property
    def smallest(self) -> int:
        """The shortest length that can occur."""
        return int(self.samples.min())

    @property
    def largest(self) -> int:
        """The longest length that can occur."""
        return int(self.samples.max())

    @property
    def mean_tokens(self) -> float:
        """The mean of what is drawn."""
        return float(self.samples.mean())


Lengths: TypeAlias = Annotated[ConstantLengths | LognormalLengths | EmpiricalLengths, Field(discriminator="kind")]


def read_lengths(lengths: Any, base: Path) -> None:
    """Read the file of an :class:`EmpiricalLengths` (nothing to do for the other kinds).

    Args:
        lengths: any kind of lengths, or None.
        base: the folder that a relative name starts from.

    Raises:
        ScenarioError: the file is missing or no such table; names file and row.
    """
    if not isinstance(lengths, EmpiricalLengths) or lengths.file is None:
        return
    path = base / lengths.file
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or "not UTF-8 text"
        raise ScenarioError(f"cannot read {lengths.file!r} ({reason})", key="file") from None
    rows = text.splitlines()
    header = [name.strip().strip('"') for name in rows[0].split(",")] if rows else []
    if "tokens" not in header:
        raise ScenarioError(f"got the columns {shown(header)}", file=path, line=1, allowed="a column named tokens")
    column = header.index("tokens")
    samples: list[int] = []
    for number, row in enumerate(rows[1:], start=2):
        if not row.strip():
            continue
        cells = row.split(",")
        cell = cells[column].strip() if column < len(cells) else ""
        if not (cell.isascii() and cell.isdecimal() and len(cell) <= 8 and 1 <= int(cell) <= MAX_LENGTH):
            raise ScenarioError(f"got {shown(cell)}", file=path, line=number, key="tokens",
                                allowed=f"a whole number, 1 to {MAX_LENGTH}")
        samples.append(int(cell))
    if not samples or len(samples) > MAX_SAMPLES:
        raise ScenarioError(f"holds {len(samples)} lengths", file=path, allowed=f"1 to {MAX_SAMPLES}")
    lengths._keep(np.array(samples, dtype=np.int64))
