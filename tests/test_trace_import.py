"""Imported acceptance: every format against numbers on paper, and what is refused with which words.

The samples in tests/data/trace_import have the formats of their tools' sources; their numbers are made for these tests.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from itertools import accumulate
from operator import mul
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dspark_sim.errors import TraceError
from dspark_sim.trace_import.rates import (
    Rates,
    from_conditional,
    from_counts,
    from_histograms,
    from_mean,
    from_survival,
)
from dspark_sim.trace_import.sources import Options, Source, read_source

DATA = Path(__file__).resolve().parent / "data" / "trace_import"


def rates_of(source: Source) -> Rates:
    (rates,) = source.rates.values()
    return rates


# -- rates ------------------------------------------------------------------------------------------------------------
@given(st.lists(st.floats(0.01, 1), min_size=1, max_size=8))
@settings(deadline=None)
def test_conditional_and_unconditional_are_two_ways_to_say_it(conditional: list[float]) -> None:
    survival = list(accumulate(conditional, mul))
    there = from_survival(survival)
    assert there.conditional == pytest.approx(conditional)
    assert from_conditional(conditional).survival == pytest.approx(survival)
    assert there.length == pytest.approx(1 + sum(survival))


@given(st.floats(1, 6))
@settings(deadline=None)
def test_a_mean_length_comes_back(length: float) -> None:
    rates = from_mean(length, 5)
    assert rates.length == pytest.approx(length, abs=1e-9)
    assert len(set(rates.conditional)) == 1


def test_counts_on_paper() -> None:
    rates = from_counts(1000, [800, 600, 480, 240], draft_tokens=4000, accepted_tokens=2120)
    assert rates.conditional == pytest.approx([0.8, 0.75, 0.8, 0.5])
    assert rates.rounds == 1000
    assert not rates.warnings


def test_drafts_that_were_not_whole_are_a_doubt() -> None:
    rates = from_counts(1000, [800, 300], draft_tokens=1500)
    assert "drafts had 1.50 of 2 tokens on average" in rates.warnings[0]
    assert rates.warnings[0] in rates.assumptions


def test_short_drafts_leave_no_trace_in_histograms() -> None:
    """40 rounds of three tokens and 10 of one: position 2 is counted on the 40 alone."""
    rates = from_histograms({3: [10, 10, 10, 10], 1: [4, 6]})
    assert rates.conditional == pytest.approx([36 / 50, 20 / 30, 10 / 20])
    assert any("10 of 50 rounds drafted fewer than 3 tokens" in a for a in rates.assumptions)


def test_a_position_that_nobody_reached_is_said() -> None:
    assert from_survival([0.5, 0.0, 0.0]).conditional == (0.5, 0.0, 0.0)
    assert any("no round reached position 3" in a for a in from_survival([0.5, 0.0, 0.0]).assumptions)
    assert any("no round reached position 2" in a for a in from_histograms({2: [5, 0, 0]}).assumptions)


@pytest.mark.parametrize(("make", "words"), [
    (lambda: from_survival([0.5, 0.6]), "position 2 has 0.6 after 0.5: unconditional rates never rise"),
    (lambda: from_survival([80.0, 60.0]), "got 80; these look like per cent; allowed: shares from 0 to 1"),
    (lambda: from_conditional([0.8, 1.2]), "got 1.2; these look like per cent"),
    (lambda: from_conditional([310.0, 0.5]), "got 310; more than one is a length or a count, not a rate"),
    (lambda: from_conditional([0.8, -0.1]), "got -0.1; allowed"),
    (lambda: from_conditional([0.8, float("nan")]), "position 2: got nan"),
    (lambda: from_conditional([True]), "position 1: got True"),
    (lambda: from_conditional([]), "is empty"),
    (lambda: from_conditional([0.5] * 65), "has 65 positions; allowed: at most 64"),
    (lambda: from_counts(0, [0]), "counts no drafts"),
    (lambda: from_counts(10, [11]), "position 1 was kept 11 times in 10 drafts"),
    (lambda: from_counts(10, [8, 9]), "unconditional rates never rise"),
    (lambda: from_counts(10, [8, 4], accepted_tokens=20), "the positions sum to 12, but 20 tokens were accepted"),
    (lambda: from_counts(10, [8, 4], draft_tokens=40), "4.00 draft tokens per draft, but only 2 positions"),
    (lambda: from_histograms({0: [5]}), "holds no round with draft tokens"),
    (lambda: from_mean(7, 5), "--acceptance-length: got 7; allowed: 1 to 6"),
    (lambda: from_mean(2, 65), "--block-size: got 65"),
])
def test_numbers_that_cannot_be(make: Callable[[], Rates], words: str) -> None:
    with pytest.raises(TraceError) as caught:
        make()
    assert words in str(caught.value)


# -- formats, by themselves -------------------------------------------------------------------------------------------
SAMPLES: dict[str, tuple[str, list[float], int | None]] = {  # file -> format found, conditional acceptance, drafts
    "vllm-metrics.txt": ("vllm-metrics", [0.8, 0.75, 0.8, 0.5], 3000),
    # windows of 10,000 and 3,000 drafts: (7,000 + 2,700) / 13,000 and so on
    "vllm.log": ("vllm-log", [9700 / 13000, 7400 / 9700, 4100 / 7400], 13000),
    "vllm-bench.json": ("vllm-bench", [0.75, 2 / 3, 0.5], 8000),
    "vllm-requests.jsonl": ("vllm-requests", [0.72, 2 / 3, 0.5], 50),
    # summed histogram 6, 4, 3, 1, 6 of 20 steps
    "sglang-requests.jsonl": ("sglang-requests", [14 / 20, 10 / 14, 7 / 10, 6 / 7], 20),
    "deepspec-metrics.json": ("deepspec", [0.8, 0.8, 0.875, 0.39 / 0.56], None),
}


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("named", [True, False], ids=["named", "auto"])
def test_samples(name: str, named: bool) -> None:
    form, conditional, drafts = SAMPLES[name]
    source = read_source(DATA / name, Options(form if named else "auto"))
    assert source.form == form
    rates = rates_of(source)
    assert rates.conditional == pytest.approx(conditional)
    assert rates.rounds == drafts
    assert not rates.warnings
    assert rates.assumptions


def test_what_happened_since_an_earlier_page() -> None:
    options = Options(since=DATA / "vllm-metrics-before.txt")
    rates = rates_of(read_source(DATA / "vllm-metrics.txt", options))
    assert rates.rounds == 2000
    assert rates.conditional == pytest.approx([0.8, 0.75, 0.8, 0.5])
    backwards = Options(since=DATA / "vllm-metrics.txt")
    with pytest.raises(TraceError, match="the server was restarted in between"):
        read_source(DATA / "vllm-metrics-before.txt", backwards)


def test_files_say_whose_they_are() -> None:
    facts = rates_of(read_source(DATA / "deepspec-metrics.json", Options())).facts
    assert facts == {"target": "Served-8B", "drafter": "dspark_served_8b_block4", "temperature": 1.0}
    assert list(read_source(DATA / "deepspec-metrics.json", Options()).rates) == ["humaneval"]
    assert rates_of(read_source(DATA / "vllm-bench.json", Options())).facts == {"target": "served-8b"}


def test_a_log_line_of_drafts_that_were_not_whole(tmp_path: Path) -> None:
    """1,000 drafts of 3 slots with 2,000 tokens: 1,100 kept; the number of drafts follows from the rates."""
    line = ("INFO 10-02 08:14:12 [metrics.py:96] SpecDecoding metrics: Mean acceptance length: 2.10, Accepted "
            "throughput: 1.00 tokens/s, Drafted throughput: 1.00 tokens/s, Accepted: 1100 tokens, Drafted: 2000 "
            "tokens, Per-position acceptance rate: 0.700, 0.300, 0.100, Avg Draft acceptance rate: 55.0%\n")
    (tmp_path / "x.log").write_text(line)
    rates = rates_of(read_source(tmp_path / "x.log", Options()))
    assert rates.rounds == 1000
    assert "2.00 of 3 tokens" in rates.warnings[0]


def test_packed_and_listed_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "m.gz").write_bytes(gzip.compress((DATA / "vllm-metrics.txt").read_bytes()))
    assert rates_of(read_source(tmp_path / "m.gz", Options())).rounds == 3000
    rows = [json.loads(line) for line in (DATA / "sglang-requests.jsonl").read_text().splitlines()]
    (tmp_path / "list.json").write_text(json.dumps(rows, indent=2))
    assert rates_of(read_source(tmp_path / "list.json", Options())).rounds == 20


def test_older_names_and_places_of_sglang(tmp_path: Path) -> None:
    info = {"spec_verify_ct": 10, "spec_proposed_drafts": 20, "spec_accept_histogram": [4, 3, 3]}
    (tmp_path / "x.json").write_text(json.dumps({"choices": [{"index": 0, "meta_info": info}]}))
    assert rates_of(read_source(tmp_path / "x.json", Options())).conditional == pytest.approx([0.6, 0.5])


CSV = "position,conditional,domain\n1,0.9,code\n2,0.8,code\n1,0.7,chat\n2,0.6,chat\n"
YAML = """\
target: toy
temperature: 0.6
domains:
  code: {unconditional: [0.9, 0.72]}
  chat: {conditional: [0.7, 0.6]}
"""


def test_rates_that_somebody_wrote_down(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text(CSV)
    (tmp_path / "r.yaml").write_text(YAML)
    (tmp_path / "r.json").write_text('{"unconditional": [0.9, 0.72]}')
    for name in ("r.csv", "r.yaml"):
        found = read_source(tmp_path / name, Options()).rates
        assert list(found) == ["code", "chat"]
        assert found["code"].conditional == pytest.approx((0.9, 0.8))
        assert found["chat"].conditional == pytest.approx((0.7, 0.6))
    assert found["code"].facts == {"target": "toy", "temperature": 0.6}
    assert rates_of(read_source(tmp_path / "r.json", Options())).conditional == pytest.approx([0.9, 0.8])


# -- files that are refused -------------------------------------------------------------------------------------------
def metrics(old: str, new: str) -> str:
    text = (DATA / "vllm-metrics.txt").read_text()
    assert old in text
    return text.replace(old, new)


def bench(**keys: Any) -> str:
    return json.dumps(json.loads((DATA / "vllm-bench.json").read_text()) | keys)


def responses(**keys: Any) -> str:
    first = json.loads((DATA / "sglang-requests.jsonl").read_text().splitlines()[0])
    first["meta_info"] |= keys
    return json.dumps(first)


def evaluated(**keys: Any) -> str:
    data = json.loads((DATA / "deepspec-metrics.json").read_text())
    data["spec"] |= {k: v for k, v in keys.items() if k != "confidence_threshold"}
    data["config"]["args"] |= {k: v for k, v in keys.items() if k == "confidence_threshold"}
    return json.dumps(data)


LINE = ("INFO SpecDecoding metrics: Mean acceptance length: 2.4, Accepted: {} tokens, Drafted: {} tokens, Per-position "
        "acceptance rate: {}, Avg Draft acceptance rate: 46.7%\n")
REFUSED: dict[str, tuple[str, str, str]] = {  # name -> file name, content, words
    "no drafts": ("m.txt", "vllm:num_requests_running{engine=\"0\"} 1.0\n", "none of speculative decoding: it was off"),
    "another engine's metrics": ("m.txt", "sglang:spec_accept_length{tp_rank=\"0\"} 2.9\n",
                                 "is a page of SGLang, whose /metrics has the mean only"),
    "old vllm": ("m.txt", "vllm:spec_decode_efficiency{model_name=\"m\"} 0.4\n", "comes from vLLM's old V0 engine"),
    "another exporter": ("m.txt", "node:cpu{a=\"b\"} 1\n", "holds no metrics of vLLM"),
    "two models": ("m.txt", metrics('engine="1",model_name="org/served-8b"', 'engine="1",model_name="other"'),
                   "--model: counts several models: org/served-8b, other"),
    "positions lost": ("m.txt", metrics("num_accepted_tokens_per_pos_total{", "num_accepted_tokens_by_pos_total{"),
                       "vllm:spec_decode_num_accepted_tokens_per_pos_total: is missing"),
    "a gap": ("m.txt", metrics('position="2"', 'position="7"'), "positions 0, 1, 3, 7; allowed: 0, 1, 2"),
    "no position": ("m.txt", metrics(',position="2"', ""), "a counter of whole numbers"),
    "not a counter": ("m.txt", metrics('position="0"} 1500.0', 'position="0"} 0.8'), "a counter of whole numbers"),
    "old log": ("x.log", "INFO 10-02 08:14:12 metrics.py:345] Speculative metrics: Draft acceptance rate: 0.4, System "
                "efficiency: 0.3\n", "comes from vLLM's old V0 engine"),
    "log without drafts": ("x.log", "INFO 10-02 08:14:12 [loggers.py:127] Engine 000\n", "holds no line of vLLM's"),
    "other log line": ("x.log", "INFO SpecDecoding metrics: new\n", "allowed: SpecDecoding metrics: … Accepted"),
    "log line of half numbers": ("x.log", LINE.format(10, 100, "0..8, 0.6"), "allowed: SpecDecoding metrics: … Accep"),
    "log line of huge numbers": ("x.log", LINE.format("9" * 5000, 100, "0.8, 0.6"), "allowed: SpecDecoding metrics"),
    "log line against itself": ("x.log", LINE.format(0, 100, "0.8, 0.6"), "x.log:1: no token was accepted, but"),
    "another bench": ("b.json", '{"output_throughput": 3.0}', "has no spec_decode_… fields"),
    "no positions": ("b.json", bench(spec_decode_per_position_acceptance_rates=[]),
                     "did not count by position; allowed: a list of rates; or import --acceptance-length 2.5"),
    "per cent": ("b.json", bench(spec_decode_per_position_acceptance_rates=[75.0, 50.0, 25.0]), "like per cent"),
    "fields of two runs": ("b.json", bench(spec_decode_accepted_tokens=20000), "sum to 1.500, but 20,000 tokens"),
    "field missing": ("b.json", bench(spec_decode_num_drafts=None), "spec_decode_num_drafts: got None"),
    "sglang's bench": ("s.jsonl", (DATA / "sglang-bench.jsonl").read_text(), "mean acceptance length only (2.87)"),
    "no histogram": ("s.json", '{"meta_info": {"spec_verify_ct": 3, "spec_accept_length": 2.1}}',
                     "none of 1 responses has spec_correct_drafts_histogram"),
    "steps differ": ("s.json", responses(spec_verify_ct=11), "the histogram counts 10 steps, spec_verify_ct 11"),
    "width unknown": ("s.json", responses(spec_num_proposed_drafts=35), "--block-size: 3.50 draft tokens per step"),
    "too many kept": ("s.json", responses(spec_num_proposed_drafts=20), "a step kept 4 draft tokens of 2"),
    "no steps": ("s.json", responses(spec_verify_ct=0, spec_correct_drafts_histogram=[0, 0]), "counts no steps"),
    "a data set twice": ("d.json", 2 * evaluated(), "holds data set 'humaneval' twice"),
    "cut drafts": ("d.json", evaluated(confidence_threshold=0.4), "proposals were cut at confidence 0.4"),
    "length out of range": ("d.json", evaluated(acceptance_length=9.0), "acceptance_length: got 9; allowed: 1 to 5"),
    "unknown column": ("r.csv", "position,conditionl\n1,0.5\n", "unknown column 'conditionl'"),
    "both kinds": ("r.csv", "position,conditional,unconditional\n1,0.5,0.5\n", "r.csv:1: has the columns"),
    "counts from 0": ("r.csv", "position,conditional\n0,0.5\n", "r.csv:2: position: got '0'; allowed: 1"),
    "no number": ("r.csv", "position,conditional\n1,high\n", "r.csv:2: conditional: got 'high'"),
    "endless cell": ("r.csv", "position,conditional\n1," + "0" * 200_000, "r.csv:2: is not CSV (field larger"),
    "neither kind": ("r.yaml", "target: x\nrates: [0.5]\n", "r.yaml:2: rates: unknown key"),
    "rising": ("r.yaml", "domains:\n  code:\n    unconditional: [0.5, 0.6]\n", "r.yaml:3: domains.code.unconditional: "
               "position 2 has 0.6 after 0.5"),
    "truncated": ("x.json", '{"conditional": [0.5', "is not JSON"),
    "binary": ("x.txt", "\0\1\2", "is none of the formats"),
    "prose": ("x.txt", "hello\n", "allowed: rates: acceptance rates by position in CSV, YAML or JSON; vllm-metrics"),
    "nothing": ("x.txt", "\n", "is empty"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str, tmp_path: Path) -> None:
    file, content, words = REFUSED[name]
    (tmp_path / file).write_text(content)
    with pytest.raises(TraceError) as caught:
        read_source(tmp_path / file, Options())
    message = str(caught.value)
    assert words in message
    assert file in message or "--" in message
    assert "\n" not in message


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for path, words in ((tmp_path / "no", "cannot be read (No such file"), (tmp_path, "cannot be read")):
        with pytest.raises(TraceError, match=words.replace("(", r"\(")):
            read_source(path, Options())
    (tmp_path / "latin").write_bytes(b"caf\xe9")
    with pytest.raises(TraceError, match="is not UTF-8 text"):
        read_source(tmp_path / "latin", Options())
    (tmp_path / "half.gz").write_bytes(gzip.compress(b"x" * 1000)[:20])
    with pytest.raises(TraceError, match="cannot be read"):
        read_source(tmp_path / "half.gz", Options())
