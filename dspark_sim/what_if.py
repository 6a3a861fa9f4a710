"""What if: acceptance, step times or output lengths were other ones? Factors on a scenario's inputs, as laws.

**acceptance f < 1.** Every draft token that the target kept survives with probability f, independently: the
conditional acceptance c_k of every position becomes f · c_k, whatever the text.

**acceptance f > 1.** A row's first rejected token (at position k) is turned into a kept one with probability
(f − 1) · c_k / (1 − c_k), c_k being the domain's mean conditional acceptance, and 1 at most; a row that was turned goes
on with conditional acceptances min(1, f · c_j) for j > k. Over the rows of a domain the conditional acceptance of every
position becomes min(1, f · c_k).

Both use one fixed uniform number per text position and draft position, the same for every drafter, seed and factor: a
larger f never accepts less anywhere. Confidences stay as they were, so no policy notices the drift.

**step_time f.** Every curve of the profile (forward pass, drafter, prefill, schedule, fixed and speculation overhead)
and every constant (per request, per KV token) times f. What a policy believes is multiplied as well: the operator has
measured again.

**output_tokens f.** Every output length is round(f · length), 1 at least; bounds of a distribution move with it.

P text positions, G block size.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dspark_sim.arrival_schema import Replay, Sessions
from dspark_sim.curve import DraftCost, StepCurve
from dspark_sim.lengths import MAX_LENGTH, ConstantLengths, EmpiricalLengths, LognormalLengths

if TYPE_CHECKING:
    from dspark_sim.profile import HardwareProfile
    from dspark_sim.scenario import Scenario
    from dspark_sim.scenario_plan import WhatIf
    from dspark_sim.scenario_schema import Workload
    from dspark_sim.trace import AcceptanceTrace

__all__ = ["drifted", "longer", "slowed", "traffic_of", "what_if_notes"]

_ENTROPY = 0x64726966740001  # of the fixed uniforms


def drifted(trace: AcceptanceTrace, factor: float) -> AcceptanceTrace:
    """The trace with every conditional acceptance times ``factor``; see the law above."""
    if factor == 1.0:
        return trace
    accepted = trace.accepted.astype(np.int64)
    out = _fewer(accepted, trace.block_size, factor) if factor < 1 else _more(trace, accepted, factor)
    return replace(trace, accepted=out.astype(np.uint8),
                   provenance={**trace.provenance, "what_if": f"conditional acceptance × {factor:g}"})


def _uniforms(positions: int, k: int) -> npt.NDArray[np.float64]:
    """(P,) of draft position k = 1, 2, …"""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(_ENTROPY, spawn_key=(k,)))).random(positions)


def _fewer(accepted: npt.NDArray[np.int64], block_size: int, factor: float) -> npt.NDArray[np.int64]:
    out = np.zeros_like(accepted)
    alive = np.ones(accepted.size, dtype=bool)
    for k in range(1, block_size + 1):
        alive &= (accepted >= k) & (_uniforms(accepted.size, k) < factor)
        out += alive
    return out


def _more(trace: AcceptanceTrace, accepted: npt.NDArray[np.int64], factor: float) -> npt.NDArray[np.int64]:
    names = np.array(trace.domains, dtype=object)
    of_document = np.array([trace.domains.index(name) for name in trace.domain])
    domain = np.repeat(of_document, np.diff(trace.document_start))
    out = np.zeros_like(accepted)
    alive, turned = np.ones(accepted.size, dtype=bool), np.zeros(accepted.size, dtype=bool)
    before = np.zeros(names.size)
    for k in range(1, trace.block_size + 1):
        reached = np.bincount(domain[accepted >= k - 1], minlength=names.size)
        kept = np.bincount(domain[accepted >= k], minlength=names.size)
        c = np.where(reached > 0, kept / np.maximum(reached, 1), before)  # nobody got so far: as one position earlier
        before = c
        turn = np.minimum(1.0, (factor - 1.0) * c / np.maximum(1.0 - c, 1e-12))
        u, original = _uniforms(accepted.size, k), accepted >= k
        ok = np.where(turned, u < np.minimum(1.0, factor * c)[domain], original | (u < turn[domain]))
        alive &= ok
        turned |= alive & ~original
        out += alive
    return out


def slowed(profile: HardwareProfile, factor: float) -> HardwareProfile:
    """The profile with every part of a step's seconds times ``factor``."""
    if factor == 1.0:
        return profile

    def curve(old: StepCurve | None) -> StepCurve | None:
        return None if old is None else replace(old, seconds=old.seconds * factor)

    def need(old: StepCurve) -> StepCurve:
        return replace(old, seconds=old.seconds * factor)

    return replace(
        profile, verify=need(profile.verify), speculation_overhead=curve(profile.speculation_overhead),
        drafters={name: DraftCost(d.kind, need(d.seconds), curve(d.catch_up), curve(d.per_token))
                  for name, d in profile.drafters.items()},
        prefill=curve(profile.prefill), schedule=curve(profile.schedule), fixed=curve(profile.fixed),
        per_request=profile.per_request * factor, per_kv_token=profile.per_kv_token * factor,
    )


def longer(lengths: Any, factor: float) -> Any:
    """Lengths of any kind times ``factor``; None stays None."""
    if isinstance(lengths, ConstantLengths):
        return lengths.model_copy(update={"value": _tokens(lengths.value * factor)})
    if isinstance(lengths, LognormalLengths):
        low, high = _tokens(lengths.min * factor), _tokens(lengths.max * factor)
        return lengths.model_copy(update={"mean": min(max(lengths.mean * factor, low), high), "min": low, "max": high})
    if isinstance(lengths, EmpiricalLengths):
        out = lengths.model_copy()
        out._keep(_scaled(lengths.samples, factor))
        return out
    return lengths


def _tokens(value: float) -> int:
    return int(min(max(round(value), 1), MAX_LENGTH))


def _scaled(values: npt.NDArray[np.int64], factor: float) -> npt.NDArray[np.int64]:
    scaled: npt.NDArray[np.int64] = np.clip(np.rint(values * factor), 1, MAX_LENGTH).astype(np.int64)
    return scaled


def traffic_of(scenario: Scenario) -> Workload:
    """The workload that is simulated: the scenario's, with ``what_if.output_tokens`` applied."""
    factor, workload = scenario.what_if.output_tokens, scenario.workload
    if factor == 1.0:
        return workload
    classes = tuple(group.model_copy(update={"output_tokens": longer(group.output_tokens, factor)})
                    for group in workload.classes)
    arrival = workload.arrival
    if isinstance(arrival, Replay):
        log = arrival.log
        arrival = arrival.model_copy()
        arrival._keep(replace(log, output=_scaled(log.output, factor)))
    elif isinstance(arrival, Sessions):
        most = max(arrival.shared_tokens + group.prompt_tokens.largest + group.output_tokens.largest
                   for group in classes if group.prompt_tokens is not None and group.output_tokens is not None)
        arrival = arrival.model_copy(update={"max_context": max(arrival.max_context, most)})  # a first turn always fits
    return workload.model_copy(update={"classes": classes, "arrival": arrival})


def what_if_notes(what_if: WhatIf) -> list[str]:
    """Sentences for the report; empty in the world as it was measured."""
    out = []
    if what_if.acceptance != 1.0:
        out.append(f"what if: conditional acceptance of every draft token × {what_if.acceptance:g}, confidences as "
                   "they were (a drift that the drafter does not notice)")
    if what_if.step_time != 1.0:
        out.append(f"what if: every part of a step takes × {what_if.step_time:g}, and policies know it")
    if what_if.output_tokens != 1.0:
        out.append(f"what if: output lengths × {what_if.output_tokens:g}")
    return out
