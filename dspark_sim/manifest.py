"""manifest.json: everything needed to say what a run folder is, and to make it again.

It alone holds times, paths and versions: the tables and the summary of the same scenario and seed are the same bytes.
"""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dspark_sim.arms import ArmSetup
    from dspark_sim.results import Results
    from dspark_sim.scenario import Scenario

__all__ = ["arm_entry", "as_json", "environment", "inputs", "manifest"]

FORMAT = "dspark-sim run 1"
_PACKAGES = ("dspark-sim", "numpy", "pyarrow", "simpy", "scipy", "pydantic", "pyyaml", "pandas", "seaborn",
             "matplotlib", "joblib", "distributed", "ray")


def manifest(
    scenario: Scenario, setups: Sequence[ArmSetup], results: Results, *, command: Sequence[str] | None, started: str,
    finished: str, wall_s: Mapping[str, float], finished_replications: Mapping[str, int],
    overrides: Mapping[str, Any] | None = None,
) -> str:
    """The manifest as JSON text.

    Args:
        scenario, setups, results: of the run.
        command: argv of the command line, None from Python.
        started, finished: ISO times.
        wall_s: seconds of computing per arm.
        finished_replications: per arm.
        overrides: values set from outside (``--set``, ``--seed``).
    """
    data = {
        "format": FORMAT,
        "status": "interrupted" if results.interrupted else "failed" if results.failed else "finished",
        "scenario": {
            "name": scenario.name, "file": None if scenario.source.file is None else str(scenario.source.file),
            "text": scenario.source.text, "overrides": dict(overrides or {}), "resolved": scenario.resolved(),
        },
        "seed": results.seed,
        "replications": results.replications,
        "arms": [
            arm_entry(s) | {"finished_replications": finished_replications.get(s.name, 0), "error": r.error,
                       "wall_s": round(wall_s.get(s.name, 0.0), 4)}
            for s, r in zip(setups, results.arms, strict=True)
        ],
        **inputs(scenario, setups),
        "warnings": list(results.warnings),
        "assumptions": list(results.assumptions),
        "command": None if command is None else list(command),
        "started": started,
        "finished": finished,
        **environment(),
    }
    return as_json(data)


def inputs(scenario: Scenario, setups: Sequence[ArmSetup]) -> dict[str, Any]:
    """``profiles`` and ``traces`` of a manifest: hashes, files and provenance of everything that the arms read."""
    everybody = [*setups, *(group.setup for s in setups for group in s.groups)]
    return {
        "profiles": {p.name: _profile(p) for s in everybody for p in (s.profile, s.belief_profile)},
        "traces": {f"{s.trace.target}/{s.trace.drafter}": _trace(scenario, s.trace)
                   for s in setups if s.trace is not None},
    }


def environment() -> dict[str, Any]:
    """``python``, ``platform`` and ``packages`` of a manifest."""
    return {
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "packages": {name: version for name in _PACKAGES if (version := _version(name)) is not None},
    }


def as_json(data: Any) -> str:
    """Indented JSON text; paths and arrays become what JSON has for them."""
    return json.dumps(data, indent=2, ensure_ascii=False, default=_plain) + "\n"


def arm_entry(setup: ArmSetup) -> dict[str, Any]:
    """One arm of a manifest: its policy with place and hashes, what it runs on and what it believes."""
    source = setup.policy_source
    return {
        "name": setup.name, "drafter": setup.drafter, "calibrated": setup.calibrated,
        "policy": {
            "reference": setup.policy_reference, "parameters": dict(setup.policy_parameters), "sha256": source.sha256,
            "file": None if source.path is None else str(source.path), "shipped": source.shipped,
            "place": source.place, "hides": list(source.hides), "package_sha256": source.package_sha256,
            "lossless": source.lossless, "timing": source.timing,
        },
        "profile": setup.profile.name,
        "belief": {"profile": setup.belief_profile.name, "step_scale": setup.step_scale,
                   "confidence_shift": setup.confidence_shift},
        "trace": None if setup.trace is None else f"{setup.trace.target}/{setup.trace.drafter}",
    }


def _profile(profile: Any) -> dict[str, Any]:
    """Hash, provenance, and the verify curve (plots draw batches over it)."""
    p, curve = profile.provenance, profile.verify
    return {
        "sha256": profile.sha256, "file": None if profile.path is None else str(profile.path), "gpus": profile.gpus,
        "provenance": {k: getattr(p, k) for k in
                       ("kind", "device", "model", "software", "date", "source", "command", "assumptions")},
        "verify": {
            "batch_tokens": curve.batch_tokens.tolist(), "seconds": curve.seconds.tolist(), "between": curve.between,
            "graph_limit": curve.graph_limit, "extrapolate": curve.extrapolate,
        },
    }


def _trace(scenario: Scenario, trace: Any) -> dict[str, Any]:
    from dspark_sim.traceset import trace_sha256

    return {
        "reference": scenario.traces, "sha256": trace_sha256(scenario.traces or "", [trace.drafter], scenario.base),
        "kind": trace.kind, "block_size": trace.block_size,
        "temperature": trace.temperature, "positions": trace.positions, "documents": trace.documents,
        "provenance": dict(trace.provenance),
    }


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, (set, frozenset, tuple)):
        return list(value)
    return str(value)
