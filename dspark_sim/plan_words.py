"""The plan in sentences: the answer, what to doubt, what it rests on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from dspark_sim.plan_decide import least_requests, level_of
from dspark_sim.what_if import what_if_notes

if TYPE_CHECKING:
    from dspark_sim.plan_arm import ArmSearch, Capacity
    from dspark_sim.plan_cost import Price
    from dspark_sim.plan_demand import Need
    from dspark_sim.plan_results import ArmPlan, PlanResults
    from dspark_sim.planner import Planner

__all__ = ["answer", "assumptions_of", "money", "sla_words", "warnings_of"]


def money(value: float | None, currency: str) -> str:
    """``1,234 USD``, with as many digits as make sense."""
    if value is None:
        return "–"
    digits = 0 if value >= 1000 else 2 if value >= 0.1 else 3
    return f"{value:,.{digits}f} {currency}"


def sla_words(limits: Mapping[str, float]) -> str:
    """An SLA in words that need no glossary."""
    words = {
        "ttft_ms_max": "first token within {:g} ms", "tps_user_min": "{:g} tokens/s or more for each user",
        "tpot_ms_max": "{:g} ms or less per token", "e2e_s_max": "whole answer within {:g} s",
    }
    return ", ".join(words[key].format(value) for key, value in limits.items())


def answer(found: PlanResults, need: Need) -> list[str]:
    """The answer in one sentence, and how sure it is in the next ones."""
    arms = {arm.arm: arm for arm in found.arms}
    if found.winner.arm is None:
        surely = " surely" if any(arm.capacity.open for arm in found.arms) else ""
        return [f"No lossless arm{surely} meets the SLAs for {100 * found.target:g} % of the requests at any load that "
                "was looked at."]
    best = arms[found.winner.arm]
    spare = ", one spare unit included" if best.sizing.spare else ""
    first = (f"{best.arm} serves {need.peak:,.4g} {need.unit} on {_gpus(best)}{spare}"
             f"{_cost(best)}, and {100 * found.target:g} % of the requests of every class keep their SLA.")
    out = [first]
    if not found.winner.sure:
        out.append(f"That it serves more than {found.winner.second} is not settled: their intervals overlap.")
    baseline = found.arms[0]
    if baseline.arm != best.arm:
        if baseline.capacity.low is None:
            out.append(f"Whether {baseline.arm}, the first arm, meets the SLAs at any load is not settled."
                       if baseline.capacity.open else
                       f"{baseline.arm}, the first arm, meets the SLAs at no load that was looked at.")
        elif best.capacity.estimate and baseline.capacity.estimate:
            out.append(f"Each GPU serves {_ratio(best.capacity, baseline.capacity)} times what it serves with "
                       f"{baseline.arm}, which would need {_gpus(baseline)}.")
    if best.limit is not None:
        out.append(f"What limits it: {best.limit.words}")
    return out


def _gpus(arm: ArmPlan) -> str:
    s = arm.sizing
    if s.gpus is None:
        return "no number of GPUs"
    text = f"{s.gpus:,} GPU{'s' if s.gpus != 1 else ''}"
    return text if s.gpus_best == s.gpus else f"{text} ({s.gpus_best:,} if its capacity is at the upper end)"


def _ratio(ours: Capacity, theirs: Capacity) -> str:
    """``1.4 to 1.8``: how much more, with all that the two intervals leave open."""
    assert ours.estimate is not None
    assert theirs.estimate is not None
    if ours.low and ours.high and theirs.low and theirs.high:
        return f"{ours.low / theirs.high:.2g} to {ours.high / theirs.low:.2g}"
    return f"about {ours.estimate / theirs.estimate:.2g}"


def _cost(arm: ArmPlan) -> str:
    s = arm.sizing
    if s.gpu_hours_day is None or s.gpu_hours_day_by_hour is None:
        return ""
    by_hour = s.gpu_hours_day_by_hour < s.gpu_hours_day
    if s.cost_day is None:
        quiet = f"; {s.gpu_hours_day_by_hour:,.0f} if units are switched off in quiet hours" if by_hour else ""
        return f", {s.gpu_hours_day:,.0f} GPU-hours a day{quiet} (no price is known)"
    currency = arm.price.currency
    quiet = f" ({money(s.cost_day_by_hour, currency)} if units are switched off in quiet hours)" if by_hour else ""
    return (f", for {money(s.cost_day, currency)} a day{quiet} or {money(s.cost_million_demand, currency)} per million "
            "output tokens")


def warnings_of(planner: Planner, found: PlanResults) -> list[str]:
    """What to doubt: failures, undecided bands, more load that was better, thin measurements, synthetic inputs."""
    from dspark_sim.notes import run_warnings

    failed = {arm.arm: arm.error for arm in found.arms if arm.error is not None}
    out = run_warnings(planner.setups, max(planner.scenario.replications, 2), failed)
    if found.interrupted:
        out.insert(0, "interrupted: charts or sensitivity are missing; the capacities are complete")
    if found.quick:
        out.append("quick: few replications and a coarse search; intervals are wider than a full plan's")
    for arm, search in zip(found.arms, planner.base, strict=True):
        out += _arm_warnings(arm, search, planner)
    out += [w for w in planner.scenario.warnings() if not w.startswith("replications")]
    silent = [c.name for c in planner.scenario.workload.classes if c.name not in planner.promised]
    if silent:
        out.append(f"class {', '.join(silent)} has no SLA: it takes part in the load and is not judged")
    measure, ttft = planner.scenario.measure, any("ttft_ms_max" in limits for limits in planner.promised.values())
    if measure.mode == "whole_run" and not ttft:
        out.append("measure: whole_run ends when the last request has been served, so a queue that grows without end "
                   "is not seen; state a limit on TTFT, or measure: steady")
    return list(dict.fromkeys(out))


def _arm_warnings(arm: ArmPlan, search: ArmSearch, planner: Planner) -> list[str]:
    out, unit, level = [], planner.axis.unit, level_of(search.most)
    if arm.error is not None:
        return []
    for passes, fails in arm.violations[:1]:
        out.append(f"{arm.arm}: passes at {passes:g} {unit} but fails at {fails:g}: more load was better there; the "
                   "capacity is taken below the failing load")
    if arm.undecided:
        first, last = arm.undecided[0], arm.undecided[-1]
        where = f"at {first:g}" if first == last else f"from {first:g} to {last:g}"
        out.append(f"{arm.arm}: undecided {where} {unit} after {search.most} replications: attainment is too near the "
                   "target there; more plan.max_replications or a longer measure would tell")
    sparse = [x for x, d in search.decisions.items() if d.verdict == "sparse"]
    if sparse:
        need = least_requests(search.target, level)
        few = min(search.decisions[x].classes[name].requests for x in sparse for name in search.decisions[x].classes)
        out.append(f"{arm.arm}: too few requests finished to judge {100 * search.target:g} % at "
                   f"{', '.join(f'{x:g}' for x in sorted(sparse)[:4])} {unit} ({few} of a class; {need} that all keep "
                   "their SLA would be the least): measure longer, or raise plan.max_replications")
    errors = [x for x, d in search.decisions.items() if d.verdict == "error"]
    if errors:
        reason = next(one.error for one in search.seen[min(errors)] if one.error is not None)
        out.append(f"{arm.arm}: could not be simulated at {min(errors):g} {unit} ({reason}); its upper end is that "
                   "load")
    low, high = arm.capacity.low, arm.capacity.high
    if low is not None and high is None:
        out.append(f"{arm.arm}: still passes at {low:g} {unit}, the highest load looked at; raise plan.max_load")
    if low is not None:
        seen = [one for one in search.seen[low] if one.figures.get("e2e_ms_mean") and one.figures.get("window_s")]
        if seen and (seen[0].figures["window_s"] or 0) < 3e-3 * (seen[0].figures["e2e_ms_mean"] or 0):
            out.append(f"{arm.arm}: the measured window is shorter than three mean answers; requests that take long "
                       "are judged too seldom; measure longer")
        if any((one.figures.get("extrapolated_steps") or 0) > 0 for one in search.seen[low]):
            out.append(f"{arm.arm}: steps at its capacity lie outside the profile's measured curve and were "
                       "extrapolated")
    return out


def assumptions_of(planner: Planner) -> list[str]:
    """What the figures rest on."""
    from dspark_sim.notes import assumptions
    from dspark_sim.traffic_notes import traffic_assumptions

    scenario, axis = planner.scenario, planner.axis
    unit = "one engine" if scenario.cluster is None else "the cluster as it stands"
    out = [
        f"capacity is that of {unit} under its own share of the traffic; n of them are taken to serve n times as much "
        "(a common queue would serve a little more)",
        f"a verdict at one load is wrong with a probability of 5 % at most; replications there: 3 to "
        f"{planner.effort.most}, the same random streams in every arm",
        "requests are judged when they finish inside the measured window; an open loop whose queue grows by more than "
        "3 % of what is served fails whatever its requests' latencies",
    ]
    if axis.kind in ("diurnal", "piecewise"):
        out.append("a rate that changes is searched at constant rates: the peak at the highest one, each hour of a day "
                   "at its own")
    if axis.kind == "replay":
        out.append("load is the mean rate over the measured time; the traffic's own ups and downs are scaled with it")
    if scenario.cluster is not None and scenario.cluster.autoscale is not None:
        out.append("autoscaling: GPUs are counted as if all engines of the cluster were paid for all the time")
    if scenario.plan.n_plus_one:
        out.append(f"N + 1: one more unit ({unit}) than the demand needs")
    out += [f"price: {price} ({source})" for price, source in dict.fromkeys(
        (f"{arm.per_gpu_hour:g} {arm.currency} per GPU and hour" if arm.per_gpu_hour is not None else "none",
         arm.source) for arm in _prices(planner))]
    return [*out, *what_if_notes(scenario.what_if), *assumptions(planner.setups),
            *traffic_assumptions(scenario.workload)]


def _prices(planner: Planner) -> list[Price]:
    from dspark_sim.plan_cost import price_of

    return [price_of(setup, planner.price) for setup in planner.setups]
