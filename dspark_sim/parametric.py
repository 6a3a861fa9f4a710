"""Acceptance traces generated from published statistics: a specification and a seed instead of a recording.

The model, for one target. Every *text position* s has a difficulty d_s of unit variance: a document's own share plus
an AR(1) along the text, bent by ``skew`` so that many tokens are trivial (d far below 0). All drafters and all
anchors share it, as they share the text. With row t drafting the tokens at t + 1 … t + G, a drafter has

    logit c_{t,k} = level_k(domain) − spread_k · d_{t+k} − unseen · h_{t+k}        accepted[t]: leading successes
    logit of the confidence = shift_k + gain_k · (level_k − spread_k · d_{t+k}) + noise_k · ε_{t,k}

h is a second difficulty that the drafter cannot feel (nothing of it reaches the confidence). Levels reproduce the
conditional acceptance that was published; spread, skew, noise and gain reproduce how well its confidence separates
and how far it overshoots (``tools/fit_traces.py`` fits them, acceptance_traces/README.md shows how close they come).

Everything is drawn from PCG64 streams named by (purpose, domain, drafter) under the specification's seed: the same
bytes in any process, and a new drafter or domain leaves the others as they were.
Shapes: D documents of a domain, L rows per document, G block size.
"""

from __future__ import annotations

import zlib
from typing import Annotated, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from dspark_sim.errors import InputError, nearest
from dspark_sim.trace import MAX_BLOCK, AcceptanceTrace, TraceKind
from dspark_sim.yamlio import StrictModel

__all__ = ["GENERATOR", "LOOK_AHEAD", "Spec", "generate"]

GENERATOR = 1
"""Version of the arithmetic below: raise it whenever the same specification would give other numbers."""
LOOK_AHEAD = MAX_BLOCK
"""Text positions that exist after a document's last row; fixed, so that a longer block changes no other drafter."""
MAX_POSITIONS = 4_000_000
FloatArray: TypeAlias = npt.NDArray[np.float64]
Number = Annotated[float, Field(ge=-30, le=30)]
Size = Annotated[float, Field(ge=0, le=30)]
Word = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$", max_length=64)]
Text = Annotated[str, Field(min_length=1, max_length=4000)]


class Domain(StrictModel):
    """One kind of text: its name, and how many documents of it exist."""

    name: Word
    documents: Annotated[int, Field(ge=1, le=100_000)]


class Difficulty(StrictModel):
    """Difficulty of the text, unit variance, shared by all drafters.

    Attributes:
        document_share: share of the (unbent) variance that whole documents carry, 0..1.
        correlation: of neighbouring text positions inside a document.
        skew: > 0 stretches the easy side (a shifted lognormal); 0 is Gaussian.
        unseen_correlation: of neighbouring positions of the difficulty that drafters cannot feel.
    """

    document_share: Annotated[float, Field(ge=0, le=1)]
    correlation: Annotated[float, Field(ge=0, lt=1)]
    skew: Annotated[float, Field(ge=0, le=2)] = 0.0
    unseen_correlation: Annotated[float, Field(ge=0, lt=1)] = 0.0


class Confidence(StrictModel):
    """What a drafter's confidence head says about the acceptance that its row really has.

    Attributes:
        shift: (G,) added to the logit: > 0 is overconfident.
        gain: (G,) factor on the felt logit: > 1 is overconfident where acceptance is high.
        noise: (G,) standard deviation of what it hears wrongly, fresh at every row and position.
        sts_temperature: (G,) sequential temperature scaling fitted on this trace, None for none.
    """

    shift: list[Number]
    gain: list[Annotated[float, Field(gt=0, le=10)]]
    noise: list[Size]
    sts_temperature: list[Annotated[float, Field(gt=0, le=100)]] | None = None


class Drafter(StrictModel):
    """One drafter: levels by domain, how strongly it suffers from difficulty, and its confidence.

    Attributes:
        block_size: G.
        levels: domain -> (G,) logits of acceptance at difficulty 0.
        spread: (G,) logits lost per unit of difficulty.
        unseen: logits lost per unit of the unseen difficulty.
        confidence: None for a drafter without a confidence head.
        kind: overrides the specification's.
        notes: assumptions about this drafter, printed with results.
    """

    block_size: Annotated[int, Field(ge=1, le=MAX_BLOCK)]
    levels: Annotated[dict[Word, list[Number]], Field(min_length=1)]
    spread: list[Size]
    unseen: Size = 0.0
    confidence: Confidence | None = None
    kind: TraceKind | None = None
    notes: list[Text] = Field(default_factory=list)

    @model_validator(mode="after")
    def _lengths(self) -> Drafter:
        lists: dict[str, list[float] | None] = {f"levels.{name}": row for name, row in self.levels.items()}
        lists["spread"] = self.spread
        if self.confidence is not None:
            lists["confidence.shift"] = self.confidence.shift
            lists["confidence.gain"] = self.confidence.gain
            lists["confidence.noise"] = self.confidence.noise
            lists["confidence.sts_temperature"] = self.confidence.sts_temperature
        for key, row in lists.items():
            if row is not None and len(row) != self.block_size:
                raise InputError(f"has {len(row)} numbers", key=key, allowed=f"block_size = {self.block_size} numbers")
        return self


class Provenance(StrictModel):
    """Where the numbers come from, in words; the report prints it.

    Attributes:
        source: what was published, by whom.
        date: of the fit, in words.
        command: what wrote the file, None if it was written by hand.
        assumptions: what had to be assumed.
    """

    source: Annotated[list[Text], Field(min_length=1)]
    date: Text
    command: Text | None = None
    assumptions: list[Text] = Field(default_factory=list)


class Spec(StrictModel):
    """A whole ``<target>.yaml``: the text, its drafters, and where the numbers come from."""

    format: Literal["dspark-sim parametric traces 1"]
    target: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=64)]
    description: Text
    kind: TraceKind
    temperature: Annotated[float, Field(ge=0, le=10)]
    seed: Annotated[int, Field(ge=0, lt=2**63)]
    document_rows: Annotated[int, Field(ge=1, le=100_000)]
    domains: Annotated[list[Domain], Field(min_length=1)]
    difficulty: Difficulty
    drafters: Annotated[dict[Word, Drafter], Field(min_length=1)]
    provenance: Provenance

    @model_validator(mode="after")
    def _domains(self) -> Spec:
        names = [d.name for d in self.domains]
        for i, name in enumerate(names):
            if name in names[:i]:
                raise InputError(f"domain {name!r} stands twice", key="domains")
        if self.positions > MAX_POSITIONS:
            raise InputError(f"makes {self.positions} rows", key="document_rows", allowed=f"at most {MAX_POSITIONS}")
        for drafter, d in self.drafters.items():
            key = f"drafters.{drafter}.levels"
            for name in d.levels:
                if name not in names:
                    raise InputError("no such domain", key=f"{key}.{name}", allowed=", ".join(names),
                                     suggestion=nearest(name, names))
            for name in names:
                if name not in d.levels:
                    raise InputError(f"domain {name!r} is missing: every drafter covers the whole text", key=key)
        return self

    @property
    def positions(self) -> int:
        """P: rows of every trace of this target."""
        return self.document_rows * sum(d.documents for d in self.domains)


def stream(seed: int, *names: str) -> np.random.Generator:
    """The random stream called ``names``, the same in every process and on every machine."""
    key = tuple(zlib.crc32(name.encode()) for name in names)
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy=seed, spawn_key=key)))


def text(spec: Spec, domain: Domain) -> tuple[FloatArray, FloatArray]:
    """(difficulty, unseen difficulty) of one domain's text, each (D, L + LOOK_AHEAD), unit variance, mean 0."""
    d, shape = spec.difficulty, (domain.documents, spec.document_rows + LOOK_AHEAD)
    own = stream(spec.seed, "document", domain.name).standard_normal((domain.documents, 1))
    along = _ar1(stream(spec.seed, "text", domain.name), shape, d.correlation)
    x = np.sqrt(d.document_share) * own + np.sqrt(1 - d.document_share) * along
    hidden = _ar1(stream(spec.seed, "unseen", domain.name), shape, d.unseen_correlation)
    return -_bent(x, d.skew), hidden


def _ar1(rng: np.random.Generator, shape: tuple[int, int], correlation: float) -> FloatArray:
    steps = rng.standard_normal((shape[1], shape[0]))  # time first: each step of the loop is one contiguous row
    fresh = np.sqrt(1 - correlation * correlation)
    for t in range(1, shape[1]):
        steps[t] = correlation * steps[t - 1] + fresh * steps[t]
    return np.ascontiguousarray(steps.T)


def _bent(x: FloatArray, skew: float) -> FloatArray:
    """A standard normal x stretched on its upper side; still mean 0 and variance 1."""
    if skew < 1e-6:
        return x
    v = skew * skew
    return np.asarray((np.exp(skew * x) - np.exp(v / 2)) / np.sqrt(np.exp(v) * np.expm1(v)))


def felt_logit(spec: Spec, drafter: Drafter, domain: Domain, difficulty: FloatArray) -> FloatArray:
    """(D, L, G) level − spread · difficulty: what the drafter can feel of its chances."""
    d = ahead(difficulty, spec.document_rows, drafter.block_size)
    return np.asarray(drafter.levels[domain.name]) - np.asarray(drafter.spread) * d


def ahead(values: FloatArray, rows: int, G: int) -> FloatArray:
    """(D, rows, G): entry [d, t, k - 1] is text position t + k of document d."""
    windows: FloatArray = np.lib.stride_tricks.sliding_window_view(values[:, 1 : rows + G], G, axis=1)
    return windows


def sigmoid(x: FloatArray) -> FloatArray:
    """1 / (1 + e^−x)."""
    return np.asarray(1.0 / (1.0 + np.exp(-x)))


def generate(spec: Spec, name: str) -> AcceptanceTrace:
    """The trace of drafter ``name`` (KeyError if there is none): a pure function of the specification."""
    drafter = spec.drafters[name]
    G, rows, says = drafter.block_size, spec.document_rows, drafter.confidence
    accepted = np.empty(spec.positions, dtype=np.uint8)
    confidence = None if says is None else np.empty((spec.positions, G), dtype=np.float32)
    at = 0
    for domain in spec.domains:
        shape, end = (domain.documents, rows, G), at + domain.documents * rows
        difficulty, hidden = text(spec, domain)
        felt = felt_logit(spec, drafter, domain, difficulty)
        true = felt - drafter.unseen * ahead(hidden, rows, G) if drafter.unseen else felt
        kept = stream(spec.seed, "accept", domain.name, name).random(shape) < sigmoid(true)
        accepted[at:end] = np.logical_and.accumulate(kept, axis=2).sum(axis=2).ravel()
        if confidence is not None and says is not None:
            rng = stream(spec.seed, "confidence", domain.name, name)
            heard = np.asarray(says.shift) + np.asarray(says.gain) * felt
            heard += np.asarray(says.noise) * rng.standard_normal(shape)
            # Half precision is what the cache file keeps: rounding here makes a fresh trace equal a cached one.
            confidence[at:end] = sigmoid(heard).astype(np.float16).reshape(-1, G)
        at = end
    documents = [domain.name for domain in spec.domains for _ in range(domain.documents)]
    return AcceptanceTrace(
        target=spec.target, drafter=name, block_size=G, accepted=accepted,
        document_start=np.arange(len(documents) + 1, dtype=np.int64) * rows, domain=tuple(documents),
        confidence=confidence, temperature=spec.temperature, kind=drafter.kind or spec.kind,
        sts_temperature=None if says is None or says.sts_temperature is None else tuple(says.sts_temperature),
        provenance={
            **spec.provenance.model_dump(), "notes": list(drafter.notes), "seed": spec.seed, "generator": GENERATOR,
        },
    )
