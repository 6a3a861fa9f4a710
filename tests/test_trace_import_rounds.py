"""Logs of rounds: exact for what was recorded, near for what was not, refused where they cannot say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dspark_sim.errors import TraceError
from dspark_sim.trace import AcceptanceTrace
from dspark_sim.trace_calibrate import walk_rows
from dspark_sim.trace_import.make import Names, from_rounds
from dspark_sim.trace_import.rounds import fill, laid_out, read_requests
from dspark_sim.trace_import.sources import Options, read_source
from dspark_sim.traceset import find_traces

DATA = Path(__file__).resolve().parent / "data" / "trace_import"


def test_rows_between_rounds_on_paper() -> None:
    """G = 3, rounds that kept 2, 3, 1 and 3. After 2 of 3 a rejection was seen: 2, 1, 0. After 3 of 3 none was, so the
    run goes on through the bonus token into the next round's one: from the row after its start 2 + 1 + 1, cut at 3."""
    f = fill([[2, 3, 1, 3]], 3)
    assert f.accepted.tolist() == [2, 1, 0, 3, 3, 3, 2, 1, 0, 3, 2, 1, 0]
    assert f.began.tolist() == [1, 0, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0]
    assert f.document_start.tolist() == [0, 13]


def test_confidences_go_along() -> None:
    said = np.array([[0.9, 0.8, 0.7], [0.3, 0.2, 0.1]], dtype=np.float32)
    f = fill([[1, 0]], 3, [said])
    assert f.confidence is not None
    assert f.confidence == pytest.approx(np.array([[0.9, 0.8, 0.7], [0.8, 0.7, 0.7], [0.3, 0.2, 0.1]]))


@given(st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=9), min_size=1, max_size=5))
@settings(deadline=None)
def test_full_verification_visits_the_rounds_and_nothing_else(rounds: list[list[int]]) -> None:
    f = fill(rounds, 4)
    trace = AcceptanceTrace("toy", "mine", 4, f.accepted, f.document_start, ("all",) * len(rounds))
    rows = walk_rows(trace, np.arange(trace.documents))
    assert rows.tolist() == np.flatnonzero(f.began).tolist()
    assert trace.accepted[rows].tolist() == [a for r in rounds for a in r]


def length(trace: AcceptanceTrace, domain: str, width: int) -> float:
    from dspark_sim.plots.tracedata import walk

    return 1 + float(walk(trace, domain, width).mean())


@pytest.mark.parametrize(("target", "drafter"), [("qwen3-4b", "dflash"), ("deepseek-v4", "dspark-5")])
def test_verifying_less_is_replayed_within_five_per_cent(target: str, drafter: str) -> None:
    """Where every row is known: a log of full verification, imported, against the trace that it was taken from.

    docs/calibration.md states the range; filling with the rest of the run alone would be off by up to 15 %.
    """
    known = find_traces(target).open(drafter)
    logs = []
    for d in range(known.documents):
        rows = walk_rows(known, np.array([d]))
        logs.append(known.accepted[rows].astype(int).tolist())
    f = fill(logs, known.block_size)
    replayed = AcceptanceTrace(target, drafter, known.block_size, f.accepted, f.document_start, known.domain)
    errors = {(domain, width): length(replayed, domain, width) / length(known, domain, width) - 1
              for domain in known.domains for width in range(1, known.block_size + 1)}
    assert all(abs(errors[domain, known.block_size]) < 1e-12 for domain in known.domains)
    assert max(map(abs, errors.values())) < 0.05
    assert max(map(abs, errors.values())) > 0.005, "an approximation, and the page says how large"


# -- files ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["rounds.jsonl", "rounds-by-round.jsonl"])
def test_a_line_per_request_and_a_line_per_round_say_the_same(name: str) -> None:
    source = read_source(DATA / name, Options())
    assert source.form == "rounds"
    done = from_rounds([(None, name, source)], Names("toy", "mine"), "a test")
    t = done.trace
    assert (t.block_size, t.domain, t.kind) == (3, ("humaneval", "alpaca"), "derived")
    assert t.accepted[done.began].tolist() == [3, 0, 2, 1, 1, 3, 3]
    assert t.confidence is not None
    assert t.confidence[done.began][3] == pytest.approx([0.3, 0.2, 0.1])
    assert t.provenance["rows_recorded"] == pytest.approx(7 / t.positions, abs=1e-4)
    assert any("exact for decoding with every draft token verified" in a for a in t.provenance["assumptions"])


def test_detailed_responses_of_vllm_are_a_log() -> None:
    source = read_source(DATA / "vllm-detailed.jsonl", Options())
    assert source.form == "rounds"
    assert [r.accepted for r in source.requests] == [[3, 0, 2, 1, 3, 3, 0], [1, 1, 0, 2]]
    assert any("steps without draft tokens" in note for note in source.notes)


def test_lengths_with_the_bonus_are_said(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"acceptance_lengths": [4, 1, 3]}\n')
    source = read_source(tmp_path / "x.jsonl", Options())
    assert source.requests[0].accepted == [3, 0, 2]
    assert any("count the bonus token" in note for note in source.notes)


def test_a_log_that_does_not_say_how_much_was_drafted() -> None:
    requests, _ = read_requests([(1, {"accepted": [2, 0, 1]})], Path("x"))
    G, _, notes = laid_out(requests, Path("x"))
    assert G == 2
    assert any("2 in every round, all verified (the longest round of the log)" in note for note in notes)
    assert laid_out(requests, Path("x"), 5)[0] == 5


LINE = {"accepted_draft_lengths": [3, 1, 2], "proposal_lengths": [3, 3, 3]}


@pytest.mark.parametrize(("changed", "words"), [
    ({"proposal_lengths": [3, 1, 3]}, "1 of 3 rounds kept all of a draft of fewer than 3 tokens"),
    ({"proposal_lengths": [3, 3]}, "3 rounds, but 2 draft lengths"),
    ({"proposal_lengths": [3, 3, 1]}, "a round kept 2 of 1 draft tokens"),
    ({"accepted_draft_lengths": [3, -1, 2]}, "accepted_draft_lengths: got [3, -1, 2]"),
    ({"accepted_draft_lengths": [3, 1.5, 2]}, "accepted_draft_lengths: got [3, 1.5, 2]"),
    ({"confidences": [[0.5, 0.5, 0.5]]}, "confidences: got"),
    ({"confidences": [[0.5], [2.0], [0.1]]}, "confidences: got"),
    ({"confidences": [[0.5] * 4] * 3}, "confidences: got"),
])
def test_contradictions(changed: dict[str, Any], words: str) -> None:
    requests, _ = read_requests([(4, LINE)], Path("log.jsonl"))
    assert laid_out(requests, Path("log.jsonl"))[0] == 3
    with pytest.raises(TraceError) as caught:
        laid_out(read_requests([(4, LINE | changed)], Path("log.jsonl"))[0], Path("log.jsonl"))
    assert words in str(caught.value)
    assert "log.jsonl" in str(caught.value)


@pytest.mark.parametrize(("lines", "words"), [
    (['{"tokens": 3}'], "x.jsonl:1: has the keys tokens; allowed: accepted_draft_lengths"),
    (['{"accepted": 3}'], "x.jsonl:1: request: is missing"),
    (['{"request": "a", "accepted": 3}', "[1, 2"], "x.jsonl:2: is not JSON"),
    (['{"request": "a", "accepted": 3, "drafted": 3}', '{"request": "a", "accepted": 3}'],
     "x.jsonl:2: request 'a' has drafted or confidence in some rounds only"),
    (['{"acceptance_lengths": [0]}'], "x.jsonl:1: acceptance_lengths: got 0"),
    (['{"accepted": []}'], "holds no rounds"), (["7"], "x.jsonl:1: got 7"),
    (['{"accepted": [1], "confidence": [[0.5]]}', '{"accepted": [1]}'], "x.jsonl:2: has confidences in some requests"),
])
def test_lines_that_are_refused(lines: list[str], words: str, tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text("\n".join(lines))
    path = tmp_path / "x.jsonl"
    with pytest.raises(TraceError) as caught:
        laid_out(read_source(path, Options(form="rounds")).requests, path)
    assert words in str(caught.value)


def test_a_few_short_drafts_are_said_and_let_pass() -> None:
    value = {"accepted": [3] * 100 + [1] + [0] * 60, "drafted": [3] * 100 + [1] + [3] * 60}
    notes = laid_out(read_requests([(1, value)], Path("x"))[0], Path("x"))[2]
    assert any("1 of 161 rounds kept all of a draft of fewer than 3 tokens" in note for note in notes)
