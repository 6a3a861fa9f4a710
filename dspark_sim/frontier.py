"""The numbers behind a frontier: throughput per GPU against TPS per user, one curve per arm over a sweep of loads.

Two readings compare an arm with a baseline, as the DSpark paper (section on online serving) reads its Figure 7:

* how much more throughput at *equal TPS per user* (:func:`throughput_gain`);
* how much more TPS per user at *equal throughput* (:func:`tps_gain`).

Both interpolate linearly along each arm's curve, between neighbouring loads of the sweep. Where a curve does not come
past the level there is no number, and words say why. Where the baseline serves next to nothing at the level the ratio
is an artefact of its collapse, and the words say that: the paper itself warns of +661 % at 120 tokens/s/user.

Shapes: L loads, N replications. Pure functions; nothing is read or written here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from dspark_sim.stats import Figure, interval

__all__ = ["COLLAPSED", "ArmCurve", "Reading", "curves", "nice_levels", "shared_range", "throughput_gain", "tps_gain"]

FloatArray = npt.NDArray[np.float64]

COLLAPSED = 0.25  # of its own peak: below it, the baseline's throughput is no base for a ratio
_TPS, _THROUGHPUT = "tok/s per user", "tok/s per GPU"


@dataclass(frozen=True, eq=False)
class ArmCurve:
    """One arm over a sweep of loads.

    Attributes:
        arm: its name.
        load: (L,) rising, e.g. concurrent requests.
        tps, throughput: (L,) means over replications; NaN where undefined.
        tps_by, throughput_by: (L, N) the same by replication, for intervals of gains; None when not known.
        tps_low, tps_high, throughput_low, throughput_high: (L,) 95 % intervals for bands; NaN where there is none.

    Raises:
        ValueError: shapes differ, or loads do not rise.
    """

    arm: str
    load: FloatArray
    tps: FloatArray
    throughput: FloatArray
    tps_by: FloatArray | None = None
    throughput_by: FloatArray | None = None
    tps_low: FloatArray = field(default_factory=lambda: np.zeros(0))
    tps_high: FloatArray = field(default_factory=lambda: np.zeros(0))
    throughput_low: FloatArray = field(default_factory=lambda: np.zeros(0))
    throughput_high: FloatArray = field(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        if self.load.ndim != 1 or np.any(np.diff(self.load) <= 0):
            raise ValueError(f"{self.arm}: loads must rise")
        for name in ("tps", "throughput", "tps_low", "tps_high", "throughput_low", "throughput_high"):
            values = getattr(self, name)
            if values.size == 0 and self.load.size:
                object.__setattr__(self, name, np.full(self.load.size, np.nan))
            elif values.shape != self.load.shape:
                raise ValueError(f"{self.arm}: {name} has shape {values.shape}, load has {self.load.shape}")
        for values in (self.tps_by, self.throughput_by):
            if values is not None and (values.ndim != 2 or values.shape[0] != self.load.size):
                raise ValueError(f"{self.arm}: values by replication must have a row per load")

    @property
    def peak(self) -> float:
        """The highest mean throughput of the sweep, NaN without any."""
        return _range(self.throughput)[1]


@dataclass(frozen=True)
class Reading:
    """An arm beside the baseline at one level.

    Attributes:
        arm, baseline: names.
        level: tokens/s per user (throughput gain) or tokens/s per GPU (TPS gain).
        value, base: what the arm and the baseline reach there, None where a curve does not come past the level.
        gain_pct: the difference in per cent; its interval is paired, replication by replication.
        artefact: the number is the baseline's collapse rather than the arm's merit.
        words: why there is no number, or what to doubt; "" otherwise.
    """

    arm: str
    baseline: str
    level: float
    value: float | None
    base: float | None
    gain_pct: Figure
    artefact: bool = False
    words: str = ""


def curves(
    rows: Sequence[Mapping[str, Any]], tasks: Sequence[Mapping[str, Any]], load: str, tps: str = "tps_user_concurrent"
) -> list[ArmCurve]:
    """The arms of a sweep's tables, in the order in which they first occur.

    Args:
        rows: of the aggregated table, all at one value of every other grid key.
        tasks: of the table by replication, likewise; empty if there is none.
        load: the grid key that is the load, a number in every row.
        tps: the figure that is the speed of a user; the paper's is throughput over decoding requests.
    """
    out = []
    for arm in dict.fromkeys(row["arm"] for row in rows):
        mine = sorted((row for row in rows if row["arm"] == arm), key=lambda row: row[load])
        by = {(t[load], t["replication"]): t for t in tasks if t["arm"] == arm}
        replications = sorted({r for _, r in by})

        def column(name: str, mine: list[Mapping[str, Any]] = mine) -> FloatArray:
            return np.array([_number(row.get(name)) for row in mine])

        def grid(
            name: str, mine: list[Mapping[str, Any]] = mine, by: Mapping[Any, Mapping[str, Any]] = by,
            replications: list[int] = replications,
        ) -> FloatArray | None:
            if not replications:
                return None
            return np.array([[_number(by.get((row[load], r), {}).get(name)) for r in replications] for row in mine])

        q = "throughput_tok_s_gpu"
        out.append(ArmCurve(
            str(arm), column(load), column(tps), column(q), grid(tps), grid(q), column(f"{tps}_ci95_low"),
            column(f"{tps}_ci95_high"), column(f"{q}_ci95_low"), column(f"{q}_ci95_high"),
        ))
    return out


def throughput_gain(arm: ArmCurve, baseline: ArmCurve, tps: float) -> Reading:
    """Throughput of ``arm`` against ``baseline`` where both give each user ``tps`` tokens/s."""
    return _read(arm, baseline, tps, at_tps=True)


def tps_gain(arm: ArmCurve, baseline: ArmCurve, throughput: float) -> Reading:
    """TPS per user of ``arm`` against ``baseline`` where both give ``throughput`` tokens/s per GPU."""
    return _read(arm, baseline, throughput, at_tps=False)


def shared_range(curves: Sequence[ArmCurve], baseline: ArmCurve, *, of_tps: bool) -> tuple[float, float] | None:
    """The levels that the baseline and at least one other arm both reach; None if there are none."""

    low, high = _range(baseline.tps if of_tps else baseline.throughput)
    others = [_range(c.tps if of_tps else c.throughput) for c in curves if c.arm != baseline.arm]
    both = [(max(low, a), min(high, b)) for a, b in others if max(low, a) < min(high, b)]
    return (min(a for a, _ in both), max(b for _, b in both)) if both else None


def nice_levels(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers inside ``low``..``high``, at most ``most``, evenly spaced; empty for an empty range."""
    if not (np.isfinite(low) and np.isfinite(high) and high > low):
        return []
    base = 10.0 ** np.floor(np.log10(high - low)) / 10
    for step in (base * k for k in (1, 2, 2.5, 5, 10, 20, 25, 50, 100)):
        first, last = np.ceil(low / step - 1e-9), np.floor(high / step + 1e-9)
        if last - first + 1 <= most:
            return [float(step * k) for k in np.arange(first, last + 1)]
    return []


def _read(arm: ArmCurve, baseline: ArmCurve, level: float, *, at_tps: bool) -> Reading:
    x, y = (_TPS, _THROUGHPUT) if at_tps else (_THROUGHPUT, _TPS)
    value, why = _along(arm, level, at_tps)
    base, base_why = _along(baseline, level, at_tps)
    if value is None or base is None:
        words = [f"{c.arm} {w}" for c, v, w in ((arm, value, why), (baseline, base, base_why)) if v is None]
        text = "no gain can be read: " + "; ".join(dict.fromkeys(words))
        if base is None and value is not None and base_why.startswith("never"):
            text += f"; {arm.arm} extends the frontier, with {value:,.0f} {y} here"
        return Reading(arm.arm, baseline.arm, level, value, base, Figure(None), words=text)
    gain, doubt = _gain(arm, baseline, level, 100.0 * (value / base - 1.0) if base > 0 else None, at_tps)
    artefact = at_tps and base < COLLAPSED * baseline.peak
    if artefact:
        doubt = (f"artefact: at {level:g} {x} {baseline.arm} has collapsed to {100 * base / baseline.peak:.0f} % of "
                 f"its own peak throughput, so the ratio says how little is left of {baseline.arm}; read it as a "
                 "longer frontier, not as a speed-up")
    return Reading(arm.arm, baseline.arm, level, value, base, gain, artefact, doubt)


def _gain(arm: ArmCurve, baseline: ArmCurve, level: float, mean: float | None, at_tps: bool) -> tuple[Figure, str]:
    """The gain of the mean curves, with a t-interval from the gains that each replication's own curves give."""
    sides = [(t, q) for t, q in ((c.tps_by, c.throughput_by) for c in (arm, baseline))
             if t is not None and q is not None]
    if len(sides) < 2:
        return Figure(mean), ""
    n = min(t.shape[1] for t, _ in sides)
    gains: list[float | None] = []
    for r in range(n):
        at = [_cross(t[:, r], q[:, r], level) if at_tps else _cross(q[:, r], t[:, r], level) for t, q in sides]
        gains.append(100.0 * (at[0] / at[1] - 1.0) if at[0] is not None and at[1] else None)
    known = sum(g is not None for g in gains)
    if mean is None or n < 2:
        return Figure(mean), ""
    if known < n:
        unit = _TPS if at_tps else _THROUGHPUT
        return Figure(mean), (f"no interval for {arm.arm} at {level:,.6g} {unit}: only {known} of {n} replications "
                              "reach it in both arms")
    half = interval(gains).half_width or 0.0
    return Figure(mean, mean - half, mean + half), ""


def _along(curve: ArmCurve, level: float, at_tps: bool) -> tuple[float | None, str]:
    """The other figure where the curve passes ``level``; None and words where it does not."""
    x, y, unit = (curve.tps, curve.throughput, _TPS) if at_tps else (curve.throughput, curve.tps, _THROUGHPUT)
    found = _cross(x, y, level)
    if found is not None:
        return found, ""
    known = np.isfinite(x) & np.isfinite(y)
    if not known.any():
        return None, "has no figures"
    if x[known].max() < level:
        best = int(np.flatnonzero(known)[np.argmax(x[known])])
        return None, f"never reaches {level:,.6g} {unit} (most: {x[best]:,.4g}, at load {curve.load[best]:g})"
    if x[known].min() > level:
        which = "a higher" if at_tps else "a lower"
        return None, f"stays above {level:,.6g} {unit} at every load of the sweep; {which} load would reach it"
    return None, f"has no figures on one side of {level:,.6g} {unit}"


def _cross(x: FloatArray, y: FloatArray, level: float) -> float | None:
    """The highest y at which the line through (x, y), in the order of loads, meets ``x = level``; None if nowhere.

    Highest: an operator who may choose among several loads with this x takes the best one.
    """
    known = np.isfinite(x) & np.isfinite(y)
    found = [float(v) for v in y[known & (x == level)]]
    for i in np.flatnonzero(known[:-1] & known[1:]):
        if (x[i] - level) * (x[i + 1] - level) < 0:
            share = (level - x[i]) / (x[i + 1] - x[i])
            found.append(float(y[i] + share * (y[i + 1] - y[i])))
    return max(found, default=None)


def _range(values: FloatArray) -> tuple[float, float]:
    """Smallest and largest defined value; NaN without any."""
    known = values[np.isfinite(values)]
    return (float(known.min()), float(known.max())) if known.size else (float("nan"), float("nan"))


def _number(value: Any) -> float:
    return float("nan") if value is None else float(value)
