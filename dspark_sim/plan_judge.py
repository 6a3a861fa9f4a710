"""What a plan needs of one replication at one load, as plain data: who kept which limit, how busy the engines were."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dspark_sim.metrics import Measured, measure
from dspark_sim.plan_decide import Counts
from dspark_sim.userrows import LIMITS
from dspark_sim.userview import UserView

if TYPE_CHECKING:
    from dspark_sim.arms import ArmSetup
    from dspark_sim.scenario import Scenario
    from dspark_sim.simulate import ArmRun

__all__ = ["LIMITS", "ClassCounts", "Seen", "is_saturated", "judge", "promises"]

FIGURES = (
    "throughput_tok_s_gpu", "goodput_tok_s_gpu", "tps_user_mean", "tps_user_p5", "tpot_ms_mean", "tpot_ms_p99",
    "ttft_ms_p50", "ttft_ms_p99", "e2e_ms_mean", "acceptance_length", "verification_budget", "utilisation",
    "requests_decoding_mean", "requests_waiting_mean", "preemptions", "gpus_mean", "requests", "window_s",
    "output_tokens", "input_tokens", "waiting_first_half", "waiting_second_half", "extrapolated_steps", "steps",
)
GROWTH = 0.03  # share of half a window's arrivals that the queue grows by, from the first half to the second
LEAST_GROWTH = 5.0  # requests


@dataclass(frozen=True)
class ClassCounts(Counts):
    """Of one class: ``lost`` were refused or timed out (judged, not met); ``broken`` counts by limit.

    Unfinished requests that are surely late are judged, not met, and counted by limit too.
    """

    lost: int = 0
    broken: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Seen:
    """One replication of one arm at one load.

    Attributes:
        classes: of those classes that are promised something.
        figures: of :func:`~dspark_sim.metrics.measure`.
        saturated: the queue of an open loop grew throughout the window.
        error: why there is nothing, None if there is.
        wall_s: seconds of computing.
    """

    classes: dict[str, ClassCounts]
    figures: Measured
    saturated: bool = False
    error: str | None = None
    wall_s: float = 0.0


def promises(scenario: Scenario) -> dict[str, dict[str, float]]:
    """Class -> its limits by key; classes without an SLA are left out."""
    out: dict[str, dict[str, float]] = {}
    for group in scenario.workload.classes:
        limits = {} if group.sla is None else {k: v for k in LIMITS if (v := getattr(group.sla, k)) is not None}
        if limits:
            out[group.name] = limits
    return out


def judge(run: ArmRun, scenario: Scenario, setup: ArmSetup) -> Seen:
    """Counts and figures of a finished replication; called in the workers."""
    view = UserView(run, scenario)
    figures = measure(run, scenario, setup, view)
    classes = {}
    for name in promises(scenario):
        group = view.classes[name]
        classes[name] = ClassCounts(group.judged + group.missed, group.met, group.refused + group.timed_out,
                                    dict(group.broken))
    kept = {name: figures.get(name) for name in FIGURES}
    return Seen(classes, kept, scenario.workload.arrival.kind != "closed" and is_saturated(figures), None, run.wall_s)


def is_saturated(figures: Measured) -> bool:
    """Whether the queue grew as it does when more arrives than can be served.

    Its mean length in the second half of the window lies above that in the first half by more than 3 % of what
    finished in half a window, and by 5 requests or more. (At a constant excess of x % the means of two halves differ by
    x % of the arrivals of half a window.)
    """
    before, after = figures.get("waiting_first_half"), figures.get("waiting_second_half")
    if before is None or after is None:
        return False
    return after - before > max(LEAST_GROWTH, GROWTH * (figures.get("requests") or 0.0) / 2)
