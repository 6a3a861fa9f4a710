"""Everything a user may get wrong, each with the message it must give: the rows stand in ``bad_rows.py``.

A row replaces a piece of the small scenario (or profile) by another; the message must name the file and the line (or
the option), and hold all fragments: what was got, what is allowed, the nearest name.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dspark_sim.arms import load_arms
from dspark_sim.errors import InputError
from dspark_sim.profile import load_profile
from dspark_sim.scenario import load_scenario
from dspark_sim.trace import load_trace
from tests.bad_rows import CSVS, LINE, OVERRIDES, PROFILES, SCENARIOS
from tests.small_inputs import PROFILE, SCENARIO, small_trace, write_inputs


def load(path: Path, overrides: dict[str, Any] | None = None) -> None:
    load_arms(load_scenario(path, overrides))


def test_the_unbroken_inputs_load(tmp_path: Path) -> None:
    load(write_inputs(tmp_path))


def line_of(text: str, old: str) -> int:
    return text[: text.index(old)].count("\n") + 1


def check(message: str, name: str, line: int, fragments: list[str]) -> None:
    assert f"{name}:{line}: " in message, message
    for fragment in fragments:
        assert fragment in message, message
    assert "\n" not in message
    assert len(message) < 600, message
    assert "pydantic" not in message.lower()


@pytest.mark.parametrize("name", SCENARIOS)
def test_bad_scenarios(tmp_path: Path, name: str) -> None:
    old, new, line, fragments = SCENARIOS[name]
    path = write_inputs(tmp_path)
    assert SCENARIO.count(old) >= 1
    path.write_text(SCENARIO.replace(old, new, 1))
    with pytest.raises(InputError) as caught:
        load(path)
    check(str(caught.value), "scenario.yaml", line_of(SCENARIO, old) if line == LINE else line, fragments)


@pytest.mark.parametrize("name", OVERRIDES)
def test_bad_overrides(tmp_path: Path, name: str) -> None:
    overrides, fragments = OVERRIDES[name]
    with pytest.raises(InputError) as caught:
        load(write_inputs(tmp_path), overrides)
    for fragment in fragments:
        assert fragment in str(caught.value)


@pytest.mark.parametrize("name", PROFILES)
def test_bad_profiles(tmp_path: Path, name: str) -> None:
    old, new, line, fragments = PROFILES[name]
    path = write_inputs(tmp_path)
    (tmp_path / "profile.yaml").write_text(PROFILE.replace(old, new, 1))
    with pytest.raises(InputError) as caught:
        load(path)
    check(str(caught.value), "profile.yaml", line_of(PROFILE, old) if line == LINE else line, fragments)


@pytest.mark.parametrize("name", CSVS)
def test_bad_csv_of_a_profile(tmp_path: Path, name: str) -> None:
    text, line, fragments = CSVS[name]
    path = write_inputs(tmp_path)
    (tmp_path / "dflash.csv").write_text(text)
    with pytest.raises(InputError) as caught:
        load(path)
    check(str(caught.value), "dflash.csv", line, fragments)


# -- traces --------------------------------------------------------------------------------------------------------
def _rewrite(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Changes the metadata of a trace file."""
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    meta = json.loads(table.schema.metadata[b"dspark_sim"])
    change(meta)
    pq.write_table(table.replace_schema_metadata({"dspark_sim": json.dumps(meta)}), path)


def _truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _without_column(path: Path) -> None:
    import pyarrow.parquet as pq

    pq.write_table(pq.read_table(path).drop_columns(["accepted"]), path)


def _foreign(path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"a": [1, 2]}), path)


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


TRACES: dict[str, tuple[Callable[[Path], Any], list[str]]] = {
    "truncated": (_truncated, ["dspark-3.parquet", "not a readable Parquet file"]),
    "empty": (lambda p: p.write_bytes(b""), ["dspark-3.parquet", "not a readable Parquet file"]),
    "garbage": (lambda p: p.write_bytes(os.urandom(2000)), ["not a readable Parquet file"]),
    "text": (lambda p: p.write_text("a,b\n1,2\n"), ["not a readable Parquet file"]),
    "another table": (_foreign, ["not an acceptance trace"]),
    "no column": (_without_column, ["damaged acceptance trace"]),
    "smaller block": (lambda p: _rewrite(p, lambda m: m.update(block_size=2)), ["accepted has 0..3", "0 to 2"]),
    "larger block": (lambda p: _rewrite(p, lambda m: m.update(block_size=4)), ["damaged acceptance trace"]),
    "no block": (lambda p: _rewrite(p, lambda m: m.pop("block_size")), ["damaged acceptance trace"]),
    "huge block": (lambda p: _rewrite(p, lambda m: m.update(block_size=10**9)), ["block_size 1000000000", "1 to 64"]),
    "few domains": (lambda p: _rewrite(p, lambda m: m.update(domain=["math"])), ["column document"]),
    "unknown kind": (lambda p: _rewrite(p, lambda m: m.update(kind="guess")), ["kind 'guess'", "measured, derived"]),
    "cold": (lambda p: _rewrite(p, lambda m: m.update(temperature=-1)), ["temperature -1"]),
    "wrong calibration": (lambda p: _rewrite(p, lambda m: m.update(sts_temperature=[1.0])), ["needs 3 finite numbers"]),
    "other drafter": (lambda p: _rewrite(p, lambda m: m.update(drafter="x")), ["holds drafter 'x'", "dspark-3"]),
    "other target": (lambda p: _rewrite(p, lambda m: m.update(target="x")), ["do not cover the same target"]),
    "newer format": (lambda p: _rewrite(p, lambda m: m.update(format="9")), ["not an acceptance trace", "trace 1"]),
    "missing": (lambda p: p.unlink(), ["scenario.yaml:20: arms[1].drafter: no drafter 'dspark-3'", "dflash, orphan"]),
}


@pytest.mark.parametrize("name", TRACES)
def test_bad_traces(tmp_path: Path, name: str) -> None:
    damage, fragments = TRACES[name]
    path = write_inputs(tmp_path)
    damage(tmp_path / "traces" / "dspark-3.parquet")
    with pytest.raises(InputError) as caught:
        load(path)
    for fragment in fragments:
        assert fragment in str(caught.value)


SPECIFICATION = """\
format: dspark-sim parametric traces 1
target: small
description: Small.
"""


def test_a_bad_specification_of_traces(tmp_path: Path) -> None:
    path = write_inputs(tmp_path)
    for text, fragment in (
        (SPECIFICATION + "drafter: {}\n", "small.yaml:4: drafter: unknown key"),
        (SPECIFICATION.replace("traces 1", "traces 2"), "small.yaml:1: format: got 'dspark-sim parametric traces 2'"),
        ("- 1\n", "small.yaml:1: got [1], not a mapping"),
        ("", "small.yaml"),
    ):
        (tmp_path / "small.yaml").write_text(text)
        with pytest.raises(InputError) as caught:
            load(path, {"traces": "small.yaml"})
        assert fragment in str(caught.value)


# -- files that are no files -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("loader", [load, load_profile], ids=["scenario", "profile"])
def test_files_that_cannot_be_read(tmp_path: Path, loader: Callable[[Path], Any]) -> None:
    (tmp_path / "binary.yaml").write_bytes(os.urandom(500) + b"\xff\xfe")
    (tmp_path / "zip.yaml").write_bytes(b"PK\x03\x04" + bytes(100))
    (tmp_path / "empty.yaml").write_text("")
    (tmp_path / "word.yaml").write_text("hello\n")
    (tmp_path / "folder.yaml").mkdir()
    (tmp_path / "loop.yaml").symlink_to(tmp_path / "loop.yaml")
    (tmp_path / "big.yaml").write_bytes(b"#" * (2 << 20))
    for name in ("binary", "zip", "empty", "word", "folder", "loop", "big", "missing"):
        with pytest.raises(InputError, match=f"{name}.yaml"):
            loader(tmp_path / f"{name}.yaml")


def test_a_trace_that_is_no_file(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.parquet"):
        with pytest.raises(InputError, match="no such file"):
            load_trace(path)
    path = write_inputs(tmp_path)
    _folder(tmp_path / "traces" / "dspark-3.parquet")
    with pytest.raises(InputError, match=r"dspark-3"):
        load(path)
    (tmp_path / "nothing").mkdir()
    with pytest.raises(InputError, match=r"--set traces: .*nothing"):
        load(path, {"traces": "nothing"})


def test_a_trace_beside_one_of_another_length(tmp_path: Path) -> None:
    path = write_inputs(tmp_path)
    small_trace("dflash", block_size=5, confidence=False).save(tmp_path / "traces" / "dflash.parquet")
    load(path)  # blocks may differ: the documents and positions are what pairs arms
    with pytest.raises(InputError, match=r"arms.1.policy.length: got 5, but the drafter proposes at most 3"):
        load(path, {"arms.1.policy.length": 5, "arms.3.policy": {"name": "fixed", "length": 5}})
