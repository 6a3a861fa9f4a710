"""dspark-sim: a discrete-event simulator of LLM serving with speculative decoding.

>>> import dspark_sim
>>> results = dspark_sim.run("quickstart", overrides={"replications": 2})  # doctest: +SKIP
>>> results.to_frame()  # doctest: +SKIP

Names are imported when they are first used, so that ``import dspark_sim`` (and ``dspark-sim --help``) is quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from dspark_sim.errors import DsparkSimError, InputError, RunError
    from dspark_sim.plan_results import PlanResults
    from dspark_sim.planner import plan
    from dspark_sim.policy import BudgetPolicy, BudgetView, EngineSetup, Policy, StepOutcome, StepView
    from dspark_sim.profile import HardwareProfile, load_profile
    from dspark_sim.results import ArmResult, Results
    from dspark_sim.runner import run
    from dspark_sim.scenario import Scenario, load_scenario
    from dspark_sim.stats import Figure
    from dspark_sim.sweep_folder import SweepFolder, open_sweep
    from dspark_sim.sweeper import SweepResults, sweep
    from dspark_sim.trace import AcceptanceTrace, load_trace
    from dspark_sim.traceset import open_traces

_HOME = {
    "DsparkSimError": "errors", "InputError": "errors", "RunError": "errors",
    "BudgetPolicy": "policy", "BudgetView": "policy", "EngineSetup": "policy", "Policy": "policy",
    "StepOutcome": "policy", "StepView": "policy",
    "HardwareProfile": "profile", "load_profile": "profile",
    "AcceptanceTrace": "trace", "load_trace": "trace", "open_traces": "traceset",
    "Scenario": "scenario", "load_scenario": "scenario",
    "ArmResult": "results", "Results": "results", "Figure": "stats", "run": "runner",
    "SweepResults": "sweeper", "sweep": "sweeper", "SweepFolder": "sweep_folder", "open_sweep": "sweep_folder",
    "PlanResults": "plan_results", "plan": "planner",
}

__all__ = [
    "AcceptanceTrace", "ArmResult", "BudgetPolicy", "BudgetView", "DsparkSimError", "EngineSetup", "Figure",
    "HardwareProfile", "InputError", "PlanResults", "Policy", "Results", "RunError", "Scenario", "StepOutcome",
    "StepView", "SweepFolder", "SweepResults", "__version__", "load_profile", "load_scenario", "load_trace",
    "open_sweep", "open_traces", "plan", "run", "sweep",
]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
