"""From a resolved arm to engines and a cluster: the parts list of one replication."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import simpy

from dspark_sim.autoscale import Autoscaler
from dspark_sim.batch import Batch
from dspark_sim.cluster import Cluster, Member
from dspark_sim.decide import Decider
from dspark_sim.engine import Engine
from dspark_sim.errors import PolicyFailure, PolicyLoadError
from dspark_sim.faults import random_outages, stated_outages
from dspark_sim.kv import BlockPool
from dspark_sim.record import Recorder
from dspark_sim.request import Request
from dspark_sim.roster import EngineLimits
from dspark_sim.router import RouterState
from dspark_sim.rows import TraceRows
from dspark_sim.scenario_cluster import Admission
from dspark_sim.workload import document_pools, random_stream

if TYPE_CHECKING:
    from dspark_sim.arms import ArmSetup, GroupSetup
    from dspark_sim.scenario import Scenario

__all__ = ["assemble"]


def assemble(
    env: simpy.Environment, setup: ArmSetup, scenario: Scenario, replication: int, recorder: Recorder,
    over: Callable[[Request], None],
) -> Cluster:
    """All engines of one arm behind their router; without a ``cluster:`` section one engine of the scenario's profile.

    Args:
        env: a fresh environment.
        setup, scenario, replication: what runs.
        recorder: where engines write.
        over: called with each request that is over.
    """
    plan = scenario.cluster
    cluster = Cluster(
        env, setup.router, RouterState(random_stream(scenario.seed, replication, "router")),
        Admission() if plan is None else plan.admission, None if plan is None else plan.transfer,
        [c.priority for c in scenario.workload.classes], recorder, over,
    )
    for group in setup.engines:
        make = _Maker(env, group, scenario, replication, recorder, cluster)
        for _ in range(group.count):
            number = len(cluster.members)
            cluster.members.append(Member(make.engine(number), group.role))
            recorder.up(number, 0.0)
    if plan is not None:
        if plan.autoscale is not None:
            Autoscaler(env, cluster, plan.autoscale).begin()
        stated_outages(env, cluster, plan.failures)
        if plan.random_failures is not None:
            streams = [random_stream(scenario.seed, replication, "faults", m.number) for m in cluster.members]
            random_outages(env, cluster, plan.random_failures, streams)
    return cluster


class _Maker:
    """Makes the engines of one group; what they share is made once."""

    def __init__(
        self, env: simpy.Environment, group: GroupSetup, scenario: Scenario, replication: int, recorder: Recorder,
        cluster: Cluster,
    ) -> None:
        self.env, self.setup, self.scenario, self.replication = env, group.setup, scenario, replication
        self.recorder, self.cluster = recorder, cluster
        setup, config, trace = group.setup, group.setup.engine, group.setup.trace
        self.truth = setup.cost()
        self.belief = self.truth if setup.honest else setup.belief()
        domains = () if trace is None else trace.domain
        self.pools = document_pools(scenario.workload, domains, scenario.seed, replication)
        slas = [c.sla for c in scenario.workload.classes]
        self.limits = EngineLimits(
            config.max_num_seqs, config.max_num_batched_tokens,
            {"serve": config.prefill, "prefill": "separate", "decode": "chunked"}[group.role],
            tuple(np.inf if sla is None or sla.tpot_ms_max is None else sla.tpot_ms_max / 1000 for sla in slas),
            prefix_cache=config.prefix_cache, hand_over=group.role == "prefill",
        )

    def engine(self, number: int) -> Engine:
        """The engine with this number in the cluster."""
        setup, config, scenario = self.setup, self.setup.engine, self.scenario
        batch = Batch(config.max_num_seqs, setup.trace, self.pools)
        rows = TraceRows(batch, setup.trace, calibrated=setup.calibrated, shift=setup.confidence_shift)
        more = (setup.index,) if number == 0 else (setup.index, number)

        def decider() -> Decider:
            """A fresh policy; its random stream starts anew with it, as a restarted server's does."""
            rng = random_stream(scenario.seed, self.replication, "policy", *more)
            try:
                policy = setup.make_policy()
            except PolicyLoadError as problem:  # it could be made when the arm was loaded
                raise PolicyFailure(f"policy {setup.policy_source.name} cannot be made again: {problem}") from None
            return Decider(policy, setup.engine_setup(rng, self.belief), batch, rows)

        pool = BlockPool(config.kv_blocks, config.kv_block_tokens, 1 + setup.block_size)
        return Engine(
            self.env, self.limits, self.truth, pool, batch, rows, decider, self.recorder, self.cluster.left, number
        )
