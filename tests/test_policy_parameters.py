"""Parameters of policies: what fits, what is refused, and at which key; any input ends in a policy or one error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dspark_sim.errors import PolicyLoadError
from dspark_sim.registry import find_policy, load_policy, make_policy
from tests.policy_files import GOOD, MINIMAL, refused


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(GOOD)
    return tmp_path


# -- parameters ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("given_", "key", "says"), [
    ({}, "needed", "is missing; allowed: a whole number"),
    ({"needed": 1, "shar": 1}, "shar", "unknown parameter; allowed: needed, share, flag, mode, word, ladder, steps "
                                       "(did you mean 'share'?)"),
    ({"needed": 1.0}, "needed", "got 1.0; allowed: a whole number"),
    ({"needed": True}, "needed", "got True; allowed: a whole number"),
    ({"needed": "1"}, "needed", "got '1'; allowed: a whole number"),
    ({"needed": None}, "needed", "got None; allowed: a whole number"),
    ({"needed": 1, "share": True}, "share", "got True; allowed: a finite number"),
    ({"needed": 1, "share": float("nan")}, "share", "got nan; allowed: a finite number"),
    ({"needed": 1, "share": float("inf")}, "share", "got inf; allowed: a finite number"),
    ({"needed": 1, "share": 10**400}, "share", "; allowed: a finite number"),
    ({"needed": 1, "flag": 1}, "flag", "got 1; allowed: true or false"),
    ({"needed": 1, "mode": "fats"}, "mode", "got 'fats'; allowed: fast or slow or 3 (did you mean 'fast'?)"),
    ({"needed": 1, "mode": 3.0}, "mode", "got 3.0; allowed: fast or slow or 3"),
    ({"needed": 1, "word": 3}, "word", "got 3; allowed: a word or null"),
    ({"needed": 1, "ladder": 3}, "ladder", "got 3; allowed: a list, each item a finite number"),
    ({"needed": 1, "ladder": [1, "x"]}, "ladder", "got 'x'; allowed: a list, each item a finite number"),
    ({"needed": -1}, "needed", "got -1; allowed: 0 or more"),
    ({"needed": 1, "share": 2}, "share", "a share above 1 makes no sense"),
    ({"needed": 100, "flag": True}, None, "needed and flag do not go together"),
    ([1], None, "got [1], not a mapping of parameters"),
])
def test_bad_parameters(folder: Path, given_: Any, key: str | None, says: str) -> None:
    error = refused("mine.py", given_, folder)
    assert error.key == ("policy" if key is None else f"policy.{key}")
    assert says in str(error)


def test_good_parameters_arrive_as_the_class_wants_them(folder: Path) -> None:
    values = {"needed": 1, "share": 1, "flag": True, "mode": 3, "word": "w", "ladder": [1, 0.5], "steps": [1, 2]}
    policy: Any = load_policy("mine.py", values, folder)[0]
    assert (policy.share, type(policy.share)) == (1.0, float)
    assert policy.ladder == (1.0, 0.5)
    assert policy.steps == [1, 2]
    assert (policy.flag, policy.mode, policy.word) == (True, 3, "w")
    cls, source = find_policy("mine.py", folder)
    assert make_policy(cls, source, {"needed": 7, "word": None}).needed == 7  # type: ignore[attr-defined]


@pytest.mark.parametrize(("name", "parameters", "key"), [
    ("fixed", {"length": -1}, "length"), ("fixed", {"length": 65}, "length"),
    ("threshold", {"threshold": 1.5}, "threshold"), ("threshold", {"on": "margin"}, "on"),
    ("async_global", {"lag": 0}, "lag"), ("async_global", {"lag": 9}, "lag"),
    ("async_global", {"min_gain": -0.1}, "min_gain"),
    ("async_global", {"new_request_survival": 1.1}, "new_request_survival"),
    ("async_global", {"otherwise": "some"}, "otherwise"), ("early_stop", {"cost": "draft"}, "cost"),
    ("no_spec", {"length": 1}, "length"), ("async_global", {"_budget": 3}, "_budget"),
    ("async_global", {"_belief": 3}, "_belief"),
])
def test_bad_parameters_of_shipped_policies(name: str, parameters: dict[str, Any], key: str) -> None:
    assert refused(name, parameters).key == f"policy.{key}"


def test_a_class_that_is_no_dataclass_has_no_parameters_and_may_fail_in_its_own_way(tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text(MINIMAL.format(name="A") + "    def __init__(self):\n        self.x = {}['gone']\n")
    assert "unknown parameter; allowed: A has no parameters" in str(refused("p.py", {"x": 1}, tmp_path))
    error = refused("p.py", {}, tmp_path)
    assert "making a A raised KeyError: 'gone'" in str(error)
    assert error.line == 8


# -- fuzz ------------------------------------------------------------------------------------------------------------
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(alphabet="mine.py:/\\Mx \0é~-_", max_size=40))
def test_any_reference_is_a_policy_or_one_clear_error(folder: Path, reference: str) -> None:
    assert key_of_mistake(reference, {"needed": 1}, folder).startswith("policy")


def key_of_mistake(reference: str, parameters: dict[str, Any], folder: Path) -> str:
    """The key that a refusal blames; "policy" when nothing was wrong. Any other exception fails the test."""
    try:
        policy: Any = load_policy(reference, parameters, folder)[0]
    except PolicyLoadError as error:
        return error.key or "no key"
    return "policy" if type(policy.needed) is int and type(policy.share) is float else "wrong types"


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(
    st.sampled_from(["needed", "share", "flag", "mode", "word", "ladder", "steps", "x"]),
    st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
                 lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2)),
))
def test_any_parameters_make_a_policy_or_one_clear_error(folder: Path, parameters: dict[str, Any]) -> None:
    assert key_of_mistake("mine.py", parameters, folder).startswith("policy")
