"""One replication of one arm: the only place that makes a simpy Environment.

Everything random comes from the scenario's seed by purpose, so the same (scenario, arm, replication) gives the same
tables, byte for byte, in any process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import simpy

from dspark_sim.assemble import assemble
from dspark_sim.cluster import Cluster
from dspark_sim.errors import RunError
from dspark_sim.guard import Overdue, limit_s, supervised
from dspark_sim.record import Recorder
from dspark_sim.request import Request
from dspark_sim.scenario_schema import MAX_INTERVALS
from dspark_sim.traffic import SessionLoop, Submit, Traffic, make_traffic
from dspark_sim.what_if import traffic_of

if TYPE_CHECKING:
    import pyarrow as pa

    from dspark_sim.arms import ArmSetup
    from dspark_sim.scenario import Scenario
    from dspark_sim.scenario_schema import Measure

__all__ = ["ArmRun", "simulate"]


@dataclass
class ArmRun:
    """What one arm did in one replication.

    Attributes:
        arm, replication: which.
        steps: the steps table; None with ``record: requests`` or when it went to a sink.
        intervals, requests, lengths: the other tables.
        window: measured seconds (start, end].
        warnings: what the reader of the result must know, in words.
        error: why the arm stopped early; the tables then hold what was done until then.
        wall_s: real seconds that the simulation took.
    """

    arm: str
    replication: int
    steps: pa.Table | None
    intervals: pa.Table
    requests: pa.Table
    window: tuple[float, float]
    warnings: list[str] = field(default_factory=list)
    error: str | None = None
    wall_s: float = 0.0
    lengths: pa.Table | None = None


def simulate(
    setup: ArmSetup, scenario: Scenario, replication: int, steps_sink: Callable[[pa.Table], None] | None = None
) -> ArmRun:
    """Run one arm once.

    Args:
        setup: the arm, resolved and checked.
        scenario: its scenario.
        replication: 0, 1, 2, …; chooses the random streams.
        steps_sink: takes the steps table piece by piece (``record: all``); None keeps it in the result.

    Returns:
        The tables. A policy that fails, or a step beyond a curve, ends the arm with ``error`` set; nothing is raised.
    """
    began = time.perf_counter()
    env = simpy.Environment()
    workload, measure = traffic_of(scenario), scenario.measure
    start = 0.0 if measure.mode == "whole_run" else measure.warmup_s
    recorder = Recorder(
        setup.name, replication, [c.name for c in workload.classes], scenario.interval_s,
        engines=len(setup.engine_gpus), keep_steps=scenario.record == "all", steps_sink=steps_sink,
        block_size=setup.block_size, measured_from=start,
    )
    stop = _Stop(env, measure, scenario)
    error: str | None = None
    cluster: Cluster | None = None
    try:
        with supervised(setup.name), np.errstate():
            cluster = assemble(env, setup, scenario, replication, recorder, stop.over)
            stop.cluster = cluster
            submit = stop.counting(cluster.submit)
            stop.follow(make_traffic(env, workload, measure, scenario.seed, replication, submit))
            env.run(until=stop.event)
            cluster.check(stop.submitted, stop.ended)
    except RunError as problem:
        error = str(problem)
    except Overdue:  # it answered at the very moment that the watchdog gave it up
        error = f"policy {setup.policy_source.name} needed more than {limit_s():g} s for one answer"
    end = float(env.now)
    warnings = []
    if cluster is not None:
        dark = cluster.dark()
        if dark is not None and error is None:
            warnings.append(f"at the end {dark}")
        elif dark is not None:
            end = cluster.dark_since  # else the tables would hold all the time in which nothing can happen
        for request in cluster.unfinished():
            recorder.request(request, request.engine)
    steps, intervals = recorder.steps(), recorder.intervals(end)
    if isinstance(stop.traffic, SessionLoop) and stop.traffic.unsent:
        warnings.append(f"{stop.traffic.unsent} turns were never sent: their sessions ended with a turn that was "
                        "refused or gave up waiting")
    if recorder.extrapolated:
        warnings.append(
            f"{recorder.extrapolated} of {recorder.steps_recorded} steps were larger than what profile "
            f"{setup.profile.name} was measured at (verify: up to {setup.profile.verify.last} tokens): "
            "their time is extrapolated"
        )
    return ArmRun(
        setup.name, replication, steps, intervals, recorder.requests(), (start, max(end, start)), warnings, error,
        time.perf_counter() - began, recorder.lengths.table(setup.name, replication),
    )


class _Stop:
    """Ends the run by the rule of ``measure``, tells the traffic of requests that are over, and counts both ways."""

    def __init__(self, env: simpy.Environment, measure: Measure, scenario: Scenario) -> None:
        self.env = env
        self.traffic: Traffic | None = None
        self.cluster: Cluster | None = None
        self.event: simpy.Event = env.event()
        self.submitted = self.ended = 0
        self.left, self.after = -1, -1.0
        self.retry_s = scenario.cluster.admission.retry_s if scenario.cluster is not None else 0.0
        self.horizon = MAX_INTERVALS * scenario.interval_s
        if measure.mode == "whole_run" or measure.duration_s is None:
            env.timeout(self.horizon).callbacks.append(self._no_end)
        if measure.mode == "whole_run":
            return  # it ends with the traffic
        if measure.duration_s is not None:
            self.event = env.timeout(measure.warmup_s + measure.duration_s)
        elif measure.duration_requests is not None:
            self.left, self.after = measure.duration_requests, measure.warmup_s

    def _no_end(self, _: simpy.Event) -> None:
        dark = None if self.cluster is None else self.cluster.dark()
        if dark is not None:
            raise RunError(dark)
        raise RunError(
            f"not over after {self.horizon:,.0f} simulated seconds, which are {MAX_INTERVALS:,} intervals: "
            "ask for fewer requests, more traffic, or a longer interval_s"
        )

    def follow(self, traffic: Traffic) -> None:
        """Start a source, and end with it if it ends first."""
        self.traffic = traffic
        traffic.start()

    def counting(self, submit: Submit) -> Submit:
        """``submit``, counted."""

        def counted(request: Request) -> None:
            self.submitted += 1
            submit(request)

        return counted

    def over(self, request: Request) -> None:
        """A request is over; called by the cluster, at once."""
        assert self.traffic is not None
        self.ended += 1
        if request.outcome == "finished":
            self.traffic.finished(request)
        elif isinstance(self.traffic, SessionLoop):
            self.traffic.gone(request)
        else:
            self.env.process(self._later(request))
        if self.left > 0 and self.env.now > self.after:
            self.left -= 1
            if self.left == 0:
                self.event.succeed()
        if self.ended == self.traffic.total and not self.event.triggered:  # a log is over, or so many were asked for
            self.event.succeed()

    def _later(self, request: Request) -> Generator[simpy.Event, Any, None]:
        """A user who was refused or gave up pauses before asking again (closed loops)."""
        assert self.traffic is not None
        yield self.env.timeout(self.retry_s)
        self.traffic.finished(request)
