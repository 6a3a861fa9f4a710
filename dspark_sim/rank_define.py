"""What a ranking compares: contestants, conditions, and the scenario that each pair of them makes.

A *contestant* is a policy with its parameters and, if need be, its drafter: ``async_global``, ``fixed(length=1)@mtp``,
``./mine.py:Mine(share=0.5)``, ``no_spec`` (always without a drafter). A *condition* is the world as the scenario has
it, or one of :data:`CONDITIONS`. A *cell* is a scenario at one load under one condition.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dspark_sim.errors import InputError, shown
from dspark_sim.scenario import Scenario
from dspark_sim.yamlio import parse_scalar

__all__ = ["AS_IS", "BELIEFS", "BOUND", "CONDITIONS", "Cell", "Contestant", "contestants", "loaded", "text_of"]

AS_IS = "as is"
CONDITIONS: Mapping[str, str] = {
    "overconfident": "policies see every confidence with its logit raised by 1",
    "underconfident": "policies see every confidence with its logit lowered by 1",
    "steps -20 %": "policies believe that a forward pass takes 0.8 times what it takes",
    "steps +20 %": "policies believe that a forward pass takes 1.2 times what it takes",
    "acceptance -20 %": "every conditional acceptance is 0.8 times what the trace has; confidences stay as they were",
    "spikes": "requests arrive on their own, at 0.4 and 1.2 times the rate that the baseline served, in turns",
}
BELIEFS: Mapping[str, Mapping[str, float]] = {  # the truth is as it was, so a policy can be held against itself
    "overconfident": {"confidence_shift": 1.0}, "underconfident": {"confidence_shift": -1.0},
    "steps -20 %": {"step_scale": 0.8}, "steps +20 %": {"step_scale": 1.2},
}
SPIKES = (0.4, 1.2)
PERIODS = 6  # pairs of a quiet and a busy time in a run
NO_DRAFTER = "none"


@dataclass(frozen=True)
class Contestant:
    """One entry of ``--policies``.

    Attributes:
        label: as the user wrote it, its name everywhere.
        policy: reference of the policy.
        parameters: its parameters.
        drafter: a drafter of the traces, ``none`` for no drafter, None for the ranking's.
    """

    label: str
    policy: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    drafter: str | None = None


BOUND = Contestant("clairvoyant bound", "clairvoyant")


@dataclass(frozen=True)
class Cell:
    """A scenario at one load under one condition.

    Attributes:
        scenario: its name.
        load: concurrency or arrivals per second, None as the scenario has it.
        condition: :data:`AS_IS` or a key of :data:`CONDITIONS`.
    """

    scenario: str
    load: float | None
    condition: str = AS_IS


def contestants(text: str) -> list[Contestant]:
    """Read ``--policies``.

    Raises:
        InputError: a bracket that does not close, a parameter without a value, the same entry twice.
    """
    found: list[Contestant] = []
    for entry in _split(text):
        match = re.fullmatch(r"([^()@\s]+)(?:\((.*)\))?(?:@([\w.-]+))?", entry, re.DOTALL)
        if match is None:
            raise InputError(f"got {shown(entry)}", key="--policies",
                             allowed="NAME, NAME(parameter=value, …) or NAME@drafter, separated by commas")
        parameters = {}
        for pair in _split(match[2] or ""):
            name, equals, value = pair.partition("=")
            if not equals or not name.strip():
                raise InputError(f"got {shown(pair)} in {shown(entry)}", key="--policies", allowed="parameter=value")
            parameters[name.strip()] = parse_scalar(value)
        drafter = NO_DRAFTER if match[1] == "no_spec" and match[3] is None else match[3]
        if any(entry == other.label for other in found):
            raise InputError(f"{shown(entry)} stands twice", key="--policies")
        found.append(Contestant(entry, _placed(match[1]), parameters, drafter))
    if not found:
        raise InputError("names no policy", key="--policies", allowed="one policy or more, separated by commas")
    return found


def _placed(reference: str) -> str:
    """A path counts from where the command runs, not from the scenario's folder."""
    place, colon, name = reference.partition(":")
    if "/" in place or place.endswith(".py"):
        return f"{Path(place).expanduser().absolute()}{colon}{name}"
    return reference


def _split(text: str) -> list[str]:
    """At commas outside brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    if depth:
        raise InputError(f"got {shown(text)}, whose brackets do not match", key="--policies")
    return [part.strip() for part in parts if part.strip()]


def loaded(scenario: Scenario, load: float | None) -> dict[str, Any]:
    """The scenario's plain data at a load.

    Raises:
        InputError: its arrivals have no load that could be set.
    """
    data = scenario.resolved()
    if load is None:
        return data
    arrival = data["workload"]["arrival"]
    if arrival["kind"] == "closed":
        if load != int(load):
            raise InputError(f"got {load:g} for {scenario.name}", key="--loads", allowed="whole numbers (concurrency)")
        arrival["concurrency"] = int(load)
    elif arrival["kind"] in ("poisson", "gamma"):
        arrival["rate_per_s"] = load
    else:
        kind = arrival["kind"]
        raise InputError(f"{scenario.name} has arrivals of kind {kind}, which have no single load", key="--loads",
                         allowed="scenarios with closed, poisson or gamma arrivals")
    return data


def text_of(
    data: Mapping[str, Any], contestant: Contestant, drafter: str | None, condition: str, served: float | None
) -> str | None:
    """The scenario with this contestant as its only arm, as text; None where the condition has no meaning.

    Args:
        data: of :func:`loaded`.
        drafter: the ranking's drafter here, None if the scenario has none.
        condition: see :data:`CONDITIONS`.
        served: requests per second that the baseline finished in this cell as it is, None if not known.
    """
    out = json.loads(json.dumps(data))
    wanted = drafter if contestant.drafter is None else contestant.drafter
    arms: Sequence[dict[str, Any]] = out["arms"]
    policy = {"name": contestant.policy, **contestant.parameters}
    arm: dict[str, Any] = {"name": contestant.label[:100], "policy": policy}
    if wanted not in (None, NO_DRAFTER):
        like = next((a for a in arms if a.get("drafter") == wanted), {})
        arm["drafter"] = wanted
        arm |= {key: like[key] for key in ("drafter_cost", "calibrated", "engine") if like.get(key) is not None}
    out |= {"arms": [arm], "record": "requests"}
    if condition in BELIEFS:
        if "drafter" not in arm:
            return None  # nothing to believe in
        arm["belief"] = dict(BELIEFS[condition])
    elif condition == "acceptance -20 %":
        out["what_if"] = {**out.get("what_if", {}), "acceptance": 0.8}
    elif condition == "spikes":
        measure = out["measure"]
        if served is None or not measure.get("duration_s"):
            return None
        half = (measure.get("warmup_s", 0.0) + measure["duration_s"]) / PERIODS / 2
        rates = [[round(i * half, 6), served * SPIKES[i % 2]] for i in range(2 * PERIODS)]
        out["workload"]["arrival"] = {"kind": "piecewise", "rates": rates}
    return json.dumps(out)
