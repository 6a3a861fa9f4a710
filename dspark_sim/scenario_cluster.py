"""What may stand under ``cluster:`` in a scenario: engines, router, admission, failures, autoscaling."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from dspark_sim.errors import ScenarioError
from dspark_sim.yamlmodel import StrictModel

__all__ = ["Admission", "Autoscale", "Cluster", "EngineGroup", "Outage", "RandomOutages", "Transfer"]

MAX_ENGINES = 10_000
Seconds = Annotated[float, Field(ge=0, le=1e9)]


class EngineGroup(StrictModel):
    """Engines that are alike."""

    name: Annotated[str, Field(min_length=1, max_length=100)] = Field(description="name in messages and tables")
    count: int = Field(ge=1, le=MAX_ENGINES, description="engines of this kind")
    profile: str | None = Field(default=None, min_length=1, max_length=500, description="absent: the scenario's")
    role: Literal["serve", "prefill", "decode"] = Field(
        default="serve",
        description="serve: prompts and decoding; prefill: prompts only, then the KV moves on; decode: takes over from "
        "prefill engines (and recomputes by itself what it has to)",
    )


class Transfer(StrictModel):
    """How a prompt's KV reaches the decode engine (``role: prefill`` and ``decode``)."""

    kv_bytes_per_token: float = Field(gt=0, le=1e9, description="bytes of KV cache per token, all layers")
    bandwidth_gb_s: float = Field(gt=0, le=1e6, description="10^9 bytes per second between two engines")
    latency_ms: float = Field(default=0.0, ge=0, le=1e6, description="milliseconds before the first byte arrives")


class Admission(StrictModel):
    """Who is let in. What is refused or gives up is an outcome in the requests table."""

    max_queue: int | None = Field(
        default=None, ge=1, le=10**9,
        description="requests waiting in the whole cluster; everybody waits for the next step, so 0 would refuse all",
    )
    timeout_s: float | None = Field(default=None, gt=0, le=1e9, description="longest wait for the first admission")
    retry_s: float = Field(
        default=1.0, gt=0, le=1e9, description="closed loop: pause of a user who was refused or gave up"
    )


class Outage(StrictModel):
    """One engine is down for a while; its requests go to others and are recomputed there."""

    engine: int = Field(ge=0, lt=MAX_ENGINES, description="number of the engine, counted through the groups from 0")
    at_s: Seconds = Field(description="simulated second at which it fails")
    down_s: float = Field(gt=0, le=1e9, description="seconds until it serves again")


class RandomOutages(StrictModel):
    """Every engine fails at random; times between failures and repair times are exponential."""

    mtbf_s: float = Field(gt=0, le=1e9, description="mean seconds of service between two failures of an engine")
    mttr_s: float = Field(gt=0, le=1e9, description="mean seconds until it serves again")


class Autoscale(StrictModel):
    """Reactive scaling of the ``serve`` engines: enough for the target, within limits, not too often."""

    min_engines: int = Field(ge=1, le=MAX_ENGINES, description="never fewer; also how many serve at the start")
    target_outstanding: float | None = Field(
        default=None, gt=0, le=1e6, description="requests (running and waiting) per engine that is aimed at"
    )
    target_queue: float | None = Field(
        default=None, gt=0, le=1e6, description="waiting requests per engine above which one more is started"
    )
    interval_s: float = Field(default=5.0, gt=0, le=1e6, description="seconds between two looks")
    startup_s: Seconds = Field(default=60.0, description="seconds from the decision until a new engine serves")
    cooldown_s: Seconds = Field(default=120.0, description="seconds after any change before engines are taken away")

    @model_validator(mode="after")
    def _one_target(self) -> Autoscale:
        if (self.target_outstanding is None) == (self.target_queue is None):
            raise ScenarioError("needs either target_outstanding or target_queue")
        return self


class Cluster(StrictModel):
    """Several engines behind one router."""

    engines: Annotated[tuple[EngineGroup, ...], Field(strict=False, min_length=1, max_length=1000)] = Field(
        description="groups of engines"
    )
    router: Annotated[str, Field(min_length=1, max_length=500)] = Field(
        default="least_outstanding",
        description="round_robin, least_outstanding, most_free_kv, power_of_two, session_affinity, prefix_affinity, or "
        "a function of your own: ./mine.py:route",
    )
    transfer: Transfer | None = Field(default=None, description="needed with prefill and decode engines")
    admission: Admission = Field(default=Admission(), description="queue limit and patience")
    failures: Annotated[tuple[Outage, ...], Field(strict=False, max_length=100_000)] = Field(
        default=(), description="outages at stated times"
    )
    random_failures: RandomOutages | None = Field(default=None, description="outages at random times")
    autoscale: Autoscale | None = Field(default=None, description="how many engines serve, by load")

    @model_validator(mode="after")
    def _roles(self) -> Cluster:
        roles = {group.role for group in self.engines}
        if len({group.name for group in self.engines}) < len(self.engines):
            raise ScenarioError("two groups have the same name", key="engines")
        if ("prefill" in roles) != ("decode" in roles):
            raise ScenarioError("prefill and decode engines need each other", key="engines", allowed="both, or neither")
        if "prefill" in roles and "serve" in roles:
            raise ScenarioError("serve engines cannot stand beside prefill and decode ones", key="engines")
        if "prefill" in roles and self.transfer is None:
            raise ScenarioError("is missing: prefill and decode engines need it", key="transfer")
        if "prefill" not in roles and self.transfer is not None:
            raise ScenarioError("has no effect without prefill and decode engines", key="transfer")
        total = sum(group.count for group in self.engines)
        if total > MAX_ENGINES:
            raise ScenarioError(f"{total} engines", key="engines", allowed=f"at most {MAX_ENGINES} together")
        for i, outage in enumerate(self.failures):
            if outage.engine >= total:
                raise ScenarioError(f"got {outage.engine}", key=f"failures[{i}].engine", allowed=f"0 to {total - 1}")
        if self.autoscale is not None:
            if "prefill" in roles:
                raise ScenarioError("works with serve engines only", key="autoscale")
            if self.autoscale.min_engines > total:
                raise ScenarioError(f"got {self.autoscale.min_engines}", key="autoscale.min_engines",
                                    allowed=f"1 to {total}, the engines there are")
        return self
