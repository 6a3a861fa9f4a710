"""Specifications of parametric traces that cannot be used: one clear error each."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dspark_sim.errors import InputError, TraceError
from dspark_sim.parametric import generate
from dspark_sim.traceset import find_traces, open_traces
from tests.parametric_worlds import SPEC, changed

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
