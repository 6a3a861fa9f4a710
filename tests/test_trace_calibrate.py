"""Calibration of a trace: no document on both sides, known truths found again, files whole or untouched."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dspark_sim import cli
from dspark_sim.calibration import GRID, fit_scale_bias
from dspark_sim.errors import TraceError
from dspark_sim.trace import AcceptanceTrace, load_trace
from dspark_sim.trace_calibrate import attached, calibrate_trace, split_documents, walk_rows

G, ROWS = 3, 120


def made(
    true: Callable[[np.random.Generator, int], np.ndarray[Any, Any]], said: Callable[[Any], Any],
    documents: int = 120, **keys: Any,
) -> AcceptanceTrace:
    """Rows whose logits of acceptance are ``true`` and whose confidence has the logits ``said(true)``."""
    rng = np.random.default_rng(5)
    P = documents * ROWS
    logit = true(rng, P)
    kept = np.logical_and.accumulate(rng.random((P, G)) < 1 / (1 + np.exp(-logit)), axis=1).sum(axis=1)
    confidence = 1 / (1 + np.exp(-said(logit)))
    fields: dict[str, Any] = {
        "target": "toy", "drafter": "mine", "block_size": G, "accepted": kept.astype(np.uint8),
        "document_start": np.arange(documents + 1) * ROWS, "domain": ("math", "chat") * (documents // 2),
        "confidence": confidence.astype(np.float16).astype(np.float32), "provenance": {"source": "a test"},
    }
    return AcceptanceTrace(**(fields | keys))


def varied(rng: np.random.Generator, P: int) -> np.ndarray[Any, Any]:
    return rng.normal(0.8, 1.2, (P, G))


def overconfident(logit: Any) -> Any:
    return logit * 2.0


# -- documents --------------------------------------------------------------------------------------------------------
def test_documents_are_split_per_domain() -> None:
    t = made(varied, overconfident)
    fit, held = split_documents(t, 0.25, 7)
    assert sorted([*fit, *held]) == list(range(120))
    assert [sum(t.domain[d] == name for d in fit) for name in t.domains] == [15, 15]
    again, _ = split_documents(t, 0.25, 7)
    assert np.array_equal(fit, again)
    assert not np.array_equal(fit, split_documents(t, 0.25, 8)[0])
    alone, _ = split_documents(t, 0.25, 7, ["chat"])
    assert [d for d in fit if t.domain[d] == "chat"] == list(alone), "a domain's draw depends on the others"


@pytest.mark.parametrize(("keys", "words"), [
    ({"share": 0.0}, "--fit-share: got 0; allowed: more than 0"), ({"share": 1.0}, "--fit-share: got 1"),
    ({"domains": ["mth"]}, "no domain 'mth' in toy/mine; allowed: math, chat (did you mean 'math'?)"),
])
def test_splits_that_cannot_be(keys: dict[str, Any], words: str) -> None:
    with pytest.raises(TraceError) as caught:
        calibrate_trace(made(varied, overconfident, 4), **keys)
    assert words in str(caught.value)


def test_one_document_cannot_be_cut() -> None:
    with pytest.raises(TraceError, match="domain 'math' has one document"):
        calibrate_trace(made(varied, overconfident, 2))


def test_walked_rows_on_paper() -> None:
    t = AcceptanceTrace("toy", "mine", 3, np.array([2, 0, 0, 0, 1, 3, 0, 0], dtype=np.uint8), np.array([0, 5, 8]),
                        ("a", "a"))
    assert walk_rows(t, np.array([0, 1])).tolist() == [0, 3, 4, 5]
    assert walk_rows(t, np.array([1])).tolist() == [5]


# -- what it finds ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("fit_on", ["walked", "all"])
def test_a_known_temperature_is_found_and_helps_elsewhere(fit_on: Any) -> None:
    r = calibrate_trace(made(varied, overconfident), fit_on=fit_on)
    assert r.fit.temperature[0] == pytest.approx(2.0, rel=0.25)
    assert r.fit.bias is None
    held, held_all, fitted, _ = r.parts
    assert (held.documents, held.rows, held_all.rows, fitted.documents) == ("held out", "walked", "all", "fitted")
    assert held.count + fitted.count < held_all.count
    for k in range(G):
        assert held_all.after.ece[k] < 0.5 * held_all.before.ece[k]
    assert r.notes == ()


def test_it_is_fitted_on_the_fitted_documents_alone() -> None:
    t = made(varied, overconfident)
    rows = walk_rows(t, split_documents(t, 0.25, 4)[0])
    assert t.confidence is not None
    alone = fit_scale_bias(t.confidence[rows], t.accepted[rows])
    assert calibrate_trace(t, "scale-bias", share=0.25, seed=4).fit == alone


def test_order_and_auc_stay() -> None:
    for method in ("sts", "scale-bias"):
        r = calibrate_trace(made(varied, overconfident), method)  # type: ignore[arg-type]
        assert r.reversed_pairs == 0
        for before, after in zip(r.parts[0].before.auc, r.parts[0].after.auc, strict=True):
            assert after == pytest.approx(before, abs=2e-3)


def test_a_temperature_that_cannot_help_is_called_out_and_a_bias_does() -> None:
    """True acceptance 0.3, confidence about 0.6: no temperature carries a confidence across 0.5."""
    def low(rng: np.random.Generator, P: int) -> np.ndarray[Any, Any]:
        return np.full((P, G), np.log(0.3 / 0.7)) + rng.normal(0, 0.2, (P, G))

    t = made(low, lambda logit: logit + 1.25)
    r = calibrate_trace(t)
    assert r.fit.at_limit[:1] == (1,)
    assert r.fit.temperature[0] == GRID[-1]
    assert any("scale-bias" in note and "0.5" in note for note in r.notes)
    assert r.parts[0].after.ece[0] > 0.15
    repaired = calibrate_trace(t, "scale-bias")
    assert repaired.parts[0].after.ece[0] < 0.03
    assert not any("limit" in note for note in repaired.notes)


def test_confidence_that_ranks_backwards_is_flattened_and_said() -> None:
    r = calibrate_trace(made(varied, lambda logit: -logit), "scale-bias")
    assert any("backwards" in note for note in r.notes)
    assert r.reversed_pairs == 0


def test_the_trace_knows_what_was_done() -> None:
    t = made(varied, overconfident)
    r = calibrate_trace(t, "scale-bias", share=0.25, seed=3, domains=["chat"])
    done = attached(t, r)
    assert done.sts_temperature == pytest.approx(r.fit.temperature)
    assert done.sts_bias == pytest.approx(r.fit.bias)
    facts = done.provenance["calibration"]
    assert (facts["method"], facts["seed"], facts["domains"]) == ("scale-bias", 3, ["chat"])
    assert (facts["documents_fitted"], facts["documents_held_out"]) == (15, 45)
    assert facts["held_out_ece_after"] == [round(e, 5) for e in r.parts[0].after.ece]
    assert done.provenance["source"] == "a test"
    assert np.array_equal(done.accepted, t.accepted)
    assert t.sts_temperature is None
    again = calibrate_trace(done, "scale-bias", share=0.25, seed=3, domains=["chat"])
    assert again.parts == r.parts, "a calibrated trace is calibrated from its raw confidence"
    assert any("calibration already" in note for note in again.notes)


# -- the command ------------------------------------------------------------------------------------------------------
@pytest.fixture(name="call")
def _call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[..., Any]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")

    def call(*args: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["dspark-sim", "trace", *map(str, args)])
        with pytest.raises(SystemExit) as left:
            cli.main()
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        return int(left.value.code or 0), said.out, said.err

    return call


def test_table_json_and_csv_agree(call: Callable[..., Any], tmp_path: Path) -> None:
    made(varied, overconfident).save(tmp_path / "set" / "mine.parquet")
    code, table, err = call("calibrate", "set", "mine")
    assert code == 0
    assert max(map(len, table.splitlines())) <= 80
    assert "fitted on walked rounds of 60 documents" in table
    assert "no pair reversed" in table
    assert "nothing was written: --in-place" in err
    code, text, _ = call("calibrate", "set", "--format", "json")
    facts = json.loads(text)
    assert facts["written"] is None
    assert f"{facts['sts_temperature'][0]:.3f}" in table
    code, text, _ = call("calibrate", tmp_path / "set" / "mine.parquet", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) == 4 * G
    first = facts["quality"][0]
    assert float(rows[0]["ece_after"]) == first["ece_after"]
    assert f"{first['ece_before']:.4f} → {first['ece_after']:.4f}" in table


def test_in_place_out_and_show(call: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "set" / "mine.parquet"
    made(varied, overconfident).save(path)
    before = path.read_bytes()
    code, _, err = call("calibrate", "set", "--out", "copy.parquet", "--plot", "picture.png")
    assert code == 0
    assert "must be named mine.parquet" in err
    assert path.read_bytes() == before
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    copy = load_trace(tmp_path / "copy.parquet")
    assert copy.sts_temperature is not None
    assert call("calibrate", "set", "--in-place", "--method", "scale-bias")[0] == 0
    assert load_trace(path).sts_bias is not None
    code, text, _ = call("show", "set")
    assert "calibration, bias by position" in text
    assert "calibration: scale-bias, fitted on walked rounds of 60 documents" in text
    assert sorted(p.name for p in tmp_path.iterdir()) == ["copy.parquet", "picture.png", "set"]


@pytest.mark.parametrize(("args", "words"), [
    (("qwen3-4b",), "DRAFTER: which drafter?; allowed: dspark, dflash, eagle3"),
    (("qwen3-4b", "dflash"), "qwen3-4b/dflash has no confidence"),
    (("qwen3-4b", "dspark", "--in-place"), "--in-place: the trace is generated from a specification"),
    (("set", "--out", "x.txt"), "--out: got 'x.txt'; allowed: a file ending in .parquet"),
    (("set", "--out", "set/mine.parquet"), "exists; allowed: a new file, or --in-place"),
    (("set", "--in-place", "--out", "y.parquet"), "say either --out or --in-place"),
    (("set", "--plot", "x.bmp"), "--plot: got 'x.bmp'; allowed: a file ending in .png"),
    (("set/mine.parquet", "other"), "holds drafter 'mine', not 'other'"),
    (("none.parquet",), "none.parquet: no such file"),
])
def test_mistakes(call: Callable[..., Any], tmp_path: Path, args: tuple[str, ...], words: str) -> None:
    made(varied, overconfident, 4).save(tmp_path / "set" / "mine.parquet")
    before = (tmp_path / "set" / "mine.parquet").read_bytes()
    code, out, err = call("calibrate", *args)
    assert (code, out) == (2, "")
    assert words in err
    assert err.count("\n") == 1
    assert (tmp_path / "set" / "mine.parquet").read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["set"]


def test_a_disk_that_fails_leaves_the_trace(
    call: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(varied, overconfident, 4).save(tmp_path / "set" / "mine.parquet")
    before = (tmp_path / "set" / "mine.parquet").read_bytes()

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", "mine.parquet")

    monkeypatch.setattr("pyarrow.parquet.write_table", full)
    code, _, err = call("calibrate", "set", "--in-place")
    assert code == 1
    assert "No space left" in err
    assert (tmp_path / "set" / "mine.parquet").read_bytes() == before
    assert [p.name for p in (tmp_path / "set").iterdir()] == ["mine.parquet"]
