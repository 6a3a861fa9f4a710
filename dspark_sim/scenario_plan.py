"""What may stand in a scenario under ``plan:`` (read by ``dspark-sim plan`` alone) and under ``what_if:``."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field, model_validator

from dspark_sim.errors import ScenarioError
from dspark_sim.yamlmodel import StrictModel

__all__ = ["Demand", "Plan", "WhatIf"]

HOURS = 24
Share: TypeAlias = Annotated[float, Field(ge=0, le=1)]


class WhatIf(StrictModel):
    """The same scenario in a world that differs from its inputs by a factor; 1 is the world as it was measured."""

    acceptance: float = Field(
        default=1.0, ge=0, le=10,
        description="conditional acceptance of every draft token times this, with confidences as they were: a drift "
        "that the drafter does not notice",
    )
    step_time: float = Field(
        default=1.0, gt=0, le=100,
        description="every part of a step's seconds times this; policies know it, as after a new measurement",
    )
    output_tokens: float = Field(
        default=1.0, gt=0, le=100, description="output lengths of all classes times this, those of a replayed log too"
    )


class Demand(StrictModel):
    """What has to be served; absent: the workload as the scenario states it."""

    peak_per_s: float | None = Field(
        default=None, gt=0, le=1e9, description="requests per second in the busiest hour (sessions: new sessions)"
    )
    peak_users: int | None = Field(default=None, ge=1, le=10**9, description="closed loops: users in the busiest hour")
    hours: Annotated[tuple[Share, ...], Field(strict=False)] | Literal["workload"] | None = Field(
        default=None,
        description="24 shares of the peak, one per hour, or workload: a daily rate's or a long log's own; absent: the "
        "workload's if it tells a day, else the peak all day",
    )

    @model_validator(mode="after")
    def _a_day(self) -> Demand:
        if isinstance(self.hours, tuple) and (len(self.hours) != HOURS or max(self.hours) <= 0):
            raise ScenarioError(f"got {len(self.hours)} hours, the largest {max(self.hours, default=0):g}", key="hours",
                                allowed=f"{HOURS} shares of the peak, not all 0")
        if self.peak_per_s is not None and self.peak_users is not None:
            raise ScenarioError("needs either peak_per_s or peak_users, not both")
        return self


class Plan(StrictModel):
    """How ``dspark-sim plan`` searches, and for what demand."""

    attainment: float = Field(
        default=0.95, gt=0, lt=1, description="share of each class's requests that must meet every limit of their SLA"
    )
    resolution: float = Field(
        default=0.05, ge=0.002, le=1,
        description="the search ends when passing and failing loads are so close, relative",
    )
    max_replications: int = Field(
        default=20, ge=3, le=1000, description="replications at one load, before it is called undecided"
    )
    max_load: float | None = Field(
        default=None, gt=0, le=1e9, description="per unit: loads above are not looked at; absent: 64 times the stated"
    )
    demand: Demand = Field(default=Demand(), description="what has to be served")
    n_plus_one: bool = Field(default=False, description="one unit more than needed, so that one may fail")
    headroom: float = Field(
        default=0.0, ge=0, lt=1, description="share of each unit's capacity that is kept free at the peak"
    )
