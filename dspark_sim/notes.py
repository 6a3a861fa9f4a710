"""What a reader must know beside the numbers: where the inputs come from, and what to doubt.

``measured``, ``derived``, ``published`` and ``synthetic`` are different words here, and always printed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dspark_sim.stats import drift, interval, precision_warning
from dspark_sim.userview import Measured

if TYPE_CHECKING:
    from dspark_sim.arms import ArmSetup
    from dspark_sim.results import ArmResult
    from dspark_sim.scenario import Scenario

__all__ = ["arm_warnings", "assumptions", "run_warnings"]


def assumptions(setups: Sequence[ArmSetup]) -> list[str]:
    """Sentences on every input of a run, each once: profiles, drafters' costs, traces, beliefs that are off."""
    lines: dict[str, None] = {}
    used: dict[int, tuple[Any, list[str]]] = {}
    for setup in (group.setup for arm in setups for group in arm.engines):
        _, drafters = used.setdefault(id(setup.profile), (setup.profile, []))
        if setup.drafter is not None:
            drafters.append(setup.drafter_cost or setup.drafter)
    for profile, drafters in used.values():
        lines |= dict.fromkeys(profile.statements(drafters))
    for setup in setups:
        own, priced = setup.drafter or "", setup.drafter_cost
        if priced is not None and priced not in (own, own.rpartition("-")[0]):
            lines[f"drafter {own} is charged the cost of {priced}, not its own"] = None
    if setups and setups[0].groups:
        groups = ", ".join(f"{g.count} × {g.name} ({g.role}, profile {g.setup.profile.name})" for g in setups[0].groups)
        lines[f"cluster: {groups}; router {setups[0].router_source[0]}"] = None
    for setup in setups:
        if setup.trace is not None:
            lines[_trace_line(setup.trace)] = None
    for setup in setups:
        off = []
        if setup.belief_profile is not setup.profile and setup.belief_profile.name != setup.profile.name:
            off.append(f"profile {setup.belief_profile.name}")
        if setup.step_scale != 1.0:
            off.append(f"step times × {setup.step_scale:g}")
        if setup.confidence_shift != 0.0:
            off.append(f"confidence logits {setup.confidence_shift:+g}")
        if off:
            lines[f"arm {setup.name}: its policy believes {', '.join(off)}; the engine applies the truth"] = None
    return list(lines)


def _trace_line(trace: Any) -> str:
    source = trace.provenance.get("source")
    if isinstance(source, (list, tuple)):
        source = "; ".join(map(str, source))
    facts = f"trace {trace.target}/{trace.drafter}: {trace.kind}; block size {trace.block_size}"
    facts += f", temperature {trace.temperature:g}, {trace.positions} positions in {trace.documents} documents"
    return facts + (f"; {' '.join(str(source).split())}" if source else "")


def arm_warnings(scenario: Scenario, result: ArmResult, measured: Sequence[Measured]) -> list[str]:
    """What to doubt in one arm's figures: precision, warm-up, overload, extrapolation, too few requests."""
    if result.error is not None or not measured:
        return []
    arm, out = result.arm, []
    precision = precision_warning(arm, result.figures["throughput_tok_s_gpu"], len(measured))
    if precision:
        out.append(precision)
    change = drift([m.get("tok_s_first_half") for m in measured], [m.get("tok_s_second_half") for m in measured])
    changing = scenario.workload.arrival.kind in ("replay", "piecewise", "diurnal")  # the traffic may do so itself
    if change is not None and not changing:
        out.append(
            f"{arm}: throughput {'rose' if change > 0 else 'fell'} by {100 * abs(change):.1f} % from the first to the "
            "second half of the measured window: the engine had not settled; a longer measure.warmup_s would help"
        )
    before = interval([m.get("waiting_first_half") for m in measured]).mean
    after = interval([m.get("waiting_second_half") for m in measured]).mean
    if scenario.workload.arrival.kind != "closed" and before is not None and after is not None \
            and after > 2 + 1.5 * before:
        out.append(
            f"{arm}: the queue grew from {before:.1f} to {after:.1f} waiting requests inside the window: this load is "
            "more than the engine can serve, and latencies depend on how long the run is"
        )
    extrapolated, steps = _total(measured, "extrapolated_steps"), _total(measured, "steps")
    if extrapolated:
        out.append(f"{arm}: {100 * extrapolated / max(steps, 1):.2g} % of its steps lie outside the measured step-time "
                   "curve and were extrapolated")
    begun = interval([m.get("begun_before_start_share") for m in measured]).mean
    timed = any(c.sla is not None and (c.sla.ttft_ms_max or c.sla.e2e_s_max) for c in scenario.workload.classes)
    if begun is not None and begun > (0.05 if timed else 0.25):
        out.append(f"{arm}: {100 * begun:.0f} % of the measured requests had begun before the simulation did; they "
                   "count for TPS and TPOT, not for TTFT and E2E; a longer measure.warmup_s would help")
    requests = _total(measured, "requests")
    lost = _total(measured, "refused") + _total(measured, "timed_out")
    came = lost + requests
    if lost > 0.01 * came:
        out.append(f"{arm}: {lost:,.0f} of {came:,.0f} requests ({100 * lost / came:.2g} %) were refused or gave up "
                   "waiting; speeds and latencies are those of the others")
    overdue = _total(measured, "overdue")
    if overdue > 0.01 * (came + overdue):
        out.append(f"{arm}: {overdue:,.0f} more requests were still unfinished at the end and already beyond their "
                   "SLA; they count as missed, while latencies are those of the requests that finished")
    if requests < 100:
        out.append(f"{arm}: only {requests:.0f} requests finished inside the measured windows; percentiles over "
                   "requests mean little")
    if interval([m.get("requests") for m in measured]).mean and any(m.get("tps_user_mean") is None for m in measured):
        out.append(f"{arm}: no request of some replication had a token after its first, so TPS and TPOT leave it out")
    return out


def _mixed(setup: ArmSetup) -> str | None:
    """A sentence where step times and acceptance come from different models, by their names."""
    model = setup.profile.provenance.model
    plain = [re.sub(r"[^a-z0-9]", "", str(name).lower()) for name in (setup.trace and setup.trace.target, model)]
    if setup.trace is None or not plain[1] or model == "none" or plain[0] in plain[1]:
        return None
    return (f"step times of {model} (profile {setup.profile.name}) beside acceptance of {setup.trace.target}: another "
            "model; good for comparing ways to serve, not for the figures of either")


def run_warnings(setups: Sequence[ArmSetup], replications: int, failed: Mapping[str, str]) -> list[str]:
    """What to doubt in the whole run; failed arms by name and reason come first."""
    out = [f"{arm} failed and has no figures: {reason}" for arm, reason in failed.items()]
    if replications == 1:
        out.append("one replication: no interval can be given, and a difference between arms may be chance "
                   "(replications: 5 or more)")
    hiding = {s.policy_source.name: s.policy_source for s in setups if s.policy_source.hides}
    for name, source in hiding.items():
        out.append(f"policy {name} comes from {source.place} ({source.path}) and hides {', '.join(source.hides)}")
    kinds = {}
    for setup in setups:
        kinds[f"profile {setup.profile.name}"] = setup.profile.provenance.kind
        if setup.trace is not None:
            kinds[f"trace {setup.trace.target}/{setup.trace.drafter}"] = setup.trace.kind
    made_up = [name for name, kind in kinds.items() if kind == "synthetic"]
    if made_up:
        out.append(f"synthetic input: {', '.join(made_up)}; the figures show how things work, not how fast they are")
    out += dict.fromkeys(filter(None, (_mixed(s) for s in setups)))
    lossy = [s.name for s in setups if not s.policy_source.lossless]
    if lossy:
        out.append(f"{', '.join(lossy)}: not lossless; the output distribution changes, so acceptance and speed are "
                   "indicative only")
    return out


def _total(measured: Sequence[Measured], name: str) -> float:
    return sum(m.get(name) or 0.0 for m in measured)
