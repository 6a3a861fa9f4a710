"""What "load" is for each kind of traffic, and the scenario at another load.

Open loops: arrivals per second (of a replayed log, the mean over the measured time). Sessions: new sessions per second.
Closed loops: users. Rates that change (piecewise, diurnal) are searched at constant rates, with their burstiness: the
peak is planned at the highest rate, and every hour of a day at its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dspark_sim.arrival_schema import Closed, Diurnal, Gamma, Piecewise, Poisson, Replay, Sessions
from dspark_sim.replay import play

if TYPE_CHECKING:
    from dspark_sim.scenario import Scenario

__all__ = ["LoadAxis", "load_axis"]

_LEAST = 1 / 64  # of the stated load: nobody asks for less
_MOST = 64.0


@dataclass(frozen=True)
class LoadAxis:
    """The loads of a scenario.

    Attributes:
        kind: of the arrivals.
        unit: of the load in words, ``requests/s``, ``sessions/s`` or ``users``.
        stated: the load as the scenario has it.
        least, most: where the search ends.
        whole: only whole numbers.
    """

    kind: str
    unit: str
    stated: float
    least: float
    most: float
    whole: bool = False

    def rounded(self, load: float) -> float:
        """The nearest load that can be simulated."""
        load = min(max(load, self.least), self.most)
        return float(round(load)) if self.whole else float(f"{load:.5g}")

    def at(self, scenario: Scenario, load: float) -> Scenario:
        """The scenario with another load; everything else, every random stream too, stays as it is."""
        workload = scenario.workload
        arrival: Any = workload.arrival
        share = load / self.stated
        if isinstance(arrival, Closed):
            arrival = arrival.model_copy(update={"concurrency": round(load)})
        elif isinstance(arrival, (Diurnal, Piecewise)):
            arrival = (Poisson(kind="poisson", rate_per_s=load) if arrival.cv == 1.0
                       else Gamma(kind="gamma", rate_per_s=load, cv=arrival.cv))
        elif isinstance(arrival, Replay):
            arrival = arrival.model_copy(update={"rate_scale": arrival.rate_scale * share})
        else:
            arrival = arrival.model_copy(update={"rate_per_s": load})
        changed = scenario.model_copy(update={"workload": workload.model_copy(update={"arrival": arrival})})
        changed._source, changed._base = scenario._source, scenario._base
        return changed


def load_axis(scenario: Scenario) -> LoadAxis:
    """The axis of a scenario, from its arrivals, its window and ``plan.max_load``."""
    arrival, top = scenario.workload.arrival, scenario.plan.max_load
    if isinstance(arrival, Closed):
        users = int(min(_MOST * arrival.concurrency, 100_000)) if top is None else int(top)
        return LoadAxis("closed", "users", float(arrival.concurrency), 1.0, float(max(users, 1)), whole=True)
    if isinstance(arrival, Diurnal):
        stated = arrival.mean_rate_per_s * (1 + arrival.amplitude)
    elif isinstance(arrival, Piecewise):
        stated = max(rate for _, rate in arrival.rates)
    elif isinstance(arrival, Replay):
        stated = _replayed_rate(scenario, arrival)
    else:
        stated = arrival.rate_per_s
    unit = "sessions/s" if isinstance(arrival, Sessions) else "requests/s"
    most = _MOST * stated if top is None else top
    return LoadAxis(arrival.kind, unit, stated, min(_LEAST * stated, most), most)


def _window(scenario: Scenario) -> tuple[float, float] | None:
    """The measured seconds, where they are stated as such."""
    measure = scenario.measure
    if measure.mode == "steady" and measure.duration_s is not None:
        return measure.warmup_s, measure.warmup_s + measure.duration_s
    return None


def _replayed_rate(scenario: Scenario, replay: Replay) -> float:
    """Arrivals per second in the measured window, mean over replications; of the whole log where there is none."""
    window = _window(scenario)
    rates = []
    for replication in range(min(scenario.replications, 5)):
        when = play(replay, scenario.seed, replication).arrival
        start, end = window if window is not None else (float(when[0]), max(float(when[-1]), float(when[0]) + 1e-9))
        inside = int(np.searchsorted(when, end, side="right") - np.searchsorted(when, start, side="left"))
        rates.append(inside / (end - start))
    mean = float(np.mean(rates))
    return mean if mean > 0 else 1e-3
