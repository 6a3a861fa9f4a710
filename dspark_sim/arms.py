"""From a scenario to arms that can run: profile, traces and policies are found, and everything is checked.

Whatever is wrong is found here, before a run starts, and named by file, line and dotted key.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

from dspark_sim.arm_checks import check_arm
from dspark_sim.arm_setup import ArmSetup, EngineConfig, GroupSetup
from dspark_sim.errors import InputError, ScenarioError, nearest, shown
from dspark_sim.profile import HardwareProfile, load_profile
from dspark_sim.registry import find_policy, make_policy
from dspark_sim.router_registry import find_router
from dspark_sim.scenario import Scenario
from dspark_sim.scenario_schema import Arm, Belief, PolicyChoice
from dspark_sim.trace import AcceptanceTrace
from dspark_sim.traceset import find_traces, open_traces
from dspark_sim.what_if import drifted, slowed
from dspark_sim.yamlio import KeyPath

__all__ = ["ArmSetup", "EngineConfig", "GroupSetup", "Inputs", "load_arm", "load_arms"]

DEFAULT_HOST_LAG = 2


@dataclass
class Inputs:
    """Profiles and traces already read, for scenarios that share them (the points of a sweep); filled by load_arms.

    Attributes:
        profiles: by folder and reference.
        traces: by folder, reference and drafters asked for.
        changed: profiles and traces under ``what_if``, by the place of the original and the factor.
    """

    profiles: dict[tuple[Path, str], HardwareProfile] = field(default_factory=dict)
    traces: dict[tuple[Path, str, tuple[str, ...]], dict[str, AcceptanceTrace]] = field(default_factory=dict)
    changed: dict[tuple[Any, float], Any] = field(default_factory=dict)


def load_arms(scenario: Scenario, inputs: Inputs | None = None) -> list[ArmSetup]:
    """The arms of a scenario, in its order.

    Args:
        scenario: validated.
        inputs: what earlier calls read and this one need not read again.

    Raises:
        InputError: the first thing that does not fit: of the class that the cause belongs to.
    """
    loader = _Loader(scenario, inputs or Inputs())
    return [loader.arm(i, arm) for i, arm in enumerate(scenario.arms)]


def load_arm(scenario: Scenario, index: int, inputs: Inputs | None = None) -> ArmSetup:
    """One arm of a scenario by its number, as :func:`load_arms` gives it, without the others' policies."""
    return _Loader(scenario, inputs or Inputs()).arm(index, scenario.arms[index])


def _prompts_only(arm: Arm) -> Arm:
    """What a prefill engine runs of an arm: it drafts nothing and decides nothing."""
    return arm.model_copy(update={
        "drafter": None, "drafter_cost": None, "policy": PolicyChoice(name="no_spec"), "belief": Belief(),
    })


class _Loader:
    """Resolves the references of one scenario, each once."""

    def __init__(self, scenario: Scenario, inputs: Inputs) -> None:
        self.scenario, self.inputs = scenario, inputs
        self.profile = self.find_profile(scenario.profile, ("profile",))
        self.traces = self.find_traces()

    # -- references ------------------------------------------------------------------------------------------------
    def fault(
        self, problem: str, *path: str | int, allowed: str | None = None, hint: str | None = None,
        error: type[InputError] = ScenarioError,
    ) -> InputError:
        return self.scenario.source.error(problem, path, error=error, allowed=allowed, suggestion=hint)

    def blame(self, cause: InputError, *path: str | int) -> NoReturn:
        """Raises the cause; if it is the reference that is wrong (no line of another file), at the place of it."""
        if cause.line is not None:
            raise cause
        problem = cause.problem if cause.file is None else f"{cause.file}: {cause.problem}"
        raise self.fault(problem, *path, allowed=cause.allowed, hint=cause.suggestion, error=type(cause)) from None

    def find_profile(self, reference: str, path: KeyPath) -> HardwareProfile:
        place = (self.scenario.base, reference)
        if place not in self.inputs.profiles:
            try:
                self.inputs.profiles[place] = load_profile(reference, self.scenario.base)
            except InputError as problem:
                self.blame(problem, *path)
        factor = self.scenario.what_if.step_time
        if factor != 1.0 and (place, factor) not in self.inputs.changed:
            self.inputs.changed[place, factor] = slowed(self.inputs.profiles[place], factor)
        return self.inputs.profiles[place] if factor == 1.0 else self.inputs.changed[place, factor]

    def find_traces(self) -> dict[str, AcceptanceTrace]:
        wanted: dict[str, int] = {}
        for i, arm in enumerate(self.scenario.arms):
            if arm.drafter is not None:
                wanted.setdefault(arm.drafter, i)
        reference = self.scenario.traces
        if reference is None:
            for drafter, i in wanted.items():
                raise self.fault(f"got {shown(drafter)}, but the scenario names no traces", "arms", i, "drafter",
                                 allowed="an arm without a drafter, or the key traces")
            return {}
        place = (self.scenario.base, reference, tuple(wanted))
        if place in self.inputs.traces:
            return self.drifted_traces(place)
        try:
            found = find_traces(reference, self.scenario.base)
        except InputError as problem:
            self.blame(problem, "traces")
        for drafter, i in wanted.items():
            if drafter not in found.drafters:
                raise self.fault(f"no drafter {shown(drafter)} in the traces of {found.target}", "arms", i, "drafter",
                                 allowed=", ".join(found.drafters), hint=nearest(drafter, found.drafters))
        try:
            self.inputs.traces[place] = open_traces(reference, list(wanted), self.scenario.base)
        except InputError as problem:
            self.blame(problem, "traces")
        return self.drifted_traces(place)

    def drifted_traces(self, place: tuple[Path, str, tuple[str, ...]]) -> dict[str, AcceptanceTrace]:
        factor, found = self.scenario.what_if.acceptance, self.inputs.traces[place]
        if factor == 1.0:
            return found
        if (place, factor) not in self.inputs.changed:
            self.inputs.changed[place, factor] = {name: drifted(trace, factor) for name, trace in found.items()}
        return dict(self.inputs.changed[place, factor])

    # -- one arm ---------------------------------------------------------------------------------------------------
    def arm(self, i: int, arm: Arm) -> ArmSetup:
        setup, cluster = self.one(i, arm, self.profile), self.scenario.cluster
        if cluster is None:
            return setup
        groups = []
        for g, group in enumerate(cluster.engines):
            profile = self.profile
            if group.profile is not None:
                profile = self.find_profile(group.profile, ("cluster", "engines", g, "profile"))
            own = self.one(i, _prompts_only(arm) if group.role == "prefill" else arm, profile)
            groups.append(GroupSetup(group.name, group.role, group.count, own))
        try:
            router, digest = find_router(cluster.router, self.scenario.base)
        except InputError as problem:
            self.blame(problem, "cluster", "router")
        return replace(setup, groups=tuple(groups), router=router, router_source=(cluster.router, digest))

    def one(self, i: int, arm: Arm, profile: HardwareProfile) -> ArmSetup:
        """One kind of engine of an arm."""
        trace = None if arm.drafter is None else self.traces[arm.drafter]
        belief = profile
        if arm.belief.profile is not None:
            belief = self.find_profile(arm.belief.profile, ("arms", i, "belief", "profile"))
        setup = ArmSetup(
            index=i, name=arm.name, label=arm.label or arm.name, drafter=arm.drafter, trace=trace,
            drafter_cost=self.drafter_cost(i, arm, profile, belief), profile=profile, belief_profile=belief,
            step_scale=arm.belief.step_scale, confidence_shift=arm.belief.confidence_shift, calibrated=arm.calibrated,
            policy_reference=arm.policy.name, policy_parameters=arm.policy.parameters, **self.policy(i, arm),
            engine=self.engine(arm, profile, trace),
        )
        check_arm(self.scenario, setup, self.traces)
        return setup

    def drafter_cost(self, i: int, arm: Arm, truth: HardwareProfile, belief: HardwareProfile) -> str | None:
        if arm.drafter is None:
            if arm.drafter_cost is not None:
                raise self.fault("has no effect: the arm has no drafter", "arms", i, "drafter_cost")
            return None
        wanted, key = arm.drafter_cost or arm.drafter, "drafter" if arm.drafter_cost is None else "drafter_cost"
        entry = wanted
        for profile, path in ((truth, (key,)), (belief, ("belief", "profile"))):
            try:
                found = profile.drafter_entry(wanted)
            except InputError as problem:
                allowed = problem.allowed
                if arm.drafter_cost is None and profile is truth and profile.drafters:
                    allowed = f"{allowed}, or the price of one of these: drafter_cost: {next(iter(profile.drafters))}"
                raise self.fault(problem.problem, "arms", i, *path, allowed=allowed, hint=problem.suggestion,
                                 error=type(problem)) from None
            entry = found if profile is truth else entry
        return entry

    def policy(self, i: int, arm: Arm) -> dict[str, Any]:
        try:
            cls, source = find_policy(arm.policy.name, self.scenario.base)
            make_policy(cls, source, arm.policy.parameters)
        except InputError as problem:
            self.blame(problem, "arms", i, *(problem.key or "policy").split("."))
        return {"policy_class": cls, "policy_source": source}

    def engine(self, arm: Arm, profile: HardwareProfile, trace: AcceptanceTrace | None) -> EngineConfig:
        def pick(key: str, default: Any) -> Any:
            own, shared = getattr(arm.engine, key), getattr(self.scenario.engine, key)
            return own if own is not None else shared if shared is not None else default

        blocks = pick("kv_blocks", profile.kv_blocks)
        return EngineConfig(
            host_lag=pick("host_lag", DEFAULT_HOST_LAG), prefill=pick("prefill", "none"),
            ragged=pick("ragged", "flattened"),
            temperature=pick("temperature", 1.0 if trace is None else trace.temperature),
            max_num_seqs=pick("max_num_seqs", profile.max_num_seqs),
            max_num_batched_tokens=pick("max_num_batched_tokens", profile.max_num_batched_tokens),
            kv_blocks=None if blocks == "unlimited" else blocks,
            kv_block_tokens=pick("kv_block_tokens", profile.kv_block_tokens),
            prefix_cache=pick("prefix_cache", True),
        )
