"""Samples with something broken in them: a sentence, or a result that holds; never anything else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dspark_sim.errors import TraceError
from dspark_sim.trace_import import rounds
from dspark_sim.trace_import.sources import FORMATS, Options, read_source

DATA = Path(__file__).resolve().parent / "data" / "trace_import"
JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 70), st.floats(), st.text(max_size=6), st.just(10**400),
    st.lists(st.one_of(st.integers(-1, 9), st.floats(0, 2), st.none()), max_size=5),
    st.dictionaries(st.sampled_from(["3", "spec", "x"]), st.lists(st.integers(0, 3), max_size=4), max_size=2),
)


@st.composite
def broken(draw: st.DrawFn) -> str:
    """A sample with one or two of its values replaced by something else."""
    name = draw(st.sampled_from(sorted(p.name for p in DATA.iterdir() if p.suffix in (".json", ".jsonl"))))
    text = (DATA / name).read_text()
    values = [json.loads(text)] if name.endswith(".json") else [json.loads(line) for line in text.splitlines()]
    for _ in range(draw(st.integers(1, 2))):
        at: Any = values
        while True:
            keys = list(at) if isinstance(at, dict) else list(range(len(at)))
            if not keys:
                break
            key = draw(st.sampled_from(keys))
            if isinstance(at[key], (dict, list)) and at[key] and draw(st.integers(0, 5)):
                at = at[key]
                continue
            at[key] = draw(JUNK)
            break
    return "\n".join(json.dumps(value) for value in values)


@given(broken(), st.sampled_from(["auto", *FORMATS]))
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_broken_files(tmp_path: Path, text: str, form: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    said = ""
    try:
        source = read_source(path, Options(form))
        if source.form == "rounds":
            G, filled, _ = rounds.laid_out(source.requests, path)
            assert filled.accepted.max() <= G
        for rates in source.rates.values():
            assert all(0 <= c <= 1 for c in rates.conditional)
            assert 1 <= rates.length <= 1 + len(rates.conditional)
    except TraceError as problem:
        said = str(problem)
    assert "\n" not in said
    assert len(said) < 1000


@given(st.binary(max_size=200), st.sampled_from(["auto", *FORMATS]), st.sampled_from(["x", "x.csv", "x.yaml"]))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_noise(tmp_path: Path, data: bytes, form: str, name: str) -> None:
    (tmp_path / name).write_bytes(data)
    said = name
    try:
        read_source(tmp_path / name, Options(form))
    except TraceError as problem:
        said = str(problem)
    assert name in said
