# ruff: noqa: E501  (a table of mistakes and their messages, one a line)
"""Mistakes in profiles: each has its message, and nothing but ProfileError ever comes out of the loader."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dspark_sim.errors import ProfileError
from dspark_sim.profile import load_profile
from dspark_sim.profile_curves import MAX_CSV_BYTES
from tests.profiles import SMALL, load


def change(old: str, new: str) -> str:
    assert old in SMALL
    return SMALL.replace(old, new)


V = "verify: {points: [[1, 1.0], [64, 2.0]], unit: ms}"
D = "seconds: {points: [[1, 0.1], [8, 0.2]], unit: ms}"
BAD: list[tuple[str, str]] = [
    ("", r"profile.yaml:?.*is empty, not a mapping"),
    ("- 1\n", "not a mapping of keys"),
    ("a: [", "profile.yaml:.*not valid YAML"),
    ("a: !!python/object:os.system x", "tag .* is not allowed"),
    ("a: &x [1]\nb: *x", "anchors and aliases"),
    (SMALL + "gpus: 2\n", r"profile.yaml:16: gpus: stands twice"),
    (change("gpus: 1", "gpu: 1"), r"profile.yaml:2: gpu: unknown key.*did you mean 'gpus'"),
    (change("gpus: 1\n", ""), "gpus: is missing"),
    (change("gpus: 1", "gpus: 0"), r"profile.yaml:2: gpus: got 0; allowed: a number ≥ 1"),
    (change("gpus: 1", "gpus: four"), r"gpus: got 'four'; allowed: a whole number"),
    (change("gpus: 1", "gpus: 1.5"), "gpus: got 1.5; allowed: a whole number"),
    (change("gpus: 1", "gpus: true"), "gpus: got True; allowed: a whole number"),
    (change("gpus: 1", "gpus: 1\nprice_per_gpu_hour: -2"), "price_per_gpu_hour: got -2; allowed: a number > 0"),
    (change("gpus: 1", "gpus: 1\ncurrency: dollars"), "currency: got 'dollars'"),
    (change("gpus: 1", "gpus: 1\nper_request: .nan"), "per_request: got nan; allowed: a"),
    (change("gpus: 1", "gpus: 1\nper_request: 1e99"), r"per_request: got 1e\+99; allowed: a number ≤ 10000"),
    (change("gpus: 1", "gpus: 1\nper_kv_token: -1e-9"), "per_kv_token: got -1e-09; allowed: a number ≥ 0"),
    (change("gpus: 1", "gpus: 1\nmeasured_context: -1"), "measured_context: got -1; allowed: a number ≥ 0"),
    (change("gpus: 1", "gpus: 1\nkv: {blocks: 10}"), "kv.block_tokens: is missing"),
    (change("gpus: 1", "gpus: 1\nkv: {blocks: 0, block_tokens: 16}"), "kv.blocks: got 0"),
    (change("gpus: 1", "gpus: 1\nprefill: own"), r"prefill: got 'own'; allowed: shared"),
    (change("gpus: 1", "gpus: 1\nprefill: {pionts: [[1, 1]]}"), r"prefill.pionts: unknown key.*did you mean 'points'"),
    (change("max_num_seqs: 8", "max_num_seqs: 65"), r"profile.yaml:3: max_num_seqs: got 65, more than max_num_batched"),
    (change("max_num_batched_tokens: 64", "max_num_batched_tokens: 99999999999"), "allowed: a number ≤ 1048576"),
    (change(V, "verify: 3"), "verify: got 3; allowed: a mapping of keys"),
    (change(V, "verify: {}"), "verify: needs either points or file"),
    (change(V, "verify: {points: [[1, 1]], file: v.csv}"), "verify: needs either points or file"),
    (change(V, "verify: {points: []}"), "verify.points: got "),
    (change(V, "verify: {points: [[1, 1], 7]}"), r"profile.yaml:5: verify.points\[1\]: got 7; allowed: a point"),
    (change(V, "verify: {points: [[1, 1], [2]]}"), r"verify.points\[1\]: got \[2\]"),
    (change(V, "verify: {points: [[1, 1], [2.5, 2]]}"), r"points\[1\]: batch_tokens 2.5 is not a whole number"),
    (change(V, "verify: {points: [[1, 1], [true, 2]]}"), r"points\[1\]: batch_tokens True is not a whole number"),
    (change(V, "verify: {points: [[-1, 1], [2, 2]]}"), r"points\[0\]: batch_tokens -1; allowed: 0 to 1048576"),
    (change(V, "verify: {points: [[1, 1], [1048577, 2]]}"), r"points\[1\]: batch_tokens 1048577; allowed: 0 to"),
    (change(V, "verify: {points: [[1, 1], [1, 2]]}"), r"points\[1\]: batch_tokens 1 stands twice"),
    (change(V, "verify: {points: [[4, 1], [2, 2]]}"), r"points\[1\]: batch_tokens 2 stands after 4; allowed: rising sizes"),
    (change(V, "verify: {points: [[1, fast]]}"), r"points\[0\]: time 'fast' is not a number"),
    (change(V, "verify: {points: [[1, .nan]]}"), r"points\[0\]: time nan; allowed: 1e-06 to 10000 s"),
    (change(V, "verify: {points: [[1, .inf]]}"), r"points\[0\]: time inf"),
    (change(V, "verify: {points: [[1, 0]]}"), r"points\[0\]: time 0; allowed: 1e-06"),
    (change(V, "verify: {points: [[1, 1e-300]]}"), r"points\[0\]: time 1e-300; allowed: 1e-06 to 10000 s"),
    (change(V, "verify: {points: [[1, 1" + "0" * 320 + "]]}"), r"points\[0\]: time 10000"),
    (change(V, "verify: {points: [[1, 2e7]], unit: ms}"), r"time 20000000.0; allowed: 0\.001 to 1e\+07 ms"),
    (change(V, "verify: {points: [[0, 1], [9, 2]]}"), "verify: a forward pass of 0 tokens cannot be measured"),
    (change(V, "verify: {points: [[1, 1]], unit: minutes}"), "verify.unit: got 'minutes'; allowed: s, ms"),
    (change(V, "verify: {points: [[1, 1]], between: steps}"), "verify.between: got 'steps'; allowed: hold, linear"),
    (change(V, "verify: {points: [[1, 1]], extrapolate: flat}"), "verify.extrapolate: got 'flat'; allowed: linear"),
    (change(V, "verify: {points: [[1, 1]], running_max: 1}"), "verify.running_max: got 1; allowed: true or false"),
    (change(V, "verify: {points: [[1, 1]], graph_limit: 1}"), "verify: graph_limit needs between: hold"),
    (change(V, "verify: {points: [[1, 1]], between: hold, graph_limit: 2}"), "verify: graph_limit 2 must be one of"),
    (change(V, "verify: {points: [[1, 1], [8, 2], [9, 4]], between: hold, graph_limit: 8, extrapolate: linear}"),
     "verify.extrapolate: would continue the jump at graph_limit; allowed: two points above"),
    (change(V, "verify: {points: [[1, 2], [9, 1]], extrapolate: linear}"), "verify.extrapolate: would follow a falling"),
    (change(V, "verify: {points: [[20, 1], [30, 2]], extrapolate: linear}"), "verify: extrapolation reaches 0 seconds at 1 tok"),
    (change(V, "verify: {points: [[1, 1]], smooth: yes}"), "verify.smooth: unknown key"),
    (change(D, "seconds: {points: [[1, -0.1]]}"), r"drafters.dspark.seconds.points\[0\]: time -0.1; allowed: 0 to"),
    (change(", assumption: guessed", ""), r"profile.yaml:7: drafters.dspark: needs source .* or assumption"),
    (change("kind: parallel", "kind: tree"), "drafters.dspark.kind: got 'tree'; allowed: parallel, autoregressive"),
    (change("kind: parallel", "kind: autoregressive, per_token: {points: [[1, 1]]}"), "per_token belongs to kind: parallel"),
    (change("  dspark:", "  'd spark':"), "drafters: a drafter's name is made of letters"),
    (change("drafters:\n", "drafters: []\nx:\n"), "drafters: got "),
    (SMALL[: SMALL.index("provenance")], "provenance: is missing"),
    (change("  kind: measured\n", ""), "provenance.kind: is missing"),
    (change("kind: measured", "kind: mesured"), "provenance.kind: got 'mesured'; allowed: measured, .*did you mean 'measured'"),
    (change("kind: measured", "kind: derived"), "provenance: a derived profile rests on assumptions"),
    (change('"2026"', "last week"), "provenance.date: got 'last week'"),
    (change("device: d", "device: ''"), "provenance.device: got ''; allowed: at least 1 char"),
]


@pytest.mark.parametrize(("text", "message"), BAD, ids=[m[:45] for _, m in BAD])
def test_a_mistake_in_the_yaml_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ProfileError, match=message) as caught:
        load(tmp_path, text)
    assert str(caught.value).startswith(str(tmp_path)), "the file comes first"
    assert "\n" not in str(caught.value)


BAD_CSV: list[tuple[str | bytes, str]] = [
    ("", "v.csv: has no rows"),
    ("batch_tokens,seconds\n", "v.csv: has no rows; allowed: a header batch_tokens,seconds"),
    ("1,2\n", "v.csv:1: the header has no column batch_tokens"),
    ("requests,seconds\n1,1\n", "v.csv:1: the header has no column batch_tokens"),
    ("batch_tokens,secnds\n1,1\n", "no column seconds; allowed: batch_tokens,seconds or batch_tokens,ms .did you mean 'secnds'"),
    ("batch_tokens,seconds,ms\n1,1,1\n", "both a column seconds and a column ms"),
    ("batch_tokens,ms,ms\n1,1,1\n", "the column 'ms' stands twice"),
    ("batch_tokens,ms\n1,1\n2\n", "v.csv:3: has 1 cells, the header has 2"),
    ("batch_tokens,ms\n1,1\n2,2,2\n", "v.csv:3: has 3 cells"),
    ("# a note\nbatch_tokens,ms\n\n1,1\ntwo,2\n", "v.csv:5: batch_tokens 'two' is not a whole number"),
    ("batch_tokens,ms\n1,1\n2,\n", "v.csv:3: time '' is not a number"),
    ("batch_tokens,ms\n1,nan\n", "v.csv:2: time 'nan' is not a number"),
    ("batch_tokens,ms\n1,1e999\n", "v.csv:2: time inf"),
    ("batch_tokens,ms\n1,-1\n", "v.csv:2: time -1; allowed: 0.001"),
    ("batch_tokens,ms\n1,0x10\n", "v.csv:2: time '0x10' is not a number"),
    ("batch_tokens,ms\n1,1\n1,2\n", "v.csv:3: batch_tokens 1 stands twice"),
    ("batch_tokens,ms\n4,1\n1,2\n", "v.csv:3: batch_tokens 1 stands after 4"),
    ("batch_tokens,ms\n1" + "0" * 500 + ",1\n", "v.csv:2: batch_tokens '1000"),
    ('batch_tokens,ms\n"1,1\n', "v.csv:.*is not CSV"),
    (b"batch_tokens,ms\n\xff\xfe\n", r"v.csv: is not UTF-8 text \(byte 16\)"),
    (bytes(range(256)), "v.csv: is not UTF-8"),
    (b"batch_tokens,ms\n1,\x001\n", "v.csv:"),
    (b"#" * (MAX_CSV_BYTES + 1), f"v.csv: is {MAX_CSV_BYTES + 1} bytes long; allowed: at most"),
]


@pytest.mark.parametrize(("content", "message"), BAD_CSV, ids=[m[:45] for _, m in BAD_CSV])
def test_a_mistake_in_a_csv_names_its_row(tmp_path: Path, content: str | bytes, message: str) -> None:
    with pytest.raises(ProfileError, match=message):
        load(tmp_path, change(V, "verify: {file: v.csv}"), v=content)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("w.csv", r"profile.yaml:5: verify.file: no file 'w.csv' beside the profile .did you mean 'v.csv'"),
        ("../v.csv", "allowed: a file in the profile's own folder"),
        ("/etc/passwd", "allowed: a file in the profile's own folder"),
        (".", "no file"),
        ("'a\\0'", "no file|own folder"),
        ("{a: 1}", "verify.file: got "),
    ],
)
def test_a_file_that_cannot_be_had_is_named(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(ProfileError, match=message):
        load(tmp_path, change(V, f"verify: {{file: {name}}}"), v="batch_tokens,ms\n1,1\n")


def test_unit_with_a_file_is_refused_for_the_column_names_it(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="unit belongs to points"):
        load(tmp_path, change(V, "verify: {file: v.csv, unit: ms}"), v="batch_tokens,ms\n1,1\n")


def test_garbage_and_huge_files_are_refused(tmp_path: Path) -> None:
    for content in (bytes(range(256)) * 9, b"\x89PNG\r\n\x1a\n" + bytes(999), b"#" * (5 << 20)):
        (tmp_path / "profile.yaml").write_bytes(content)
        with pytest.raises(ProfileError, match=r"profile\.yaml"):
            load_profile(tmp_path)


# -- anything at all -------------------------------------------------------------------------------------------------
NASTY = ["", "null", "~", "[]", "{}", "[[]]", "-1", "0", "1e400", ".nan", "-.inf", "9" * 400, "true", "'", '"', "&a", "*a",
         "!!int x", "<<: {}", "\t", "\0", "- - - -", "? x", "%TAG", "é", "\ud7ff", "1_000", "0x1F", "2026-01-01", "../x"]


def mutate(text: str, seed: int, hits: int) -> str:
    """``text`` with a few tokens, lines or characters replaced, doubled, swapped or dropped."""
    rng = random.Random(seed)
    lines = text.split("\n")
    for _ in range(hits):
        i = rng.randrange(len(lines))
        match rng.randrange(6):
            case 0:
                lines[i] = ""
            case 1:
                lines.insert(i, lines[rng.randrange(len(lines))])
            case 2 if lines[i]:
                at = rng.randrange(len(lines[i]))
                lines[i] = lines[i][:at] + rng.choice(NASTY) + lines[i][at + rng.randrange(3):]
            case 3 if ": " in lines[i]:
                lines[i] = lines[i].split(": ")[0] + ": " + rng.choice(NASTY)
            case 4:
                lines[i] = "  " * rng.randrange(3) + lines[i].lstrip()
            case _:
                words = lines[i].split(" ")
                words[rng.randrange(len(words))] = rng.choice(NASTY)
                lines[i] = " ".join(words)
    return "\n".join(lines)


SMALL_CSV = "batch_tokens,ms,note\n1,1,x\n8,1.5,y\n64,2,z\n"
FUZZ = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@FUZZ
@given(st.integers(0, 2**32), st.integers(1, 4))
def test_a_mutated_profile_loads_or_raises_profile_error(tmp_path: Path, seed: int, hits: int) -> None:
    text = change(V, "verify:\n  file: v.csv\n  between: hold\n  graph_limit: 8") + "kv: {blocks: 9, block_tokens: 16}\n"
    for mutated in (mutate(text, seed, hits), text):
        csv_text = SMALL_CSV if mutated != text else mutate(SMALL_CSV, seed, hits)
        try:
            profile = load(tmp_path, mutated, v=csv_text)
        except ProfileError:
            continue
        else:
            profile.step_cost(drafter=None, block_size=1, max_requests=2, max_tokens=8).table(2)


@FUZZ
@given(st.binary(max_size=300), st.binary(max_size=300))
def test_random_bytes_never_leave_the_error_tree(tmp_path: Path, first: bytes, second: bytes) -> None:
    (tmp_path / "profile.yaml").write_bytes(first)
    with pytest.raises(ProfileError):
        load_profile(tmp_path)
    with pytest.raises(ProfileError):
        load(tmp_path, change(V, "verify: {file: v.csv}"), v=second)
