"""The generator of parametric traces, and traces by reference: law, determinism, knobs, cache, bad specifications."""

from __future__ import annotations

import copy
import hashlib
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dspark_sim import traceset
from dspark_sim.errors import InputError, TraceError
from dspark_sim.parametric import LOOK_AHEAD, Spec, generate, stream, text
from dspark_sim.trace import AcceptanceTrace, load_trace
from dspark_sim.traceset import find_traces, list_traces, open_traces, trace_sha256

SPEC: dict[str, Any] = {
    "format": "dspark-sim parametric traces 1", "target": "toy", "description": "A toy.", "kind": "synthetic",
    "temperature": 1.0, "seed": 7, "document_rows": 20,
    "domains": [{"name": "math", "documents": 30}, {"name": "chat", "documents": 25}],
    "difficulty": {"document_share": 0.3, "correlation": 0.5, "skew": 0.4, "unseen_correlation": 0.6},
    "drafters": {
        "with": {
            "block_size": 3, "levels": {"math": [2.0, 1.8, 1.6], "chat": [1.0, 0.9, 0.8]}, "spread": [1.0, 1.1, 1.2],
            "unseen": 0.3,
            "confidence": {"shift": [0.3, 0.2, 0.1], "gain": [1.0, 1.1, 1.2], "noise": [0.2, 0.3, 0.4],
                           "sts_temperature": [1.2, 1.1, 1.0]},
        },
        "without": {"block_size": 2, "levels": {"math": [1.0, 1.0], "chat": [0.5, 0.5]}, "spread": [1.0, 1.0]},
    },
    "provenance": {"source": ["nobody"], "date": "today"},
}


def changed(**keys: Any) -> dict[str, Any]:
    """SPEC with dotted keys (``a__b``) set; None removes."""
    data = copy.deepcopy(SPEC)
    for key, value in keys.items():
        here: Any = data
        *parents, last = key.split("__")
        for part in parents:
            here = here[int(part) if part.isdecimal() else part]
        if value is None:
            del here[last]
        else:
            here[int(last) if last.isdecimal() else last] = value
    return data


def made(name: str = "with", **keys: Any) -> AcceptanceTrace:
    return generate(Spec.model_validate(changed(**keys)), name)


def same(a: AcceptanceTrace, b: AcceptanceTrace) -> bool:
    return a.accepted.tobytes() == b.accepted.tobytes() and (
        (a.confidence is None and b.confidence is None)
        or (a.confidence is not None and b.confidence is not None and a.confidence.tobytes() == b.confidence.tobytes())
    )


# -- the law -----------------------------------------------------------------------------------------------------
def test_equals_a_literal_loop_over_rows_and_positions() -> None:
    spec = Spec.model_validate(SPEC)
    drafter, trace, row = spec.drafters["with"], generate(spec, "with"), 0
    assert drafter.confidence is not None
    for domain in spec.domains:
        difficulty, unseen = text(spec, domain)
        uniform = stream(spec.seed, "accept", domain.name, "with").random((domain.documents, 20, 3))
        normal = stream(spec.seed, "confidence", domain.name, "with").standard_normal((domain.documents, 20, 3))
        for d in range(domain.documents):
            for t in range(20):
                kept, going = 0, True
                for k in range(1, 4):
                    felt = drafter.levels[domain.name][k - 1] - drafter.spread[k - 1] * difficulty[d, t + k]
                    going = going and uniform[d, t, k - 1] < 1 / (1 + np.exp(-(felt - 0.3 * unseen[d, t + k])))
                    kept += going
                    says = drafter.confidence
                    z = says.shift[k - 1] + says.gain[k - 1] * felt + says.noise[k - 1] * normal[d, t, k - 1]
                    assert trace.confidence is not None
                    assert trace.confidence[row, k - 1] == pytest.approx(1 / (1 + np.exp(-z)), abs=6e-4)
                assert trace.accepted[row] == kept
                row += 1
    assert row == trace.positions
    assert trace.domain == ("math",) * 30 + ("chat",) * 25


def test_without_difficulty_acceptance_is_constant_and_confidence_exact() -> None:
    level = np.log(0.8 / 0.2)
    trace = made(domains__0__documents=800, drafters__with={
        "block_size": 3, "levels": {"math": [level] * 3, "chat": [level] * 3}, "spread": [0.0] * 3,
        "confidence": {"shift": [0.0] * 3, "gain": [1.0] * 3, "noise": [0.0] * 3},
    })
    assert trace.confidence is not None
    assert trace.confidence == pytest.approx(np.full_like(trace.confidence, 0.8), abs=5e-4)
    for k in (1, 2, 3):
        p = 0.8**k
        assert (trace.accepted >= k).mean() == pytest.approx(p, abs=4 * np.sqrt(p * (1 - p) / trace.positions))


def test_difficulty_has_the_stated_moments() -> None:
    spec = Spec.model_validate(changed(
        domains=[{"name": "math", "documents": 4000}, {"name": "chat", "documents": 1}], difficulty__skew=0.0,
        difficulty__document_share=0.3, difficulty__correlation=0.5,
    ))
    d, unseen = text(spec, spec.domains[0])
    assert d.shape == (4000, 20 + LOOK_AHEAD)
    assert d.mean() == pytest.approx(0, abs=0.05)
    assert d.var() == pytest.approx(1, abs=0.05)
    for lag in (1, 3):
        assert (d[:, lag:] * d[:, :-lag]).mean() == pytest.approx(0.3 + 0.7 * 0.5**lag, abs=0.05)
        assert (unseen[:, lag:] * unseen[:, :-lag]).mean() == pytest.approx(0.6**lag, abs=0.05)
    assert abs((d * unseen).mean()) < 0.02


def test_skew_makes_many_tokens_trivial_and_keeps_mean_and_variance() -> None:
    knobs = {"domains__0__documents": 4000, "difficulty__skew": 0.6, "difficulty__document_share": 0.0}
    spec = Spec.model_validate(changed(**knobs))
    d, _ = text(spec, spec.domains[0])
    assert d.mean() == pytest.approx(0, abs=0.03)
    assert d.var() == pytest.approx(1, abs=0.06)
    assert ((d - d.mean()) ** 3).mean() < -1  # the long tail lies on the easy side
    assert np.median(d) > 0.1


def test_drafters_share_the_difficulty_of_the_text() -> None:
    strong: dict[str, Any] = {"block_size": 2, "levels": {"math": [1.0] * 2, "chat": [1.0] * 2}, "spread": [4.0] * 2}
    spec = Spec.model_validate(changed(domains__0__documents=500, drafters={"a": strong, "b": strong}))
    a, b = (generate(spec, name) for name in "ab")
    assert a.aligned_with(b)
    assert not same(a, b)
    assert np.corrcoef(a.accepted, b.accepted)[0, 1] > 0.5


# -- determinism -------------------------------------------------------------------------------------------------
def test_same_bytes_in_another_process() -> None:
    here = made()
    assert here.confidence is not None
    code = (
        "import sys, json, hashlib; from dspark_sim.parametric import Spec, generate;"
        "t = generate(Spec.model_validate(json.loads(sys.argv[1])), 'with');"
        "print(hashlib.sha256(t.accepted.tobytes() + t.confidence.tobytes()).hexdigest())"
    )
    out = subprocess.run([sys.executable, "-c", code, json.dumps(SPEC)], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == hashlib.sha256(here.accepted.tobytes() + here.confidence.tobytes()).hexdigest()


def test_another_drafter_or_domain_leaves_the_rest_as_it_was() -> None:
    more = changed(drafters__extra=SPEC["drafters"]["without"])
    del more["drafters"]["without"]
    assert same(generate(Spec.model_validate(more), "with"), made())
    fewer = changed(domains=[SPEC["domains"][1]])
    for drafter in fewer["drafters"].values():
        del drafter["levels"]["math"]
    chat = generate(Spec.model_validate(fewer), "with")
    assert chat.accepted.tobytes() == made().accepted[600:].tobytes()


KNOBS: dict[str, Any] = {
    "seed": 8, "document_rows": 21, "domains__0__documents": 31, "difficulty__document_share": 0.6,
    "difficulty__correlation": 0.9, "difficulty__skew": 0.0, "difficulty__unseen_correlation": 0.0,
    "drafters__with__levels__math": [0.0, 0.0, 0.0], "drafters__with__spread": [0.1, 0.1, 0.1],
    "drafters__with__unseen": 2.0, "drafters__with__confidence__shift": [0.0, 0.2, 0.1],
    "drafters__with__confidence__gain": [1.5, 1.1, 1.2], "drafters__with__confidence__noise": [0.0, 0.3, 0.4],
}


@pytest.mark.parametrize("knob", KNOBS)
def test_every_number_of_a_specification_changes_the_trace(knob: str) -> None:
    assert not same(made(**{knob: KNOBS[knob]}), made())


def test_words_of_a_specification_reach_the_trace() -> None:
    trace = made(kind="published", temperature=0.0, drafters__with__kind="derived", drafters__with__notes=["a guess"],
                 drafters__with__confidence__sts_temperature=[1.0, 2.0, 3.0])
    assert (trace.kind, trace.temperature, trace.sts_temperature) == ("derived", 0.0, (1.0, 2.0, 3.0))
    assert made("without", kind="published").kind == "published"
    assert trace.provenance["notes"] == ["a guess"]
    assert trace.provenance["source"] == ["nobody"]


# -- by reference ------------------------------------------------------------------------------------------------
@pytest.fixture
def spec_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DSPARK_SIM_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "toy.yaml"
    path.write_text(yaml.safe_dump(SPEC, sort_keys=False), encoding="utf-8")
    return path


def test_the_shelf() -> None:
    assert list_traces() == {
        "deepseek-v4": ["dspark-5", "dspark-7", "mtp"], "qwen3-4b": ["dspark", "dflash", "eagle3"],
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


# -- bad specifications ------------------------------------------------------------------------------------------
BAD: list[tuple[dict[str, Any], str]] = [
    ({"sede": 3}, r"toy.yaml:\d+: sede: unknown key.*did you mean 'seed'"),
    ({"seed": None}, "seed: is missing"),
    ({"seed": -1}, "seed: got -1; allowed: a number ≥ 0"),
    ({"seed": 2**63}, "seed: got 9223372036854775808"),
    ({"seed": 1.5}, "seed: got 1.5; allowed: a whole number"),
    ({"format": "other"}, "format: got 'other'; allowed: dspark-sim parametric traces 1"),
    ({"kind": "guessed"}, "kind: got 'guessed'; allowed: measured, derived, published, synthetic"),
    ({"temperature": float("nan")}, "temperature: got nan"),
    ({"temperature": "hot"}, "temperature: got 'hot'; allowed: a number"),
    ({"document_rows": 0}, "document_rows: got 0"),
    ({"document_rows": 100_000, "domains__0__documents": 100_000}, "document_rows: makes 10002500000 rows"),
    ({"domains": []}, "domains: got"),
    ({"domains__1__name": "math"}, "domains: domain 'math' stands twice"),
    ({"domains__0__documents": True}, r"domains\[0\].documents: got True; allowed: a whole number"),
    ({"domains__0__name": "a/b"}, r"domains\[0\].name: got 'a/b'"),
    ({"difficulty__correlation": 1.0}, "difficulty.correlation: got 1.0; allowed: a number < 1"),
    ({"difficulty__document_share": -0.1}, "difficulty.document_share: got -0.1"),
    ({"difficulty__skew": float("inf")}, "difficulty.skew: got inf"),
    ({"difficulty__skw": 0.1}, "difficulty.skw: unknown key.*did you mean 'skew'"),
    ({"drafters": {}}, "drafters: got"),
    ({"drafters__with__block_size": 65}, "drafters.with.block_size: got 65"),
    ({"drafters__with__block_size": 2}, "drafters.with.levels.math: has 3 numbers; allowed: block_size = 2 numbers"),
    ({"drafters__with__spread": [1.0]}, "drafters.with.spread: has 1 numbers; allowed: block_size = 3"),
    ({"drafters__with__spread": [1.0, -1.0, 1.0]}, r"drafters.with.spread\[1\]: got -1.0"),
    ({"drafters__with__levels__math": [1.0, 2.0, 1e9]}, r"drafters.with.levels.math\[2\]: got 1000000000.0"),
    ({"drafters__with__levels__math": None}, "drafters.with.levels: domain 'math' is missing"),
    ({"drafters__with__levels__maths": [1.0, 1.0, 1.0]}, "levels.maths: no such domain.*did you mean 'math'"),
    ({"drafters__with__unseen": -1}, "drafters.with.unseen: got -1"),
    ({"drafters__with__confidence__gain": [0.0, 1.0, 1.0]}, r"confidence.gain\[0\]: got 0.0; allowed: a number > 0"),
    ({"drafters__with__confidence__noise": [0.1]}, "drafters.with.confidence.noise: has 1 numbers"),
    ({"drafters__with__confidence__shift": [0.1]}, "drafters.with.confidence.shift: has 1 numbers"),
    ({"drafters__with__confidence__sts_temperature": [1.0, 1.0, 0.0]}, r"sts_temperature\[2\]: got 0.0"),
    ({"drafters__with__confidence__sts_temperature": [1.0]}, "confidence.sts_temperature: has 1 numbers"),
    ({"provenance__source": []}, "provenance.source: got"),
    ({"provenance__date": None}, "provenance.date: is missing"),
]


@pytest.mark.parametrize(("keys", "message"), BAD, ids=[next(iter(k)) + str(i) for i, (k, _) in enumerate(BAD)])
def test_bad_specifications(keys: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = tmp_path / "toy.yaml"
    path.write_text(yaml.safe_dump(changed(**keys), sort_keys=False), encoding="utf-8")
    with pytest.raises(TraceError, match=message) as caught:
        find_traces(str(path))
    assert caught.value.file == path
    assert caught.value.line is not None


@pytest.mark.parametrize(("raw", "message"), [
    (b"\x00\xff\xfe binary", "is not UTF-8 text"), (b"", "is empty"), (b"- a\n- b\n", "not a mapping"),
    (b"a: &x [1]\nb: *x\n", "anchors"), (b"a: !!python/object:os.system x\n", "tag"), (b"seed: 1\nseed: 2\n", "twice"),
    (b"a: [1,\n", "toy.yaml"),
])
def test_files_that_are_no_specification(raw: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "toy.yaml").write_bytes(raw)
    with pytest.raises(TraceError, match=message):
        open_traces("toy.yaml", ["with"], base=tmp_path)


LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.lists(st.floats())


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_fuzzed_specifications_end_in_one_clear_error_or_a_trace(data: st.DataObject, tmp_path: Path) -> None:
    spec, here = copy.deepcopy(SPEC), None
    here = spec
    while isinstance(here, dict | list) and here:
        key: Any = data.draw(st.sampled_from(sorted(here) if isinstance(here, dict) else range(len(here))))
        if not isinstance(here[key], dict | list) or data.draw(st.booleans()):
            here[key] = data.draw(LEAVES | st.dictionaries(st.text(max_size=4), LEAVES, max_size=2))
            break
        here = here[key]
    path = tmp_path / "toy.yaml"
    path.write_text(yaml.safe_dump(spec, sort_keys=False, allow_unicode=True), encoding="utf-8", errors="replace")
    problem = None
    try:
        found = find_traces(str(path)).spec
        assert found is not None
        if found.positions < 10_000:
            for name in found.drafters:
                generate(found, name)
    except InputError as error:
        problem = error
    assert problem is None or (isinstance(problem, TraceError) and str(problem).count("\n") == 0)
