"""Whatever bytes a user's files hold, a loader answers with what it read or with an InputError, and nothing else."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dspark_sim.arms import load_arms
from dspark_sim.errors import InputError
from dspark_sim.profile import load_profile
from dspark_sim.scenario import load_scenario, scenario_from_text
from dspark_sim.trace import load_trace
from dspark_sim.traceset import open_traces
from dspark_sim.yamlio import parse_scalar, parse_yaml
from tests.small_inputs import PROFILE, SCENARIO, write_inputs

FUZZ = settings(
    max_examples=120, deadline=None, derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
YAMLISH = st.text(alphabet="abk:-[]{}&*!|>'\"#%@`,?~ \n\t01.e_=<\\\x00é\u2028\U0001f600", max_size=120)
HUGE = [0, -1, 1, 2, 3, 0.5, -0.0, 1e-300, 1e300, float("nan"), float("inf"), 2**31, 2**63, 10**30, 10**390, -(10**30)]
WORDS = [
    "", " ", "closed", "gamma", "steady", "whole_run", "all", "none", "padded", "math", "fixed", "no_spec",
    "early_stop", "threshold", "async_global", "sync_global", "dspark-3", "dflash", "\n", "a" * 300, "../..", "1",
    "true", "…", "\x07",
]
SCALARS = st.one_of(st.sampled_from(HUGE), st.sampled_from(WORDS), st.none(), st.booleans(), st.floats(), st.integers())
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=3),
    max_leaves=5,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("inputs")
    write_inputs(place)
    return place


def only_input_errors(call: Callable[[], Any]) -> bool:
    """Whether the call worked; an InputError must say something on one short line that can be printed."""
    try:
        call()
    except InputError as problem:
        message = str(problem)
        assert message
        assert len(message) < 2000
        message.encode()
        return False
    return True


# -- YAML itself ---------------------------------------------------------------------------------------------------
@FUZZ
@given(text=YAMLISH | st.text(max_size=60))
def test_any_text_as_yaml(text: str) -> None:
    only_input_errors(lambda: parse_yaml(text))
    only_input_errors(lambda: parse_scalar(text))


TEXT = st.text("abc d-_1~:#{}[]'\"\\é漢🚀,&*!|>%@?=<", max_size=12)


@FUZZ
@given(value=st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT.filter(lambda k: k != "<<"), inner, max_size=4),
    max_leaves=20,
))
def test_plain_data_comes_back_as_it_was(value: Any) -> None:
    """JSON is YAML: the strict reader is no stricter than it must be."""
    assert parse_yaml(json.dumps(value, ensure_ascii=False)).data == value


@FUZZ
@given(data=st.binary(max_size=300))
def test_any_bytes_as_any_file(folder: Path, data: bytes) -> None:
    path = folder / "bytes.yaml"
    path.write_bytes(data)
    only_input_errors(lambda: load_scenario(path))
    only_input_errors(lambda: load_profile(path))
    only_input_errors(lambda: open_traces(str(path), ["x"]))
    (folder / "bytes.parquet").write_bytes(data)
    only_input_errors(lambda: load_trace(folder / "bytes.parquet"))


@FUZZ
@given(where=st.integers(0, len(SCENARIO)), cut=st.integers(0, 40), new=YAMLISH)
def test_a_scenario_with_a_stretch_replaced(folder: Path, where: int, cut: int, new: str) -> None:
    text = SCENARIO[:where] + new + SCENARIO[where + cut :]
    path = folder / "cut.yaml"
    path.write_text(text)
    only_input_errors(lambda: load_scenario(path))


# -- data that is nearly right -------------------------------------------------------------------------------------
def paths(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return ([path] if path else []) + [p for key, value in items for p in paths(value, (*path, key))]


def mutated(data: Any, path: tuple[Any, ...], how: str, value: Any) -> Any:
    """A copy of ``data`` with the item at ``path`` replaced, dropped, renamed or doubled."""
    out = copy.deepcopy(data)
    here = out
    for part in path[:-1]:
        here = here[part]
    last = path[-1]
    if how == "replace":
        here[last] = value
    elif how == "drop":
        del here[last]
    elif how == "rename" and isinstance(here, dict):
        here[str(value)[:20]] = here.pop(last)
    elif how == "double" and isinstance(here, list):
        here.insert(0, copy.deepcopy(here[last]))
    return out


DATA = yaml.safe_load(SCENARIO)
PROFILE_DATA = yaml.safe_load(PROFILE.replace("2026-01-01", "unknown"))
HOW = st.sampled_from(["replace", "replace", "replace", "drop", "rename", "double"])


def test_the_unbroken_data_loads(folder: Path) -> None:
    assert only_input_errors(lambda: load_arms(scenario_from_text(json.dumps(DATA), folder)))
    (folder / "whole.yaml").write_text(json.dumps(PROFILE_DATA))
    assert only_input_errors(lambda: load_profile(folder / "whole.yaml"))


@FUZZ
@given(path=st.sampled_from(paths(DATA)), how=HOW, value=VALUES)
def test_a_mutated_scenario(folder: Path, path: tuple[Any, ...], how: str, value: Any) -> None:
    text = json.dumps(mutated(DATA, path, how, value), ensure_ascii=False)
    only_input_errors(lambda: load_arms(scenario_from_text(text, folder)))


@FUZZ
@given(path=st.sampled_from(paths(PROFILE_DATA)), how=HOW, value=VALUES)
def test_a_mutated_profile(folder: Path, path: tuple[Any, ...], how: str, value: Any) -> None:
    (folder / "mutated.yaml").write_text(json.dumps(mutated(PROFILE_DATA, path, how, value), ensure_ascii=False))
    only_input_errors(lambda: load_profile(folder / "mutated.yaml"))
    only_input_errors(lambda: load_arms(load_scenario(folder / "scenario.yaml", {"profile": "mutated.yaml"})))


@FUZZ
@given(path=st.sampled_from(paths(DATA)), value=VALUES)
def test_any_override(folder: Path, path: tuple[Any, ...], value: Any) -> None:
    key = ".".join(map(str, path))
    only_input_errors(lambda: load_arms(load_scenario(folder / "scenario.yaml", {key: value})))


@FUZZ
@given(key=st.text(max_size=30) | st.lists(st.sampled_from([*DATA, "0", "name", "x", ""])).map(".".join), value=SCALARS)
def test_any_key_of_an_override(folder: Path, key: str, value: Any) -> None:
    only_input_errors(lambda: load_scenario(folder / "scenario.yaml", {key: value}))


# -- traces --------------------------------------------------------------------------------------------------------
@FUZZ
@given(where=st.integers(0, 10**6), new=st.binary(min_size=1, max_size=8), cut=st.integers(0, 60))
def test_a_parquet_file_with_bytes_changed(folder: Path, where: int, new: bytes, cut: int) -> None:
    raw = (folder / "traces" / "dspark-3.parquet").read_bytes()
    at = where % len(raw)
    path = folder / "damaged.parquet"
    path.write_bytes(raw[:at] + new + raw[at + (len(new) if cut % 2 else cut) :])
    only_input_errors(lambda: load_trace(path))


@FUZZ
@given(name=st.sampled_from(["block_size", "domain", "temperature", "kind", "sts_temperature", "target", "provenance"]),
       value=VALUES)
def test_a_trace_with_other_metadata(folder: Path, name: str, value: Any) -> None:
    import pyarrow.parquet as pq

    table = pq.read_table(folder / "traces" / "dspark-3.parquet")
    meta = json.loads(table.schema.metadata[b"dspark_sim"])
    meta[name] = value
    path = folder / "meta.parquet"
    pq.write_table(table.replace_schema_metadata({"dspark_sim": json.dumps(meta)}), path)
    only_input_errors(lambda: load_trace(path))
