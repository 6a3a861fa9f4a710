"""What a plan says: plain data, JSON and CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dspark_sim.plan_arm import ArmSearch, Capacity, mean
from dspark_sim.plan_cost import Price, Sizing
from dspark_sim.plan_decide import Decision, decide, level_of
from dspark_sim.plan_demand import Need
from dspark_sim.plan_limits import Limit
from dspark_sim.plan_load import LoadAxis
from dspark_sim.plan_variants import BreakEven, Winner

__all__ = ["ArmPlan", "LoadPoint", "PlanResults", "WorldPlan", "load_points"]

_POINT = ("goodput_tok_s_gpu", "throughput_tok_s_gpu", "tps_user_mean", "tps_user_p5", "tpot_ms_mean", "ttft_ms_p99",
          "utilisation", "verification_budget", "acceptance_length")


@dataclass(frozen=True)
class LoadPoint:
    """One load that was looked at: its verdict, attainment of the worst class with its interval, and mean figures."""

    load: float
    replications: int
    verdict: str
    saturated: bool
    attainment: float | None
    attainment_low: float | None
    attainment_high: float | None
    requests: int
    figures: Mapping[str, float | None]

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {k: v for k, v in vars(self).items() if k != "figures"} | dict(self.figures)


@dataclass(frozen=True)
class ArmPlan:
    """The answer for one arm. ``points`` were looked at for the verdict or for the chart (verdict ``chart``)."""

    arm: str
    policy: str
    drafter: str | None
    lossless: bool
    gpus: int
    capacity: Capacity
    limit: Limit | None
    sizing: Sizing
    price: Price
    points: Sequence[LoadPoint]
    undecided: Sequence[float]
    violations: Sequence[tuple[float, float]]
    break_even_acceptance: BreakEven | None = None
    break_even_load: BreakEven | None = None
    error: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain data; capacities per unit and per GPU."""
        c = self.capacity
        per_gpu = [None if v is None else v / self.gpus for v in c.requests_s]
        return {
            "arm": self.arm, "policy": self.policy, "drafter": self.drafter, "lossless": self.lossless,
            "gpus_per_unit": self.gpus,
            "capacity": {
                "load": _range(c.low, c.high, c.estimate), "requests_s": _range(*c.requests_s),
                "requests_s_gpu": _range(*per_gpu), "tok_s_gpu": _range(*c.tok_s_gpu),
                "tokens_per_request": c.tokens_per_request, "undecided_loads": list(self.undecided),
            },
            "limit": None if self.limit is None else self.limit.to_dict(), "sizing": self.sizing.to_dict(),
            "price": self.price.to_dict(),
            "break_even_acceptance": None if self.break_even_acceptance is None
            else self.break_even_acceptance.to_dict(),
            "break_even_load": None if self.break_even_load is None else self.break_even_load.to_dict(),
            "violations": [list(pair) for pair in self.violations],
            "points": [point.to_dict() for point in self.points], "error": self.error,
        }


@dataclass(frozen=True)
class WorldPlan:
    """Capacities of all arms in one world, and who wins."""

    name: str
    factors: Mapping[str, float]
    capacities: Mapping[str, Capacity]
    winner: Winner

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {"world": self.name, "factors": dict(self.factors), "winner": self.winner.to_dict(),
                "capacities": {a: _range(c.low, c.high, c.estimate) for a, c in self.capacities.items()}}


@dataclass(frozen=True)
class PlanResults:
    """A finished plan (or one whose sensitivity was interrupted).

    Attributes:
        name, description, seed: of the scenario.
        axis, need, target: what was searched, for what demand, to which attainment.
        promises: class -> limits.
        arms: in the scenario's order.
        worlds: the scenario as stated first; empty without sensitivity.
        warnings, assumptions: sentences.
        interrupted: Ctrl-C ended the sensitivity.
        quick: with fewer replications.
        tasks: replications that were simulated.
        facts: profiles, traces, versions, the scenario's text: as in a run's manifest.
    """

    name: str
    description: str
    seed: int
    axis: LoadAxis
    need: Need
    target: float
    promises: Mapping[str, Mapping[str, float]]
    arms: Sequence[ArmPlan]
    worlds: Sequence[WorldPlan]
    winner: Winner
    warnings: Sequence[str] = ()
    assumptions: Sequence[str] = ()
    interrupted: bool = False
    quick: bool = False
    tasks: int = 0
    answer: Sequence[str] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        """Whether some arm could not be simulated at all."""
        return any(arm.error is not None for arm in self.arms)

    def __getitem__(self, arm: str) -> ArmPlan:
        """The answer for one arm by name."""
        for found in self.arms:
            if found.arm == arm:
                return found
        raise KeyError(f"no arm {arm!r}; arms: {', '.join(a.arm for a in self.arms)}")

    def to_dict(self) -> dict[str, Any]:
        """Plain data; the same scenario and seed give the same (no times, no paths)."""
        return {
            "plan": self.name, "description": self.description, "seed": self.seed, "quick": self.quick,
            "interrupted": self.interrupted, "answer": list(self.answer),
            "load": {"kind": self.axis.kind, "unit": self.axis.unit, "stated": self.axis.stated},
            "demand": self.need.to_dict(), "attainment": self.target,
            "sla": {name: dict(limits) for name, limits in self.promises.items()},
            "winner": self.winner.to_dict(), "arms": [arm.to_dict() for arm in self.arms],
            "sensitivity": [world.to_dict() for world in self.worlds], "warnings": list(self.warnings),
            "assumptions": list(self.assumptions), "replications_simulated": self.tasks,
        }

    def to_json(self) -> str:
        """Strict JSON (null for undefined, never NaN), ending in a newline."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    def to_rows(self) -> list[dict[str, Any]]:
        """One flat dict per arm."""
        rows = []
        for arm in self.arms:
            c, s, limit = arm.capacity, arm.sizing, arm.limit
            row: dict[str, Any] = {
                "arm": arm.arm, "policy": arm.policy, "drafter": arm.drafter, "lossless": arm.lossless,
                "load_unit": self.axis.unit, "capacity_load_low": c.low, "capacity_load": c.estimate,
                "capacity_load_high": c.high,
            }
            for name, values in (("requests_s", c.requests_s), ("tok_s", c.tok_s_gpu)):
                for end, value in zip(("_low", "_high", ""), values, strict=True):
                    per = arm.gpus if name == "requests_s" else 1
                    row[f"{name}_gpu{end}"] = None if value is None else value / per
            row |= {k: v for k, v in s.to_dict().items() if k != "hourly_units"}
            row |= {
                "price_per_gpu_hour": arm.price.per_gpu_hour, "currency": arm.price.currency,
                "limit": None if limit is None else limit.first, "resource": None if limit is None else limit.resource,
                "break_even_acceptance": None if arm.break_even_acceptance is None else arm.break_even_acceptance.value,
                "break_even_load": None if arm.break_even_load is None else arm.break_even_load.value,
                "error": arm.error,
            }
            rows.append(row)
        return rows

    def to_csv(self) -> str:
        """One line per arm; undefined is empty, truth values are ``true`` and ``false``."""
        rows, text = self.to_rows(), io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(rows[0])
        writer.writerows([["" if v is None else str(v).lower() if isinstance(v, bool) else v for v in row.values()]
                          for row in rows])
        return text.getvalue()


def _range(low: float | None, high: float | None, estimate: float | None) -> dict[str, float | None]:
    return {"low": low, "estimate": estimate, "high": high}


def load_points(found: ArmSearch) -> list[LoadPoint]:
    """Every load of a search (and of the chart), rising."""
    out = []
    for load in sorted(found.seen):
        seen = [one for one in found.seen[load] if one.error is None]
        if not seen:
            continue
        decision: Decision | None = found.decisions.get(load)
        if decision is None:
            decision = decide([one.classes for one in seen], found.target, level_of(found.most),
                              saturated=[one.saturated for one in seen])
        worst = None if decision.worst is None else decision.classes[decision.worst]
        out.append(LoadPoint(
            load, len(seen), decision.verdict if load in found.decisions else "chart", decision.saturated,
            None if worst is None else worst.share, None if worst is None else worst.low,
            None if worst is None else worst.high, sum(c.judged for one in seen for c in one.classes.values()),
            {name: mean([one.figures.get(name) for one in seen]) for name in _POINT},
        ))
    return out
