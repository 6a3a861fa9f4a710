"""The generator of parametric traces: its law, its determinism, and that every number of a specification counts."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from dspark_sim.parametric import LOOK_AHEAD, Spec, generate, stream, text
from tests.parametric_worlds import SPEC, changed, made, same


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
