"""Reactive autoscaling: as many engines as the load asks for, within limits, not too often.

Every ``interval_s`` the load is looked at. Engines are added at once (they serve ``startup_s`` later) and taken away
one at a time, ``cooldown_s`` after the last change: the highest number first, which finishes what it has and then
stops. A draining engine is kept when the load comes back.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import Any

import simpy

from dspark_sim.cluster import Cluster, Member
from dspark_sim.scenario_cluster import Autoscale

__all__ = ["Autoscaler"]


class Autoscaler:
    """Starts and stops the engines of a cluster.

    Args:
        env, cluster: the clock, and whose engines.
        rule: the scenario's ``autoscale``.
    """

    def __init__(self, env: simpy.Environment, cluster: Cluster, rule: Autoscale) -> None:
        self.env, self.cluster, self.rule = env, cluster, rule
        self.off: set[int] = set()  # taken away by us; an engine that failed comes back by itself
        self.changed = -math.inf

    def begin(self) -> None:
        """Send away all but the first ``min_engines`` and start looking; called once, before requests come."""
        for member in self.cluster.members[self.rule.min_engines :]:
            self._stop(member)
        self.env.process(self._watch())

    def wanted(self) -> int:
        """Engines that the load asks for now."""
        rule, here = self.rule, self._here()
        if rule.target_outstanding is not None:
            load = sum(m.outstanding for m in self.cluster.members if m.engine.up) + len(self.cluster.parked)
            asked = math.ceil(load / rule.target_outstanding)
        else:
            assert rule.target_queue is not None
            queue = self.cluster.queued() / max(1, len(here))
            asked = len(here) + (1 if queue > rule.target_queue else -1 if queue == 0 else 0)
        return min(max(asked, rule.min_engines), len(self.cluster.members))

    def _here(self) -> list[Member]:
        """Engines that take requests, or will when they have started."""
        return [m for m in self.cluster.members if not m.draining and m.number not in self.off]

    def _watch(self) -> Generator[simpy.Event, Any, None]:
        while True:
            yield self.env.timeout(self.rule.interval_s)
            for member in self.cluster.members:
                if member.draining and member.engine.up and member.outstanding == 0:
                    self._stop(member)
            here, wanted = self._here(), self.wanted()
            if wanted > len(here):
                self._add(wanted - len(here))
            elif wanted < len(here) and self.env.now >= self.changed + self.rule.cooldown_s:
                self.cluster.drain(here[-1], True)
                self.changed = self.env.now

    def _add(self, n: int) -> None:
        self.changed = self.env.now
        draining = [m for m in self.cluster.members if m.draining]
        for member in draining[:n]:
            self.cluster.drain(member, False)
        for member in [m for m in self.cluster.members if m.number in self.off][: n - len(draining[:n])]:
            self.off.discard(member.number)
            self.cluster.recorder.paid(member.number, self.env.now, True)  # it costs while it starts
            self.env.process(self._start(member))

    def _start(self, member: Member) -> Generator[simpy.Event, Any, None]:
        yield self.env.timeout(self.rule.startup_s)
        if not member.engine.up:
            self.cluster.start(member)

    def _stop(self, member: Member) -> None:
        self.off.add(member.number)
        self.cluster.stop(member)
        self.cluster.recorder.paid(member.number, self.env.now, False)
