"""The bench runs and measures what it says; how fast this machine is, no test says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from dspark_sim.arms import load_arms
from dspark_sim.registry import list_policies

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import bench  # noqa: E402


@pytest.fixture(scope="module")
def printed() -> str:
    command = [sys.executable, str(ROOT / "tools" / "bench.py"), "--quick", "--requests", "8"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_shipped_policy_has_a_row(printed: str) -> None:
    rows = {m[1]: [float(x) for x in m[2].split()] for m in re.finditer(r"^8 +(\w+) +([\d. ]+)", printed, re.MULTILINE)}
    assert set(rows) == {p.name for p in list_policies()} | {"calibration"}
    assert all(min(numbers) > 0 for numbers in rows.values())
    for micro, ratio, *_ in (numbers for name, numbers in rows.items() if name != "calibration"):
        assert micro / ratio == pytest.approx(rows["calibration"][0], rel=0.05)


def test_plain_workload_is_run_to_its_end(printed: str) -> None:
    (row,) = re.findall(r"^ +50 +(\d+) +([\d.]+) +([\d.]+) +(\d+)$", printed, re.MULTILINE)
    steps, loop, command, memory = map(float, row)
    assert steps >= 256
    assert 0 <= loop < command
    assert memory > 20


def test_scenario_measures_the_stated_block_size_and_load(tmp_path: Path) -> None:
    arms = {arm.name: arm for arm in load_arms(bench.scenario_for(tmp_path, 16, 1))}
    assert {arm.block_size for name, arm in arms.items() if name != "no_spec"} == {bench.GAMMA}
    row = bench.Row()
    bench.timed(arms["fixed"], bench.scenario_for(tmp_path, 16, 1), row)
    assert row.tokens / row.steps > 16  # all 16 decode, and some drafts are kept


def test_split_accounts_for_a_slow_policy(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(
        "class Slow:\n    lossless = True\n    timing = 'overlapped'\n    def verify_lengths(self, view):\n"
        "        sum(range(50_000))\n        return view.drafted\n"
    )
    bench.scenario_for(tmp_path, 8, 1)
    text = (tmp_path / "bench-8.yaml").read_text().replace("policy: threshold}", "policy: './slow.py:Slow'}")
    (tmp_path / "slow.yaml").write_text(text)
    scenario = bench.load_scenario(tmp_path / "slow.yaml")
    arms = {arm.name: arm for arm in load_arms(scenario)}
    slow, quick = bench.Row(), bench.Row()
    bench.split(arms["threshold"], scenario, slow)  # the arm that holds the slow policy now
    bench.split(arms["no_spec"], scenario, quick)
    assert slow.policy > 0.8
    assert quick.policy < slow.policy
    assert 0 < quick.recording < 1


def test_clock_counts_nested_calls_once() -> None:
    clock = bench.Clock()
    inner = clock.around(lambda: sum(range(2_000_000)))
    outer = clock.around(lambda: inner())
    began = bench.time.process_time()
    outer()
    assert clock.seconds <= bench.time.process_time() - began
