"""A process that runs one contestant at a time for a ranking: ``python -m dspark_sim.rank_worker``.

Tasks come as lines of JSON on standard input, answers go out as lines of JSON. What a policy prints goes nowhere; that
it printed is told. A policy that hangs is ended from outside, with this process: see :mod:`dspark_sim.rank_pool`.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from dspark_sim.arms import Inputs, load_arms
from dspark_sim.errors import DsparkSimError
from dspark_sim.runner import run_task
from dspark_sim.scenario import scenario_from_text

__all__ = ["FIGURES", "main", "perform"]

FIGURES = (
    "throughput_tok_s_gpu", "tps_user_mean", "sla_attainment", "goodput_tok_s_gpu", "acceptance_length",
    "verification_budget", "requests", "window_s",
)
_ASKED = ("draft_lengths", "stop_drafting", "verify_lengths", "observe")


class _Clock:
    """CPU seconds inside a policy's methods, views that it asks included, and its decisions."""

    def __init__(self) -> None:
        self.seconds, self.decisions = 0.0, 0

    def watched(self, cls: type[Any]) -> type[Any]:
        """A subclass of ``cls`` whose methods are timed; about half a microsecond each is the clock's own."""
        def timed(method: Callable[[Any, Any], Any], decides: bool) -> Callable[[Any, Any], Any]:
            def call(policy: Any, argument: Any) -> Any:
                began = time.thread_time()
                answer = method(policy, argument)
                self.seconds += time.thread_time() - began
                self.decisions += decides
                return answer

            call.__name__ = method.__name__
            return call

        names = {name: timed(getattr(cls, name), name == "verify_lengths") for name in _ASKED if hasattr(cls, name)}
        return type(cls.__name__, (cls,), {**names, "__module__": cls.__module__, "__doc__": cls.__doc__})


def perform(task: dict[str, Any], inputs: Inputs) -> dict[str, Any]:
    """Run one task.

    Args:
        task: ``text`` and ``base`` of a scenario with one arm, and ``replication``.
        inputs: profiles and traces of earlier tasks.

    Returns:
        ``figures``, or ``error`` and whether the arm is ``unfit`` (it could not even start); ``microseconds`` per
        decision, None where it is not measured.
    """
    clock = _Clock()
    try:
        scenario = scenario_from_text(task["text"], Path(task["base"]))
        (setup,) = load_arms(scenario, inputs)
        if not setup.groups:
            setup = replace(setup, policy_class=clock.watched(setup.policy_class))
        result = run_task(setup, scenario, task["replication"])
    except DsparkSimError as problem:
        return {"error": str(problem), "unfit": True}
    if result.error is not None:
        return {"error": result.error, "unfit": False}
    each = 1e6 * clock.seconds / clock.decisions if clock.decisions else None
    return {"figures": {name: result.measured.get(name) for name in FIGURES}, "microseconds": each}


def main() -> None:
    """Answer until the input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    with tempfile.TemporaryFile() as heap:
        os.dup2(heap.fileno(), 1)
        os.dup2(heap.fileno(), 2)
        inputs, before = Inputs(), 0
        for line in sys.stdin:
            try:
                answer = perform(json.loads(line), inputs)
            except Exception as problem:  # a policy's file may raise anything while it is imported
                answer = {"error": f"{type(problem).__name__}: {problem}", "unfit": True}
            sys.stdout.flush()
            sys.stderr.flush()
            size = os.fstat(heap.fileno()).st_size
            answers.write(json.dumps({**answer, "printed": size - before}) + "\n")
            answers.flush()
            before = size


if __name__ == "__main__":
    main()
