"""What does not fit together: an arm against its traces, its engine, its policy and the traffic.

Called by :func:`dspark_sim.arms.load_arms` for each arm, before anything runs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from dspark_sim.arm_setup import ArmSetup
from dspark_sim.blame import is_interrupt
from dspark_sim.errors import InputError, PolicyLoadError, ScenarioError, nearest, shown
from dspark_sim.guard import asked, supervised
from dspark_sim.scenario import Scenario
from dspark_sim.scenario_schema import Closed, Engine
from dspark_sim.trace import AcceptanceTrace
from dspark_sim.traceset import find_traces
from dspark_sim.what_if import traffic_of
from dspark_sim.workload import largest_tokens
from dspark_sim.yamlio import KeyPath

__all__ = ["check_arm"]


def check_arm(scenario: Scenario, setup: ArmSetup, traces: Mapping[str, AcceptanceTrace]) -> None:
    """Raises the first thing that does not fit.

    Args:
        scenario: what the user wrote.
        setup: one of its arms, resolved.
        traces: all traces that its arms use, by drafter: for the names in messages.

    Raises:
        ScenarioError, PolicyLoadError: at the place of the scenario (or the ``--set``) that is to blame.
    """
    check = _Checks(scenario, setup, traces)
    check.drafter()
    if setup.trace is not None:
        check.confidence(setup.trace)
        check.temperature(setup.trace)
        check.domains(setup.trace)
    check.batch()
    check.kv_cache()
    check.curve()
    check.policy()


class _Checks:
    def __init__(self, scenario: Scenario, setup: ArmSetup, traces: Mapping[str, AcceptanceTrace]) -> None:
        self.scenario, self.setup, self.traces = scenario, setup, traces
        self.here: KeyPath = ("arms", setup.index)

    def fault(
        self, problem: str, *path: str | int, allowed: str | None = None, hint: str | None = None,
        error: type[InputError] = ScenarioError,
    ) -> InputError:
        return self.scenario.source.error(problem, path, error=error, allowed=allowed, suggestion=hint)

    def setting(self, key: str) -> KeyPath:
        """Where an engine setting was made: in the arm, in the scenario, or by the choice of the profile."""
        places: list[tuple[Engine, KeyPath]] = [
            (self.scenario.arms[self.setup.index].engine, (*self.here, "engine", key)),
            (self.scenario.engine, ("engine", key)),
        ]
        return next((path for engine, path in places if getattr(engine, key) is not None), ("profile",))

    def drafter(self) -> None:
        s = self.setup
        if s.trace is not None:
            return
        if getattr(s.policy_class, "needs_drafter", s.policy_source.name != "no_spec"):
            reference = self.scenario.traces
            names = [] if reference is None else find_traces(reference, self.scenario.base).drafters
            some = f"a drafter ({', '.join(names)})" if names else "traces and a drafter"
            raise self.fault(f"policy {s.policy_source.name} needs draft tokens, but the arm has no drafter",
                             *self.here, "policy", allowed=f"{some}, or policy no_spec")
        if s.confidence_shift:
            raise self.fault("has no effect: the arm has no drafter", *self.here, "belief", "confidence_shift")

    def confidence(self, trace: AcceptanceTrace) -> None:
        if trace.confidence is not None:
            return
        able = ", ".join(name for name, t in self.traces.items() if t.confidence is not None)
        other = f"a drafter with a confidence head ({able or 'no arm of this scenario has one'})"
        if self.setup.policy_source.needs_confidence:
            raise self.fault(
                f"policy {self.setup.policy_source.name} needs confidences; drafter {shown(trace.drafter)} has none",
                *self.here, "policy", allowed=f"{other}, or another policy",
            )
        if self.setup.confidence_shift:
            raise self.fault(f"has no effect: drafter {shown(trace.drafter)} has no confidences",
                             *self.here, "belief", "confidence_shift", allowed=other)

    def temperature(self, trace: AcceptanceTrace) -> None:
        if self.setup.engine.temperature != trace.temperature:
            raise self.fault(f"got {self.setup.engine.temperature:g}, but the traces of drafter {shown(trace.drafter)} "
                             f"were sampled at {trace.temperature:g}", *self.setting("temperature"),
                             allowed=f"{trace.temperature:g}, or leave it out")

    def domains(self, trace: AcceptanceTrace) -> None:
        for c, group in enumerate(self.scenario.workload.classes):
            if group.domain is None:
                raise self.fault(f"class {shown(group.name)} needs a domain: what is accepted depends on the text",
                                 "workload", "classes", c, allowed="domain: " + ", ".join(trace.domains))
            if group.domain not in trace.domains:
                raise self.fault(f"the traces of {trace.target} have no domain {shown(group.domain)}",
                                 "workload", "classes", c, "domain", allowed=", ".join(trace.domains),
                                 hint=nearest(group.domain, trace.domains))

    def batch(self) -> None:
        limit, width = self.setup.engine.max_num_batched_tokens, 1 + self.setup.block_size
        if limit < width:
            raise self.fault(f"got {limit}, but one request of arm {shown(self.setup.name)} takes {width} tokens of it",
                             *self.setting("max_num_batched_tokens"), allowed=f"{width} (1 + block size) or more")

    def kv_cache(self) -> None:
        blocks, size, width = self.setup.engine.kv_blocks, self.setup.engine.kv_block_tokens, 1 + self.setup.block_size
        if blocks is None:
            return
        workload = traffic_of(self.scenario)
        for c, group in enumerate(workload.classes):
            need = largest_tokens(workload, c) + width
            if -(-need // size) > blocks:
                raise self.fault(
                    f"a request of class {shown(group.name)} may need {need} tokens of KV cache (prompt, output and "
                    f"{width} ahead), but {blocks} blocks of {size} hold {blocks * size}",
                    *self.setting("kv_blocks"), allowed=f"{-(-need // size)} blocks or more, or shorter requests",
                )

    def curve(self) -> None:
        """A closed loop surely runs a step with all its requests in it, of one token each at least."""
        arrival, verify, e = self.scenario.workload.arrival, self.setup.profile.verify, self.setup.engine
        if not isinstance(arrival, Closed) or verify.extrapolate is not None:
            return
        if arrival.think_time_s or arrival.think_steps:
            return
        rows = min(arrival.concurrency, e.max_num_seqs, e.max_num_batched_tokens // (1 + self.setup.block_size))
        if rows > verify.last:
            raise self.fault(f"{rows} requests at once make steps of {rows} tokens or more, but profile "
                             f"{self.setup.profile.name} was measured to {verify.last} and does not extrapolate",
                             "workload", "arrival", "concurrency", allowed=f"at most {verify.last}")

    def policy(self) -> None:
        """A fresh policy meets the engine: its ``start`` refuses with a ValueError what it cannot work with."""
        start = getattr(self.setup.make_policy(), "start", None)
        if start is None:
            return
        try:
            with supervised(self.setup.name):
                asked(start, self.setup.engine_setup(np.random.default_rng(0)))
        except ValueError as problem:
            key, _, rest = str(problem).partition(": ")
            known = re.fullmatch(r"\w+", key) is not None and key in self.setup.policy_source.parameters
            text, _, allowed = (rest if known else str(problem)).partition("; allowed: ")
            raise self.fault(text or "refuses this engine", *self.here, "policy", *([key] if known else []),
                             allowed=allowed or None, error=PolicyLoadError) from None
        except BaseException as problem:
            if is_interrupt(problem):
                raise
            return  # a mistake in the policy, not in the scenario: its arm will end with it, the others run
