"""Everything a user may get wrong, each with the message it must give: one row per mistake.

A row replaces a piece of the small scenario (or profile) by another; the message must hold all fragments, name the
file and the line of the change (``LINE``), or of something else that is to blame (a number), or the option.
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
from tests.small_inputs import CSV, PROFILE, SCENARIO, small_trace, write_inputs

LINE = -1
Row = tuple[str, str, int, list[str]]


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


SCENARIOS: dict[str, Row] = {
    # unknown keys, at every level
    "unknown key": ("seed: 1", "sede: 1", LINE, ["sede: unknown key", "allowed: name, description", "mean 'seed'"]),
    "unknown engine key": ("host_lag: 2", "hostlag: 2", LINE, ["engine.hostlag: unknown", "mean 'host_lag'"]),
    "unknown workload key": ("  sla:", "  slas:", LINE, ["workload.slas: unknown key", "mean 'sla'"]),
    "unknown arrival key": ("concurrency: 4", "concurency: 4", LINE, ["arrival.concurency", "mean 'concurrency'"]),
    "key of another arrival": ("concurrency: 4", "concurrency: 4, rate_per_s: 1", LINE, ["rate_per_s: unknown key"]),
    "unknown class key": ("share: 0.5, domain: math", "share: 0.5, domian: math", LINE,
                          ["classes[0].domian: unknown key", "mean 'domain'"]),
    "unknown length key": ("mean: 40", "average: 40", LINE, ["output_tokens.average: unknown key", "kind, mean, cv"]),
    "unknown sla key": ("tps_user_min", "tps_min", LINE, ["sla.tps_min: unknown key", "mean 'tps_user_min'"]),
    "unknown measure key": ("warmup_s: 1", "warmup: 1", LINE, ["measure.warmup: unknown key", "mean 'warmup_s'"]),
    "key of another measure": ("warmup_s: 1", "requests: 1", LINE, ["requests: unknown key", "duration_requests"]),
    "unknown arm key": ("plain, policy", "plain, polcy", LINE, ["arms[0].polcy: unknown key", "mean 'policy'"]),
    "unknown belief key": ("step_scale: 1.2", "scale: 1.2", LINE, ["belief.scale: unknown key", "step_scale"]),
    "unknown policy parameter": ("length: 3", "lenght: 3", LINE, ["policy.lenght: unknown parameter", "mean 'length'"]),
    # unknown names
    "unknown arrival": ("closed, concurrency: 4", "closd, concurrency: 4", LINE,
                        ["arrival.kind: got 'closd'", "closed, poisson, gamma", "mean 'closed'"]),
    "arrival without kind": ("{kind: closed, concurrency: 4}", "{concurrency: 4}", LINE,
                             ["workload.arrival: needs the key kind", "closed, poisson, gamma"]),
    "unknown lengths": ("kind: constant", "kind: fixed", LINE, ["prompt_tokens.kind: got 'fixed'", "lognormal"]),
    "unknown measure": ("mode: steady", "mode: stedy", LINE, ["measure.mode: got 'stedy'", "mean 'steady'"]),
    "unknown prefill": ("prefill: none", "prefill: chunk", LINE, ["engine.prefill: got 'chunk'", "mean 'chunked'"]),
    "null for a word": ("prefill: none", "prefill: 7", LINE, ["prefill: got 7", "none, chunked, separate"]),
    "unknown domain": ("domain: math", "domain: maths", LINE, ["no domain 'maths'", "math, chat", "mean 'math'"]),
    "no domain": (", domain: math", "", 14, ["classes[0]: class 'math' needs a domain", "allowed: domain: math, chat"]),
    "unknown policy": ("policy: no_spec", "policy: nospec", LINE, ["unknown policy 'nospec'", "mean 'no_spec'"]),
    "unknown drafter": ("drafter: dflash", "drafter: dflsh", LINE, ["no drafter 'dflsh'", "dflash, dspark-3"]),
    "unknown profile": ("profile.yaml", "b300", LINE, ["profile: no profile 'b300'", "b300x4-deepseek-v4-flash"]),
    "missing profile": ("profile.yaml", "./none.yaml", LINE, ["profile: ", "none.yaml: no such file"]),
    "unknown traces": ("traces: traces", "traces: qwen4", LINE, ["traces: no acceptance traces 'qwen4'", "qwen3-4b"]),
    "missing policy file": ("policy: fixed}", "policy: ./mine.py:Mine}", LINE,
                            ["arms[3].policy: ", "no such file"]),
    # types and numbers
    "text for a number": ("concurrency: 4", "concurrency: four", LINE, ["got 'four'", "a whole number"]),
    "fraction for a count": ("concurrency: 4", "concurrency: 4.5", LINE, ["got 4.5", "a whole number"]),
    "float for a count": ("replications: 2", "replications: 1e1", LINE, ["got 10.0", "a whole number"]),
    "bool for a count": ("replications: 2", "replications: true", LINE, ["got True", "a whole number"]),
    "yes for a bool": ("name: flash,", "name: flash, calibrated: yes,", LINE, ["got 'yes'", "true or false"]),
    "number for a name": ("name: plain", "name: 128", LINE, ["arms[0].name: got 128", "in quotes"]),
    "octal-looking": ("seed: 1", "seed: 010", LINE, ["seed: got '010'", "a whole number"]),
    "negative": ("concurrency: 4", "concurrency: -4", LINE, ["concurrency: got -4", "a number ≥ 1"]),
    "zero": ("replications: 2", "replications: 0", LINE, ["replications: got 0", "a number ≥ 1"]),
    "NaN": ("mean: 40", "mean: .nan", LINE, ["output_tokens.mean: got nan", "a finite number"]),
    "infinite": ("duration_s: 4", "duration_s: .inf", LINE, ["duration_s: got inf", "a finite number"]),
    "huge replications": ("replications: 2", "replications: 10001", LINE, ["got 10001", "a number ≤ 10000"]),
    "huge concurrency": ("concurrency: 4", "concurrency: 100001", LINE, ["got 100001", "a number ≤ 100000"]),
    "huge tokens": ("value: 16", "value: 10000001", LINE, ["got 10000001", "a number ≤ 10000000"]),
    "huge digits": ("seed: 1", "seed: " + "9" * 300, LINE, ["seed: got 9999999", "allowed: a number <"]),
    "endless digits": ("seed: 1", "seed: " + "9" * 500, LINE, ["seed: got '999", "at most 400 digits"]),
    "huge lag": ("host_lag: 2", "host_lag: 9", LINE, ["engine.host_lag: got 9", "a number ≤ 8"]),
    "nothing runs": ("host_lag: 2", "max_num_seqs: 0", LINE, ["max_num_seqs: got 0", "a number ≥ 1"]),
    "list for a mapping": ("{tps_user_min: 60}", "[60]", LINE, ["workload.sla: got [60]", "a mapping of keys"]),
    "mapping for a list": ("arms:", "arms: {}\nrest:", LINE, ["arms: got {}", "a list"]),
    "name with a line break": ("name: plain", 'name: "a\\nb"', LINE, ["arms[0].name: got 'a\\nb'", "printable"]),
    "name with a slash": ("name: small", "name: ../small", LINE, ["name: got '../small'"]),
    # what spans keys
    "no arms": (SCENARIO[SCENARIO.index("arms:"):], "arms: []\n", 18, ["arms: got []", "at least 1"]),
    "no classes": ("  classes:\n    - {name: math, share: 0.5, domain: math}\n", "  classes: []\n  klasses:\n", 13,
                   ["workload.classes: got [] (and 1 more mistake after this one)", "at least 1"]),
    "missing key": ("measure: {mode: steady, warmup_s: 1, duration_s: 4}\n", "", 1, ["measure: is missing"]),
    "shares": ("share: 0.5, domain: math", "share: 0.4, domain: math", 13,
               ["workload.classes: the shares sum to 0.9 (0.4 + 0.5)", "sum to 1"]),
    "share of 0": ("share: 0.5, domain: math", "share: 0, domain: math", LINE, ["share: got 0", "a number > 0"]),
    "class twice": ("name: math", "name: chat", 15, ["classes[1].name: the name 'chat' stands twice"]),
    "arm twice": ("name: flash", "name: plain", LINE, ["arms[3].name: the name 'plain' stands twice"]),
    "no lengths": ("  prompt_tokens: {kind: constant, value: 16}\n", "", 13, ["class 'math' has no prompt_tokens"]),
    "min above max": ("min: 2", "min: 300", LINE, ["output_tokens.min: got 300, above max", "1 to max (200)"]),
    "mean outside": ("mean: 40", "mean: 400", LINE, ["output_tokens.mean: got 400", "min to max (2 to 200)"]),
    "no spread": ("cv: 0.5", "cv: 0", LINE, ["output_tokens.cv: got 0", "a number > 0"]),
    "both lengths": ("values: [8, 9]", "values: [8, 9], file: x.csv", LINE, ["needs either file or values, not both"]),
    "no values": ("values: [8, 9]", "values: []", LINE, ["values: got []", "at least 1"]),
    "bad value": ("values: [8, 9]", "values: [8, 0]", LINE, ["prompt_tokens.values[1]: got 0", "≥ 1"]),
    "missing lengths file": ("values: [8, 9]", "file: none.csv", LINE, ["prompt_tokens.file: cannot read 'none.csv'"]),
    "both durations": ("duration_s: 4", "duration_s: 4, duration_requests: 9", LINE, ["not both"]),
    "no duration": (", duration_s: 4", "", 16, ["measure: needs either duration_s or duration_requests"]),
    "warmup off the bins": ("warmup_s: 1", "warmup_s: 1.1", LINE, ["measure.warmup_s: got 1.1", "a multiple of"]),
    "duration off the bins": ("duration_s: 4", "duration_s: 4.1", LINE, ["got 4.1", "interval_s (0.5), e.g. 4"]),
    # arms against traces, profile, engine
    "length above block": ("length: 3", "length: 4", LINE, ["arms[1].policy.length: got 4", "allowed: 0 to 3"]),
    "negative length": ("length: 3", "length: -1", LINE, ["arms[1].policy.length: got -1"]),
    "wrong parameter type": ("length: 3", "length: long", LINE, ["arms[1].policy.length: got 'long'", "whole number"]),
    "lag before the host": ("host_lag: 2", "host_lag: 3", 21, ["arms[2].policy.lag: got 2", "allowed: 3 to 8"]),
    "huge policy lag": ("lag: 2}, b", "lag: 9}, b", LINE, ["arms[2].policy.lag: got 9", "1 to 8"]),
    "no drafter": ("drafter: dflash, ", "", LINE,
                   ["arms[3].policy: policy fixed needs draft tokens", "(dflash, dspark-3, orphan)", "no_spec"]),
    "no confidence": ("policy: fixed}", "policy: early_stop}", LINE,
                      ["policy early_stop needs confidences; drafter 'dflash' has none", "head (dspark-3)"]),
    "shift of nothing": ("policy: fixed}", "policy: fixed, belief: {confidence_shift: 1}}", LINE,
                         ["confidence_shift: has no effect", "dspark-3"]),
    "temperature": ("temperature: 1.0", "temperature: 0.7", LINE, ["engine.temperature: got 0.7", "sampled at 1"]),
    "no cost": ("drafter: dflash", "drafter: orphan", LINE, ["no cost for drafter 'orphan'", "dspark, dflash"]),
    "unknown cost": ("drafter: dflash", "drafter: dflash, drafter_cost: mtp", LINE, ["drafter_cost", "dspark, dflash"]),
    "unknown belief": ("step_scale: 1.2", "profile: b300x8", LINE, ["belief.profile: no profile 'b300x8'"]),
    "step scale": ("step_scale: 1.2", "step_scale: 0", LINE, ["step_scale: got 0", "a number > 0"]),
    "drafter without traces": ("traces: traces\n", "", 18 + 1, ["drafter: got 'dspark-3'", "names no traces"]),
    "small batch": ("host_lag: 2", "max_num_batched_tokens: 3", LINE, ["got 3", "takes 4 tokens", "1 + block size"]),
    "small KV": ("host_lag: 2", "kv_blocks: 5", LINE, ["kv_blocks: a request of class 'math'", "14 blocks or more"]),
    "KV of nothing": ("host_lag: 2", "kv_blocks: 0", LINE, ["kv_blocks: got 0", "or unlimited"]),
    "KV in words": ("host_lag: 2", "kv_blocks: unlimted", LINE, ["kv_blocks: got 'unlimted'", "mean 'unlimited'"]),
    # YAML
    "duplicate key": ("seed: 1", "seed: 1\nseed: 2", 6, ["seed: stands twice"]),
    "duplicate deep key": ("domain: math", "domain: math, share: 1", LINE, ["classes[0].share: stands twice"]),
    "anchor": ("{kind: constant, value: 16}", "&x {kind: constant, value: 16}", LINE, ["anchors and aliases"]),
    "alias": ("{tps_user_min: 60}", "*x", LINE, ["anchors and aliases"]),
    "tag": ("seed: 1", "seed: !!python/object/apply:os.getpid []", LINE, ["tag", "is not allowed"]),
    "merge key": ("seed: 1", "<<: {seed: 1}", LINE, ["a key must be a plain word"]),
    "two documents": ("workload:", "---\nworkload:", LINE, ["only one YAML document"]),
    "tab": ("  sla:", "\tsla:", LINE, ["is not valid YAML"]),
    "open bracket": ("values: [8, 9]", "values: [8, 9", 15, ["is not valid YAML"]),
    "bad indent": ("  sla:", "   sla:", LINE, ["is not valid YAML"]),
    "null byte": ("description: A", "description: \0A", LINE, ["is not text: character 0x0"]),
    "deep nesting": ("values: [8, 9]", "values: " + "[" * 60 + "]" * 60, LINE, ["nested too deeply", "at most 40"]),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_bad_scenarios(tmp_path: Path, name: str) -> None:
    old, new, line, fragments = SCENARIOS[name]
    path = write_inputs(tmp_path)
    assert SCENARIO.count(old) >= 1
    path.write_text(SCENARIO.replace(old, new, 1))
    with pytest.raises(InputError) as caught:
        load(path)
    check(str(caught.value), "scenario.yaml", line_of(SCENARIO, old) if line == LINE else line, fragments)


OVERRIDES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "unknown key": ({"workload.arival.kind": "closed"}, ["--set workload.arival.kind: unknown key", "mean 'arrival'"]),
    "unknown top key": ({"sed": 1}, ["--set sed: unknown key", "mean 'seed'"]),
    "wrong type": ({"workload.arrival.concurrency": "many"}, ["--set workload.arrival.concurrency: got 'many'"]),
    "wrong value": ({"replications": 0}, ["--set replications: got 0; allowed: a number ≥ 1"]),
    "through a number": ({"seed.more": 1}, ["--set seed.more: seed holds 1, which has no key 'more'"]),
    "no such arm": ({"arms.plane.policy": "fixed"}, ["--set arms.plane.policy: no such item 'plane'", "mean 'plain'"]),
    "no such number": ({"arms.9.policy": "fixed"}, ["no such item '9'", "0 to 3"]),
    "empty part": ({"arms..policy": 1}, ["has an empty part"]),
    "shares": ({"workload.classes.math.share": 0.1}, ["workload.classes: the shares sum to 0.6"]),
    "lag": ({"engine.host_lag": 4}, ["arms[2].policy.lag: got 2", "allowed: 4 to 8"]),
    "policy parameter": ({"arms.1.policy.length": 7}, ["--set arms.1.policy.length: got 7", "allowed: 0 to 3"]),
    "whole policy": ({"arms.flash.policy": "threshold"}, ["--set arms.flash.policy: policy threshold needs conf"]),
    "domain": ({"workload.classes.0.domain": "mth"}, ["--set workload.classes.0.domain: ", "mean 'math'"]),
    "list of words": ({"arms": ["plain"]}, ["--set arms[0]: got 'plain'", "a mapping of keys"]),
    "a value of no YAML kind": ({"seed": object()}, ["--set seed: got <object", "a whole number"]),
}


@pytest.mark.parametrize("name", OVERRIDES)
def test_bad_overrides(tmp_path: Path, name: str) -> None:
    overrides, fragments = OVERRIDES[name]
    with pytest.raises(InputError) as caught:
        load(write_inputs(tmp_path), overrides)
    for fragment in fragments:
        assert fragment in str(caught.value)


PROFILES: dict[str, Row] = {
    "unknown key": ("gpus: 2", "gpu: 2", LINE, ["gpu: unknown key", "mean 'gpus'"]),
    "unknown curve key": ("between: hold", "betwen: hold", LINE, ["verify.betwen: unknown key", "mean 'between'"]),
    "negative gpus": ("gpus: 2", "gpus: -2", LINE, ["gpus: got -2"]),
    "huge batch": ("tokens: 64", "tokens: 10000000", LINE, ["max_num_batched_tokens: got 10000000"]),
    "unsorted curve": ("[8, 6.0], [32, 9.0]", "[32, 9.0], [8, 6.0]", LINE, ["8 stands after 32"]),
    "doubled size": ("[8, 6.0]", "[1, 6.0]", LINE, ["1 stands twice"]),
    "negative time": ("[8, 6.0]", "[8, -6.0]", LINE, ["-6.0"]),
    "NaN time": ("[8, 6.0]", "[8, .nan]", LINE, ["nan"]),
    "huge time": ("[8, 6.0]", "[8, 1e300]", LINE, ["1e+300"]),
    "fraction of a token": ("[8, 6.0]", "[8.5, 6.0]", LINE, ["8.5 is not a whole number"]),
    "text in a curve": ("[8, 6.0]", "[8, fast]", LINE, ["'fast' is not a number"]),
    "three numbers": ("[8, 6.0]", "[8, 6.0, 7]", LINE, ["[8, 6.0, 7]", "a point, [size, time]"]),
    "empty curve": ("[[1, 5.0], [8, 6.0], [32, 9.0], [64, 14.0]]", "[]", LINE, ["points"]),
    "no file": ("dflash.csv", "flash.csv", LINE, ["no file 'flash.csv'", "mean 'dflash.csv'"]),
    "file outside": ("dflash.csv", "../dflash.csv", LINE, ["the profile's own folder"]),
    "unknown kind": ("kind: parallel", "kind: paralel", LINE, ["kind: got 'paralel'", "mean 'parallel'"]),
    "unknown provenance": ("kind: synthetic", "kind: guessed", LINE, ["provenance.kind: got 'guessed'", "measured"]),
    "no provenance": (PROFILE[PROFILE.index("provenance:"):], "", 1, ["provenance: is missing"]),
    "YAML tag": ("gpus: 2", "gpus: !!int 2", LINE, ["tag", "is not allowed"]),
}


@pytest.mark.parametrize("name", PROFILES)
def test_bad_profiles(tmp_path: Path, name: str) -> None:
    old, new, line, fragments = PROFILES[name]
    path = write_inputs(tmp_path)
    (tmp_path / "profile.yaml").write_text(PROFILE.replace(old, new, 1))
    with pytest.raises(InputError) as caught:
        load(path)
    check(str(caught.value), "profile.yaml", line_of(PROFILE, old) if line == LINE else line, fragments)


CSVS: dict[str, tuple[str, int, list[str]]] = {
    "wrong column": (CSV.replace("requests", "rows"), 1, ["no column requests"]),
    "text": (CSV.replace("0.0012", "slow"), 3, ["'slow' is not a number"]),
    "unsorted": ("requests,seconds\n64,0.001\n1,0.001\n", 3, ["1 stands after 64"]),
    "short row": (CSV.replace("64,0.0012", "64"), 3, ["1 cells, the header has 2"]),
}


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
