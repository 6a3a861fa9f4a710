"""The shipped policies against literal loops, the paper's Appendix A, and the causal barrier."""

from __future__ import annotations

import itertools
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dspark_sim.curve import StepCost, StepCurve
from dspark_sim.policy import expected_tokens, top_k_lengths
from dspark_sim.registry import load_policy
from tests.fakes import decide, make_cost, make_setup, make_view, staircase

Survival = Any  # (R, G) float32


def policy(name: str, **parameters: Any) -> Any:
    return load_policy(name, parameters)[0]


# -- what hypothesis draws: few values, so that ties and zeros are common; curves that are flat, jump, and fall ------
@st.composite
def survivals(draw: st.DrawFn, R: int | None = None, G: int | None = None) -> Survival:
    R = R or draw(st.integers(1, 6))
    G = G or draw(st.integers(1, 5))
    few = st.sampled_from([0.0, 0.25, 0.5, 0.9, 1.0])
    value = draw(st.sampled_from([few, st.floats(0, 1, width=32)]))
    c = np.array(draw(st.lists(value, min_size=R * G, max_size=R * G))).reshape(R, G)
    return np.cumprod(c, axis=1).astype(np.float32)


@st.composite
def costs(draw: st.DrawFn, G: int, ragged: Literal["flattened", "padded"] = "flattened") -> StepCost:
    shape = draw(st.sampled_from(["jagged", "staircase", "line", "cliff"]))
    R, size = 6, 6 * (1 + G) + 8
    if shape == "line":
        seconds: dict[int, float] | StepCurve = {1: 1.0, size: draw(st.floats(1, 20))}
    elif shape == "staircase":
        edges = sorted(draw(st.sets(st.integers(1, size), min_size=1, max_size=6)) | {size})
        seconds = staircase(edges, np.cumsum(draw(st.lists(
            st.sampled_from([0.5, 1.0, 3.0]), min_size=len(edges), max_size=len(edges)))).tolist())
    elif shape == "cliff":
        limit = draw(st.integers(2, size - 1))
        seconds = staircase([1, limit, limit + 1, limit + 50], [1.0, 1.2, 9.0, 9.5], limit=limit)
    else:
        values = draw(st.lists(st.sampled_from([1.0, 1.1, 1.5, 2.0]), min_size=size, max_size=size))
        seconds = dict(enumerate([*values, 2.0], start=1))
    draft = draw(st.sampled_from([0.0, 0.5]))
    return make_cost(seconds, block_size=G, max_requests=R, draft=draft, ragged=ragged)


worlds = survivals().flatmap(lambda a: st.tuples(st.just(a), costs(a.shape[1]), st.integers(0, 5)))


# -- literal loops ---------------------------------------------------------------------------------------------------
def candidates(a: Survival) -> list[tuple[float, int, int]]:
    R, G = a.shape
    tokens = [(float(a[r, j]), r, j) for r in range(R) for j in range(G) if a[r, j] > 0]
    return sorted(tokens, key=lambda token: (-token[0], token[1], token[2]))


def first_k(a: Survival, K: int) -> list[int]:
    lengths = [0] * len(a)
    for _, r, _ in candidates(a)[:K]:
        lengths[r] += 1
    return lengths


def algorithm_1(a: Survival, seconds: Any) -> list[int]:
    R = len(a)
    tau, best, lengths = float(R), R / float(seconds[0]), [0] * R
    for admitted, (value, r, _) in enumerate(candidates(a), start=1):
        tau += value
        theta = tau / float(seconds[admitted])
        if theta <= best:
            break
        best = theta
        lengths[r] += 1
    return lengths


def global_search(a: Survival, seconds: Any) -> tuple[int, list[float]]:
    tau, thetas = float(len(a)), [len(a) / float(seconds[0])]
    for admitted, (value, _, _) in enumerate(candidates(a), start=1):
        tau += value
        thetas.append(tau / float(seconds[admitted]))
    return thetas.index(max(thetas)), thetas


# -- the order of candidates -----------------------------------------------------------------------------------------
@given(survivals(), st.integers(0, 40))
def test_top_k_is_a_stable_sort(a: Survival, k: int) -> None:
    lengths = top_k_lengths(a, k)
    assert lengths.tolist() == first_k(a, k)
    assert lengths.dtype == np.int64


@given(survivals())
def test_expected_tokens_has_the_bits_of_a_loop(a: Survival) -> None:
    tau, want = float(len(a)), [float(len(a))]
    for value, _, _ in candidates(a):
        tau += value
        want.append(tau)
    assert expected_tokens(a, len(a)).tolist() == want


def test_ranking_does_not_touch_or_need_its_input() -> None:
    whole = np.array([[0.9, 0.5, 0.4, 0.0], [0.9, 0.9, 0.1, 0.0]], dtype=np.float32)
    whole.flags.writeable = False
    part = whole[:, :3]  # not contiguous
    assert top_k_lengths(part, 4).tolist() == first_k(part, 4) == [2, 2]
    assert expected_tokens(part, 2).size == 7


# -- early_stop ------------------------------------------------------------------------------------------------------
@given(worlds, st.sampled_from(["step", "verify"]))
def test_early_stop_is_algorithm_1(world: tuple[Survival, StepCost, int], part: Literal["step", "verify"]) -> None:
    a, cost, prefill = world
    got = decide(policy("early_stop", cost=part), make_view(a, prefill_tokens=prefill), make_setup(cost))
    assert got.tolist() == algorithm_1(a, cost.table(len(a), prefill, part=part))


def test_early_stop_stops_at_an_equal_theta() -> None:
    """Θ = 1, 1, 4/3: the paper stops where Θ does not rise, even just before it would."""
    setup = make_setup(make_cost({1: 1.0, 2: 1.5, 3: 1.5}, block_size=2, max_requests=1))
    assert decide(policy("early_stop"), make_view([[0.5, 0.5]]), setup).tolist() == [0]
    assert decide(policy("sync_global"), make_view([[0.5, 0.5]]), setup).tolist() == [2]


def test_early_stop_returns_nothing_on_a_bucket_edge_and_async_global_steps_over_it() -> None:
    curve = staircase([8, 64, 512], [10.0, 12.0, 40.0])
    cost = make_cost(curve, block_size=7, max_requests=16)
    a = np.cumprod(np.full((8, 7), 0.9), axis=1).astype(np.float32)
    view = make_view(a, pasts={2: a})
    assert decide(policy("early_stop"), view, make_setup(cost)).sum() == 0
    assert decide(policy("async_global"), view, make_setup(cost)).sum() == 56


# -- global searches -------------------------------------------------------------------------------------------------
@given(worlds)
def test_sync_global_is_brute_force(world: tuple[Survival, StepCost, int]) -> None:
    a, cost, prefill = world
    K, _ = global_search(a, cost.table(len(a), prefill))
    got = decide(policy("sync_global"), make_view(a, prefill_tokens=prefill), make_setup(cost))
    assert got.tolist() == first_k(a, K)


def filled(past: Survival, new: float) -> Survival:
    out = past.copy()
    for r, row in enumerate(past):
        for j in range(len(row)):
            if np.isnan(row[0]):
                out[r, j] = np.float32(new)
            elif np.isnan(row[j]):
                out[r, j] = min(np.float32(new), out[r, j - 1])
    return out


@st.composite
def async_worlds(draw: st.DrawFn) -> tuple[Survival, Survival, StepCost, int]:
    current = draw(survivals())
    R, G = current.shape
    past = draw(survivals(R, G)).copy()
    for r in range(R):
        past[r, draw(st.sampled_from([0, G, G, draw(st.integers(0, G))])):] = np.nan
    return current, past, draw(costs(G)), draw(st.integers(0, 5))


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


# -- thresholds, fixed, no_spec --------------------------------------------------------------------------------------
@given(survivals(), st.sampled_from([0.0, 0.25, 0.3, 0.5, 0.9, 1.0]), st.sampled_from(["confidence", "survival"]))
def test_threshold_is_a_loop(a: Survival, threshold: float, on: str) -> None:
    view = make_view(a)
    score = view.confidence if on == "confidence" else view.survival
    want = []
    for r in range(len(a)):
        n = 0
        while n < view.drafted[r] and not score[r, n] < np.float32(threshold):
            n += 1
        want.append(n)
    assert decide(policy("threshold", threshold=threshold, on=on), view).tolist() == want


def test_fixed_and_no_spec() -> None:
    view = make_view(np.full((3, 5), 0.5), drafted=[5, 2, 0])
    setup = make_setup(make_cost({1: 1.0}, block_size=5))
    assert decide(policy("fixed", length=3), view, setup).tolist() == [3, 2, 0]
    assert policy("fixed", length=3).draft_lengths(view) == 3
    assert decide(policy("no_spec"), view, setup).tolist() == [0, 0, 0]
    with pytest.raises(ValueError, match=r"length: got 6, but the drafter proposes at most 5"):
        policy("fixed", length=6).start(setup)


def test_async_global_refuses_a_lag_that_the_host_cannot_serve() -> None:
    with pytest.raises(ValueError, match=r"lag: got 1, but confidences reach the host after 2 steps"):
        policy("async_global", lag=1).start(make_setup(make_cost({1: 1.0}), host_lag=2))


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


# -- Appendix A ------------------------------------------------------------------------------------------------------
# One request, two tokens A and B. Target (0.7, 0.3), drafter (0.5, 0.5): the first draft token is kept with chance 0.8.
# After A the drafter is sure (c_2 = 0.9), after B it knows that it is lost (c_2 = 0). SPS(1..3) = 1, 0.5, 0.45.
TARGET, DRAFTER, SECOND = (0.7, 0.3), (0.5, 0.5), (0.9, 0.0)
SPS = (1.0, 0.5, 0.45)


def appendix_a() -> StepCost:
    return make_cost({B: 1 / sps for B, sps in enumerate(SPS, start=1)}, block_size=2, max_requests=1)


def first_token_law(name: str, **options: Any) -> tuple[float, float]:
    """The exact law of the first output token: every drafted token, every acceptance."""
    law = [0.0, 0.0]
    residual = np.maximum(np.subtract(TARGET, DRAFTER), 0)
    residual /= residual.sum()
    for token, chance in enumerate(DRAFTER):
        row = [[0.8, 0.8 * SECOND[token]]]
        view = make_view(row, drafted=[2], pasts={2: [[0.8, 0.72]]})
        length = int(decide(policy(name, **options), view, make_setup(appendix_a()))[0])
        keep = min(1.0, TARGET[token] / DRAFTER[token])
        for out in range(2):
            if length == 0:
                law[out] += chance * TARGET[out]
            else:
                law[out] += chance * (keep * (out == token) + (1 - keep) * residual[out])
    return law[0], law[1]


def test_appendix_a_objective() -> None:
    seconds = appendix_a().table(1, part="verify")

    def thetas(c2: float) -> list[float]:
        return [float(x) for x in expected_tokens(np.array([[0.8, 0.8 * c2]]), 1) / seconds[: 3 if c2 else 2]]

    assert thetas(0.9) == pytest.approx([1.0, 0.9, 1.134])
    assert thetas(0.0) == pytest.approx([1.0, 0.9])
    assert (1 + 0.8 + 0.0) * SPS[2] == pytest.approx(0.81)  # a second token that is certainly lost


@pytest.mark.parametrize(("c2", "early", "sync"), [(0.9, 0, 2), (0.0, 0, 0)])
def test_appendix_a_decisions(c2: float, early: int, sync: int) -> None:
    view, setup = make_view([[0.8, 0.8 * c2]]), make_setup(appendix_a())
    assert decide(policy("early_stop", cost="verify"), view, setup).tolist() == [early]
    assert decide(policy("sync_global", cost="verify"), view, setup).tolist() == [sync]


def test_appendix_a_output_laws() -> None:
    assert first_token_law("sync_global") == pytest.approx((0.85, 0.15), abs=1e-12)
    for name, options in [("early_stop", {}), ("async_global", {}), ("threshold", {"threshold": 0.85}),
                          ("threshold", {"threshold": 0.6, "on": "survival"}), ("fixed", {"length": 2}),
                          ("no_spec", {})]:
        assert first_token_law(name, **options) == pytest.approx(TARGET, abs=1e-12), name


# -- the causal barrier ----------------------------------------------------------------------------------------------
@settings(max_examples=150)
@given(async_worlds(), st.data(), st.sampled_from([
    ("early_stop", {}), ("async_global", {}), ("threshold", {}), ("threshold", {"on": "survival"}), ("fixed", {}),
]))
def test_lengths_are_a_joint_stopping_rule(
    world: tuple[Survival, Survival, StepCost, int], data: st.DataObject, which: tuple[str, dict[str, Any]]
) -> None:
    current, past, cost, prefill = world
    R, G = current.shape
    made, setup = policy(which[0], **which[1]), make_setup(cost)
    view = make_view(current, drafted=[G] * R, pasts={2: past}, prefill_tokens=prefill)
    before = decide(made, view, setup)
    confidence = view.confidence.astype(np.float64)
    for r in range(R):
        tail = confidence[r, before[r] + 1:]
        tail[:] = data.draw(st.lists(st.sampled_from([0.0, 1.0, 0.5]), min_size=tail.size, max_size=tail.size))
    other = np.cumprod(confidence, axis=1).astype(np.float32)
    for r in range(R):
        other[r, : before[r] + 1] = current[r, : before[r] + 1]  # untouched to the last bit
    np.minimum.accumulate(other, axis=1, out=other)
    changed = make_view(other, confidence=confidence, drafted=[G] * R, pasts={2: past}, prefill_tokens=prefill)
    assert decide(made, changed, setup).tolist() == before.tolist()
