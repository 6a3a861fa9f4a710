"""Traces by reference: the shelf, files, recordings, the cache and what happens when it is damaged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from dspark_sim import traceset
from dspark_sim.errors import TraceError
from dspark_sim.trace import load_trace
from dspark_sim.traceset import find_traces, list_traces, open_traces, trace_sha256
from tests.parametric_worlds import SPEC, changed, made, same


@pytest.fixture
def spec_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DSPARK_SIM_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "toy.yaml"
    path.write_text(yaml.safe_dump(SPEC, sort_keys=False), encoding="utf-8")
    return path


def test_the_shelf() -> None:
    recorded = ["dflash", "dspark-2layer", "dspark", "eagle3", "mtp"]
    assert list_traces() == {
        "deepseek-v4": ["dspark-5", "dspark-7", "mtp"], "qwen3-4b": ["dspark", "dflash", "eagle3"],
        "gemma-3-270m": recorded, "gemma-3-270m-t0.6": recorded,
    }
    spec = find_traces("qwen3-4b").spec
    assert spec is not None
    assert [d.name for d in spec.domains] == ["math", "code", "chat", "a3-mix"]
    assert 300_000 <= spec.positions <= 450_000


def test_opens_relative_to_base_and_reads_the_cache_the_second_time(
    spec_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = open_traces("toy.yaml", ["with", "without", "with"], base=spec_file.parent)
    assert list(first) == ["with", "without"]
    assert same(first["with"], made())
    monkeypatch.setattr(traceset, "generate", lambda *_: pytest.fail("generated again"))
    second = open_traces(str(spec_file), ["with", "without"])
    for name in second:
        assert same(first[name], second[name])
        assert second[name].provenance == first[name].provenance
        assert second[name].sts_temperature == first[name].sts_temperature
    assert {p.suffix for p in (spec_file.parent / "cache" / "traces").iterdir()} == {".parquet"}


@pytest.mark.parametrize("damage", ["truncated", "garbage", "empty", "bits", "other"])
def test_a_damaged_cache_file_is_made_again(spec_file: Path, damage: str) -> None:
    good = open_traces(str(spec_file), ["with"])["with"]
    (file,) = (spec_file.parent / "cache" / "traces").iterdir()
    raw = file.read_bytes()
    if damage == "truncated":
        file.write_bytes(raw[: len(raw) // 2])
    elif damage == "garbage":
        file.write_bytes(b"PAR1" + bytes(range(256)) * 9 + b"PAR1")
    elif damage == "empty":
        file.write_bytes(b"")
    elif damage == "bits":
        for at in range(200, len(raw) - 1500, 97):
            raw = raw[:at] + bytes([raw[at] ^ 0x55]) + raw[at + 1 :]
        file.write_bytes(raw)
    else:  # a whole file with other numbers under this name
        replace(made(seed=99), provenance=good.provenance).save(file)
    assert same(open_traces(str(spec_file), ["with"])["with"], good)
    assert same(load_trace(file), good)


def test_a_cache_that_cannot_be_written_is_done_without(spec_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSPARK_SIM_CACHE", str(spec_file / "no-folder"))
    assert same(open_traces(str(spec_file), ["with"])["with"], made())


def test_a_changed_specification_is_not_served_from_the_old_cache(spec_file: Path) -> None:
    old = open_traces(str(spec_file), ["with"])["with"]
    before = trace_sha256(str(spec_file))
    spec_file.write_text(yaml.safe_dump(changed(seed=8)), encoding="utf-8")
    assert not same(open_traces(str(spec_file), ["with"])["with"], old)
    assert trace_sha256(str(spec_file)) != before


def test_a_folder_of_recordings(tmp_path: Path) -> None:
    folder = tmp_path / "toy"
    for name in ("with", "without"):
        made(name).save(folder / f"{name}.parquet")
    found = open_traces("toy", ["without", "with"], base=tmp_path)
    assert same(found["with"], made())
    assert find_traces("toy", tmp_path).drafters == ("with", "without")
    both, one = trace_sha256("toy", base=tmp_path), trace_sha256("toy", ["with"], base=tmp_path)
    assert both != one
    made("without", seed=8).save(folder / "without.parquet")
    assert trace_sha256("toy", base=tmp_path) != both
    assert trace_sha256("toy", ["with"], base=tmp_path) == one


def test_recordings_of_different_texts_are_not_compared(tmp_path: Path) -> None:
    made("with").save(tmp_path / "toy" / "with.parquet")
    made("without", document_rows=21).save(tmp_path / "toy" / "without.parquet")
    with pytest.raises(TraceError, match="'with' and 'without' do not cover the same target, documents and positions"):
        open_traces("toy", ["with", "without"], base=tmp_path)
    made("without", target="another").save(tmp_path / "toy" / "without.parquet")
    with pytest.raises(TraceError, match="same target"):
        open_traces("toy", ["with", "without"], base=tmp_path)


REFERENCES = {
    "qwen3-4": r"no acceptance traces 'qwen3-4'; allowed: one of .*\(did you mean 'qwen3-4b'\?\)",
    "empty": r"empty: holds no <drafter>.parquet",
    "plain.txt": r"plain.txt: is neither a folder nor a specification; allowed: a <target>.yaml",
    "cut/": r"with.parquet: not a readable Parquet file",
    "named/": r"other.parquet: holds drafter 'with'; allowed: 'other'",
    "a\0b": "no acceptance traces",
    "x" * 5000: "no acceptance traces",
    "": "holds no <drafter>.parquet",
}


@pytest.mark.parametrize("reference", REFERENCES)
def test_bad_references(reference: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "plain.txt").write_text("hello")
    made().save(tmp_path / "cut" / "with.parquet")
    (tmp_path / "cut" / "with.parquet").write_bytes((tmp_path / "cut" / "with.parquet").read_bytes()[:-9])
    made().save(tmp_path / "named" / "other.parquet")
    with pytest.raises(TraceError, match=REFERENCES[reference]):
        open_traces(reference, ["other" if reference == "named/" else "with"], base=tmp_path)


def test_unknown_drafter() -> None:
    message = r"no drafter 'dsparc' .*allowed: dspark, dflash, eagle3 \(did you mean 'dspark'\?\)"
    with pytest.raises(TraceError, match=message):
        open_traces("qwen3-4b", ["dsparc"])
