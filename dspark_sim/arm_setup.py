"""One arm, resolved: everything that its engines and its policy are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from dspark_sim.curve import StepCost
from dspark_sim.policy import EngineSetup, Policy
from dspark_sim.profile import HardwareProfile
from dspark_sim.registry import PolicySource, make_policy
from dspark_sim.router import Router, least_outstanding
from dspark_sim.trace import AcceptanceTrace

__all__ = ["ArmSetup", "EngineConfig", "GroupSetup"]

Prefill = Literal["none", "chunked", "separate"]
Ragged = Literal["flattened", "padded"]


@dataclass(frozen=True)
class EngineConfig:
    """Engine settings with nothing left open: the arm's, else the scenario's, else the profile's or the default.

    Attributes:
        host_lag: steps until confidences and outcomes reach the host.
        prefill: ``none``, ``chunked`` or ``separate``.
        ragged: ``flattened`` or ``padded``.
        temperature: of sampling; the traces'.
        max_num_seqs: requests running at once.
        max_num_batched_tokens: tokens of one step.
        kv_blocks: KV blocks, None without a limit.
        kv_block_tokens: tokens of one block.
        prefix_cache: share the KV of prompts that begin alike.
    """

    host_lag: int
    prefill: Prefill
    ragged: Ragged
    temperature: float
    max_num_seqs: int
    max_num_batched_tokens: int
    kv_blocks: int | None
    kv_block_tokens: int
    prefix_cache: bool = True


@dataclass(frozen=True, eq=False)
class GroupSetup:
    """Engines that are alike.

    Attributes:
        name: in messages.
        role: ``serve``, ``prefill`` (hands requests over when their prompt is computed) or ``decode``.
        count: how many.
        setup: what each of them is made of.
    """

    name: str
    role: Literal["serve", "prefill", "decode"]
    count: int
    setup: ArmSetup


@dataclass(frozen=True, eq=False)
class ArmSetup:
    """One arm, ready to run.

    Attributes:
        index: number of the arm in the scenario; part of its policy's random stream.
        name, label: of the arm; label is the name where the scenario gives none.
        drafter, trace: None without speculation.
        drafter_cost: entry of the profile's ``drafters`` that prices the drafter.
        profile: what steps really cost.
        belief_profile, step_scale, confidence_shift: what the policy believes instead.
        calibrated: apply the trace's calibration to confidences.
        policy_reference, policy_parameters, policy_source: as the scenario has them, and what was found.
        policy_class: the class; :meth:`make_policy` makes an object of it.
        engine: resolved settings.
        groups: the engines of a cluster; () for one engine that is this setup itself.
        router: which engine takes a request.
        router_source: (reference, sha256 of its file; "" for a shipped one).
    """

    index: int
    name: str
    label: str
    drafter: str | None
    trace: AcceptanceTrace | None
    drafter_cost: str | None
    profile: HardwareProfile
    belief_profile: HardwareProfile
    step_scale: float
    confidence_shift: float
    calibrated: bool
    policy_reference: str
    policy_parameters: Mapping[str, Any]
    policy_source: PolicySource
    policy_class: type[Policy]
    engine: EngineConfig
    groups: tuple[GroupSetup, ...] = ()
    router: Router = least_outstanding
    router_source: tuple[str, str] = ("least_outstanding", "")

    @property
    def engines(self) -> tuple[GroupSetup, ...]:
        """The groups of engines, one of one engine where the scenario has no cluster."""
        return self.groups or (GroupSetup("engine", "serve", 1, self),)

    @property
    def gpus(self) -> int:
        """GPUs of all engines together."""
        return sum(self.engine_gpus)

    @property
    def engine_gpus(self) -> list[int]:
        """GPUs of each engine, by its number."""
        return [group.setup.profile.gpus for group in self.engines for _ in range(group.count)]

    @property
    def block_size(self) -> int:
        """G, 0 without a drafter."""
        return 0 if self.trace is None else self.trace.block_size

    def make_policy(self) -> Policy:
        """A fresh policy object; one per engine."""
        return make_policy(self.policy_class, self.policy_source, self.policy_parameters)

    @property
    def honest(self) -> bool:
        """Whether the policy believes the truth about step times."""
        return self.belief_profile is self.profile and self.step_scale == 1.0

    def cost(self) -> StepCost:
        """What steps cost in truth."""
        return self._cost(self.profile, 1.0)

    def belief(self) -> StepCost:
        """What the policy believes that steps cost."""
        return self._cost(self.belief_profile, self.step_scale)

    def _cost(self, profile: HardwareProfile, scale: float) -> StepCost:
        return profile.step_cost(
            drafter=self.drafter_cost, block_size=self.block_size, max_requests=self.engine.max_num_seqs,
            max_tokens=self.engine.max_num_batched_tokens, ragged=self.engine.ragged,
            synchronous=self.policy_source.timing == "synchronous", scale=scale,
        )

    def engine_setup(self, rng: np.random.Generator, cost: StepCost | None = None) -> EngineSetup:
        """What the policy learns at ``start``.

        Args:
            rng: the policy's own random stream.
            cost: its belief, if it has been made already.
        """
        e = self.engine
        return EngineSetup(
            drafter=self.drafter, block_size=self.block_size, temperature=e.temperature, max_num_seqs=e.max_num_seqs,
            max_num_batched_tokens=e.max_num_batched_tokens, host_lag=e.host_lag, cost=cost or self.belief(), rng=rng,
            ragged=e.ragged,
        )
