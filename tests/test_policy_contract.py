"""The contract of policy.py, held against every policy on the shelf."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dspark_sim.policy import EngineSetup, StepView
from dspark_sim.registry import PolicySource, list_policies, load_policy
from tests.fakes import decide, make_cost, make_setup, make_view, staircase

SHELF = list_policies()
SHAPES = [(1, 1), (1, 7), (5, 3), (32, 7)]


@pytest.fixture(params=SHELF, ids=lambda source: source.name)
def source(request: pytest.FixtureRequest) -> PolicySource:
    found: PolicySource = request.param
    return found


def setup_for(G: int) -> EngineSetup:
    return make_setup(make_cost(staircase([8, 64, 512], [5.0, 6.0, 30.0]), block_size=G, draft=0.3))


def views(R: int, G: int, count: int = 12, seed: int = 3) -> list[StepView]:
    """Steps of an engine: rows that drafted less, requests without a past, ties, zeros, ends near."""
    rng = np.random.default_rng(seed)
    out = []
    for step in range(count):
        drafted = np.where(rng.random(R) < 0.2, rng.integers(0, G + 1, R), G)
        inside = np.arange(G) < drafted[:, None]
        confidence = np.where(inside, np.round(rng.random((R, G)) ** 0.3, 2), 0.0)
        past = np.cumprod(np.round(rng.random((R, G)) ** 0.3, 2), axis=1)
        past[rng.random(R) < 0.3] = np.nan
        out.append(make_view(
            np.cumprod(confidence, axis=1), confidence=confidence, drafted=drafted, step=step, pasts={2: past},
            oracle=rng.integers(0, G + 1, R), remaining=rng.integers(1, 2 * G + 1, R),
            prefill_tokens=int(rng.integers(0, 9)), draft_probability=rng.random((R, G)),
        ))
    return out


def fresh(source: PolicySource) -> Any:
    return load_policy(source.name)[0]


@pytest.mark.parametrize(("R", "G"), SHAPES)
def test_answers_are_whole_numbers_within_what_was_drafted(source: PolicySource, R: int, G: int) -> None:
    policy, setup = fresh(source), setup_for(G)
    if hasattr(policy, "start"):
        policy.start(setup)
    for view in views(R, G):
        wanted = policy.draft_lengths(view) if hasattr(policy, "draft_lengths") else G
        assert np.all((np.asarray(wanted) >= 0) & (np.asarray(wanted) <= G))
        lengths = policy.verify_lengths(view)
        assert isinstance(lengths, np.ndarray)
        assert lengths.shape == (R,)
        assert lengths.dtype == np.int64
        assert np.all((lengths >= 0) & (lengths <= view.drafted))
        assert not np.shares_memory(lengths, view.drafted)


def test_views_are_left_as_they_were(source: PolicySource) -> None:
    policy = fresh(source)
    names = ("slot", "request_class", "context", "emitted", "remaining", "arrival", "first_token", "tpot_sla",
             "drafted", "confidence", "survival", "oracle", "draft_probability")
    if hasattr(policy, "start"):
        policy.start(setup_for(5))
    for view in views(6, 5):
        before = {name: np.array(getattr(view, name)) for name in names} | {"past": np.array(view.past(2))}
        decide(policy, view)
        after = {name: getattr(view, name) for name in names} | {"past": view.past(2)}
        for name, array in before.items():
            np.testing.assert_array_equal(after[name], array, err_msg=name)


def decisions(policy: Any) -> list[list[int]]:
    policy.start(setup_for(5)) if hasattr(policy, "start") else None
    return [decide(policy, view).tolist() for view in views(6, 5)]


def test_the_same_steps_give_the_same_answers_and_start_forgets(source: PolicySource) -> None:
    first, again = fresh(source), fresh(source)
    once = decisions(first)
    assert decisions(again) == once
    assert decisions(first) == once  # the second run of one object: start has reset it


def test_declares_what_it_uses(source: PolicySource) -> None:
    """A view that holds only what the class asks for is enough."""
    policy, setup = fresh(source), setup_for(4)
    view = views(3, 4)[0]
    view._oracle_allowed = source.needs_oracle
    if not source.needs_confidence:
        view._rows.confidence = view._rows.survival = lambda: None  # type: ignore[method-assign]
    decide(policy, view, setup)
    assert not (source.lossless and source.needs_oracle)


def test_docstring_says_why_it_is_lossless_and_when_it_decides(source: PolicySource) -> None:
    claim = "Lossless: " if source.lossless else "ot lossless"
    assert claim in source.doc
    assert f"{source.timing.capitalize()}: " in source.doc
    for parameter in source.parameters:
        assert f"    {parameter}: " in source.doc, f"{parameter} is not explained"


def test_the_shelf_holds_what_the_design_names() -> None:
    assert {"no_spec", "fixed", "threshold", "early_stop", "async_global", "sync_global", "clairvoyant"} <= {
        s.name for s in SHELF}
    assert {s.name for s in SHELF if not s.lossless} == {"sync_global", "clairvoyant"}
