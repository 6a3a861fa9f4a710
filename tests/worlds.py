"""Small worlds for tests: a profile, traces and a scenario written to a folder and read back through the loaders.

Everything goes through the files that a user would write, so a key that a loader forgets is forgotten here as well.
Scenarios are written as JSON, which is YAML. ``changed`` edits a nested dict by dotted keys.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dspark_sim.trace import AcceptanceTrace

__all__ = ["NOSY", "PROFILE", "SCENARIO", "World", "changed", "make_trace"]

PROVENANCE = dict(kind="synthetic", device="none", model="toy", software="tests", date="2026", source="tests/worlds.py",
                  command="none", assumptions=["made up for a test"])

PROFILE: dict[str, Any] = {
    "description": "a toy engine for tests",
    "gpus": 2,
    "max_num_seqs": 8,
    "max_num_batched_tokens": 96,
    "verify": {"points": [[1, 0.010], [8, 0.0113], [16, 0.0131], [32, 0.0187], [64, 0.0309], [128, 0.0533]],
               "between": "hold", "graph_limit": 32},
    "drafters": {
        "par": {"kind": "parallel", "assumption": "toy",
                "seconds": {"points": [[1, 0.0011], [8, 0.0017], [64, 0.0071]]}},
        "auto": {"kind": "autoregressive", "assumption": "toy",
                 "seconds": {"points": [[1, 0.0005], [8, 0.0009], [64, 0.0031]]},
                 "catch_up": {"points": [[1, 0.0013], [64, 0.0057]]}},
    },
    "provenance": PROVENANCE,
}

SCENARIO: dict[str, Any] = {
    "name": "toy",
    "description": "a toy scenario",
    "profile": "./profile",
    "traces": "./traces",
    "seed": 5,
    "replications": 1,
    "engine": {"host_lag": 2, "prefill": "none"},
    "workload": {
        "arrival": {"kind": "closed", "concurrency": 4},
        "prompt_tokens": {"kind": "constant", "value": 20},
        "output_tokens": {"kind": "lognormal", "mean": 24, "cv": 0.6, "min": 1, "max": 90},
        "classes": [
            {"name": "easy", "share": 0.5, "domain": "math"},
            {"name": "hard", "share": 0.5, "domain": "chat"},
        ],
    },
    "measure": {"mode": "whole_run", "requests": 12},
    "record": "all",
    "interval_s": 0.25,
    "arms": [{"name": "spec", "drafter": "par", "policy": {"name": "./nosy.py:Nosy"}}],
}

NOSY = '''"""A policy that looks at everything it may look at, so that two engines must agree on everything."""

from dataclasses import dataclass

import numpy as np


@dataclass
class Nosy:
    """Lengths are a checksum of all that is known."""

    lossless = False
    timing = "synchronous"
    needs_confidence = True
    needs_oracle = True
    salt: int = 0
    stop: bool = True
    rest: int = 0

    def start(self, setup):
        self.G, self.lag, self.cost, self.rng = setup.block_size, setup.host_lag, setup.cost, setup.rng
        self.seen = self.salt + setup.max_num_seqs + setup.max_num_batched_tokens + int(10 * setup.temperature)
        self.seen += len(setup.drafter) + len(setup.ragged)
        self.calls = 0

    def _mix(self, view):
        known = self.seen + 7 * view.step + view.prefill_tokens + 3 * view.waiting + view.kv_free_blocks
        known += view.kv_tokens + view.requests + int(view.now * 1e7) + view.block_size
        rows = 2 * view.context + 3 * view.emitted + 5 * view.remaining + view.request_class
        rows = rows + (view.arrival * 1e6).astype(np.int64) + (view.first_token * 1e6).astype(np.int64)
        rows = rows + np.where(np.isinf(view.tpot_sla), 1, np.minimum(view.tpot_sla, 1e3) * 1e6).astype(np.int64)
        assert len(set(view.slot.tolist())) == view.requests
        for n in range(max(1, self.lag), 9):
            rows = rows + n * (np.nan_to_num(view.past(n), nan=0.37) * 1e4).astype(np.int64).sum(axis=1)
        return rows + known + int(self.cost.step(view.requests, view.requests, view.kv_tokens) * 1e7)

    def draft_lengths(self, view):
        self.calls += 1
        if self.rest and self.calls % self.rest == 0:
            return 0
        if self.calls % 5 == 0:
            return self.G
        return (self._mix(view) + self.rng.integers(0, 99)) % (self.G + 1)

    def stop_drafting(self, view):
        if not self.stop:
            return view.drafted.copy()
        sure = (view.confidence * 1e4).astype(np.int64).sum(axis=1)
        return np.minimum(view.drafted, np.maximum((self._mix(view) + sure) % (self.G + 2), view.drafted > 0))

    def verify_lengths(self, view):
        sure = (view.survival * 1e4).astype(np.int64).sum(axis=1) + view.oracle
        if view.draft_probability is not None:
            sure = sure + (view.draft_probability * 1e4).astype(np.int64).sum(axis=1)
        return (self._mix(view) + sure) % (view.drafted + 1)

    def observe(self, outcome):
        self.seen += int((outcome.drafted + 2 * outcome.verified + 3 * outcome.accepted + 5 * outcome.emitted
                          + 7 * outcome.finished).sum()) + outcome.step + int(outcome.seconds * 1e7)
        self.seen += outcome.batch_tokens + 2 * outcome.padded_tokens + 3 * outcome.prefill_tokens
        self.seen %= 1_000_003
'''


def changed(tree: Mapping[str, Any], changes: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A deep copy with dotted keys set: ``{"arms.0.name": "x", "engine.host_lag": 1}``; None removes the key."""
    out = copy.deepcopy(dict(tree))
    for dotted, value in (changes or {}).items():
        place: Any = out
        *parents, last = (int(p) if p.isdecimal() else p for p in dotted.split("."))
        for p in parents:
            place = place[p] if isinstance(p, int) else place.setdefault(p, {})
        if value is None and isinstance(place, dict):
            place.pop(last, None)
        else:
            place[last] = copy.deepcopy(value)
    return out


def make_trace(drafter: str, block_size: int, *, seed: int = 0, lengths: Sequence[int] = (7, 30, 1, 18, 44, 12),
               domains: Sequence[str] = ("math", "chat"), confidence: bool = True, probability: bool = True,
               sts: bool = False, acceptance: float | None = None) -> AcceptanceTrace:
    """A trace of random rows. ``acceptance``: every draft token is kept with this probability, independently."""
    rng = np.random.default_rng([seed, block_size, len(drafter)])
    start = np.concatenate([[0], np.cumsum(lengths)])
    P, G = int(start[-1]), block_size
    c = np.clip(rng.beta(3, 2, (P, G)), 0.02, 0.98) if acceptance is None else np.full((P, G), acceptance)
    c[rng.random((P, G)) < 0.1] = 0.5 if acceptance is None else acceptance  # ties
    kept = np.cumprod(rng.random((P, G)) < c, axis=1).sum(axis=1)
    return AcceptanceTrace(
        target="toy", drafter=drafter, block_size=G, accepted=kept.astype(np.uint8), document_start=start,
        domain=tuple(domains[d % len(domains)] for d in range(len(lengths))),
        confidence=c.astype(np.float32) if confidence else None,
        draft_probability=rng.random((P, G)).astype(np.float32) if probability else None,
        sts_temperature=tuple(1.3 + 0.1 * k for k in range(G)) if sts else None,
    )


class World:
    """A folder with ``profile/profile.yaml``, ``traces/<drafter>.parquet``, ``nosy.py`` and scenarios.

    Args:
        folder: where to write (``tmp_path``).
        profile: dotted changes to :data:`PROFILE`.
        traces: saved as ``traces/<drafter>.parquet``; default: ``par`` (block 4) and ``auto`` (block 3).
    """

    def __init__(self, folder: Path, profile: Mapping[str, Any] | None = None,
                 traces: Sequence[AcceptanceTrace] | None = None) -> None:
        self.folder, self.written = folder, 0
        for trace in (make_trace("par", 4), make_trace("auto", 3)) if traces is None else traces:
            trace.save(folder / "traces" / f"{trace.drafter}.parquet")
        (folder / "nosy.py").write_text(NOSY, encoding="utf-8")
        self.profile("profile", profile)

    def profile(self, name: str, changes: Mapping[str, Any] | None = None) -> None:
        """Write one more profile, ``./<name>`` in scenarios."""
        place = self.folder / name
        place.mkdir(parents=True, exist_ok=True)
        (place / "profile.yaml").write_text(json.dumps(changed(PROFILE, changes)), encoding="utf-8")

    def scenario(self, changes: Mapping[str, Any] | None = None, **overrides: Any) -> Any:
        """Write and load :data:`SCENARIO` with dotted changes."""
        from dspark_sim.scenario import load_scenario

        self.written += 1
        path = self.folder / f"scenario-{self.written}.yaml"
        path.write_text(json.dumps(changed(SCENARIO, changes)), encoding="utf-8")
        return load_scenario(path, **overrides)

    def arms(self, changes: Mapping[str, Any] | None = None, **overrides: Any) -> tuple[Any, list[Any]]:
        """The scenario and its arms, ready for an engine."""
        from dspark_sim.arms import load_arms

        scenario = self.scenario(changes, **overrides)
        return scenario, load_arms(scenario)

    def runs(self, changes: Mapping[str, Any] | None = None, replication: int = 0, **overrides: Any) -> list[Any]:
        """Simulate every arm with the fast engine; an arm that failed fails the test."""
        from dspark_sim.simulate import simulate

        scenario, arms = self.arms(changes, **overrides)
        runs = [simulate(arm, scenario, replication) for arm in arms]
        assert [run.error for run in runs] == [None] * len(runs)
        return runs
