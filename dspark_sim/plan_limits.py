"""What limits an arm: which promise breaks first as the load grows, and what the engines run out of there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dspark_sim.plan_arm import ArmSearch, mean
from dspark_sim.plan_judge import Seen

if TYPE_CHECKING:
    from dspark_sim.arms import ArmSetup

__all__ = ["Limit", "limit_of"]

NAMES = {"ttft_ms_max": "TTFT", "tps_user_min": "TPS", "tpot_ms_max": "TPOT", "e2e_s_max": "E2E", "door": "door",
         "queue": "queue"}
_BUSY = 0.9  # an engine that steps for so much of its time is busy
_FULL = 0.9  # share of the batch's places
_PREEMPTED = 0.02  # preemptions per request
RESOURCES = {
    "kv": "KV memory: requests wait or are thrown out for want of blocks",
    "slots": "places in the batch (max_num_seqs, or max_num_batched_tokens / block): all are taken",
    "compute": "compute: engines step all the time, and steps get longer with the batch",
    "latency": "the speed of single steps: engines still idle in between",
    "door": "the door: requests are refused or give up before they are served",
}


@dataclass(frozen=True)
class Limit:
    """What breaks at the lowest failing load.

    Attributes:
        load: that load.
        first: the SLA's key whose limit most requests break; ``door`` (refused or timed out), ``queue`` (it grows).
        name: of it, in short.
        class_name: the class that misses its target by most.
        attainment: of that class there.
        resource: a key of :data:`RESOURCES`.
        words: one sentence.
    """

    load: float
    first: str
    name: str
    class_name: str | None
    attainment: float | None
    resource: str
    words: str

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {"load": self.load, "first": self.first, "name": self.name, "class": self.class_name,
                "attainment": self.attainment, "resource": self.resource, "words": self.words}


def limit_of(found: ArmSearch, setup: ArmSetup, promised: Mapping[str, Mapping[str, float]]) -> Limit | None:
    """The limit of a finished search; None when no load failed."""
    fails = [load for load, d in found.decisions.items() if d.verdict == "fail"]
    if not fails:
        return None
    load = min(fails)
    decision, seen = found.decisions[load], found.seen[load]
    name = decision.worst
    first = _first(seen, name, decision.saturated, promised)
    resource = "door" if first == "door" else _resource(seen, setup)
    share = None if name is None else decision.classes[name].share
    unit = found.axis.unit
    if decision.saturated:
        what = f"at {load:g} {unit} the queue grows without end"
    else:
        what = f"at {load:g} {unit} {_percent(share)} of class {name} meet their SLA"
    if first in NAMES and first not in ("queue", "door") and name is not None:
        value = promised[name][first]
        who = "most requests that miss their SLA miss" if decision.saturated else "of the others most miss"
        what += f"; {who} {NAMES[first]} ({first} {value:g})"
    elif first == "door":
        what += "; most are turned away"
    return Limit(load, first, NAMES[first], name, share, resource, f"{what}. Limited by {RESOURCES[resource]}.")


def _percent(share: float | None) -> str:
    return "none" if share is None else f"{100 * share:.1f} %"


def _first(
    seen: Sequence[Seen], name: str | None, saturated: bool, promised: Mapping[str, Mapping[str, float]]
) -> str:
    if name is None:
        return "queue"
    counts = [one.classes[name] for one in seen if name in one.classes]
    broken = {key: sum(c.broken.get(key, 0) for c in counts) for key in promised[name]}
    broken["door"] = sum(c.lost for c in counts)
    first = max(broken, key=lambda key: broken[key])
    return first if broken[first] > 0 else "queue" if saturated else first


def _resource(seen: Sequence[Seen], setup: ArmSetup) -> str:
    def value(key: str) -> float:
        return mean([one.figures.get(key) for one in seen]) or 0.0

    serving = [(g.count, g.setup) for g in setup.engines if g.role != "prefill"]
    slots = sum(n * min(s.engine.max_num_seqs, s.engine.max_num_batched_tokens // (1 + s.block_size))
                for n, s in serving)
    limited = any(s.engine.kv_blocks is not None for _, s in serving)
    full = value("requests_decoding_mean") >= _FULL * slots
    if limited and value("preemptions") > _PREEMPTED * max(value("requests"), 1.0):
        return "kv"
    if value("requests_waiting_mean") >= 1.0:
        if full:
            return "slots"
        if limited and value("requests_decoding_mean") < 0.5 * slots:
            return "kv"
    return "compute" if value("utilisation") >= _BUSY else "latency"
