"""From a capacity and a demand to GPUs and money: arithmetic only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dspark_sim.plan_arm import Capacity
from dspark_sim.plan_demand import Need

if TYPE_CHECKING:
    from dspark_sim.arms import ArmSetup

__all__ = ["Price", "Sizing", "price_of", "size", "units_for"]


@dataclass(frozen=True)
class Price:
    """Price of one unit and hour, and where it comes from; None where nobody stated one.

    Attributes:
        per_gpu_hour: mean over the unit's GPUs.
        currency: of it.
        source: in words.
    """

    per_gpu_hour: float | None
    currency: str
    source: str

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {"per_gpu_hour": self.per_gpu_hour, "currency": self.currency, "source": self.source}


@dataclass(frozen=True)
class Sizing:
    """How many units and GPUs the demand needs, and what they cost. A unit is one engine, or the cluster as it stands.

    Attributes:
        units: at the peak, the spare one (``n_plus_one``) included; None when no load passes.
        units_best: the same if the capacity were the lowest load that fails instead of the highest that passes.
        spare: units of it that are spare.
        gpus, gpus_best: units · GPUs of a unit.
        hourly_units: (24,) when units are switched off in quiet hours.
        gpu_hours_day: of the fleet for the peak, running all day.
        gpu_hours_day_by_hour: of ``hourly_units``.
        headroom: share of the fleet's capacity (without the spare unit) that is free at the peak.
        cost_million: money per million output tokens at capacity, without spare and headroom.
        cost_million_best: the same at the lowest load that fails.
        cost_million_demand: ``cost_day`` per million output tokens of the day's demand.
        cost_day, cost_day_by_hour: money per day.
        tokens_day: output tokens of the day's demand.
    """

    units: int | None = None
    units_best: int | None = None
    spare: int = 0
    gpus: int | None = None
    gpus_best: int | None = None
    hourly_units: Sequence[int] = ()
    gpu_hours_day: float | None = None
    gpu_hours_day_by_hour: float | None = None
    headroom: float | None = None
    cost_million: float | None = None
    cost_million_best: float | None = None
    cost_million_demand: float | None = None
    cost_day: float | None = None
    cost_day_by_hour: float | None = None
    tokens_day: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {**vars(self), "hourly_units": list(self.hourly_units)}


def price_of(setup: ArmSetup, stated: float | None) -> Price:
    """The price of an arm's GPUs: what was stated, else the profiles'; None if one of them has none."""
    profiles = [(g.count * g.setup.profile.gpus, g.setup.profile) for g in setup.engines]
    currency = next((p.currency for _, p in profiles if p.price_per_gpu_hour is not None), profiles[0][1].currency)
    if stated is not None:
        return Price(stated, currency, "stated with --price")
    if len({p.currency for _, p in profiles}) > 1 or any(p.price_per_gpu_hour is None for _, p in profiles):
        return Price(None, currency, "no price: neither the profile nor --price states one")
    total = sum(n * (p.price_per_gpu_hour or 0.0) for n, p in profiles)
    names = ", ".join(dict.fromkeys(p.name for _, p in profiles))
    return Price(total / sum(n for n, _ in profiles), currency, f"profile {names}; assumed, not a quotation")


def units_for(demand: float, capacity: float, headroom: float) -> int:
    """Units that serve ``demand`` with a share of ``headroom`` of each kept free; 0 for no demand."""
    return math.ceil(demand / (capacity * (1.0 - headroom)) - 1e-9)


def size(
    capacity: Capacity, need: Need, price: Price, gpus: int, *, n_plus_one: bool, headroom: float, users: bool
) -> Sizing:
    """GPUs and money.

    Args:
        capacity: per unit.
        need: the demand.
        price: of a GPU and hour.
        gpus: of a unit.
        n_plus_one: one unit more than needed.
        headroom: share of each unit's capacity kept free at the peak.
        users: the demand counts in the load's own unit (else in requests per second).
    """
    low = capacity.low if users else capacity.requests_s[0]
    high = capacity.high if users else capacity.requests_s[1]
    if not low:
        return Sizing(spare=int(n_plus_one))
    spare = int(n_plus_one)
    busy = units_for(need.peak, low, headroom)
    best = busy if not high else units_for(need.peak, high, headroom)
    hourly = [max(units_for(need.peak * share, low, headroom), 1) + spare if share else spare for share in need.hours]
    fixed, by_hour = 24.0 * (busy + spare) * gpus, float(sum(hourly) * gpus)
    p, speed = price.per_gpu_hour, capacity.tok_s_gpu
    per_load = None if speed[0] is None else speed[0] * gpus / low  # output tokens per second and unit of demand
    tokens = None if per_load is None else per_load * need.peak * sum(need.hours) * 3600.0
    return Sizing(
        units=busy + spare, units_best=best + spare, spare=spare, gpus=(busy + spare) * gpus,
        gpus_best=(best + spare) * gpus, hourly_units=tuple(hourly), gpu_hours_day=fixed,
        gpu_hours_day_by_hour=by_hour, headroom=1.0 - need.peak / (busy * low),
        cost_million=_per_million(p, speed[0]), cost_million_best=_per_million(p, speed[1]),
        cost_million_demand=None if p is None or not tokens else p * fixed / tokens * 1e6,
        cost_day=None if p is None else p * fixed, cost_day_by_hour=None if p is None else p * by_hour,
        tokens_day=tokens,
    )


def _per_million(price: float | None, tok_s_gpu: float | None) -> float | None:
    return None if price is None or not tok_s_gpu else price / 3600.0 / tok_s_gpu * 1e6
