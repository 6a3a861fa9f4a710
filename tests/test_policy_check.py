"""The losslessness kit: what must be caught is caught, for the reason for which it leaks; what is lossless passes."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from dspark_sim.guard import limited, supervised
from dspark_sim.lossless.enumerate import output_laws
from dspark_sim.lossless.subject import subject_of
from dspark_sim.lossless.worlds import worlds
from dspark_sim.policy import BudgetView, IntArray
from dspark_sim.registry import list_policies
from dspark_sim.testing import Report, check_policy

LEAKY = Path(__file__).parent / "leaky_policies"
VERIFY, DRAFT, STOP = "verify_lengths", "draft_lengths", "stop_drafting"

SHIPPED: list[tuple[str, dict[str, Any]]] = [(source.name, {}) for source in list_policies() if source.lossless]
SHIPPED += [
    ("fixed", {"length": 5}), ("threshold", {"on": "survival"}), ("early_stop", {"cost": "verify"}),
    ("async_global", {"lag": 1}), ("async_global", {"lag": 1, "min_gain": 0.04, "otherwise": "all"}),
    ("async_global", {"lag": 4}),
]

# policy -> (methods with a counterexample, whether an enumerated world shows it too)
CAUGHT: dict[str, tuple[set[str], bool]] = {
    "async_lag_zero": ({VERIFY}, True),
    "own_probability": ({VERIFY}, True),
    "joint_pair": ({VERIFY}, True),
    "request_order": ({VERIFY}, True),
    "ties": ({VERIFY}, False),
    "partition": ({VERIFY}, False),
    "stops_late": ({VERIFY, STOP}, True),
    "verifies_by_stop": ({VERIFY}, True),
    "stop_memory": ({VERIFY}, True),
    "draft_by_future": ({VERIFY, DRAFT}, True),
    "seeded_coin": ({VERIFY}, True),
    "rewound_coin": ({VERIFY}, True),
    "kept_view": ({VERIFY}, True),
    "after_warm_up": ({VERIFY}, True),
    "faint": ({VERIFY}, False),
}


CASES = 150  # enough to catch every leak here; the default looks longer


@cache
def leaky(name: str, greedy: bool = False) -> Report:
    return check_policy(str(LEAKY / f"{name}.py"), greedy=greedy, cases=CASES)


def lines(report: Report, method: str = VERIFY) -> str:
    return "\n".join(next(c for c in report.counterexamples if c.method == method).lines)


def test_the_shelf_has_policies_to_check() -> None:
    assert {"no_spec", "fixed", "threshold", "early_stop", "async_global"} <= {name for name, _ in SHIPPED}


# -- what must pass --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("name", "parameters"), SHIPPED, ids=str)
def test_shipped_lossless_policies_pass(name: str, parameters: Mapping[str, Any]) -> None:
    report = check_policy(name, parameters, cases=CASES)
    assert report.lossless
    assert report.ok, str(report)
    assert report.deviation == 0.0
    assert not report.counterexamples
    assert len(report.worlds) >= 6
    assert all(world.laws.policy == world.laws.target for world in report.worlds)


def test_memory_of_an_earlier_tail_is_lossless() -> None:
    """Exact in a real engine, whatever was verified: the next block and the bonus token are drawn afresh."""
    report = leaky("tail_memory")
    assert report.ok
    several = [world for world in report.worlds if world.laws.world.steps > 1]
    assert several
    assert {n for world in several for n in world.laws.lengths} >= {0, 2}, "it must have acted on what it remembered"


# -- what must be caught ---------------------------------------------------------------------------------------------
def test_sync_global_in_appendix_a() -> None:
    report = check_policy("sync_global")
    first = report.worlds[0].laws
    assert first.world.name == "Appendix A"
    assert first.policy == {((0,),): Fraction(85, 100), ((1,),): Fraction(15, 100)}
    assert first.target == {((0,),): Fraction(7, 10), ((1,),): Fraction(3, 10)}
    assert report.ok, "it does not claim to be lossless"
    assert "not lossless, as it says" in report.verdict
    assert "Token" not in report.verdict
    assert "token 1 of request 1, which so leaks into its own admission" in lines(report)


def test_early_stop_in_appendix_a() -> None:
    world = worlds(2)[0]
    assert output_laws(subject_of("early_stop"), world).policy == {((0,),): Fraction(7, 10), ((1,),): Fraction(3, 10)}


def test_clairvoyant_is_measured() -> None:
    report = check_policy("clairvoyant")
    assert report.ok
    assert report.anticipates
    assert report.deviation > 0.1
    assert all(world.total > 0 for world in report.worlds)


@pytest.mark.parametrize("name", CAUGHT)
def test_a_leak_is_caught(name: str) -> None:
    report, (methods, enumerated) = leaky(name), CAUGHT[name]
    assert report.lossless, "it claims to be lossless"
    assert not report.ok
    assert "changes the output distribution" in report.verdict
    assert {c.method for c in report.counterexamples} == methods
    assert any(c.effect > 0.01 for c in report.counterexamples)
    assert any(world.total > 0 for world in report.worlds) == enumerated
    assert "leaks into" in lines(report)


@pytest.mark.parametrize("name", ["async_lag_zero", "draft_by_future", "kept_view"])
def test_reading_before_drafting_breaks_the_contract(name: str) -> None:
    report = leaky(name)
    assert not report.kept
    assert next(c for c in report.checks if c.title == "before drafting").passed is False


def test_the_joint_leak_has_exact_marginals_and_a_wrong_joint_law() -> None:
    """Two requests that tell each other: a test of each request alone would pass."""
    report = leaky("joint_pair")
    two = next(w.laws.first(1) for w in report.worlds if w.laws.world.name == "two requests" and w.block_size == 2)
    a, b = (0,), (1,)
    assert two.policy == {(a, a): Fraction("0.5125"), (a, b): Fraction("0.1875"), (b, a): Fraction("0.1875"),
                          (b, b): Fraction("0.1125")}
    assert two.target[(a, a)] == Fraction("0.49")
    assert two.policy[(a, a)] + two.policy[(a, b)] == two.policy[(a, a)] + two.policy[(b, a)] == Fraction("0.7")
    text = lines(report)
    assert "0.5125        0.49" in text
    assert "Only c_{1,2} and c_{2,2} changed" in text
    assert "2 requests, block size 2; step times play no part" in text


def test_a_broken_rule_without_harm_is_not_proven() -> None:
    report = leaky("one_way")
    assert not report.ok
    assert report.deviation == 0.0
    assert "NOT PROVEN" in report.verdict
    assert "The law is exact in this toy" in lines(report)


def test_a_drafter_cannot_stop_on_what_it_never_computed() -> None:
    report = leaky("stops_in_vain")
    assert not report.ok
    assert report.deviation == 0.0
    assert "c_1 … c_{s+1} and nothing else" in lines(report, STOP)


@pytest.mark.parametrize(("name", "head"), [
    ("ties", "2 requests, block size 2"), ("stops_late", "1 request, block size 2"),
    ("faint", "1 request, block size 2"), ("own_probability", "1 request, block size 1"),
])
def test_counterexamples_are_minimal(name: str, head: str) -> None:
    text = lines(leaky(name))
    assert text.startswith(head), text
    assert "step " not in text.split("\n")[1], "no earlier step is needed"


def test_warm_up_is_as_long_as_it_must_be() -> None:
    text = lines(leaky("after_warm_up"))
    assert "step -2" in text
    assert "step -3" not in text


# -- greedy decoding -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["sync_global", "clairvoyant", "async_global", "joint_pair", "own_probability"])
def test_greedy_decoding_allows_looking_ahead(name: str) -> None:
    report = leaky(name, greedy=True) if name in CAUGHT else check_policy(name, greedy=True, cases=CASES)
    assert report.ok, str(report)
    assert all(len(world.laws.policy) == 1 for world in report.worlds), "one text only"


@pytest.mark.parametrize("name", ["stops_in_vain", "async_lag_zero"])
def test_greedy_decoding_does_not_allow_what_cannot_be_known(name: str) -> None:
    assert not leaky(name, greedy=True).ok


def test_a_policy_that_hangs_is_asked_once() -> None:
    """Not once more for every block size and lag: each would cost the whole time limit."""
    asked: list[int] = []

    class Hangs:
        lossless = True
        timing = "overlapped"

        def verify_lengths(self, view: BudgetView) -> IntArray:
            asked.append(view.requests)
            while True:
                pass

    with limited(1.0), supervised("hangs"):
        report = check_policy(Hangs)
    assert len(asked) == 1
    assert not report.ok
    assert "had not answered after 1 s" in report.checks[0].says
