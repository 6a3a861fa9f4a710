"""dspark-sim plan on a queue whose capacity is known, its costs by arithmetic, and what it refuses."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dspark_sim.cli import app
from dspark_sim.errors import InputError
from dspark_sim.plan_results import PlanResults
from dspark_sim.planner import plan
from tests.plan_world import SERVICE, STEP, write_queue


def served_within(rate: float, wait: float) -> float:
    """P(W ≤ wait) of M/D/1 (Erlang 1909), for 1 ≤ wait / service < 2."""
    assert 1 <= wait / SERVICE < 2
    rho, late = rate * SERVICE, wait - SERVICE
    return (1 - rho) * (math.exp(rate * wait) - rate * late * math.exp(rate * late))


def capacity(target: float, wait: float) -> float:
    low, high = 0.1, 0.999 / SERVICE
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if served_within(middle, wait) > target else (low, middle)
    return low


@pytest.fixture(scope="module")
def queue(tmp_path_factory: pytest.TempPathFactory) -> PlanResults:
    path = write_queue(tmp_path_factory.mktemp("queue"), {
        "plan.demand": {"peak_per_s": 200.0, "hours": [1.0] * 8 + [0.5] * 15 + [0.0]}, "plan.n_plus_one": True,
    })
    return plan(path, sensitivity=False)


def test_the_capacity_of_a_queue_under_a_ttft_limit(queue: PlanResults) -> None:
    truth = capacity(0.9, 0.060 - STEP)  # the first token comes one step after the wait
    found = queue["plain"].capacity
    assert truth == pytest.approx(17.69, abs=0.01)
    assert found.low <= truth <= found.high
    assert found.high < 1.35 * found.low
    assert found.estimate == pytest.approx(truth, rel=0.08)
    assert found.requests_s[0] == found.low
    assert found.tok_s_gpu[0] == pytest.approx(3 * found.low / 2, rel=0.03)  # 3 tokens, 2 GPUs


def test_it_says_which_promise_breaks_and_why(queue: PlanResults) -> None:
    limit = queue["plain"].limit
    assert (limit.first, limit.name, limit.class_name) == ("ttft_ms_max", "TTFT", "all")
    assert limit.resource in ("slots", "latency")  # the batch has one place
    assert limit.attainment < 0.9


def test_gpus_and_money_by_arithmetic(queue: PlanResults) -> None:
    arm = queue["plain"]
    low, size = arm.capacity.low, arm.sizing
    units = math.ceil(200 / low)
    half = math.ceil(100 / low)
    assert (size.units, size.spare, size.gpus) == (units + 1, 1, 2 * (units + 1))
    assert size.gpus_best == 2 * (math.ceil(200 / arm.capacity.high) + 1)
    assert list(size.hourly_units) == [units + 1] * 8 + [half + 1] * 15 + [1]
    assert size.gpu_hours_day == 24 * 2 * (units + 1)
    assert size.gpu_hours_day_by_hour == 2 * sum(size.hourly_units)
    assert size.headroom == pytest.approx(1 - 200 / (units * low))
    assert size.cost_day == pytest.approx(3.0 * 24 * 2 * (units + 1))
    assert size.cost_million == pytest.approx(3.0 / 3600 / arm.capacity.tok_s_gpu[0] * 1e6)
    assert size.tokens_day == pytest.approx(200 * 15.5 * 3600 * 3, rel=0.03)  # 8 full hours and 15 half ones
    assert size.cost_million_demand == pytest.approx(size.cost_day / size.tokens_day * 1e6)
    assert (arm.price.per_gpu_hour, arm.price.currency) == (3.0, "EUR")
    assert "not a quotation" in arm.price.source


def test_goodput_is_all_of_the_throughput_at_low_load_and_falls_behind_it(queue: PlanResults) -> None:
    points = queue["plain"].points
    share = [p.figures["goodput_tok_s_gpu"] / p.figures["throughput_tok_s_gpu"] for p in points]
    assert points == sorted(points, key=lambda p: p.load)
    assert share[0] > 0.99
    assert share[-1] < 0.95


def test_a_noisy_case_ends_undecided_not_wrong(tmp_path: Path) -> None:
    """Short windows at a load right at the capacity: nobody can know after a few replications."""
    rate = capacity(0.9, 0.060 - STEP)
    found = plan(write_queue(tmp_path, {
        "workload.arrival.rate_per_s": rate, "measure.duration_s": 10, "plan.max_replications": 5,
    }), sensitivity=False)["plain"]
    at_truth = next(p for p in found.points if p.load == pytest.approx(rate, rel=1e-3))
    assert at_truth.verdict == "undecided"
    assert at_truth.load in found.undecided
    assert at_truth.replications == 5
    assert found.capacity.low is None or found.capacity.low < rate
    assert found.capacity.high is None or found.capacity.high > rate


def test_the_same_plan_twice_gives_the_same_bytes_whatever_the_jobs(tmp_path: Path) -> None:
    path = write_queue(tmp_path, {"measure.duration_s": 15, "plan.max_replications": 3, "plan.resolution": 0.5})
    one, two = plan(path, quick=True, sensitivity=False), plan(path, quick=True, sensitivity=False, jobs=2)
    assert one.to_json() == two.to_json()
    assert one.to_csv() == two.to_csv()


def test_a_growing_queue_is_seen_without_any_limit_on_ttft(tmp_path: Path) -> None:
    """Users of the one place are as fast as ever, but more come than are served (1 / 0.03 per second)."""
    found = plan(write_queue(tmp_path, {
        "workload.sla": {"tps_user_min": 20.0}, "measure.duration_s": 40, "plan.max_replications": 3,
    }), sensitivity=False)["plain"]
    assert 0.75 / SERVICE < found.capacity.low < 1.1 / SERVICE
    assert found.capacity.high < 1.3 / SERVICE
    assert found.limit.first == "queue"
    assert "grows without end" in found.limit.words


def test_no_load_is_low_enough_for_a_promise_that_cannot_be_kept(tmp_path: Path) -> None:
    results = plan(write_queue(tmp_path, {"workload.sla": {"ttft_ms_max": 5.0}, "measure.duration_s": 20}), quick=True)
    found = results["plain"]
    assert (found.capacity.low, found.sizing.gpus, found.sizing.cost_day) == (None, None, None)
    assert results.winner.arm is None
    assert "No lossless arm meets the SLAs" in results.answer[0]


def test_the_answer_in_other_worlds(tmp_path: Path) -> None:
    """10 % slower steps: M/D/1 with a longer service; acceptance means nothing to an arm without a drafter."""
    found = plan(write_queue(tmp_path, {"plan.max_replications": 5, "measure.duration_s": 40}), quick=True)
    capacities = {world.name: world.capacities["plain"] for world in found.worlds}
    base = capacities["as stated"]
    assert capacities["acceptance −20 %"] == base
    assert capacities["acceptance +10 %"] == base
    assert capacities["step time +10 %"].estimate < 0.95 * base.estimate
    assert capacities["output length +25 %"].estimate < 0.9 * base.estimate  # 4 tokens instead of 3
    assert all(world.winner.arm == "plain" for world in found.worlds)


BAD = {
    "no SLA": ({"workload.sla": None}, "no class promises anything"),
    "an SLA without limits": ({"workload.sla": {}}, "no class promises anything"),
    "unknown key": ({"plan.atainment": 0.9}, "atainment"),
    "attainment 1": ({"plan.attainment": 1.0}, "plan.attainment"),
    "negative demand": ({"plan.demand": {"peak_per_s": -1}}, "plan.demand.peak_per_s"),
    "users of an open loop": ({"plan.demand": {"peak_users": 10}}, "peak_per_s"),
    "two demands": ({"plan.demand": {"peak_users": 10, "peak_per_s": 2}}, "not both"),
    "23 hours": ({"plan.demand": {"hours": [1.0] * 23}}, "24 shares"),
    "hours above the peak": ({"plan.demand": {"hours": [2.0] * 24}}, "plan.demand.hours"),
    "a quiet day": ({"plan.demand": {"hours": [0.0] * 24}}, "24 shares"),
    "hours of a constant rate": ({"plan.demand": {"hours": "workload"}}, "does not tell a day"),
    "resolution 0": ({"plan.resolution": 0}, "plan.resolution"),
    "one replication": ({"plan.max_replications": 1}, "plan.max_replications"),
    "headroom 1": ({"plan.headroom": 1.0}, "plan.headroom"),
}


@pytest.mark.parametrize("row", BAD)
def test_what_cannot_be_planned_is_refused_before_anything_runs(tmp_path: Path, row: str) -> None:
    changes, words = BAD[row]
    with pytest.raises(InputError) as caught:
        plan(write_queue(tmp_path, changes))
    assert words in str(caught.value)


@pytest.mark.parametrize("price", [-1.0, 0.0, float("nan"), float("inf")])
def test_prices_that_cannot_be(tmp_path: Path, price: float) -> None:
    with pytest.raises(InputError, match="--price"):
        plan(write_queue(tmp_path), price=price)


def test_the_command_writes_a_folder_and_prints_nothing_but_data(tmp_path: Path) -> None:
    path = write_queue(tmp_path, {"name": "q", "measure.duration_s": 15, "plan.max_replications": 3},
                       {"price_per_gpu_hour": None})
    out = tmp_path / "out"
    done = CliRunner().invoke(app, ["plan", str(path), "--quick", "-j", "1", "--out", str(out), "--format", "json"])
    assert done.exit_code == 0, done.stderr
    data = json.loads(done.stdout)
    assert data["arms"][0]["sizing"]["cost_day"] is None
    assert data["arms"][0]["sizing"]["gpu_hours_day"] > 0
    assert json.loads((out / "plan.json").read_text()) == data
    assert {p.name for p in out.iterdir()} == {
        "plan.json", "plan.csv", "manifest.json", "capacity.html", "goodput.png", "cost.png", "worlds.png"}
    again = CliRunner().invoke(app, ["plan", str(path), "--out", str(out)])
    assert again.exit_code == 2
    assert "not empty" in again.stderr


def test_ctrl_c_before_the_capacities_leaves_a_message_and_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dspark_sim import planner as module

    def stop(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module.Planner, "_drive", stop)
    done = CliRunner().invoke(app, ["plan", str(write_queue(tmp_path)), "-j", "1", "--out", str(tmp_path / "out")])
    assert done.exit_code == 130
    assert "nothing was written" in done.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["queue", "queue.yaml"]


def test_ctrl_c_in_the_sensitivity_keeps_the_capacities(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dspark_sim import planner as module

    def stop(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module.Planner, "_other_worlds", stop)
    path = write_queue(tmp_path, {"measure.duration_s": 15, "plan.max_replications": 3})
    options = ["--quick", "-j", "1", "--no-plots", "--out", str(tmp_path / "o")]
    done = CliRunner().invoke(app, ["plan", str(path), *options])
    assert done.exit_code == 130
    data = json.loads((tmp_path / "o" / "plan.json").read_text())
    assert data["interrupted"]
    assert data["arms"][0]["capacity"]["load"]["low"] > 0
    assert data["sensitivity"] == []
