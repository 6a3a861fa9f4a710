"""Step-time curves and step costs: what is measured comes back, tables say what single questions say, and every
argument matters."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspark_sim.curve import MAX_TOKENS, DraftCost, StepCost, StepCurve
from dspark_sim.errors import OutOfRange, ProfileError

STAIRS = StepCurve(np.array([1, 4, 8, 16, 32]), np.array([5.0, 6.0, 5.5, 20.0, 30.0]), between="hold", graph_limit=8)


def line(*points: tuple[int, float], **more: Any) -> StepCurve:
    return StepCurve(np.array([p[0] for p in points]), np.array([p[1] for p in points]), **more)


@st.composite
def curves(draw: st.DrawFn, first: int | None = None) -> StepCurve:
    sizes = sorted(draw(st.sets(st.integers(1, 60), min_size=1, max_size=8)))
    if first is not None:
        sizes = sorted({first, *sizes})
    seconds = draw(st.lists(st.floats(0.001, 9.0), min_size=len(sizes), max_size=len(sizes)))
    between: Literal["hold", "linear"] = draw(st.sampled_from(["hold", "linear"]))
    limit = draw(st.sampled_from([None, *sizes])) if between == "hold" else None
    return StepCurve(np.array(sizes), np.array(seconds), between, limit, draw(st.sampled_from([None, "linear"])),
                     draw(st.booleans()))


# -- the curve -------------------------------------------------------------------------------------------------------
def test_captured_sizes_pad_up_and_the_cliff_stays_where_it_was_measured() -> None:
    assert [STAIRS(b) for b in (1, 2, 4, 5, 8)] == [5.0, 6.0, 6.0, 5.5, 5.5]
    assert [STAIRS.pad(b) for b in (1, 2, 4, 5, 8, 9, 20)] == [1, 4, 4, 8, 8, 9, 20]
    assert [STAIRS(b) for b in (9, 12, 16)] == [20.0, 20.0, 20.0], "nothing between the limit and the first size above"
    assert STAIRS(24) == 25.0, "straight lines above the limit"


def test_linear_interpolates_and_never_pads() -> None:
    curve = line((10, 1.0), (20, 3.0))
    assert curve(15) == 2.0
    assert curve.pad(15) == 15
    assert curve.graph_points == 0


def test_without_a_graph_limit_every_size_is_captured() -> None:
    curve = line((2, 1.0), (8, 2.0), between="hold")
    assert [curve(b) for b in (1, 3, 8)] == [1.0, 2.0, 2.0]


@pytest.mark.parametrize("curve", [STAIRS, line((1, 1.0), (9, 2.0))])
def test_outside_the_measured_sizes_a_curve_refuses(curve: StepCurve) -> None:
    with pytest.raises(OutOfRange, match=f"measured from 1 to {curve.last}.*extrapolate: linear"):
        curve(curve.last + 1)
    assert curve.at([curve.last + 1])[0] == np.inf


def test_a_linear_curve_refuses_below_its_first_size_too() -> None:
    with pytest.raises(OutOfRange, match="asked for 3"):
        line((4, 1.0), (9, 2.0))(3)


def test_extrapolation_continues_the_segments_at_both_ends_and_stops_at_zero() -> None:
    curve = line((10, 1.0), (20, 3.0), extrapolate="linear")
    assert curve(30) == 5.0
    assert curve(6) == pytest.approx(0.2)
    assert curve(1) == 0.0
    assert line((10, 1.0), extrapolate="linear")(99) == 1.0


def test_running_max_is_only_done_when_asked_for() -> None:
    assert line((1, 2.0), (2, 1.0), (3, 4.0)).seconds.tolist() == [2.0, 1.0, 4.0]
    assert line((1, 2.0), (2, 1.0), (3, 4.0), running_max=True).seconds.tolist() == [2.0, 2.0, 4.0]


@given(curves(), st.integers(0, 90))
def test_one_size_many_sizes_and_the_dense_table_agree(curve: StepCurve, size: int) -> None:
    table = curve.dense(90)
    assert curve.dense(90) is table, "cached"
    assert not table.flags.writeable
    assert np.array_equal(table, curve.at(np.arange(91)))
    if table[size] == np.inf:
        with pytest.raises(OutOfRange):
            curve(size)
    else:
        assert curve(size) == table[size]


@given(curves(), st.integers(1, 90))
def test_a_padded_size_costs_what_it_is_padded_to(curve: StepCurve, size: int) -> None:
    assert curve.at(size) == curve.at(curve.pad(size))
    assert curve.pad(size) >= size
    assert curve.pad(curve.pad(size)) == curve.pad(size)


@given(curves())
def test_every_measured_point_comes_back_exactly(curve: StepCurve) -> None:
    assert np.array_equal(curve.at(curve.batch_tokens), curve.seconds)


def test_arrays_are_copies_and_read_only() -> None:
    sizes = np.array([1, 2])
    curve = StepCurve(sizes, np.array([1.0, 2.0]))
    sizes[0] = 7
    assert curve.first == 1
    with pytest.raises(ValueError, match="read-only"):
        curve.seconds[0] = 9.0


@pytest.mark.parametrize(
    ("sizes", "seconds", "more", "message"),
    [
        ([], [], {}, "two lists of equal length"),
        ([1, 2], [1.0], {}, "two lists of equal length"),
        ([[1, 2]], [[1.0, 2.0]], {}, "two lists of equal length"),
        ([1, 2], [1.0, np.nan], {}, "not possible.*seconds from 0 to 10000"),
        ([1, 2], [1.0, -1.0], {}, "not possible"),
        ([1, 2], [1.0, np.inf], {}, "not possible"),
        ([1, 2], [1.0, 1e9], {}, "not possible"),
        ([1.5, 2], [1.0, 2.0], {}, "not a whole number"),
        ([1, np.nan], [1.0, 2.0], {}, "not a whole number"),
        ([-1, 2], [1.0, 2.0], {}, f"allowed: 0 to {MAX_TOKENS}"),
        ([1, 10**30], [1.0, 2.0], {}, f"allowed: 0 to {MAX_TOKENS}"),
        (["one", "two"], [1.0, 2.0], {}, "lists of numbers"),
        ([1, 2], ["fast", "slow"], {}, "lists of numbers"),
        ([1, 2, 2], [1.0, 2.0, 3.0], {}, r"2 stands after 2 \(point 3 of 3\)"),
        ([1, 3, 2], [1.0, 2.0, 3.0], {}, "2 stands after 3"),
        ([1, 2], [1.0, 2.0], {"between": "steps"}, "allowed: hold, linear"),
        ([1, 2], [1.0, 2.0], {"extrapolate": "flat"}, "allowed: linear"),
        ([1, 2], [1.0, 2.0], {"graph_limit": 2}, "between: hold"),
        ([1, 2], [1.0, 2.0], {"between": "hold", "graph_limit": 3}, "one of the measured sizes"),
    ],
)
def test_what_cannot_be_a_measured_curve_is_refused(sizes: Any, seconds: Any, more: Any, message: str) -> None:
    with pytest.raises(ProfileError, match=message):
        StepCurve(sizes, seconds, **more)


# -- the drafter -----------------------------------------------------------------------------------------------------
def test_a_parallel_drafter_costs_the_same_at_every_length_but_for_its_head() -> None:
    assert DraftCost("parallel", line((1, 1.0), (3, 3.0)))(2, 7) == 2.0
    head = line((1, 0.1), (3, 0.3))
    assert DraftCost("parallel", line((1, 1.0), (3, 3.0)), per_token=head)(2, 7) == pytest.approx(2.0 + 7 * 0.2)


def test_an_autoregressive_drafter_pays_per_token_of_the_longest_draft() -> None:
    assert DraftCost("autoregressive", line((1, 1.0), (3, 3.0)))(2, 7) == 14.0


def test_catching_up_costs_once_per_pause_and_nothing_is_free_but_nothing() -> None:
    cost = DraftCost("parallel", line((1, 1.0), (3, 3.0)), catch_up=line((1, 10.0), (2, 20.0)))
    assert cost(3, 5, resumed=2) == 23.0
    assert cost(0, 5) == 0.0
    assert cost(0, 0, resumed=2) == 0.0


def test_stopping_inside_the_block_saves_what_the_drafter_has_not_computed_yet() -> None:
    """Three rows begin and all stop before their first token: a block is computed anyway, single tokens are not."""
    assert DraftCost("parallel", line((1, 1.0), (3, 3.0)), per_token=line((1, 0.1), (3, 0.3)))(3, 0) == 3.0
    assert DraftCost("autoregressive", line((1, 1.0), (3, 3.0)))(3, 0) == 0.0
    assert DraftCost("autoregressive", line((1, 1.0), (3, 3.0)))(3, 2) == 6.0


# -- the step --------------------------------------------------------------------------------------------------------
def cost(**changes: Any) -> StepCost:
    arguments: dict[str, Any] = {
        "verify": line((1, 1.0), (8, 1.5), (64, 9.0), extrapolate="linear"), "block_size": 3, "max_requests": 9,
        "max_tokens": 90, "draft": DraftCost("parallel", line((1, 0.1), (9, 0.4)), line((1, 0.01), (9, 0.02))),
        "schedule": line((1, 0.2), (9, 0.3)), "fixed": line((1, 0.05), (9, 0.07)),
        "overhead": line((1, 0.03), (9, 0.04)), "per_request": 0.001, "per_kv_token": 1e-5, "measured_context": 10,
        "ragged": "flattened", "prefill": line((1, 0.5), (64, 3.0)), "scale": 1.0,
    }
    return StepCost(**(arguments | changes))


def fingerprint(c: StepCost) -> list[float]:
    """A few answers of each kind."""
    return [c.step(12, 4, kv=100), c.step(12, 4, 100, drafted=1), c.verify(12, 4, 100), c.draft_seconds(4, 2, 1),
            c.schedule_seconds(4), c.other_seconds(4, 100), c.verify_seconds(12, prefill=7),
            *c.table(4, prefill=7, kv=100), *c.table(4, kv=100, part="verify")]


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("verify", line((1, 1.0), (64, 9.0))), ("block_size", 2),
        ("draft", DraftCost("autoregressive", line((1, 0.1), (9, 0.4)), line((1, 0.01), (9, 0.02)))),
        ("draft", DraftCost("parallel", line((1, 0.1), (9, 0.5)), line((1, 0.01), (9, 0.02)))),
        ("draft", DraftCost("parallel", line((1, 0.1), (9, 0.4)))),
        ("draft", DraftCost("parallel", line((1, 0.1), (9, 0.4)), line((1, 0.01), (9, 0.02)), line((1, 0.1)))),
        ("draft", None), ("schedule", None), ("fixed", None), ("overhead", None), ("per_request", 0.002),
        ("per_kv_token", 2e-5), ("measured_context", 0), ("ragged", "padded"), ("prefill", None), ("scale", 1.1),
    ],
)
def test_every_argument_changes_an_answer(argument: str, value: Any) -> None:
    assert fingerprint(cost(**{argument: value})) != fingerprint(cost())


def test_a_step_is_the_sum_of_its_parts() -> None:
    c = cost()
    verify = 1.5 + 4 / 56 * 7.5
    other = 4 * 0.001 + (0.05 + 0.02 * 3 / 8) + (0.03 + 0.01 * 3 / 8) + 1e-5 * (100 - 4 * 10)
    assert c.step(12, 4, kv=100) == pytest.approx((0.1 + 0.3 * 3 / 8) + (0.2 + 0.1 * 3 / 8) + verify + other)


def test_max_requests_and_max_tokens_bound_the_tables() -> None:
    assert cost(max_tokens=11).verify_seconds(12) == np.inf
    assert cost(max_tokens=12).verify_seconds(12) < np.inf
    assert cost(max_tokens=6).verify_seconds(3, prefill=7) == np.inf
    assert cost(max_tokens=11).table(4, prefill=0)[-1] == np.inf
    with pytest.raises(IndexError):
        cost(max_requests=3).other_seconds(4)


def test_a_step_without_rows_pays_a_finite_price() -> None:
    c = cost()
    assert c.verify_seconds(0, prefill=64) + c.other_seconds(0) == pytest.approx(3.0 + 0.05 + 0.03)
    assert c.schedule_seconds(0) == c.draft_seconds(0, 3) == 0.0


@pytest.mark.parametrize("scale", [1.0, 1.5])
def test_tables_cannot_be_spoilt_by_a_policy(scale: float) -> None:
    c = cost(scale=scale, fixed=None, overhead=None, per_request=0.0, per_kv_token=0.0)
    table = c.table(4, part="verify")
    before = table.copy()
    with pytest.raises(ValueError, match="read-only"):
        table[0] = 0.0
    assert np.array_equal(c.table(4, part="verify"), before)


def test_scale_multiplies_the_target_only() -> None:
    assert cost(scale=2.0).verify_seconds(12) == 2 * cost().verify_seconds(12)
    assert cost(scale=2.0).draft_seconds(4, 3) == cost().draft_seconds(4, 3)
    assert cost(scale=2.0).other_seconds(4, 100) == cost().other_seconds(4, 100)


@st.composite
def costs(draw: st.DrawFn) -> StepCost:
    some = st.one_of(st.none(), curves(first=1))
    drafter = st.builds(DraftCost, st.sampled_from(["parallel", "autoregressive"]), curves(first=1), some, some)
    return StepCost(
        draw(curves()), block_size=draw(st.integers(1, 4)), max_requests=9, max_tokens=draw(st.integers(20, 60)),
        draft=draw(st.one_of(st.none(), drafter)), schedule=draw(some), fixed=draw(some), overhead=draw(some),
        per_request=draw(st.floats(0, 0.1)), per_kv_token=draw(st.floats(0, 1e-3)),
        measured_context=draw(st.integers(0, 99)), ragged=draw(st.sampled_from(["flattened", "padded"])),
        prefill=draw(some), scale=draw(st.sampled_from([1.0, 0.7])),
    )


@given(costs(), st.integers(1, 9), st.integers(0, 20), st.integers(0, 500))
def test_the_table_says_for_every_budget_what_a_step_costs(c: StepCost, R: int, prefill: int, kv: int) -> None:
    table = c.table(R, prefill, kv)
    verify = c.table(R, prefill, kv, part="verify")
    short = c.table(R, prefill, kv, longest=1)
    assert table.shape == verify.shape == (R * c.block_size + 1,)
    for K in range(R * c.block_size + 1):
        B = R * (1 + -(-K // R)) if c.ragged == "padded" else R + K
        target = c.verify_seconds(B, prefill) + c.other_seconds(R, kv)
        assert verify[K] == pytest.approx(target)
        assert table[K] == pytest.approx(target + c.draft_seconds(R, c.block_size) + c.schedule_seconds(R))
        assert short[K] == pytest.approx(target + c.draft_seconds(R, 1) + c.schedule_seconds(R))
        if not prefill:
            assert table[K] == pytest.approx(c.step(B, R, kv))


@given(costs(), st.integers(1, 9), st.integers(1, 4), st.integers(0, 9))
def test_the_drafter_costs_in_a_step_what_it_costs_alone(c: StepCost, R: int, longest: int, resumed: int) -> None:
    alone = DraftCost("parallel", line((1, 0.0), (9, 0.0))) if c.draft_cost is None else c.draft_cost
    try:
        expected = alone(R, longest, resumed)
    except OutOfRange:
        expected = np.inf
    assert c.draft_seconds(R, longest, resumed) == pytest.approx(expected)


@given(costs(), st.integers(1, 60))
def test_the_charged_size_is_the_curves_padding(c: StepCost, tokens: int) -> None:
    assert c.padded_tokens(tokens) == c.verify_curve.pad(tokens)
