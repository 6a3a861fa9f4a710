"""The kit's contract checks, its public face, and the command line; what it says of leaks is in test_policy_check."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pytest

from dspark_sim.commands.policy_check import run_policy_check
from dspark_sim.errors import PolicyLoadError
from dspark_sim.policy import BudgetView, IntArray, StepView
from dspark_sim.testing import PolicyContract, check_policy
from tests.test_policy_check import CASES, LEAKY, VERIFY, leaky


# -- the contract ----------------------------------------------------------------------------------------------------
class Base:
    lossless: ClassVar[bool] = True
    timing: ClassVar[Any] = "overlapped"

    def verify_lengths(self, view: StepView) -> Any:
        return np.zeros(view.requests, dtype=np.int64)


class TooLong(Base):
    def verify_lengths(self, view: StepView) -> Any:
        return np.full(view.requests, view.block_size)  # a draft may have been cut short


class Scalar(Base):
    def verify_lengths(self, view: StepView) -> Any:
        return 1


class Floats(Base):
    def verify_lengths(self, view: StepView) -> Any:
        return np.zeros(view.requests)


class Writes(Base):
    def verify_lengths(self, view: StepView) -> Any:
        view.context[:] = 0
        return np.zeros(view.requests, dtype=np.int64)


class WritesByForce(Base):
    def verify_lengths(self, view: StepView) -> Any:
        view.remaining.flags.writeable = True
        view.remaining[:] = 0
        return np.zeros(view.requests, dtype=np.int64)


class OnlyOne(Base):
    def verify_lengths(self, view: StepView) -> Any:
        return np.zeros(min(view.requests, 50), dtype=np.int64)


class NeedsAPast(Base):
    def verify_lengths(self, view: StepView) -> Any:
        with np.errstate(invalid="ignore"):
            return np.minimum(view.drafted, (9 * view.past(2)[:, 0]).astype(np.int64))  # NaN for new ones


class GlobalRandom(Base):
    def verify_lengths(self, view: StepView) -> Any:
        return np.minimum(view.drafted, np.random.randint(0, 2, view.requests))


class Remembers(Base):
    count = 0

    def verify_lengths(self, view: StepView) -> Any:
        self.count += 1
        return np.minimum(view.drafted, self.count % 3)


class TooEager(Base):
    def draft_lengths(self, view: BudgetView) -> Any:
        return view.block_size + 1


@pytest.mark.parametrize(("policy", "says"), [
    (TooLong, "allowed: 0 to"), (Scalar, "shape ()"), (Floats, "whole numbers"), (Writes, "read-only"),
    (WritesByForce, "writes into view.remaining"), (OnlyOne, "shape (50,)"), (NeedsAPast, "verify_lengths"),
    (GlobalRandom, "two fresh objects"), (Remembers, "set all state in start"), (TooEager, "draft_lengths answered"),
], ids=lambda value: getattr(value, "__name__", ""))
def test_breaking_the_contract_is_told(policy: type[Any], says: str) -> None:
    report = check_policy(policy)
    assert not report.kept
    assert not report.ok
    assert says in str(report), str(report)


def test_state_on_the_class_is_told() -> None:
    assert "keep nothing on the class" in str(leaky("class_state"))


def test_a_wrong_timing_is_remarked() -> None:
    class Late(Base):
        def verify_lengths(self, view: StepView) -> Any:
            return np.minimum(view.drafted, (view.confidence[:, 0] > 0.5).astype(np.int64))

    report = check_policy(Late, cases=CASES)
    assert report.ok
    assert any(c.title == "timing" and c.passed is None for c in report.checks)


# -- the kit itself --------------------------------------------------------------------------------------------------
def test_the_same_seed_gives_the_same_report() -> None:
    again = check_policy(str(LEAKY / "ties.py"), cases=CASES)  # a fresh run, not the cached one
    assert again.to_dict() == leaky("ties").to_dict()
    assert again.to_dict() != check_policy(str(LEAKY / "ties.py"), cases=CASES, seed=2).to_dict()


def test_objects_and_functions_are_checked_as_references_are() -> None:
    from dspark_sim.registry import load_policy

    made = load_policy("threshold", {"threshold": 0.3})[0]
    told = check_policy("threshold", {"threshold": 0.3}, cases=20).to_dict()
    assert check_policy(made, cases=20).to_dict()["checks"] == told["checks"]
    assert check_policy(lambda: load_policy("no_spec")[0], cases=20).ok


@pytest.mark.parametrize("wrong", ["no_such_policy", object(), int])
def test_what_is_no_policy_is_refused(wrong: Any) -> None:
    with pytest.raises(PolicyLoadError):
        check_policy(wrong)


@pytest.mark.parametrize(("reference", "code"), [
    ("no_spec", 0), ("sync_global", 0), (str(LEAKY / "ties.py"), 1), (str(LEAKY / "class_state.py"), 1),
])
def test_exit_code_and_words(
    reference: str, code: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dspark_sim.testing.CASES", CASES)
    assert run_policy_check(reference) == code
    out = capsys.readouterr().out
    assert ("NOT" in out) == (code == 1 and "class_state" not in reference)
    assert "policy" in out


def test_json_is_json_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_policy_check("sync_global", form="json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["claims_lossless"] is False
    assert told["worlds"][0]["outcomes"][0] == {"tokens": "A", "policy": 0.85, "target": 0.7}
    assert told["counterexamples"][0]["method"] == VERIFY


class TestThreshold(PolicyContract):
    policy = "threshold"
    parameters: ClassVar[Mapping[str, Any]] = {"threshold": 0.7}
    cases = CASES


class TestMine(PolicyContract):
    class Mine(Base):
        def verify_lengths(self, view: StepView) -> IntArray:
            return np.minimum(view.drafted, 1)

    policy = Mine
    cases = CASES


def test_the_inherited_tests_can_fail() -> None:
    class Wrong(PolicyContract):
        policy = str(LEAKY / "stops_late.py")

    Wrong().test_contract()
    with pytest.raises(AssertionError, match="NOT"):
        Wrong().test_claim()
