"""What may stand in a scenario: the pydantic models, one description per key (they become the JSON schema too).

Checks that need one key or one mapping only are here; checks across keys are in :mod:`dspark_sim.scenario`, checks
against the profile, the traces and the policies in :mod:`dspark_sim.arms`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import ConfigDict, Field, GetJsonSchemaHandler, field_validator, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from dspark_sim.arrival_schema import (
    MAX_CONCURRENCY,
    MAX_SECONDS,
    Arrival,
    Closed,
    Gamma,
    Poisson,
    Replay,
    Seconds,
    Sessions,
)
from dspark_sim.errors import ScenarioError, shown
from dspark_sim.lengths import Lengths
from dspark_sim.policy import MAX_LAG
from dspark_sim.scenario_cluster import Cluster
from dspark_sim.scenario_plan import Plan, WhatIf
from dspark_sim.yamlmodel import StrictModel

__all__ = [
    "Arm", "Arrival", "Belief", "Closed", "Engine", "Gamma", "Measure", "Poisson", "PolicyChoice", "Replay",
    "RequestClass", "ScenarioModel", "Sessions", "Sla", "Steady", "Sweep", "WholeRun", "Workload",
]

MAX_REQUESTS = 10_000_000
MAX_INTERVALS = 1_000_000  # rows of the intervals table per engine, 150 MB of them: eleven days of seconds
Name: TypeAlias = Annotated[str, Field(min_length=1, max_length=100)]


class Sla(StrictModel):
    """What a user was promised; a request meets its SLA when it keeps every limit that is stated."""

    tps_user_min: float | None = Field(default=None, gt=0, le=1e6, description="tokens per second after the first")
    tpot_ms_max: float | None = Field(default=None, gt=0, le=1e9, description="milliseconds per token after the first")
    ttft_ms_max: float | None = Field(default=None, gt=0, le=1e9, description="milliseconds to the first token")
    e2e_s_max: float | None = Field(default=None, gt=0, le=1e9, description="seconds from arrival to the last token")


class RequestClass(StrictModel):
    """One kind of request: its share of the traffic, its text, its lengths, its SLA."""

    name: Name = Field(description="name in tables and pictures")
    share: float = Field(
        default=1.0, gt=0, le=1,
        description="share of the requests; those of all classes sum to 1 (absent where a log names the classes)",
    )
    domain: Name | None = Field(default=None, description="domain of the traces' documents, e.g. math, code, chat")
    prompt_tokens: Lengths | None = Field(default=None, description="prompt lengths; absent: the workload's")
    output_tokens: Lengths | None = Field(default=None, description="output lengths; absent: the workload's")
    sla: Sla | None = Field(default=None, description="limits of this class; absent: the workload's")
    priority: int = Field(default=0, ge=-1000, le=1000, description="higher goes first in every line")


class Workload(StrictModel):
    """The traffic: when requests arrive and what they are."""

    arrival: Arrival = Field(description="when requests arrive")
    classes: Annotated[tuple[RequestClass, ...], Field(strict=False, min_length=1, max_length=1000)] = Field(
        description="the kinds of requests"
    )
    prompt_tokens: Lengths | None = Field(default=None, description="prompt lengths of classes that state none")
    output_tokens: Lengths | None = Field(default=None, description="output lengths of classes that state none")
    sla: Sla | None = Field(default=None, description="SLA of classes that state none")
    documents: Literal["bootstrap", "all"] = Field(
        default="bootstrap",
        description="bootstrap: each replication draws the trace's documents with replacement, so that intervals cover "
        "the finite trace; all: results are conditional on this trace",
    )


class Engine(StrictModel):
    """How the serving engine is run; what is absent comes from the hardware profile (or the default stated)."""

    host_lag: int | None = Field(
        default=None, ge=0, le=MAX_LAG,
        description="steps until confidences and outcomes reach the host: 0 synchronous, vLLM 1, SGLang 2 (default 2)",
    )
    prefill: Literal["none", "chunked", "separate"] | None = Field(
        default=None, description="none (default): decode only; chunked: shares steps; separate: steps of its own"
    )
    ragged: Literal["flattened", "padded"] | None = Field(
        default=None, description="flattened (default): a step pays the tokens it verifies; padded: R · (1 + longest)"
    )
    temperature: float | None = Field(default=None, ge=0, le=10, description="must be the traces'; absent: theirs")
    max_num_seqs: int | None = Field(default=None, ge=1, le=MAX_CONCURRENCY, description="requests running at once")
    max_num_batched_tokens: int | None = Field(default=None, ge=2, le=1 << 20, description="tokens of one step")
    kv_blocks: int | Literal["unlimited"] | None = Field(default=None, description="KV cache in blocks, or unlimited")
    kv_block_tokens: int | None = Field(default=None, ge=1, le=1 << 16, description="tokens per KV block")
    prefix_cache: bool | None = Field(
        default=None, description="share the KV of prompts that begin alike, where the traffic tells (default true)"
    )

    @field_validator("kv_blocks")
    @classmethod
    def _blocks(cls, value: int | str | None) -> int | str | None:
        if isinstance(value, int) and not 1 <= value <= 1_000_000_000:
            raise ScenarioError(f"got {shown(value)}", allowed="1 to 1000000000, or unlimited")
        return value


class Steady(StrictModel):
    """Measure a system in its steady state: a warm-up is thrown away, then a window is measured."""

    mode: Literal["steady"] = Field(description="steady: throw a warm-up away, then measure a window")
    warmup_s: float = Field(default=0.0, ge=0, le=MAX_SECONDS, description="simulated seconds that are not measured")
    duration_s: Seconds | None = Field(default=None, description="simulated seconds measured")
    duration_requests: int | None = Field(
        default=None, ge=1, le=MAX_REQUESTS, description="instead of duration_s: measure until so many finished"
    )

    @model_validator(mode="after")
    def _one_length(self) -> Steady:
        if (self.duration_s is None) == (self.duration_requests is None):
            both = ", not both" if self.duration_s is not None else ""
            raise ScenarioError(f"needs either duration_s or duration_requests{both}")
        return self


class WholeRun(StrictModel):
    """Measure from the first arrival to the last token, ramp and drain included, as published benchmarks do."""

    mode: Literal["whole_run"] = Field(description="whole_run: ramp and drain included, as published benchmarks do")
    requests: Annotated[int, Field(ge=1, le=MAX_REQUESTS)] | Literal["all"] = Field(
        description="requests that are sent; all: every one of a replayed log"
    )


Measure: TypeAlias = Annotated[Steady | WholeRun, Field(discriminator="mode")]


class PolicyChoice(StrictModel):
    """A policy and its parameters: ``no_spec``, or ``{name: fixed, length: 1}``; a name or a path of your own file."""

    model_config = ConfigDict(extra="allow")

    name: Annotated[str, Field(min_length=1, max_length=500)] = Field(
        description="a policy by name, ./mine.py:Mine, or package.module:Mine"
    )

    @model_validator(mode="before")
    @classmethod
    def _word(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value

    @property
    def parameters(self) -> Mapping[str, Any]:
        """Everything but the name: the policy class's fields, checked when the policy is loaded."""
        return dict(self.model_extra or {})

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        mapping = handler.resolve_ref_schema(handler(schema))
        word = {"type": "string", "minLength": 1, "description": "a policy with its default parameters"}
        return {"title": "Policy", "description": cls.__doc__, "anyOf": [word, mapping]}


class Belief(StrictModel):
    """What a policy believes, where that differs from the truth that the engine applies."""

    profile: Name | None = Field(default=None, description="the policy plans with this profile's step times")
    step_scale: float = Field(default=1.0, gt=0, le=100, description="believed verify seconds / true ones")
    confidence_shift: float = Field(default=0.0, ge=-20, le=20, description="added to the logit of every confidence")


class Arm(StrictModel):
    """One way to serve: a drafter and a verification policy."""

    name: Name = Field(description="name in tables and pictures")
    label: Name | None = Field(default=None, description="longer name for pictures")
    drafter: Name | None = Field(default=None, description="a drafter of the traces; absent: no speculation")
    policy: PolicyChoice = Field(description="which draft tokens are verified")
    calibrated: bool = Field(default=True, description="apply the trace's calibration of confidences where it has one")
    drafter_cost: Name | None = Field(
        default=None, description="the profile's cost entry; absent: the drafter's name, or it without -<number>"
    )
    belief: Belief = Field(default=Belief(), description="what the policy believes, if that is not the truth")
    engine: Engine = Field(default=Engine(), description="engine settings of this arm only")


class Sweep(StrictModel):
    """The grid that ``dspark-sim sweep`` runs when its command line names none; ``run`` does not look at it."""

    over: Mapping[Name, Annotated[tuple[Any, ...], Field(strict=False, min_length=1)] | str] = Field(
        default={}, description="dotted key: its values, as a list or as text (1:256:*2); several keys make a grid"
    )
    replications: int | None = Field(default=None, ge=1, le=10_000, description="instead of the scenario's")


class ScenarioModel(StrictModel):
    """A scenario: hardware, traffic and the arms that are compared on it."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")] = Field(
        description="names the run folder: letters, digits, dot, dash, underscore"
    )
    description: str = Field(default="", max_length=10_000, description="one paragraph: the question it answers")
    profile: Name = Field(description="hardware profile: a name on the shelf, or a path from this file")
    traces: Name | None = Field(default=None, description="acceptance traces: a target on the shelf, or a path")
    seed: int = Field(default=1, ge=0, lt=1 << 63, description="all random streams come from it")
    replications: int = Field(default=5, ge=1, le=10_000, description="independent repetitions; intervals need 2")
    engine: Engine = Field(default=Engine(), description="engine settings of all arms")
    workload: Workload = Field(description="the traffic")
    cluster: Cluster | None = Field(default=None, description="several engines; absent: one, of the scenario's profile")
    measure: Measure = Field(description="what is measured")
    record: Literal["all", "requests"] = Field(default="all", description="requests: write no table of steps")
    interval_s: float = Field(default=1.0, ge=0.001, le=86_400, description="bins of the intervals table, seconds")
    arms: Annotated[tuple[Arm, ...], Field(strict=False, min_length=1, max_length=1000)] = Field(
        description="the ways to serve that are compared; differences are taken against the first"
    )
    sweep: Sweep | None = Field(default=None, description="what dspark-sim sweep varies")
    plan: Plan = Field(default=Plan(), description="how dspark-sim plan searches, and for what demand")
    what_if: WhatIf = Field(default=WhatIf(), description="factors on acceptance, step times and output lengths")
