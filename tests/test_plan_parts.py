"""Loads of every kind of traffic, break-evens and winners on invented numbers, limits, the page's escaping."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dspark_sim.plan_arm import Capacity
from dspark_sim.plan_cost import units_for
from dspark_sim.plan_demand import need_of
from dspark_sim.plan_judge import is_saturated
from dspark_sim.plan_load import load_axis
from dspark_sim.plan_variants import break_even_acceptance, break_even_load, winner
from dspark_sim.planner import plan
from dspark_sim.scenario import load_scenario
from tests.knob_cases_plan import PLANNED
from tests.plan_world import write_queue

TURNS = {"kind": "constant", "value": 2}
DIURNAL = {"kind": "diurnal", "mean_rate_per_s": 4.0, "amplitude": 0.5, "period_s": 86400}
KINDS: dict[str, tuple[dict[str, Any], float, str]] = {
    "closed": ({"kind": "closed", "concurrency": 8}, 8.0, "users"),
    "poisson": ({"kind": "poisson", "rate_per_s": 4.0}, 4.0, "requests/s"),
    "gamma": ({"kind": "gamma", "rate_per_s": 4.0, "cv": 2.0}, 4.0, "requests/s"),
    "piecewise": ({"kind": "piecewise", "rates": [[0, 2.0], [35, 6.0]]}, 6.0, "requests/s"),
    "diurnal": (DIURNAL, 6.0, "requests/s"),
    "sessions": ({"kind": "sessions", "rate_per_s": 4.0, "turns": TURNS, "think_time_s": {"mean": 1}}, 4.0,
                 "sessions/s"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_stated_load_and_twice_of_it(tmp_path: Path, kind: str) -> None:
    from dspark_sim.arms import load_arms
    from dspark_sim.simulate import simulate

    arrival, stated, unit = KINDS[kind]
    scenario = load_scenario(write_queue(tmp_path, {"workload.arrival": arrival}))
    axis = load_axis(scenario)
    assert (axis.stated, axis.unit) == (pytest.approx(stated), unit)
    (setup,) = load_arms(scenario)
    counts = [simulate(setup, axis.at(scenario, load), 0).requests.num_rows for load in (stated, 2 * stated)]
    if kind == "closed":  # one place: users queue, nothing more is served
        assert axis.at(scenario, 16.0).workload.arrival.concurrency == 16
    else:
        assert counts[1] == pytest.approx(2 * counts[0], rel=0.25)


def test_a_replayed_log_is_searched_by_its_rate(tmp_path: Path) -> None:
    rows = [f"{0.25 * i:g},8,3" for i in range(400)]  # 4 per second
    (tmp_path / "log.csv").write_text("arrival_s,prompt_tokens,output_tokens\n" + "\n".join(rows))
    scenario = load_scenario(write_queue(tmp_path, {
        "workload": {"arrival": {"kind": "replay", "file": "log.csv", "rate_scale": 0.5},
                     "classes": [{"name": "all", "domain": "math", "sla": {"ttft_ms_max": 60}}]}}))
    axis = load_axis(scenario)
    assert axis.stated == pytest.approx(2.0, rel=0.2)  # half of the rows, drawn
    assert axis.at(scenario, 2 * axis.stated).workload.arrival.rate_scale == pytest.approx(1.0)
    assert scenario.workload.arrival.rate_scale == 0.5


def test_a_day_is_told_by_a_piecewise_rate(tmp_path: Path) -> None:
    """8 hours at 2, 8 at 6, 8 at 4 per second: the peak is 6, and the day needs two thirds of it on average."""
    rates = [[0, 2.0], [8 * 3600, 6.0], [16 * 3600, 4.0], [86400, 2.0]]
    scenario = load_scenario(write_queue(tmp_path, {"workload.arrival": {"kind": "piecewise", "rates": rates}}))
    need = need_of(scenario, load_axis(scenario))
    assert need.peak == pytest.approx(6.0)
    assert need.hours == pytest.approx([1 / 3] * 8 + [1.0] * 8 + [2 / 3] * 8)
    assert not need.flat
    for day, days in ((86400 + 9 * 3600, 2), (6 * 86400, 7)):  # growth of the second day, and from the seventh on
        later = [*rates[:3], [day, 12.0]]
        scenario = load_scenario(write_queue(tmp_path, {"workload.arrival": {"kind": "piecewise", "rates": later}}))
        need = need_of(scenario, load_axis(scenario))
        assert (need.peak, max(need.hours)) == (pytest.approx(12.0), 1.0)
        assert f"the highest of {days} days" in need.source
    short = [[0, 2.0], [30, 60.0], [31, 2.0]]  # a spike of a second is no day, but it is the peak
    scenario = load_scenario(write_queue(tmp_path, {"workload.arrival": {"kind": "piecewise", "rates": short}}))
    need = need_of(scenario, load_axis(scenario))
    assert (need.peak, need.flat) == (60.0, True)


@pytest.mark.parametrize("demand", [{"hours": "workload"}, {}])
def test_a_day_is_told_by_a_diurnal_rate(tmp_path: Path, demand: dict[str, Any]) -> None:
    changes = {"workload.arrival": DIURNAL, "plan.demand": demand}
    scenario = load_scenario(write_queue(tmp_path, changes))
    need = need_of(scenario, load_axis(scenario))
    assert max(need.hours) == 1.0
    assert need.hours.index(1.0) in (5, 6)  # a quarter of the period
    assert min(need.hours) == pytest.approx(1 / 3, abs=0.01)
    assert need.peak == pytest.approx(6.0, rel=0.01)


def cap(low: float | None, estimate: float | None, high: float | None) -> Capacity:
    return Capacity(low, high, estimate)


def test_the_winner_is_sure_only_above_everybody_elses_interval() -> None:
    found = winner({"a": cap(1, 1.2, 1.4), "b": cap(2, 2.1, 2.2), "c": cap(None, None, 1)})
    assert (found.arm, found.sure, found.second) == ("b", True, "a")
    assert not winner({"a": cap(1, 1.9, 2.05), "b": cap(2, 2.1, 2.2)}).sure
    assert not winner({"a": cap(1, 1.9, None), "b": cap(2, 2.1, 2.2)}).sure
    assert winner({"a": cap(None, None, 1)}).arm is None


def test_break_even_acceptance_is_interpolated_or_said_in_words() -> None:
    assert break_even_acceptance([(0.8, 3.0, 4.0), (0.9, 5.0, 4.0), (1.0, 6.0, 4.0)]).value == pytest.approx(0.85)
    assert break_even_acceptance([(0.8, None, 4.0), (1.0, 4.0, 4.0), (1.1, 6.0, 4.0)]).value == pytest.approx(1.0)
    always = break_even_acceptance([(0.8, 5.0, 4.0), (1.0, 6.0, 4.0)])
    assert (always.value, "down to acceptance × 0.8" in always.words) == (None, True)
    never = break_even_acceptance([(0.8, 2.0, 4.0), (1.1, 3.0, 4.0)])
    assert (never.value, "up to acceptance × 1.1" in never.words) == (None, True)
    assert break_even_acceptance([(1.0, None, None), (1.1, None, None)]).value is None


def test_break_even_load_is_interpolated_or_said_in_words() -> None:
    assert break_even_load([(1, 90, 60), (2, 70, 60), (4, 50, 60)], "requests/s").value == pytest.approx(3.0)
    always = break_even_load([(1, 90, 60), (2, 70, None), (4, 65, 60)], "users")
    assert (always.value, "up to 4 users" in always.words) == (None, True)
    never = break_even_load([(1, 50, 60), (2, 70, 60)], "users")
    assert (never.value, "already at 1 users" in never.words) == (None, True)
    assert break_even_load([(1, None, 60)], "users").value is None


@pytest.mark.parametrize(("demand", "capacity", "headroom", "units"), [
    (40.0, 10.0, 0.0, 4), (40.1, 10.0, 0.0, 5), (40.0, 10.0, 0.2, 5), (0.0, 10.0, 0.0, 0), (0.3, 0.1, 0.0, 3),
])
def test_units(demand: float, capacity: float, headroom: float, units: int) -> None:
    assert units_for(demand, capacity, headroom) == units


def test_a_queue_that_grows_with_an_excess_is_seen_and_one_that_swings_is_not() -> None:
    def halves(before: float | None, after: float | None, requests: float) -> dict[str, float | None]:
        return {"waiting_first_half": before, "waiting_second_half": after, "requests": requests}

    assert is_saturated(halves(20, 70, 2000))  # 50 more, of 1,000 in half a window: 5 % too many
    assert not is_saturated(halves(20, 40, 2000))
    assert not is_saturated(halves(0, 4.9, 10))
    assert not is_saturated(halves(None, None, 10))


@pytest.mark.parametrize("knob", PLANNED)
def test_turning_a_knob_of_the_plan_changes_the_plan(tmp_path: Path, knob: str) -> None:
    base = {"plan": {"attainment": 0.9, "resolution": 0.1, "max_replications": 5, "demand": {"peak_per_s": 60.0}},
            "measure.duration_s": 8}
    if knob == "Demand.peak_users":
        base |= {"workload.arrival": {"kind": "closed", "concurrency": 2}, "workload.sla": {"tps_user_min": 20.0},
                 "plan.demand": {"peak_users": 40}}
    if knob == "Plan.max_load":
        base |= {"workload.sla": {"ttft_ms_max": 1e6}, "measure.duration_s": 4}
    before, after = (plan(write_queue(tmp_path, changes), sensitivity=False).to_dict()
                     for changes in (base, base | PLANNED[knob]))
    assert before != after


def test_names_from_outside_cannot_become_markup(tmp_path: Path) -> None:
    from dspark_sim.plots.plan import draw_plan
    from dspark_sim.report.capacity import render_capacity

    evil = "<script>alert(1)</script>"
    found = plan(write_queue(tmp_path, {
        "description": evil, "arms": [{"name": evil, "policy": "no_spec"}],
        "workload.classes": [{"name": f"{evil}&", "domain": "math"}], "measure.duration_s": 8,
    }), quick=True, sensitivity=False)
    page = render_capacity(found, draw_plan(found, tmp_path), ["x", "plan", evil])
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "http" not in page.split("</style>")[1].split("Inputs and where")[0]
    assert page.count("<img") == 2


def test_more_of_the_shared_seed_keeps_arms_paired(tmp_path: Path) -> None:
    """Two equal arms get the same requests at every load: the same answer, digit for digit."""
    arms = [{"name": name, "policy": "no_spec"} for name in ("one", "two")]
    found = plan(write_queue(tmp_path, {"arms": arms, "measure.duration_s": 10}), quick=True, sensitivity=False)
    one, two = found["one"].to_dict(), found["two"].to_dict()
    for key in ("capacity", "limit", "sizing", "points"):
        assert one[key] == two[key]
    assert found["two"].break_even_load.value is None
    assert not found.winner.sure


def test_an_undecided_arm_is_not_called_one_that_cannot(tmp_path: Path) -> None:
    """So few requests that nothing can be proved: neither the table nor the answer says that no load passes."""
    from dspark_sim.plan_render import arm_table

    found = plan(write_queue(tmp_path, {
        "workload.arrival.rate_per_s": 1.0, "plan.max_load": 2.0, "measure.duration_s": 5, "plan.max_replications": 3,
    }), sensitivity=False)
    arm = found["plain"]
    assert (arm.capacity.low, arm.capacity.open) == (None, True)
    assert "surely" in found.answer[0]
    assert arm_table(found)[1][0][1] == "undecided"
    assert any("too few requests finished" in warning for warning in found.warnings)


def test_a_plan_pays_for_gpus_that_are_switched_off() -> None:
    """100 tokens/s per GPU in service, 3 of 4 in service on average: 75 per GPU that is paid for."""
    from dspark_sim.plan_arm import per_paid_gpu

    assert per_paid_gpu({"throughput_tok_s_gpu": 100.0, "gpus_mean": 3.0}, 4) == 75.0
    assert per_paid_gpu({"throughput_tok_s_gpu": 100.0, "gpus_mean": 4.0}, 4) == 100.0
    assert per_paid_gpu({"throughput_tok_s_gpu": None, "gpus_mean": 4.0}, 4) is None
