"""What is wrong with a log, or with what a scenario says of it: each mistake is named by file, line and column, or by
line and key of the scenario."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from dspark_sim.arms import load_arms
from dspark_sim.errors import InputError, ScenarioError
from dspark_sim.replay_read import read_log
from dspark_sim.runner import run
from dspark_sim.scenario import Scenario, load_scenario, scenario_from_text
from tests.knob_cases_traffic import write_logs
from tests.small_inputs import SCENARIO, write_inputs

HEAD = "arrival_s,prompt_tokens,output_tokens\n"
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
MOON = '{"timestamp": 0, "input_length": 5, "output_length": 5, "hash_ids": [1]}\n'

FILES: dict[str, tuple[str, str, list[str]]] = {  # text, ":line" (or nothing), fragments
    "empty": ("", ":1", ["begins with ''", "azure: TIMESTAMP, ContextTokens, GeneratedTokens", "mooncake"]),
    "header only": (HEAD, "", ["holds no requests"]),
    "unknown header": ("time,in,out\n1,2,3\n", ":1", ["begins with 'time,in,out'", "csv: arrival_s, prompt_tokens"]),
    "word for a number": (HEAD + "1,2,3\n2,many,3\n", ":3", ["prompt_tokens: got 'many'", "whole number of tokens"]),
    "fraction of a token": (HEAD + "1,2,3.5\n", ":2", ["output_tokens: got '3.5'"]),
    "negative tokens": (HEAD + "1,-2,3\n", ":2", ["prompt_tokens: got '-2'"]),
    "hexadecimal": (HEAD + "1,0x10,3\n", ":2", ["prompt_tokens: got '0x10'"]),
    "too many tokens": (HEAD + "1,2,3\n\n1,20000000,3\n", ":4", ["got 20000000 prompt tokens", "0 to 10000000"]),
    "no number": (HEAD + "1,2,3\nnan,2,3\n", ":3", ["arrival_s: got 'nan'"]),
    "missing cell": (HEAD + "1,,3\n", ":2", ["prompt_tokens: got ''"]),
    "short row": (HEAD + "1,2,3\n1,2\n", ":3", ["has 2 cells: '1,2'", "3 cells, as in the header"]),
    "long row": (HEAD + "1,2,3,4\n", ":2", ["has 4 cells"]),
    "negative second": (HEAD + "-1,2,3\n", ":2", ["got second -1", "seconds from 0 on"]),
    "out of order": (HEAD + "1,2,3\n0.5,2,3\n0.2,2,3\n", ":3", ["is 0.5 s earlier", "2 rows are", "unordered: sort"]),
    "column twice": ("arrival_s,prompt_tokens,prompt_tokens,output_tokens\n", ":1", ["'prompt_tokens' twice"]),
    "all empty": (HEAD + "1,0,3\n2,3,0\n", ":2", ["every row has 0"]),
    "no date": (AZURE + "yesterday,2,3\n", ":2", ["TIMESTAMP: got 'yesterday'", "2023-11-16 18:17:03"]),
    "no such day": (AZURE + "2023-02-01 00:00:00,2,3\n2023-02-30 00:00:00,2,3\n", ":3", ["got '2023-02-30"]),
    "empty class": ("arrival_s,prompt_tokens,output_tokens,class\n1,2,3,a\n1,2,3,\n", ":3", ["class: is empty"]),
    "no JSON": (MOON + "{oops\n", ":2", ["is no JSON: b'{oops"]),
    "a list": (MOON + "[1]\n", ":2", ["got [1]", "an object with timestamp"]),
    "missing key": (MOON + '{"timestamp": 1, "input_length": 5}\n', ":2", ["has no output_length"]),
    "word in JSON": (MOON + MOON.replace("5,", '"x",', 1), ":2", ["input_length: got 'x'"]),
    "bool in JSON": (MOON + MOON.replace('"timestamp": 0', '"timestamp": true'), ":2", ["timestamp: got True"]),
    "bad hashes": (MOON + MOON.replace("[1]", '["a"]'), ":2", ["hash_ids: got ['a']"]),
    "hashes not a list": (MOON + MOON.replace("[1]", "7"), ":2", ["hash_ids: got 7"]),
}


@pytest.mark.parametrize("name", FILES)
def test_mistakes_in_a_log(tmp_path: Path, name: str) -> None:
    text, line, fragments = FILES[name]
    path = tmp_path / "log.csv"
    path.write_text(text)
    with pytest.raises(ScenarioError) as caught:
        read_log(path)
    message = str(caught.value)
    assert f"log.csv{line}: " in message
    for fragment in fragments:
        assert fragment in message, message
    assert "\n" not in message


def test_a_line_far_into_the_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dspark_sim.replay_csv.BLOCK", 4096)
    path = tmp_path / "log.csv"
    path.write_text(HEAD + "\n" + "1,2,3\n" * 3000 + "1,2,x\n" + "1,2,3\n" * 3000)
    with pytest.raises(ScenarioError, match=r"log.csv:3003: output_tokens: got 'x'"):
        read_log(path)
    path.write_text(HEAD + "\n" + "1,2,3\n" * 3000 + "1,2\n" + "1,2,3\n" * 3000)
    with pytest.raises(ScenarioError, match=r"log.csv:3003: has 2 cells"):
        read_log(path)


CUT = gzip.compress((HEAD + "1,2,3\n" * 999).encode(), mtime=0)[:-20]


@pytest.mark.parametrize("data", [CUT, b"\x1f\x8bnonsense", b"\xff\xfe"])
def test_damaged_files(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "log.csv.gz"
    path.write_bytes(data)
    with pytest.raises(ScenarioError, match=r"log.csv.gz(:1)?: (cannot be read|begins with|is no CSV)"):
        read_log(path)


# -- in a scenario -------------------------------------------------------------------------------------------------
ARRIVAL = "arrival: {kind: closed, concurrency: 4}"
LENGTHS = ("  prompt_tokens: {kind: constant, value: 16}\n", ", prompt_tokens: {kind: empirical, values: [8, 9]}",
           "  output_tokens: {kind: lognormal, mean: 40, cv: 0.5, min: 2, max: 200}\n")


def replayed(arrival: str, **changes: str) -> str:
    text = SCENARIO.replace(ARRIVAL, f"arrival: {arrival}")
    for piece in LENGTHS:
        text = text.replace(piece, "")
    for old, new in (change.split(" -> ") for change in changes.values()):
        assert old in text
        text = text.replace(old, new)
    return text


LOG = "{kind: replay, file: log.csv}"
WHO = "{kind: replay, file: who.csv, class_column: team}"
NAMED = "{name: math, share: 0.5, domain: math} -> {name: easy, domain: math}"
NAMED2 = "{name: chat, share: 0.5, domain: chat} -> {name: hard, domain: chat}"
SCENARIOS: dict[str, tuple[str, list[str]]] = {
    "no such file": (replayed("{kind: replay, file: nolog.csv}"), ["workload.arrival.file: cannot read", "nolog.csv"]),
    "no file": (replayed("{kind: replay}"), ["workload.arrival.file: is missing"]),
    "unknown key": (replayed("{kind: replay, file: log.csv, rate: 2}"), ["arrival.rate: unknown key", "rate_scale"]),
    "unknown format": (replayed("{kind: replay, file: log.csv, format: azur}"), ["got 'azur'", "mean 'azure'"]),
    "another format": (replayed("{kind: replay, file: log.csv, format: azure}"), ["log.csv:1: has no column"]),
    "lengths of the workload": (replayed(LOG).replace("  sla:", "  prompt_tokens: {kind: constant, value: 1}\n  sla:"),
                                ["workload.prompt_tokens: has no effect: a replayed log holds the lengths"]),
    "lengths of a class": (replayed(LOG, a="domain: chat -> domain: chat, output_tokens: {kind: constant, value: 9}"),
                           ["workload.classes[1].output_tokens: has no effect"]),
    "window backwards": (replayed("{kind: replay, file: log.csv, window: [5, 5]}"), ["arrival.window: got [5.0, 5.0]"]),
    "window words": (replayed("{kind: replay, file: log.csv, window: [0, '9']}"), ["arrival.window[1]: got '9'"]),
    "window beyond": (replayed("{kind: replay, file: log.csv, window: [500, 600]}"), ["arrival.window: no request"]),
    "no ticks": (replayed("{kind: replay, file: log.csv, spread_ticks: true}"), ["spread_ticks: found no coarse tick"]),
    "thin without keep": (replayed("{kind: replay, file: log.csv, thin: {}}"), ["thin.keep: is missing"]),
    "thin all": (replayed("{kind: replay, file: log.csv, thin: {keep: 0}}"), ["thin.keep: got 0", "> 0"]),
    "thin to nothing": (replayed("{kind: replay, file: log.csv, thin: {keep: 1.0e-9}}"),
                        ["thin.keep: nothing is left of 30 requests"]),
    "thin by nobody": (replayed("{kind: replay, file: log.csv, thin: {keep: 0.5, by: session}}"),
                       ["thin.by: got 'session', which log.csv does not tell", "auto, request"]),
    "rate of nothing": (replayed("{kind: replay, file: log.csv, rate_scale: 0}"), ["rate_scale: got 0"]),
    "beyond the clock": (replayed("{kind: replay, file: log.csv, time_scale: 9999, rate_scale: 1}").replace(
        "log.csv", "late.csv"), ["arrival.file: the last request comes at second", "window: [1700000000"]),
    "no such class column": (replayed("{kind: replay, file: log.csv, class_column: tem}"),
                             ["class_column: got 'tem'", "arrival_s, prompt_tokens"]),
    "class of nobody": (replayed(WHO), ["who.csv:2: class 'easy' is none of the scenario's", "math, chat"]),
    "share and class column": (replayed(WHO, a=NAMED, b="name: chat -> name: hard"),
                               ["classes[1].share: has no effect: the log names the class"]),
    "shares": (replayed(LOG, a=NAMED), ["workload.classes: the shares sum to 1.5"]),
    "more than the log": (replayed(LOG, a="mode: steady, warmup_s: 1, duration_s: 4 -> mode: whole_run, requests: 31"),
                          ["measure.requests: got 31, but log.csv gives 30 requests", "at most 30"]),
    "all of no log": (SCENARIO.replace("mode: steady, warmup_s: 1, duration_s: 4", "mode: whole_run, requests: all"),
                      ["measure.requests: got 'all', but this traffic has no end"]),
    "all but a word": (replayed(LOG, a="mode: steady, warmup_s: 1, duration_s: 4 -> mode: whole_run, requests: every"),
                       ["measure.requests: got 'every'", "all"]),
    "rates not at 0": (SCENARIO.replace(ARRIVAL, "arrival: {kind: piecewise, rates: [[1, 2]]}"),
                       ["rates[0]: begins at second 1"]),
    "rates back": (SCENARIO.replace(ARRIVAL, "arrival: {kind: piecewise, rates: [[0, 2], [5, 1], [5, 3]]}"),
                   ["rates[2]: got second 5 after 5"]),
    "rate below 0": (SCENARIO.replace(ARRIVAL, "arrival: {kind: piecewise, rates: [[0, -2]]}"), ["rates[0]: got a"]),
    "rate ends": (SCENARIO.replace(ARRIVAL, "arrival: {kind: piecewise, rates: [[0, 2], [9, 0]]}"),
                  ["rates[1]: the last rate is 0"]),
    "amplitude": (SCENARIO.replace(ARRIVAL, "arrival: {kind: diurnal, mean_rate_per_s: 1, amplitude: 2}"),
                  ["amplitude: got 2", "≤ 1"]),
    "small context": (SCENARIO.replace(ARRIVAL, "arrival: {kind: sessions, rate_per_s: 1, turns: {kind: constant, "
                                       "value: 2}, think_time_s: {mean: 1}, max_context: 100}"),
                      ["max_context: got 100, but the first turn of class 'math' may have 216", "216 or more"]),
}


def load(tmp_path: Path, text: str) -> Scenario:
    path = write_inputs(tmp_path)
    write_logs(tmp_path)
    (tmp_path / "late.csv").write_text(HEAD + "1700000000,2,3\n1700000001,2,3\n")
    path.write_text(text)
    scenario = load_scenario(path)
    load_arms(scenario)
    return scenario


@pytest.mark.parametrize("name", SCENARIOS)
def test_mistakes_in_what_a_scenario_says(tmp_path: Path, name: str) -> None:
    text, fragments = SCENARIOS[name]
    with pytest.raises(InputError) as caught:
        load(tmp_path, text)
    message = str(caught.value)
    for fragment in fragments:
        assert fragment in message, message
    assert "scenario.yaml:" in message or "csv:" in message
    assert "\n" not in message


def test_a_class_without_a_domain_must_be_given_one(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="class 'math' needs a domain: what is accepted depends on the text"):
        load(tmp_path, replayed(LOG).replace(", domain: math", ""))


def test_the_kv_cache_must_hold_the_largest_request_of_the_log(tmp_path: Path) -> None:
    text = replayed(LOG).replace("host_lag: 2", "host_lag: 2, kv_blocks: 4, kv_block_tokens: 16")
    with pytest.raises(InputError, match=r"may need [67][0-9] tokens of KV"):
        load(tmp_path, text)


def test_what_is_not_said_by_the_log_is_said_by_the_run(tmp_path: Path) -> None:
    arrival = "{kind: replay, file: failed.csv, window: [0, 5], spread_ticks: false, thin: {keep: 0.9}, time_scale: 2}"
    rows = "".join(f"{i // 5},{8 + i},{9 * (i != 7)}\n" for i in range(40))
    write_inputs(tmp_path)
    (tmp_path / "failed.csv").write_text(HEAD + rows)
    text = replayed(arrival).replace("mode: steady, warmup_s: 1, duration_s: 4", "mode: whole_run, requests: all")
    scenario = scenario_from_text(text, tmp_path)
    results = run(scenario)
    said = "\n".join(results.warnings)
    assert "failed.csv: 1 of 40 rows have 0 prompt or output tokens and are left out (the first in line 9)" in said
    assert "time stamps stand on ticks of 1 s and are not spread" in said
    assumed = "\n".join(results.assumptions)
    assert "text of the log is not known: class math decodes documents of domain math" in assumed
    assert "traffic log failed.csv (csv): 39 requests; seconds 0 to 5; thinned to 0.9 by auto; time × 2" in assumed
    assert "class of the log's requests is not known: drawn by share" in assumed
    again = scenario_from_text(json.dumps(scenario.resolved()), tmp_path)
    assert again.resolved() == scenario.resolved()
    short = scenario_from_text(text.replace("mode: whole_run, requests: all", "mode: steady, duration_s: 80"), tmp_path)
    assert any("the last request comes at second" in warning for warning in short.warnings())


@pytest.mark.parametrize("content", [
    b"arrival_s,prompt_tokens,output_tokens\r0,1,2\r1,1,2\r",
    gzip.compress(gzip.compress(b"arrival_s,prompt_tokens\n", mtime=0), mtime=0),
], ids=["carriage returns", "packed twice"])
def test_first_lines_that_are_no_csv(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_bytes(content)
    with pytest.raises(InputError, match="which no known format does"):
        read_log(tmp_path / "log.csv")


@pytest.mark.parametrize(("row", "message"), [
    ("2000,5,6,7", r"log\.csv:1002: has 4 cells"), ("2000,x,6", r"log\.csv:1002: prompt_tokens: got 'x'"),
])
def test_lines_are_counted_through_all_pieces_and_nothing_is_read_ahead(
    row: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that reads ahead while the command ends with the message would abort it."""
    from dspark_sim import replay_csv

    monkeypatch.setattr(replay_csv, "BLOCK", 1000)
    path = tmp_path / "log.csv"
    good = "".join(f"{i},100,20\n" for i in range(1000))
    path.write_text("arrival_s,prompt_tokens,output_tokens\n" + good + row + "\n" + good.replace("\n", "\n\n"))
    with path.open("rb") as file:
        with pytest.raises(InputError, match=message):
            replay_csv.read_csv(file, path, "csv", ["arrival_s", "prompt_tokens", "output_tokens"], None)
        assert file.tell() < 14_000
    assert path.stat().st_size > 20_000
