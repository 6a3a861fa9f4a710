"""Arms: every reference is resolved, every setting has one source, and what does not fit together is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dspark_sim.arms import EngineConfig, load_arms
from dspark_sim.errors import InputError, PolicyLoadError, ProfileError, ScenarioError, TraceError
from dspark_sim.scenario import load_scenario
from tests.small_inputs import PROFILE, small_trace, write_inputs


def arms(path: Path, **overrides: Any) -> Any:
    return load_arms(load_scenario(path, {k.replace("__", "."): v for k, v in overrides.items()}))


def test_a_scenario_becomes_arms(tmp_path: Path) -> None:
    plain, fixed, policy, flash = arms(write_inputs(tmp_path))
    assert [a.name for a in (plain, fixed, policy, flash)] == ["plain", "fixed-3", "global", "flash"]
    assert (plain.drafter, plain.trace, plain.drafter_cost, plain.block_size) == (None, None, None, 0)
    assert (fixed.drafter, fixed.drafter_cost, fixed.block_size) == ("dspark-3", "dspark", 3)
    assert flash.drafter_cost == "dflash"
    assert fixed.trace is policy.trace
    assert fixed.profile is plain.profile
    assert dict(fixed.policy_parameters) == {"length": 3}
    assert (policy.step_scale, policy.confidence_shift) == (1.2, 0.0)
    assert policy.belief_profile is policy.profile
    assert plain.engine == EngineConfig(
        host_lag=2, prefill="none", ragged="flattened", temperature=1.0, max_num_seqs=8, max_num_batched_tokens=64,
        kv_blocks=100, kv_block_tokens=16,
    )
    assert [a.index for a in (plain, fixed, policy, flash)] == [0, 1, 2, 3]


def test_each_engine_gets_a_policy_of_its_own(tmp_path: Path) -> None:
    fixed = arms(write_inputs(tmp_path))[1]
    one, two = fixed.make_policy(), fixed.make_policy()
    assert one is not two
    assert one == two
    assert one.length == 3  # type: ignore[attr-defined]


def test_costs_are_the_truth_and_the_belief(tmp_path: Path) -> None:
    plain, _, policy, _ = arms(write_inputs(tmp_path))
    assert policy.belief().verify_seconds(20) == pytest.approx(1.2 * policy.cost().verify_seconds(20))
    assert policy.cost().draft_seconds(4, 3) > 0 == plain.cost().draft_seconds(4, 3)
    setup = policy.engine_setup(np.random.default_rng(0))
    assert (setup.drafter, setup.block_size, setup.host_lag, setup.max_num_seqs) == ("dspark-3", 3, 2, 8)
    assert setup.cost.verify_seconds(20) == pytest.approx(1.2 * policy.cost().verify_seconds(20))


def test_an_arm_overrides_the_scenario_and_the_scenario_the_profile(tmp_path: Path) -> None:
    path = write_inputs(tmp_path)
    first, second, *_ = arms(path, engine__max_num_seqs=6, engine__ragged="padded", engine__kv_blocks="unlimited",
                             arms__1__engine={"max_num_seqs": 5, "kv_blocks": 70, "prefill": "chunked"})
    assert (first.engine.max_num_seqs, second.engine.max_num_seqs) == (6, 5)
    assert (first.engine.kv_blocks, second.engine.kv_blocks) == (None, 70)
    assert (first.engine.prefill, second.engine.prefill) == ("none", "chunked")
    assert first.engine.ragged == second.engine.ragged == "padded"
    assert first.engine.max_num_batched_tokens == 64


def test_the_temperature_is_the_traces_unless_stated(tmp_path: Path) -> None:
    path = write_inputs(tmp_path)
    for name in ("dspark-3", "dflash"):
        small_trace(name, confidence=name != "dflash", temperature=0.6).save(tmp_path / "traces" / f"{name}.parquet")
    loaded = arms(path, engine={"host_lag": 2})
    assert [a.engine.temperature for a in loaded] == [1.0, 0.6, 0.6, 0.6]
    with pytest.raises(ScenarioError, match=r"7: engine.temperature: got 1, but the traces .* sampled at 0.6"):
        arms(path)
    with pytest.raises(ScenarioError, match=r"--set arms.1.engine.temperature: got 2"):
        arms(path, engine={"host_lag": 2}, arms__1__engine__temperature=2)


def test_cost_entries(tmp_path: Path) -> None:
    path = write_inputs(tmp_path)
    assert arms(path, arms__1__drafter_cost="dflash")[1].drafter_cost == "dflash"
    other = _edited(path, "drafter: dspark-3, policy: {name: async", "drafter: orphan, policy: {name: async")
    with pytest.raises(ProfileError, match=r"edited.yaml:21: arms\[2\].drafter: .* no cost for drafter 'orphan'; a"):
        arms(other)
    with pytest.raises(ProfileError, match=r"--set arms.1.drafter_cost: .*did you mean 'dflash'"):
        arms(path, arms__1__drafter_cost="dflsh")
    with pytest.raises(ScenarioError, match="drafter_cost: has no effect"):
        arms(path, arms__0__drafter_cost="dspark")


def _edited(path: Path, old: str, new: str) -> Path:
    text = path.read_text()
    assert old in text
    other = path.with_name("edited.yaml")
    other.write_text(text.replace(old, new))
    return other


def test_a_belief_may_be_another_profile(tmp_path: Path) -> None:
    path = write_inputs(tmp_path)
    (tmp_path / "slow.yaml").write_text(PROFILE.replace("[1, 5.0]", "[1, 5.5]"))
    loaded = arms(path, arms__2__belief={"profile": "slow.yaml"})[2]
    assert loaded.belief_profile.name == "slow"
    assert loaded.belief().verify_seconds(1) == pytest.approx(5.5e-3)
    assert loaded.cost().verify_seconds(1) == pytest.approx(5e-3)
    (tmp_path / "poor.yaml").write_text(PROFILE.replace("  dspark:", "  other:"))
    with pytest.raises(ProfileError, match=r"--set arms.2.belief.profile: profile poor has no cost for drafter"):
        arms(path, arms__2__belief__profile="poor.yaml")
    with pytest.raises(ProfileError, match=r"--set arms.2.belief.profile: .*nowhere.yaml: no such file"):
        arms(path, arms__2__belief__profile="nowhere.yaml")


def test_a_mistake_inside_another_file_is_told_with_that_files_line(tmp_path: Path) -> None:
    path = write_inputs(tmp_path)
    (tmp_path / "profile.yaml").write_text(PROFILE.replace("gpus: 2", "gpus: none"))
    with pytest.raises(ProfileError, match=r"profile.yaml:2: gpus: got 'none'; allowed: a whole number"):
        arms(path)


def test_damaged_traces_are_told_at_the_reference(tmp_path: Path) -> None:
    path = write_inputs(tmp_path)
    file = tmp_path / "traces" / "dspark-3.parquet"
    file.write_bytes(file.read_bytes()[:-40])
    with pytest.raises(TraceError, match=r"scenario.yaml:4: traces: .*dspark-3.parquet: not a readable Parquet"):
        arms(path)


def test_traces_of_different_texts_are_refused(tmp_path: Path) -> None:
    path = write_inputs(tmp_path)
    other = replace(small_trace("dflash", confidence=False), document_start=np.array([0, 5, 20, 30, 40]))
    other.save(tmp_path / "traces" / "dflash.parquet")
    with pytest.raises(TraceError, match=r"scenario.yaml:4: traces: .*do not cover the same"):
        arms(path)


def test_a_policy_may_refuse_the_engine_at_its_start(tmp_path: Path) -> None:
    path = write_inputs(tmp_path)
    (tmp_path / "mine.py").write_text(
        "from dataclasses import dataclass\nimport numpy as np\n\n\n@dataclass\nclass Mine:\n    size: int = 1\n"
        "    lossless = True\n    timing = 'overlapped'\n\n    def start(self, setup):\n"
        "        if setup.max_num_seqs < 9:\n            raise ValueError('size: needs 9; allowed: 9 or more')\n\n"
        "    def verify_lengths(self, view):\n        return np.zeros(view.requests, dtype=np.int64)\n"
    )
    with pytest.raises(PolicyLoadError, match=r"arms.1.policy.size: needs 9; allowed: 9 or more$"):
        arms(path, arms__1__policy={"name": "./mine.py:Mine", "size": 1})
    assert arms(path, arms__1__policy="./mine.py:Mine", engine__max_num_seqs=9)[1].policy_source.name == "Mine"


def test_a_policy_that_breaks_at_its_start_is_left_to_its_arm(tmp_path: Path) -> None:
    path = write_inputs(tmp_path)
    (tmp_path / "mine.py").write_text(
        "import numpy as np\nfrom dataclasses import dataclass\n\n\n@dataclass\nclass Mine:\n    lossless = True\n"
        "    timing = 'overlapped'\n\n    def start(self, setup):\n        raise KeyError('oops')\n\n"
        "    def verify_lengths(self, view):\n        return np.zeros(view.requests, dtype=np.int64)\n"
    )
    assert len(arms(path, arms__1__policy="mine.py")) == 4


def test_a_user_policy_without_a_drafter_must_say_that_it_needs_none(tmp_path: Path) -> None:
    path = write_inputs(tmp_path)
    text = (
        "import numpy as np\nfrom dataclasses import dataclass\n\n\n@dataclass\nclass Mine:\n    lossless = True\n"
        "    timing = 'overlapped'\n\n    def verify_lengths(self, view):\n"
        "        return np.zeros(view.requests, dtype=np.int64)\n"
    )
    (tmp_path / "mine.py").write_text(text)
    with pytest.raises(ScenarioError, match=r"arms.0.policy: policy Mine needs draft tokens.*dflash, dspark-3, orphan"):
        arms(path, arms__0__policy="mine.py")
    (tmp_path / "mine.py").write_text(text.replace("    timing", "    needs_drafter = False\n    timing"))
    assert arms(path, arms__0__policy="mine.py")[0].policy_source.name == "Mine"


def test_kv_and_batch_limits_blame_who_set_them(tmp_path: Path) -> None:
    path = write_inputs(tmp_path)
    arms(path, engine__kv_blocks=14)  # 16 + 200 + 4 = 220 tokens
    with pytest.raises(ScenarioError, match=r"--set engine.kv_blocks: .* 220 tokens .*allowed: 14 blocks or more"):
        arms(path, engine__kv_blocks=13, arms__0__engine__kv_blocks=14)
    (tmp_path / "profile.yaml").write_text(PROFILE.replace("blocks: 100", "blocks: 13"))
    with pytest.raises(ScenarioError, match=r"scenario.yaml:3: profile: a request of class 'math' may need 217 tokens"):
        arms(path)
    (tmp_path / "profile.yaml").write_text(PROFILE)
    with pytest.raises(ScenarioError, match=r"max_num_batched_tokens: got 3, but one request of arm 'fixed-3' takes 4"):
        arms(path, engine__max_num_batched_tokens=3)


def test_a_closed_loop_must_fit_the_measured_curve(tmp_path: Path) -> None:
    path = write_inputs(tmp_path)
    sizes = {"engine__max_num_seqs": 100, "engine__max_num_batched_tokens": 1000}
    arms(path, workload__arrival__concurrency=64, **sizes)
    with pytest.raises(ScenarioError, match=r"concurrency: 65 requests at once .* measured to 64.*allowed: at most 64"):
        arms(path, workload__arrival__concurrency=65, **sizes)
    arms(path, workload__arrival__concurrency=65)  # they queue


def test_arms_without_drafters_need_no_traces(tmp_path: Path) -> None:
    path = write_inputs(tmp_path)
    alone = [{"name": "plain", "policy": "no_spec"}]
    assert arms(path, traces=None, arms=alone)[0].trace is None
    with pytest.raises(InputError, match=r"arms\[1\].drafter: got 'dspark-3', but the scenario names no traces"):
        arms(path, traces=None)
