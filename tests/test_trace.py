"""AcceptanceTrace: what it refuses at birth, calibration, files that come back whole, files that are damaged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dspark_sim.errors import TraceError
from dspark_sim.trace import AcceptanceTrace, calibrate, load_trace

P, G = 9, 3


def trace(**keys: Any) -> AcceptanceTrace:
    rng = np.random.default_rng(1)
    fields: dict[str, Any] = {
        "target": "toy", "drafter": "d", "block_size": G, "accepted": rng.integers(0, G + 1, P),
        "document_start": [0, 2, 5, 9], "domain": ("math", "chat", "math"),
        "confidence": rng.random((P, G)).astype(np.float16),
    }
    return AcceptanceTrace(**(fields | keys))


# -- birth ---------------------------------------------------------------------------------------------------------
BAD: list[tuple[dict[str, Any], str]] = [
    ({"block_size": 0}, "block_size 0; allowed: 1 to 64"),
    ({"block_size": 65}, "block_size 65"),
    ({"block_size": 2.0}, "block_size 2.0"),
    ({"kind": "real"}, "kind 'real'; allowed: measured, derived, published, synthetic"),
    ({"accepted": np.full(P, G + 1)}, "accepted has 4..4; allowed: 0 to 3"),
    ({"accepted": np.full(P, -1)}, "accepted has -1..-1"),
    ({"accepted": np.full(P, 1.0)}, "whole numbers"),
    ({"accepted": np.zeros((P, 1), dtype=int)}, "one column"),
    ({"accepted": np.zeros(0, dtype=int)}, "at least one row"),
    ({"document_start": [0, 2, 5, 8]}, "document_start must rise from 0 to 9"),
    ({"document_start": [1, 2, 5, 9]}, "document_start must rise from 0"),
    ({"document_start": [0, 5, 5, 9]}, "no document empty"),
    ({"document_start": [0, 5, 2, 9]}, "must rise"),
    ({"domain": ("math", "chat")}, "3 documents need 3 domain names"),
    ({"domain": ("math", "", "chat")}, "domain names"),
    ({"confidence": np.full((P, G), np.nan)}, "confidence has values outside 0..1 or not finite"),
    ({"confidence": np.full((P, G), 1.5)}, "confidence has values outside 0..1"),
    ({"confidence": np.full((P, G + 1), 0.5)}, r"confidence has shape \(9, 4\); allowed: \(9, 3\)"),
    ({"draft_probability": np.full((P, G), -0.1)}, "draft_probability has values outside 0..1"),
    ({"temperature": -1.0}, "temperature -1.0"),
    ({"temperature": float("nan")}, "temperature nan"),
    ({"sts_temperature": (1.0, 1.0)}, "sts_temperature needs 3 finite numbers"),
    ({"sts_temperature": (1.0, 1.0, 0.0)}, "sts_temperature must be > 0"),
    ({"sts_bias": (1.0, float("inf"), 0.0)}, "sts_bias needs 3 finite numbers"),
]


@pytest.mark.parametrize(("keys", "message"), BAD, ids=[f"{next(iter(k))}{i}" for i, (k, _) in enumerate(BAD)])
def test_refused_at_birth(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(TraceError, match=message):
        trace(**keys)


def test_read_only_and_its_own() -> None:
    mine = np.zeros(P, dtype=np.uint8)
    it = trace(accepted=mine)
    for array in (it.accepted, it.document_start, it.confidence):
        assert array is not None
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    mine[0] = 1
    assert it.accepted[0] == 0


def test_rows_and_domains() -> None:
    it = trace()
    assert it.rows("math").tolist() == [0, 1, 5, 6, 7, 8]
    assert it.rows("chat").tolist() == [2, 3, 4]
    assert it.rows().tolist() == list(range(P))
    assert it.rows("poem").size == 0
    assert (it.domains, it.documents, it.positions) == (("math", "chat"), 3, P)


def test_alignment_looks_at_documents_and_domains() -> None:
    it = trace()
    assert it.aligned_with(trace(drafter="other", block_size=2, confidence=None, accepted=np.zeros(P, dtype=int)))
    assert not it.aligned_with(trace(document_start=[0, 3, 5, 9]))
    assert not it.aligned_with(trace(domain=("math", "chat", "chat")))


# -- calibration ---------------------------------------------------------------------------------------------------
def test_calibrate_is_the_formula() -> None:
    c, t, b = np.array([[0.2, 0.5, 0.9]]), [2.0, 1.0, 0.5], [0.1, 0.0, -0.3]
    z = np.log(c / (1 - c)) / t + b + 0.25
    assert calibrate(c, t, b, 0.25) == pytest.approx(1 / (1 + np.exp(-z)), rel=1e-6)
    assert calibrate(c) == pytest.approx(c, rel=1e-6)
    assert np.all(np.isfinite(calibrate(np.array([[0.0, 1.0, 0.5]]), [0.05] * 3)))


@given(st.lists(st.floats(0.01, 0.99), min_size=2, max_size=8), st.floats(0.2, 5), st.floats(-3, 3))
def test_calibrate_keeps_the_order(values: list[float], temperature: float, bias: float) -> None:
    c = np.sort(np.array(values))[:, None]
    assert np.all(np.diff(calibrate(c, [temperature], [bias])[:, 0]) >= 0)


def test_survival_is_the_running_product() -> None:
    it = trace()
    assert it.confidence is not None
    raw = it.survival()
    assert raw == pytest.approx(np.cumprod(it.confidence, axis=1), rel=1e-6)
    hot = it.with_sts([2.0, 2.0, 2.0], [0.0, 0.5, 0.0])
    expected = np.cumprod(calibrate(it.confidence, [2.0] * 3, [0.0, 0.5, 0.0]), axis=1)
    assert hot.survival() == pytest.approx(expected, rel=1e-6)
    assert hot.survival(calibrated=False) == pytest.approx(raw, rel=1e-6)
    assert it.survival(shift=0.5) == pytest.approx(np.cumprod(calibrate(it.confidence, shift=0.5), axis=1), rel=1e-6)
    assert trace(confidence=None).survival() is None


# -- files ---------------------------------------------------------------------------------------------------------
def test_comes_back_as_it_went(tmp_path: Path) -> None:
    it = trace(
        draft_probability=np.random.default_rng(2).random((P, G)).astype(np.float16), kind="measured", temperature=0.6,
        sts_temperature=(1.0, 1.25, 2.0), sts_bias=(0.0, -0.5, 0.5), provenance={"source": "a test", "date": "today"},
    )
    it.save(tmp_path / "new folder" / "d.parquet")
    back = load_trace(tmp_path / "new folder" / "d.parquet")
    for name in ("target", "drafter", "block_size", "domain", "temperature", "kind", "sts_temperature", "sts_bias",
                 "provenance"):
        assert getattr(back, name) == getattr(it, name), name
    for name in ("accepted", "document_start", "confidence", "draft_probability"):
        assert np.array_equal(getattr(back, name), getattr(it, name)), name
    assert [f.name for f in (tmp_path / "new folder").iterdir()] == ["d.parquet"]


def test_without_confidence_comes_back_without(tmp_path: Path) -> None:
    trace(confidence=None).save(tmp_path / "d.parquet")
    assert load_trace(tmp_path / "d.parquet").confidence is None


def test_a_failed_save_leaves_the_old_file_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "d.parquet"
    trace().save(path)
    before = path.read_bytes()

    def fails(_: Any, where: Any, **__: Any) -> None:
        Path(where).write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(pq, "write_table", fails)
    with pytest.raises(OSError, match="disk full"):
        trace().save(path)
    assert path.read_bytes() == before
    assert [f.name for f in tmp_path.iterdir()] == ["d.parquet"]


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.6, 0.9, 0.99])
def test_truncated(share: float, tmp_path: Path) -> None:
    path = tmp_path / "d.parquet"
    trace().save(path)
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    with pytest.raises(TraceError, match="not a readable Parquet file") as caught:
        load_trace(path)
    assert caught.value.file == path


def rewritten(path: Path, change: Any = None, **meta: Any) -> None:
    """The file at ``path`` with its table changed, or with metadata keys replaced."""
    import json

    table = pq.read_table(path)
    now = json.loads(table.schema.metadata[b"dspark_sim"]) | meta
    if change is not None:
        table = change(table)
    pq.write_table(table.replace_schema_metadata({"dspark_sim": json.dumps(now)}), path)


DAMAGE: dict[str, tuple[Any, str]] = {
    "control character": ({"provenance": {"source": ["\x1b[31mred"]}}, "holds a control character"),
    "control character in a key": ({"provenance": {"so\x9brce": 1}}, "holds a control character"),
    "format": ({"format": "another"}, "not an acceptance trace; allowed: metadata 'dspark-sim acceptance trace 1'"),
    "no target": ({"target": None, "kind": "x"}, "kind 'x'"),
    "block size": ({"block_size": 2}, "accepted has 0..3; allowed: 0 to 2"),
    "bigger block": ({"block_size": 4}, "damaged acceptance trace"),
    "block word": ({"block_size": "many"}, "damaged acceptance trace"),
    "domains": ({"domain": ["math"]}, "document must rise from 0 to the number of domains - 1"),
    "temperature": ({"temperature": "hot"}, "damaged acceptance trace"),
    "sts": ({"sts_temperature": [1, 2]}, "sts_temperature needs 3"),
    "column": (lambda t: t.drop_columns(["accepted"]), "damaged acceptance trace"),
    "confidence": (lambda t: t.drop_columns(["confidence_2"]), "damaged acceptance trace"),
    "no rows": (lambda t: t.slice(0, 0), "at least one row"),
    "order": (lambda t: t.take(list(range(P))[::-1]), "document must rise"),
    "type": (lambda t: t.set_column(1, "accepted", pa.array(["1"] * P)), "d.parquet"),
    "null": (lambda t: t.set_column(1, "accepted", pa.array([None] * P, pa.int8())), "d.parquet"),
    "huge": (lambda t: t.set_column(1, "accepted", pa.array([2**40] * P)), "accepted has"),
    "nan": (lambda t: t.set_column(2, "confidence_1", pa.array([float("nan")] * P)), "not finite"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged(damage: str, tmp_path: Path) -> None:
    path, (how, message) = tmp_path / "d.parquet", DAMAGE[damage]
    trace(accepted=np.array([0, 1, 2, 3, 0, 1, 2, 3, 0])).save(path)
    rewritten(path, **how) if isinstance(how, dict) else rewritten(path, how)
    with pytest.raises(TraceError, match=message) as caught:
        load_trace(path)
    assert caught.value.file == path


def test_not_a_trace_at_all(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no such file"):
        load_trace(tmp_path / "absent.parquet")
    with pytest.raises(TraceError, match="no such file"):
        load_trace(tmp_path)
    (tmp_path / "text.parquet").write_text("hello")
    with pytest.raises(TraceError, match="not a readable Parquet file"):
        load_trace(tmp_path / "text.parquet")
    deep = pa.table({"x": [1]}).replace_schema_metadata({"dspark_sim": "[" * 100_000})
    pq.write_table(deep, tmp_path / "deep.parquet")
    with pytest.raises(TraceError, match="recursion"):
        load_trace(tmp_path / "deep.parquet")
    pq.write_table(pa.table({"x": [1]}), tmp_path / "other.parquet")
    with pytest.raises(TraceError, match="a Parquet file, but not an acceptance trace"):
        load_trace(tmp_path / "other.parquet")


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_flipped_bytes_never_end_in_anything_but_a_clear_error_or_a_valid_trace(
    data: st.DataObject, tmp_path: Path
) -> None:
    path = tmp_path / "d.parquet"
    trace().save(path)
    raw = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    path.write_bytes(raw)
    try:
        assert load_trace(path).positions > 0
    except TraceError as error:
        problem = error
        assert "d.parquet" in str(problem)
