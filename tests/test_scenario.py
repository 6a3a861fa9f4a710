"""Scenarios: loading, defaults, overrides, the shelf, and what the manifest and editors get of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dspark_sim.arms import load_arms
from dspark_sim.errors import ScenarioError
from dspark_sim.lengths import EmpiricalLengths, LognormalLengths
from dspark_sim.scenario import json_schema, list_scenarios, load_scenario, scenario_from_text
from dspark_sim.scenario_schema import ScenarioModel
from dspark_sim.shelves import SCENARIOS, shelf
from tests.small_inputs import SCENARIO, write_inputs

SHELF = [name for name, _ in list_scenarios()]


def test_defaults_of_the_workload_are_written_into_its_classes(tmp_path: Path) -> None:
    scenario = load_scenario(write_inputs(tmp_path))
    math, chat = scenario.workload.classes
    assert math.prompt_tokens == scenario.workload.prompt_tokens
    assert isinstance(chat.prompt_tokens, EmpiricalLengths)
    assert chat.output_tokens == math.output_tokens == scenario.workload.output_tokens
    assert math.sla is not None
    assert math.sla.tps_user_min == 60


def test_a_class_keeps_its_own_sla_whole() -> None:
    text = SCENARIO.replace("domain: math}", "domain: math, sla: {ttft_ms_max: 500}}")
    math, chat = scenario_from_text(text).workload.classes
    assert math.sla is not None
    assert (math.sla.tps_user_min, math.sla.ttft_ms_max) == (None, 500)
    assert chat.sla is not None
    assert chat.sla.tps_user_min == 60


def test_a_policy_is_a_word_or_a_mapping() -> None:
    plain, fixed, policy, flash = scenario_from_text(SCENARIO).arms
    assert (plain.policy.name, dict(plain.policy.parameters)) == ("no_spec", {})
    assert (fixed.policy.name, dict(fixed.policy.parameters)) == ("fixed", {"length": 3})
    assert (policy.belief.step_scale, policy.belief.profile) == (1.2, None)
    assert flash.calibrated is True


def test_overrides_and_seed(tmp_path: Path) -> None:
    path = write_inputs(tmp_path)
    scenario = load_scenario(path, {"workload.arrival.concurrency": 9, "arms.fixed-3.policy.length": 2}, seed=77)
    arrival: Any = scenario.workload.arrival
    assert (arrival.concurrency, scenario.seed) == (9, 77)
    assert scenario.arms[1].policy.parameters == {"length": 2}
    assert load_scenario(path).seed == 1
    assert scenario.source.text == SCENARIO  # the text as written; the overrides stand beside it
    assert set(scenario.source.overridden.values()) == {
        "--set workload.arrival.concurrency", "--set arms.fixed-3.policy.length", "--seed",
    }
    with pytest.raises(ScenarioError, match=r"scenario.yaml: --seed: got -1; allowed: a number ≥ 0"):
        load_scenario(path, seed=-1)


def test_resolved_loads_to_the_same_scenario() -> None:
    whole = SCENARIO.replace("mode: steady, warmup_s: 1, duration_s: 4", "mode: whole_run, requests: 9")
    for text in (SCENARIO, whole):
        scenario = scenario_from_text(text)
        resolved = scenario.resolved()
        again = scenario_from_text(yaml.safe_dump(resolved))
        assert again.resolved() == resolved
        assert again.workload.classes == scenario.workload.classes
        assert again.arms == scenario.arms
        assert again.measure == scenario.measure


def test_a_scenario_is_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        scenario_from_text(SCENARIO).seed = 2  # type: ignore[misc]


def test_lengths_of_a_file_lie_beside_the_scenario(tmp_path: Path) -> None:
    path = write_inputs(tmp_path)
    (tmp_path / "lengths.csv").write_text("id,tokens\n1,30\n2, 50\n\n3,40\n")
    scenario = load_scenario(path, {"workload.output_tokens": {"kind": "empirical", "file": "lengths.csv"}})
    lengths = scenario.workload.classes[0].output_tokens
    assert isinstance(lengths, EmpiricalLengths)
    assert lengths.samples.tolist() == [30, 50, 40]
    assert (lengths.smallest, lengths.largest, lengths.mean_tokens) == (30, 50, 40.0)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("tokens\n5\nx\n", r"lengths.csv:3: tokens: got 'x'; allowed: a whole number, 1 to 10000000"),
        ("tokens\n5\n0\n", r":3: tokens: got '0'"),
        ("tokens\n99999999\n", r":2: tokens: got '99999999'"),
        ("a,tokens\n5\n", r":2: tokens: got ''"),
        ("tokens\n", r"holds 0 lengths"),
        ("", r":1: got the columns \[\]; allowed: a column named tokens"),
        ("token\n5\n", r"got the columns \['token'\]"),
    ],
)
def test_bad_files_of_lengths_name_the_row(tmp_path: Path, content: str, message: str) -> None:
    path = write_inputs(tmp_path)
    (tmp_path / "lengths.csv").write_text(content)
    with pytest.raises(ScenarioError, match=message):
        load_scenario(path, {"workload.output_tokens": {"kind": "empirical", "file": "lengths.csv"}})


def test_clipping_that_moves_the_mean_is_warned_about() -> None:
    assert scenario_from_text(SCENARIO).warnings() == []
    text = SCENARIO.replace("max: 200", "max: 45").replace("replications: 2", "replications: 1")
    warnings = scenario_from_text(text).warnings()
    assert warnings[-1] == "replications: 1 gives no confidence intervals"
    assert "workload.classes[0].output_tokens: clipping to 2..45 moves the mean from 40 to 3" in warnings[0]


def test_the_stated_means_after_clipping() -> None:
    """The examples of LognormalLengths' docstring."""
    for mean, cv, most, lowered in ((500, 1, 4096, 0.004), (500, 1, 1024, 0.12), (300, 2, 2048, 0.08)):
        lengths = LognormalLengths(kind="lognormal", mean=mean, cv=cv, min=1, max=most)
        assert 1 - lengths.mean_tokens / mean == pytest.approx(lowered, rel=0.1)


# -- windows -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("measure", "message"),
    [
        ("warmup_s: 1.2, duration_s: 4", r"warmup_s: got 1.2; allowed: a multiple of interval_s \(0.5\), e.g. 1$"),
        ("warmup_s: 1, duration_s: 4.7", r"measure.duration_s: got 4.7; .* e.g. 4.5$"),
        ("warmup_s: 1, duration_s: 0.1", r"measure.duration_s: got 0.1; .* e.g. 0.5$"),
    ],
)
def test_windows_end_on_a_bin(measure: str, message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        scenario_from_text(SCENARIO.replace("warmup_s: 1, duration_s: 4", measure))


@pytest.mark.parametrize(
    ("interval", "warmup", "duration"), [(0.1, 0.3, 0.7), (1, 0, 1), (0.001, 1.234, 5.678), (3, 6, 9)]
)
def test_multiples_are_judged_with_rounding_in_mind(interval: float, warmup: float, duration: float) -> None:
    text = SCENARIO.replace("warmup_s: 1, duration_s: 4", f"warmup_s: {warmup}, duration_s: {duration}")
    scenario_from_text(text.replace("interval_s: 0.5", f"interval_s: {interval}"))


# -- the shelf -----------------------------------------------------------------------------------------------------
def test_references(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = write_inputs(tmp_path)
    for reference in (path, str(path), "scenario.yaml", "./scenario.yaml"):
        assert load_scenario(reference).base == tmp_path.resolve()
    (tmp_path / "quickstart").mkdir()  # a folder of that name does not hide the shelf
    assert load_scenario("quickstart").name == "quickstart"
    with pytest.raises(ScenarioError, match=r"no scenario 'quikstart' .*quickstart.*did you mean 'quickstart'"):
        load_scenario("quikstart")
    for missing in ("nothing.yaml", "./nothing", tmp_path / "nothing"):
        with pytest.raises(ScenarioError, match=r"nothing.*: no such file"):
            load_scenario(missing)
    for folder in (tmp_path, "./quickstart"):
        with pytest.raises(ScenarioError, match="is a folder"):
            load_scenario(folder)
    for impossible in ("\0", "x" * 5000, ""):
        with pytest.raises(ScenarioError):
            load_scenario(impossible)


def test_the_shelf_lists_its_scenarios() -> None:
    assert "quickstart" in SHELF
    assert sorted(SHELF) == SHELF
    assert all(description for _, description in list_scenarios())


@pytest.mark.parametrize("name", SHELF)
def test_scenarios_on_the_shelf(name: str) -> None:
    """Each loads with its arms, is named as its file, and opens with its question, what to look at and its cost."""
    scenario = load_scenario(name)
    assert scenario.name == name
    assert scenario.warnings() == []
    text = (shelf(SCENARIOS) / f"{name}.yaml").read_text()
    for word in ("# Question:", "# Look at:", "# Cost:"):
        assert word in text
    assert len(load_arms(scenario)) == len(scenario.arms)


# -- the JSON schema -----------------------------------------------------------------------------------------------
def _objects(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        if "properties" in schema:
            yield schema
        for value in schema.values():
            yield from _objects(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _objects(value)


def test_every_key_is_described_for_editors() -> None:
    schema = json_schema()
    assert schema["$schema"].startswith("https://json-schema.org/")
    assert set(schema["properties"]) == set(ScenarioModel.model_fields)
    objects = list(_objects(schema))
    assert len(objects) > 12
    for entry in objects:
        for key, value in entry["properties"].items():
            assert value.get("description"), f"{entry.get('title')}.{key} has no description"
    closed = [o for o in objects if o.get("additionalProperties") is not True]
    assert all(o.get("additionalProperties") is False for o in closed)


def test_the_schema_allows_a_policy_by_name_alone() -> None:
    definitions = json_schema()["$defs"]
    policy = definitions["PolicyChoice"]
    assert {"string", "object"} == {variant["type"] for variant in policy["anyOf"]}
