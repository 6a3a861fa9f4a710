"""A whole replication with the slow engine: who submits requests when, and the three tables as lists of dicts."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from dspark_sim.replay import ReplayStream
from dspark_sim.request import Request
from dspark_sim.workload import RequestStream, document_pools, random_stream
from tests.slow_cost import drafter_cost
from tests.slow_engine import SlowEngine

__all__ = ["SlowRun", "slow_simulate"]


@dataclass
class SlowRun:
    """``visited``: request id -> (text position, trace row) of its decode steps, lost ones included."""

    steps: list[dict[str, Any]]
    intervals: list[dict[str, Any]]
    requests: list[dict[str, Any]]
    window: tuple[float, float]
    visited: dict[int, list[tuple[int, int]]]
    lengths: list[dict[str, Any]] = field(default_factory=list)


class Traffic:
    """Issues requests: at stated times (open loop), or one for each that finished (closed loop).

    ``coming`` holds the moments of future submissions; the request itself is taken from the stream at that moment.
    """

    def __init__(self, scenario: Any, stream: RequestStream | ReplayStream) -> None:
        self.arrival, self.measure, self.stream = scenario.workload.arrival, scenario.measure, stream
        self.limit = self.measure.requests if self.measure.mode == "whole_run" else math.inf
        if self.limit == "all":
            self.limit = stream.total  # type: ignore[union-attr]
        self.issued: list[Request] = []
        self.coming: list[float] = []
        self.open: Iterator[float] | None = None
        if self.arrival.kind != "closed":
            self.open = stream.arrivals()
            self.coming = [self.next_arrival(0.0)]

    def next_arrival(self, before: float) -> float:
        """A clock that can only wait: it reaches ``when`` by waiting for the difference."""
        assert self.open is not None
        when = next(self.open, math.inf)  # a replayed log has an end
        return before + (when - before) if when > before else before

    def start(self, engine: SlowEngine) -> None:
        """Closed loop: the first requests, at time 0."""
        if self.open is None:
            for _ in range(int(min(self.arrival.concurrency, self.limit))):
                inside = self.measure.mode == "steady"
                self.issue(engine, 0.0, self.stream.residual() if inside else self.stream.take())

    def issue(self, engine: SlowEngine, now: float, request: Request) -> None:
        self.issued.append(request)
        engine.submit(request, now)

    def deliver(self, engine: SlowEngine, now: float) -> None:
        """Everything that was to come up to ``now``."""
        while self.coming and self.coming[0] <= now and len(self.issued) < self.limit:
            now_was = self.coming.pop(0)
            self.issue(engine, now_was, self.stream.take())
            if self.open is not None:
                self.coming.append(self.next_arrival(now_was))

    def next_time(self) -> float:
        return self.coming[0] if self.coming and len(self.issued) < self.limit else math.inf

    def replace(self, engine: SlowEngine, ended: Request, now: float) -> None:
        """Closed loop: a user whose request finished thinks, and sends the next if there is still one to send."""
        if self.open is not None:
            return
        pause = self.arrival.think_time_s
        if self.arrival.think_steps and ended.steps:
            pause += self.arrival.think_steps * (ended.finished - ended.first_token) / ended.steps
        if pause > 0:
            self.coming = sorted([*self.coming, now + pause])
        elif len(self.issued) < self.limit:
            self.issue(engine, now, self.stream.take())


def slow_simulate(setup: Any, scenario: Any, replication: int) -> SlowRun:
    """One arm, one replication."""
    workload, measure = scenario.workload, scenario.measure
    kind = ReplayStream if workload.arrival.kind == "replay" else RequestStream
    stream = kind(workload, scenario.seed, replication)
    domains = () if setup.trace is None else setup.trace.domain
    pools = [] if setup.trace is None else document_pools(workload, domains, scenario.seed, replication)
    arm = [a.name for a in scenario.arms].index(setup.name)
    rng = random_stream(scenario.seed, replication, "policy", arm)
    finished: list[Request] = []
    traffic = Traffic(scenario, stream)

    def on_finish(request: Request, now: float) -> None:
        finished.append(request)
        traffic.replace(engine, request, now)

    engine = SlowEngine(setup, [tpot_limit(c) for c in workload.classes], pools, rng, on_finish)
    warmup = measure.warmup_s if measure.mode == "steady" else 0.0
    until, wanted = math.inf, math.inf
    if measure.mode == "whole_run":
        wanted = traffic.limit
    elif measure.duration_s is not None:
        until = warmup + measure.duration_s
    else:
        wanted = measure.duration_requests

    def enough() -> bool:
        counted = finished if measure.mode == "whole_run" else [r for r in finished if r.finished > warmup]
        return len(counted) >= wanted

    now = 0.0
    traffic.start(engine)
    while True:
        traffic.deliver(engine, now)
        engine.prepare(now)
        if enough():
            break
        if not engine.running:
            if traffic.next_time() > until:
                break
            now = traffic.next_time()
            continue
        ended = engine.step(now, until)
        if ended is None:
            break
        now = ended
    end = now if until == math.inf else until
    traffic.deliver(engine, end)
    return SlowRun(
        steps=[labelled(setup, replication, step) for step in engine.steps],
        intervals=[labelled(setup, replication, row) for row in binned(engine, finished, scenario.interval_s, end)],
        requests=[labelled(setup, replication, request_row(r, workload)) for r in finished + engine.unfinished()],
        window=(warmup, end),
        visited=engine.visited,
        lengths=[{"arm": setup.name, "replication": replication} | row for row in counted(engine.lengths, warmup)],
    )


def tpot_limit(one_class: Any) -> float:
    limit = None if one_class.sla is None else one_class.sla.tpot_ms_max
    return math.inf if limit is None else limit / 1000.0


def labelled(setup: Any, replication: int, row: dict[str, Any]) -> dict[str, Any]:
    return {"arm": setup.name, "replication": replication, "engine": 0, **row}


def request_row(request: Request, workload: Any) -> dict[str, Any]:
    names = ("arrival", "admitted", "first_token", "finished", "prompt_tokens", "output_tokens", "skipped",
             "emitted", "steps", "drafted", "verified", "accepted", "preemptions", "slowest_gap", "outcome",
             "requeued", "cached_tokens", "recomputed_tokens")
    name = workload.classes[request.class_index].name
    return {"id": request.id, "class": name} | {n: getattr(request, n) for n in names}


def binned(engine: SlowEngine, finished: list[Request], width: float, end: float) -> list[dict[str, Any]]:
    """The steps table summed by the bin in which each step ended, bins from time 0 to ``end`` without a hole."""
    rows = []
    for k in range(bin_of(end, width) + 1):
        mine = [s for s in engine.steps if bin_of(s["end"], width) == k]
        covered = min(width, end - k * width)
        row: dict[str, Any] = {"start": k * width, "seconds": covered, "up_s": covered, "paid_s": covered}
        row["steps"] = len(mine)
        row["busy_s"] = in_order(s["seconds"] for s in mine)
        for name in ("draft_s", "schedule_s", "verify_s", "other_s"):
            row[name] = in_order(s[name] for s in mine)
        row["request_steps"] = sum(s["requests"] for s in mine)
        row["request_seconds"] = in_order((s["requests"] + s["stalled"]) * s["seconds"] for s in mine)
        for name in ("drafted", "verified", "accepted", "emitted", "prefill_tokens", "batch_tokens", "padded_tokens"):
            row[name] = sum(s[name] for s in mine)
        row["waiting_seconds"] = in_order(s["waiting"] * s["seconds"] for s in mine)
        row["extrapolated_steps"] = sum(1 for s in mine if beyond(s, engine.setup))
        row["finished"] = sum(1 for r in finished if bin_of(r.finished, width) == k)
        bins = sorted(math.floor(math.log(gap) * 100) for moment, gap in engine.gaps if bin_of(moment, width) == k)
        row["gap_bin"] = sorted(set(bins))
        row["gap_count"] = [bins.count(b) for b in row["gap_bin"]]
        rows.append(row)
    return rows


def counted(lengths: list[tuple[float, int, int]], warmup: float) -> list[dict[str, Any]]:
    """How often each pair of draft tokens verified and kept occurred in a row of a step, before and after warm-up."""
    rows = [(end > warmup, verified, kept) for end, verified, kept in lengths]
    return [{"measured": measured, "verified": verified, "accepted": kept, "request_steps": rows.count(pair)}
            for pair in sorted(set(rows)) for measured, verified, kept in [pair]]


def bin_of(moment: float, width: float) -> int:
    """Bin k covers (k · width, (k + 1) · width]; time 0 belongs to the first."""
    return max(0, math.ceil(moment / width) - 1)


def in_order(values: Iterator[float]) -> float:
    total = 0.0
    for value in values:
        total += value
    return total


def beyond(step: dict[str, Any], setup: Any) -> bool:
    """Whether the step was larger than what an extrapolated curve of it was measured at."""
    profile = setup.profile
    by_requests = [profile.schedule if setup.policy_source.timing == "synchronous" else None, profile.fixed]
    if setup.drafter is not None:
        draft = drafter_cost(setup)
        by_requests += [profile.speculation_overhead, draft.seconds, draft.per_token, draft.catch_up]
    sizes = [(step["padded_tokens"], profile.verify), (step["prefill_tokens"], profile.prefill)]
    sizes += [(step["requests"], curve) for curve in by_requests]
    return any(curve is not None and curve.extrapolate and size > curve.last for size, curve in sizes)
