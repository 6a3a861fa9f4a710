"""sync_global, async_global and clairvoyant against brute force."""

from __future__ import annotations

import itertools
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dspark_sim.curve import StepCost
from tests.fakes import decide, make_cost, make_setup, make_view, staircase
from tests.policy_worlds import (
    Survival,
    async_worlds,
    candidates,
    costs,
    filled,
    first_k,
    global_search,
    policy,
    worlds,
)


# -- global searches -------------------------------------------------------------------------------------------------
@given(worlds)
def test_sync_global_is_brute_force(world: tuple[Survival, StepCost, int]) -> None:
    a, cost, prefill = world
    K, _ = global_search(a, cost.table(len(a), prefill))
    got = decide(policy("sync_global"), make_view(a, prefill_tokens=prefill), make_setup(cost))
    assert got.tolist() == first_k(a, K)


@settings(max_examples=300)
@given(async_worlds(), st.sampled_from([0.0, 0.02, 0.3]), st.sampled_from([0.0, 0.6, 1.0]),
       st.sampled_from(["none", "all"]), st.sampled_from(["step", "verify"]))
def test_async_global_is_brute_force_over_all_k(
    world: tuple[Survival, Survival, StepCost, int], gain: float, new: float, otherwise: str,
    part: Literal["step", "verify"],
) -> None:
    current, past, cost, prefill = world
    old, seconds = filled(past, new), cost.table(len(past), prefill, part=part)
    K, thetas = global_search(old, seconds)
    everything = sum((value for value, _, _ in candidates(old)), start=float(len(old))) / float(seconds[old.size])
    if gain and thetas[K] < (1 + gain) * (thetas[0] if otherwise == "none" else everything):
        K = 0 if otherwise == "none" else past.size
    made = policy("async_global", lag=3, min_gain=gain, new_request_survival=new, otherwise=otherwise, cost=part)
    got = decide(made, make_view(current, pasts={3: past}, prefill_tokens=prefill), make_setup(cost))
    assert got.tolist() == first_k(current, K)


def test_async_global_breaks_ties_towards_fewer_tokens() -> None:
    cost = make_cost({1: 1.0, 2: 1.5, 3: 2.0, 4: 2.5}, block_size=2, max_requests=1)
    a = [[0.5, 0.5]]  # Θ = 1, 1, 1
    assert decide(policy("async_global"), make_view(a, pasts={2: a}), make_setup(cost)).tolist() == [0]


def test_every_option_of_async_global_changes_a_decision() -> None:
    current, old, older = [[0.9, 0.8], [0.7, 0.1]], [[0.9, 0.9], [0.9, 0.9]], [[0.2, 0.1], [0.2, 0.1]]
    cost = make_cost({1: 1.0, 2: 2.0, 3: 2.5, 4: 3.0, 5: 3.5, 6: 4.0}, block_size=2, max_requests=2, draft=1.0)

    def total(host_lag: int = 1, **options: Any) -> int:
        view = make_view(current, pasts={1: old, 2: older}, host_lag=host_lag)
        return int(decide(policy("async_global", **options), view, make_setup(cost, host_lag=host_lag)).sum())

    assert total() == 0  # Θ falls from 2 / 3 to 2.2 / 3.5, and stays below
    assert total(lag=1) == 4  # 5.42 / 5 against 2 / 3: a gain of 0.63
    assert total(lag=1, min_gain=0.6) == 4
    assert total(lag=1, min_gain=0.7) == 0
    assert total(min_gain=0.1, otherwise="all") == 0  # 2 / 3 against 2.6 / 5
    assert total(min_gain=0.3, otherwise="all") == 4
    assert total(lag=3) == 4
    assert total(lag=3, new_request_survival=0.1) == 0
    # Without the drafter's seconds, which nothing can save, a token must earn more.
    middling = make_view(current, pasts={2: [[0.4, 0.1], [0.4, 0.1]]})
    assert decide(policy("async_global"), middling, make_setup(cost)).sum() == 2
    assert decide(policy("async_global", cost="verify"), middling, make_setup(cost)).sum() == 0


def test_prefill_and_kv_tokens_enter_the_belief() -> None:
    cliff = staircase([1, 8, 9, 50], [1.0, 1.1, 9.0, 9.5], limit=8)
    cost = make_cost(cliff, block_size=4, max_requests=2, per_kv_token=0.01)
    a = np.cumprod(np.full((2, 4), 0.8), axis=1)
    for name in ("async_global", "early_stop", "sync_global"):
        def total(name: str = name, **more: int) -> int:
            return int(decide(policy(name), make_view(a, pasts={2: a}, **more), make_setup(cost)).sum())

        assert total() == 6
        assert total(prefill_tokens=4) == 2
    line = make_cost({1: 1.0, 100: 100.0}, block_size=4, max_requests=2, per_kv_token=0.01)
    few = decide(policy("async_global"), make_view(a, pasts={2: a}), make_setup(line)).sum()
    many = decide(policy("async_global"), make_view(a, pasts={2: a}, kv_tokens=5000), make_setup(line)).sum()
    assert few < many  # a dear fixed part makes more tokens worth their price


# -- clairvoyant -----------------------------------------------------------------------------------------------------
@settings(max_examples=150)
@given(st.data(), st.sampled_from(["flattened", "padded"]))
def test_clairvoyant_is_the_best_that_one_step_can_do(data: st.DataObject, ragged: Any) -> None:
    R, G = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))
    cost = data.draw(costs(G, ragged))
    column = st.lists(st.integers(0, G), min_size=R, max_size=R)
    kept, drafted = data.draw(column), data.draw(column)
    remaining = data.draw(st.lists(st.integers(1, G + 2), min_size=R, max_size=R))
    view = make_view(np.full((R, G), 0.5), drafted=drafted, oracle=kept, remaining=remaining)
    got = decide(policy("clairvoyant"), view, make_setup(cost)).tolist()

    def rate(lengths: tuple[int, ...]) -> float:
        tokens = sum(min(1 + min(n, k), left) for n, k, left in zip(lengths, kept, remaining, strict=True))
        B = sum(1 + n for n in lengths) if ragged == "flattened" else R * (1 + max(lengths))
        return tokens / cost.step(B, R)

    best = max(rate(lengths) for lengths in itertools.product(*(range(n + 1) for n in drafted)))
    assert rate(tuple(got)) == pytest.approx(best, rel=1e-12)


@pytest.mark.parametrize(("ragged", "want"), [("flattened", [3, 0, 2, 0]), ("padded", [2, 0, 2, 0])])
def test_clairvoyant_wastes_nothing_where_time_rises(ragged: Any, want: list[int]) -> None:
    setup = make_setup(make_cost({1: 1.0, 100: 9.0}, block_size=4, max_requests=4, ragged=ragged))
    view = make_view(np.full((4, 4), 0.5), drafted=[4, 4, 2, 4], oracle=[3, 0, 4, 1], remaining=[9, 9, 9, 1])
    assert decide(policy("clairvoyant"), view, setup).tolist() == want
    dear = make_setup(make_cost({1: 1.0, 5: 9.0}, block_size=4, max_requests=4, ragged=ragged))
    assert decide(policy("clairvoyant"), view, dear).tolist() == [0, 0, 0, 0]
    view = make_view(np.full((2, 4), 0.5), oracle=[3, 1])
    stairs = make_setup(make_cost(staircase([4, 8], [1.0, 3.0]), block_size=4, max_requests=2, ragged=ragged))
    assert decide(policy("clairvoyant"), view, stairs).tolist() == [1, 1]  # row by row would be [2, 0]


def test_clairvoyant_knows_that_a_padded_engine_pays_for_its_longest_row() -> None:
    line = make_setup(make_cost({1: 1.0, 100: 9.0}, block_size=4, max_requests=4, ragged="padded"))
    view = make_view(np.full((4, 4), 0.5), oracle=[3, 0, 0, 0])
    assert decide(policy("clairvoyant"), view, line).tolist() == [0, 0, 0, 0]  # 7 tokens at width 4 against 4 at 1
    falls = {2: 2.0, 4: 1.0, 8: 1.1}
    lost = make_view([[0.5], [0.5]], oracle=[0, 0])
    for ragged, want in [("padded", [1, 0]), ("flattened", [1, 1])]:
        setup = make_setup(make_cost(falls, block_size=1, max_requests=2, ragged=ragged))  # type: ignore[arg-type]
        assert decide(policy("clairvoyant"), lost, setup).tolist() == want
