"""Nothing is known before its time: what a policy asks too early, or must not touch, ends its arm with a reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dspark_sim.simulate import simulate
from tests.worlds import World

POLICY = '''"""A policy with one line to try in each method."""

from dataclasses import dataclass

import numpy as np


@dataclass
class Try:
    lossless = {lossless}
    timing = "overlapped"
    needs_confidence = True
    needs_oracle = {oracle}

    def start(self, setup):
        self.lag, self.seen, self.now = setup.host_lag, -1, 0

    def draft_lengths(self, view):
        self.now = view.step
        {early}
        return view.block_size

    def verify_lengths(self, view):
        {late}
        return view.drafted

    def observe(self, outcome):
        self.seen = outcome.step
        {seen}
'''


def error_of(folder: Path, lag: int = 2, *, lossless: bool = True, oracle: bool = False, **lines: str) -> Any:
    """Run the policy with the given lines in its methods; the arm's error, None if it ran."""
    world = World(folder)
    text = POLICY.format(lossless=lossless, oracle=oracle, **{"early": "pass", "late": "pass", "seen": "pass"} | lines)
    (folder / "mine.py").write_text(text, encoding="utf-8")
    scenario, (arm,) = world.arms({"arms.0.policy": {"name": "./mine.py:Try"}, "engine.host_lag": lag})
    return simulate(arm, scenario, 0).error


@pytest.mark.parametrize("name", ["confidence", "survival", "drafted", "oracle", "draft_probability"])
def test_rows_do_not_exist_before_drafting(name: str, tmp_path: Path) -> None:
    error = error_of(tmp_path, early=f"view.{name}")
    assert error is not None
    assert name in error
    assert "draft_lengths" in error


@pytest.mark.parametrize("lag", [0, 1, 3])
def test_the_past_ends_host_lag_steps_ago(lag: int, tmp_path: Path) -> None:
    """past(n) answers from max(1, lag) on and up to 8, and nothing more recent."""
    assert error_of(tmp_path / "a", lag, early=f"view.past({max(1, lag)}), view.past(8)") is None
    assert "past(9)" in error_of(tmp_path / "b", lag, early="view.past(9)")
    assert "past(" in error_of(tmp_path / "c", lag, early=f"view.past({max(1, lag) - 1})")


@pytest.mark.parametrize("lag", [0, 1, 2, 3])
def test_outcomes_arrive_host_lag_steps_later(lag: int, tmp_path: Path) -> None:
    """When step t is decided the last outcome known is that of t − 1 − lag, one for each step, in order."""
    early = f"assert self.seen == max(-1, view.step - 1 - {lag}), (self.seen, view.step)"
    assert error_of(tmp_path, lag, early=early) is None


def test_the_oracle_is_closed_to_those_who_did_not_ask(tmp_path: Path) -> None:
    assert "oracle" in error_of(tmp_path / "a", late="view.oracle")
    assert error_of(tmp_path / "b", late="view.oracle", oracle=True, lossless=False) is None


@pytest.mark.parametrize("name", ["slot", "context", "emitted", "remaining", "arrival", "first_token", "tpot_sla",
                                  "request_class", "survival", "confidence"])
def test_views_cannot_be_written(name: str, tmp_path: Path) -> None:
    assert "read-only" in error_of(tmp_path, late=f"view.{name}[0] = 0")


def test_the_past_cannot_be_written(tmp_path: Path) -> None:
    assert "read-only" in error_of(tmp_path, late="view.past(2)[0] = 0")


@pytest.mark.parametrize(("line", "part"), [
    ("return view.drafted + 1", "0 to 4"), ("return view.drafted - 5", "0 to 4"), ("return view.drafted[:-1]", "shape"),
    ("return view.drafted * 1.0", "float64"), ("return None", "verify_lengths"), ("raise KeyError('x')", "KeyError"),
    ("return [[1]] * view.requests", "shape"), ("return view.survival * np.nan", "float"),
])
def test_a_wrong_answer_ends_the_arm_with_its_reason(line: str, part: str, tmp_path: Path) -> None:
    error = error_of(tmp_path, late=line)
    assert error is not None
    assert "Try.verify_lengths" in error
    assert part in error
