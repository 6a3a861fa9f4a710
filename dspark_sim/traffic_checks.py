"""What a scenario's traffic must keep to across keys: classes against a log, lengths, how much there is to send.

Called by :mod:`dspark_sim.scenario` while it loads.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dspark_sim.arrival_schema import Replay, Sessions
from dspark_sim.errors import ScenarioError, shown
from dspark_sim.replay import class_of_name, play, prepare_replay
from dspark_sim.sessions import SessionStream
from dspark_sim.workload import needed
from dspark_sim.yamlio import Document, KeyPath

if TYPE_CHECKING:
    from dspark_sim.scenario import Scenario
    from dspark_sim.scenario_schema import Workload

__all__ = ["check_shares", "check_traffic", "traffic_warnings"]

_HERE: KeyPath = ("workload", "arrival")
_LENGTHS = ("prompt_tokens", "output_tokens")
_LOOKED_AT = 1000  # sessions that stand for all when we ask how many turns max_context cuts off


def check_shares(workload: Workload, document: Document) -> None:
    """The shares of all classes sum to 1."""
    total = math.fsum(group.share for group in workload.classes)
    if abs(total - 1.0) > 1e-6:
        shares = " + ".join(f"{group.share:g}" for group in workload.classes)
        raise document.error(f"the shares sum to {total:.6g} ({shares})", ("workload", "classes"), error=ScenarioError,
                             allowed="shares that sum to 1")


def check_traffic(scenario: Scenario, document: Document, base: Path) -> None:
    """Read what the arrivals need, and check it against the rest of the scenario.

    Raises:
        ScenarioError: with file and line: of the scenario, or of the log.
    """
    arrival, measure = scenario.workload.arrival, scenario.measure
    if isinstance(arrival, Replay):
        _check_replay(scenario, arrival, document, base)
    elif measure.mode == "whole_run" and measure.requests == "all":
        raise document.error("got 'all', but this traffic has no end", ("measure", "requests"), error=ScenarioError,
                             allowed="a number, or a replayed log")
    if isinstance(arrival, Sessions):
        _check_sessions(scenario.workload, arrival, document)


def _check_replay(scenario: Scenario, replay: Replay, document: Document, base: Path) -> None:
    workload, measure = scenario.workload, scenario.measure
    places: list[tuple[KeyPath, object]] = [(("workload",), workload)]
    places += [(("workload", "classes", i), group) for i, group in enumerate(workload.classes)]
    for path, holder in places:
        for key in _LENGTHS:
            if getattr(holder, key) is not None:
                raise document.error("has no effect: a replayed log holds the lengths", (*path, key),
                                     error=ScenarioError, allowed="leave it out")
    try:
        prepare_replay(replay, base, scenario.seed, scenario.replications)
        named = class_of_name(workload, replay.log)
    except ScenarioError as problem:
        if problem.line is not None or problem.key is None:
            raise
        raise document.error(problem.problem, (*_HERE, *problem.key.split(".")), error=ScenarioError,
                             allowed=problem.allowed, suggestion=problem.suggestion) from None
    if named is None:
        check_shares(workload, document)
    else:
        for i, group in enumerate(workload.classes):
            if group.share != 1.0:
                raise document.error("has no effect: the log names the class of each request",
                                     ("workload", "classes", i, "share"), error=ScenarioError, allowed="leave it out")
    wanted = measure.duration_requests if measure.mode == "steady" else measure.requests
    if isinstance(wanted, int):
        least = min(play(replay, scenario.seed, r).row.size for r in range(scenario.replications))
        if wanted > least:
            key = "duration_requests" if measure.mode == "steady" else "requests"
            raise document.error(f"got {wanted}, but {replay.log.file.name} gives {least} requests",
                                 ("measure", key), error=ScenarioError, allowed=f"at most {least}")


def _check_sessions(workload: Workload, plan: Sessions, document: Document) -> None:
    for group in workload.classes:
        prompt, output = needed(group.prompt_tokens or workload.prompt_tokens, group.name), needed(
            group.output_tokens or workload.output_tokens, group.name)
        for key, lengths in (("prompt_tokens", prompt), ("output_tokens", output)):
            if getattr(lengths, "order", "drawn") == "listed":
                raise document.error("a list in its order has no effect on sessions, whose turns draw their lengths",
                                     ("workload", key, "order"), error=ScenarioError, allowed="drawn")
        most = plan.shared_tokens + prompt.largest + output.largest
        if most > plan.max_context:
            raise document.error(f"got {plan.max_context}, but the first turn of class {shown(group.name)} may have "
                                 f"{most} tokens", (*_HERE, "max_context"), error=ScenarioError,
                                 allowed=f"{most} or more, or shorter turns")


def traffic_warnings(scenario: Scenario) -> list[str]:
    """What is legal in the traffic but may not be what was meant."""
    arrival, found = scenario.workload.arrival, []
    if isinstance(arrival, Sessions):
        stream = SessionStream(scenario.workload, scenario.seed, 0)
        sessions = [stream.take() for _ in range(_LOOKED_AT)]
        cut = sum(session.cut for session in sessions)
        share = cut / (cut + sum(len(session.turns) for session in sessions))
        if share > 0.01:
            found.append(f"workload.arrival.max_context: {100 * share:.0f} % of the turns are never sent, for their "
                         f"context would be longer than {arrival.max_context} tokens")
    if isinstance(arrival, Replay):
        found += _replay_warnings(scenario, arrival)
    return found


def _replay_warnings(scenario: Scenario, replay: Replay) -> list[str]:
    log, measure, found = replay.log, scenario.measure, []
    name = log.file.name
    if log.dropped[0]:
        found.append(f"{name}: {log.dropped[0]} of {log.rows + log.dropped[0]} rows have 0 prompt or output tokens and "
                     f"are left out (the first in line {log.dropped[1]})")
    if log.tick is not None and replay.spread_ticks is False:
        found.append(f"{name}: time stamps stand on ticks of {log.tick:.4g} s and are not spread (spread_ticks: "
                     "false): requests come in lumps that the clock made, not the users")
    index = class_of_name(scenario.workload, log)
    if index is not None:
        absent = [g.name for i, g in enumerate(scenario.workload.classes) if i not in np.unique(index)]
        if absent:
            found.append(f"{name}: no row is of class {', '.join(absent)}")
    if measure.mode == "steady" and measure.duration_s is not None:
        end = measure.warmup_s + measure.duration_s
        last = float(play(replay, scenario.seed, 0).arrival[-1])
        if last < 0.95 * end:
            found.append(f"{name}: the last request comes at second {last:.4g}, and the measured window goes on to "
                         f"{end:g}: what is measured after that is a system that runs empty")
    return found
