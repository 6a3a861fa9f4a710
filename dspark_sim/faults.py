"""Engines that fail and come back, at stated or at random times."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import numpy as np
import simpy

from dspark_sim.cluster import Cluster, Member
from dspark_sim.scenario_cluster import Outage, RandomOutages

__all__ = ["random_outages", "stated_outages"]


def stated_outages(env: simpy.Environment, cluster: Cluster, outages: Sequence[Outage]) -> None:
    """Let engines fail at stated times; an outage of an engine that is down already changes nothing."""
    for outage in outages:
        env.process(_once(env, cluster, cluster.members[outage.engine], outage.at_s, outage.down_s))


def _once(
    env: simpy.Environment, cluster: Cluster, member: Member, at_s: float, down_s: float
) -> Generator[simpy.Event, Any, None]:
    yield env.timeout(at_s)
    if member.engine.up:
        cluster.stop(member)
        yield env.timeout(down_s)
        cluster.start(member)


def random_outages(
    env: simpy.Environment, cluster: Cluster, outages: RandomOutages, streams: Sequence[np.random.Generator]
) -> None:
    """Let every engine fail again and again, each by its own random stream; time counts while it is up."""
    for member, rng in zip(cluster.members, streams, strict=True):
        env.process(_again(env, cluster, member, outages, rng))


def _again(
    env: simpy.Environment, cluster: Cluster, member: Member, outages: RandomOutages, rng: np.random.Generator
) -> Generator[simpy.Event, Any, None]:
    while True:
        yield env.timeout(rng.exponential(outages.mtbf_s))
        if member.engine.up:
            cluster.stop(member)
            yield env.timeout(rng.exponential(outages.mttr_s))
            cluster.start(member)
