"""The stage on which policies are checked shows what the engine shows: one policy, both, compared step by step."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dspark_sim.curve import StepCurve
from dspark_sim.errors import PolicyFailure
from dspark_sim.lossless.bench import Bench, Rows, frozen
from dspark_sim.lossless.stage import Stage
from tests.worlds import World

WITNESS = '''"""Writes down everything it sees and does."""

from dataclasses import dataclass

import numpy as np

LOG = []


@dataclass
class Witness:
    """Lengths depend on all that is seen."""

    lossless = True
    timing = "overlapped"
    needs_confidence = True

    def start(self, setup):
        self.seen = 0

    def draft_lengths(self, view):
        self.budget = {n: np.array(view.past(n)) for n in (2, 3, 8)}
        return view.block_size if view.step % 3 else (view.emitted + self.seen) % (view.block_size + 1)

    def stop_drafting(self, view):
        return np.minimum(view.drafted, (view.confidence[:, 0] * 99).astype(np.int64) % (view.block_size + 2))

    def verify_lengths(self, view):
        known = np.nan_to_num(self.budget[2], nan=0.3).sum(axis=1) + view.survival.sum(axis=1) + self.seen
        lengths = np.minimum(view.drafted, (known * 97).astype(np.int64) % (view.block_size + 1))
        LOG.append({"key": list(zip(view.slot.tolist(), view.arrival.tolist())), "drafted": np.array(view.drafted),
                    "confidence": np.array(view.confidence), "survival": np.array(view.survival),
                    "remaining": np.array(view.remaining), "prefill": view.prefill_tokens, "lengths": lengths.copy(),
                    "step": view.step, "accepted": None,
                    **{f"past{n}": self.budget[n] for n in (2, 3, 8)}})
        return lengths

    def observe(self, outcome):
        self.seen += int(outcome.accepted.sum())
        LOG[outcome.step]["accepted"] = np.array(outcome.accepted)
'''


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What the policy saw in a real engine, from its first step to its last."""
    folder = tmp_path_factory.mktemp("witness")
    world = World(folder)
    (folder / "witness.py").write_text(WITNESS, encoding="utf-8")
    arm = {"arms.0.policy.name": "./witness.py:Witness", "measure.requests": 40, "workload.arrival.concurrency": 6}
    world.runs(arm)
    module = next(m for n, m in sys.modules.items() if n.startswith("dspark_sim_policy_witness"))
    return list(module.LOG)


def test_a_stage_shows_what_an_engine_shows(log: list[dict[str, Any]], tmp_path: Path) -> None:
    told = [step for step in log if step["accepted"] is not None]
    assert len(told) > 60
    assert max(len(step["key"]) for step in told) == 6
    (tmp_path / "witness.py").write_text(WITNESS, encoding="utf-8")
    from dspark_sim.registry import find_policy

    cls = find_policy(str(tmp_path / "witness.py"))[0]
    again = sys.modules[cls.__module__].LOG  # type: ignore[attr-defined]
    names: dict[tuple[int, float], int] = {}
    G = told[0]["confidence"].shape[1]
    curve = StepCurve(np.array([1, 64]), np.array([1.0, 2.0]), extrapolate="linear")
    first = {names.setdefault(k, len(names)): int(n) for step in told
             for k, n in zip(step["key"], step["remaining"], strict=True) if k not in names}
    stage = Stage(cls(), Bench(G, curve, 8, host_lag=2), {i: n + 1 for i, n in first.items()})
    for step in told:
        ids = tuple(names[k] for k in step["key"])
        rows = Rows(ids, step["confidence"], frozen(np.zeros(len(ids)), np.int64), prefill_tokens=step["prefill"])
        decision = stage.decide(rows)
        mine = again[-1]
        for name in ("drafted", "confidence", "survival", "remaining", "past2", "past3", "past8", "lengths"):
            np.testing.assert_array_equal(mine[name], step[name], err_msg=f"{name} at step {step['step']}")
        np.testing.assert_array_equal(decision.lengths, step["lengths"])
        stage.settle(step["accepted"])


def test_a_stage_refuses_what_an_engine_refuses() -> None:
    class Short:
        lossless, timing = True, "overlapped"

        def verify_lengths(self, view: Any) -> Any:
            return view.drafted[:1]

    curve = StepCurve(np.array([1, 64]), np.array([1.0, 2.0]))
    stage = Stage(Short(), Bench(2, curve, 4))  # type: ignore[arg-type]
    rows = Rows((0, 1), frozen([[0.5, 0.5]] * 2, np.float32), frozen([0, 0], np.int64))
    with pytest.raises(PolicyFailure, match=r"verify_lengths answered shape \(1,\)"):
        stage.decide(rows)
    with pytest.raises(ValueError, match="this engine can answer for 2 to 8"):
        stage.view.past(1)
