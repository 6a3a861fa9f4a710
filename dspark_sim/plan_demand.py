"""What has to be served: the demand of the plan, or the workload's own, at its peak and hour by hour."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dspark_sim.arrival_schema import Diurnal, Piecewise, Replay
from dspark_sim.errors import ScenarioError
from dspark_sim.growing import slices
from dspark_sim.rates import rate_of

if TYPE_CHECKING:
    from dspark_sim.plan_load import LoadAxis
    from dspark_sim.scenario import Scenario

__all__ = ["HOURS", "Need", "need_of"]

HOURS = 24
_DAY = 86_400.0


@dataclass(frozen=True)
class Need:
    """The demand.

    Attributes:
        peak: in ``unit``.
        unit: that of the load, or ``requests/s`` for closed loops too.
        hours: (24,) shares of the peak.
        flat: neither the plan nor the traffic tells a day: the peak all day.
        source: in words.
    """

    peak: float
    unit: str
    hours: tuple[float, ...]
    flat: bool
    source: str

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {"peak": self.peak, "unit": self.unit, "hours": list(self.hours), "flat": self.flat,
                "source": self.source}


def need_of(scenario: Scenario, axis: LoadAxis) -> Need:
    """The demand of a scenario.

    Raises:
        ScenarioError: it does not fit the traffic; with file, line and key.
    """
    demand, arrival = scenario.plan.demand, scenario.workload.arrival
    here = ("plan", "demand")
    if demand.peak_users is not None and axis.kind != "closed":
        raise scenario.source.error(f"got {demand.peak_users}, but this traffic is an open one ({axis.kind})",
                                    (*here, "peak_users"), error=ScenarioError, allowed="peak_per_s")
    peak, unit, source = axis.stated, axis.unit, "the workload as the scenario states it"
    if demand.peak_users is not None:
        peak, source = float(demand.peak_users), "plan.demand"
    elif demand.peak_per_s is not None:
        peak, source = demand.peak_per_s, "plan.demand"
        unit = "requests/s" if axis.kind == "closed" else axis.unit
    hours = demand.hours
    if hours is not None and hours != "workload":
        return Need(peak, unit, tuple(hours), False, source)
    if isinstance(arrival, (Diurnal, Piecewise)) and _tells_a_day(arrival):
        curve, _ = rate_of(arrival)
        days = _days(arrival)  # of several, every hour is planned at its highest
        edges = np.linspace(0.0, days * _DAY, days * HOURS + 1)
        rates = (np.diff(curve.cumulative(edges)) / 3600.0).reshape(days, HOURS).max(axis=0)
        top = float(rates.max())
        if demand.peak_per_s is None:
            peak = top
        name = "diurnal" if isinstance(arrival, Diurnal) else "piecewise"
        burst = f", which rises to {axis.stated:.4g}/s within an hour" if axis.stated > 1.05 * top else ""
        several = f", the highest of {days} days" if days > 1 else ""
        return Need(peak, unit, tuple((rates / top).tolist()), False,
                    f"{source}; hours of its {name} rate{several}{burst}")
    if isinstance(arrival, Replay) and arrival.log.arrival[-1] - arrival.log.arrival[0] >= _DAY:
        log, counts = arrival.log, np.zeros(HOURS, dtype=np.int64)
        end = _DAY * np.floor((log.arrival[-1] - log.arrival[0]) / _DAY)
        for part in slices(log.rows):
            when = log.arrival[part] - log.arrival[0]
            counts += np.bincount((when[when < end] % _DAY // 3600.0).astype(np.int64), minlength=HOURS)
        shares = tuple((counts / counts.max()).tolist())
        return Need(peak, unit, shares, False, f"{source}; hours of its log, from its first request on")
    if hours is None:
        return Need(peak, unit, (1.0,) * HOURS, True, source)
    raise scenario.source.error("got 'workload', but this traffic does not tell a day", (*here, "hours"),
                                error=ScenarioError,
                                allowed="24 shares of the peak; a diurnal rate with period_s 86400; a piecewise one "
                                "whose last point stands at 23 h or later; a log of a day")


def _tells_a_day(arrival: Diurnal | Piecewise) -> bool:
    """Whether a rate that changes is that of a day."""
    if isinstance(arrival, Diurnal):
        return arrival.period_s == _DAY
    return arrival.rates[-1][0] >= _DAY - 3600.0


def _days(arrival: Diurnal | Piecewise) -> int:
    """Days that a rate tells apart; what holds on after the last point counts where it is the highest."""
    if isinstance(arrival, Diurnal):
        return 1
    last, rate = arrival.rates[-1]
    return int(last // _DAY) + int(last % _DAY > 0 or rate > max((r for _, r in arrival.rates[:-1]), default=0.0))
