"""What may stand in a ``profile.yaml``: the pydantic models, one per mapping of the file.

Only shapes and single values are checked here; :mod:`dspark_sim.profile` turns the curves into arrays and checks what
spans several keys. Every length of time is in seconds unless its curve says ``unit: ms``.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from dspark_sim.curve import MAX_SECONDS, MAX_TOKENS
from dspark_sim.yamlio import StrictModel

__all__ = ["CurveSpec", "DrafterSpec", "KvSpec", "ProfileSpec", "ProvenanceSpec"]

Text = Annotated[str, Field(min_length=1, max_length=2000)]
Size = Annotated[int, Field(ge=1, le=MAX_TOKENS)]
Seconds = Annotated[float, Field(ge=0, le=MAX_SECONDS)]


class CurveSpec(StrictModel):
    """A curve, written out (``points``) or in a CSV beside the profile (``file``); exactly one of the two.

    ``unit`` is for points; a file's column is called ``seconds`` or ``ms`` and so names its own unit. The other keys
    are those of :class:`~dspark_sim.curve.StepCurve`.
    """

    points: list[Any] | None = Field(default=None, min_length=1, max_length=100_000)
    file: Text | None = None
    unit: Literal["s", "ms"] | None = None
    between: Literal["hold", "linear"] = "linear"
    graph_limit: Size | None = None
    extrapolate: Literal["linear"] | None = None
    running_max: bool = False

    @model_validator(mode="after")
    def _one_source(self) -> CurveSpec:
        if (self.points is None) == (self.file is None):
            raise ValueError("needs either points or file, and not both")
        if self.file is not None and self.unit is not None:
            raise ValueError("unit belongs to points; the column of a file is called seconds or ms")
        if self.graph_limit is not None and self.between != "hold":
            raise ValueError("graph_limit needs between: hold")
        return self


class DrafterSpec(StrictModel):
    """What one drafter adds to a step, and how anybody knows: ``source`` if measured, ``assumption`` if not."""

    kind: Literal["parallel", "autoregressive"]
    seconds: CurveSpec
    per_token: CurveSpec | None = None
    catch_up: CurveSpec | None = None
    source: Text | None = None
    assumption: Text | None = None

    @model_validator(mode="after")
    def _says_how(self) -> DrafterSpec:
        if self.source is None and self.assumption is None:
            raise ValueError("needs source (where it was measured) or assumption (what it is guessed from)")
        if self.per_token is not None and self.kind != "parallel":
            raise ValueError("per_token belongs to kind: parallel; an autoregressive drafter has seconds per token")
        return self


class KvSpec(StrictModel):
    """The KV cache of one engine: ``blocks`` of ``block_tokens`` tokens each."""

    blocks: Annotated[int, Field(ge=1, le=1 << 40)]
    block_tokens: Annotated[int, Field(ge=1, le=MAX_TOKENS)]


class ProvenanceSpec(StrictModel):
    """Where the numbers come from. ``assumptions`` may be empty only for a measured profile."""

    kind: Literal["measured", "derived", "published", "synthetic"]
    device: Text
    model: Text
    software: Text
    date: Annotated[str, Field(pattern=r"^(\d{4}(-\d{2}(-\d{2})?)?|unknown)$")]
    source: Text
    command: Text
    assumptions: list[Text] = Field(default_factory=list)

    @model_validator(mode="after")
    def _assumes(self) -> ProvenanceSpec:
        if self.kind != "measured" and not self.assumptions:
            raise ValueError(f"a {self.kind} profile rests on assumptions: list them under assumptions")
        return self


def _prefill_tag(value: Any) -> str:
    return "curve" if isinstance(value, (dict, CurveSpec)) else "word"


Prefill = Annotated[
    Annotated[Literal["shared"], Tag("word")] | Annotated[CurveSpec, Tag("curve")], Discriminator(_prefill_tag)
]


class ProfileSpec(StrictModel):
    """One ``profile.yaml``. See ``hardware_profiles/README.md`` for a commented example."""

    description: Text
    gpus: Annotated[int, Field(ge=1, le=100_000)]
    price_per_gpu_hour: Annotated[float, Field(gt=0, le=1e6)] | None = None
    currency: Annotated[str, Field(pattern="^[A-Z]{3}$")] = "USD"
    measured_context: Annotated[int, Field(ge=0, le=1 << 30)] = 0
    max_num_seqs: Size
    max_num_batched_tokens: Size
    verify: CurveSpec
    drafters: dict[str, DrafterSpec] = Field(default_factory=dict)
    speculation_overhead: CurveSpec | None = None
    prefill: Prefill = "shared"
    schedule: CurveSpec | None = None
    fixed: CurveSpec | None = None
    per_request: Seconds = 0.0
    per_kv_token: Seconds = 0.0
    kv: KvSpec | None = None
    provenance: ProvenanceSpec

    @field_validator("drafters")
    @classmethod
    def _names(cls, drafters: dict[str, DrafterSpec]) -> dict[str, DrafterSpec]:
        for name in drafters:
            if not name or not name.replace("-", "").replace("_", "").replace(".", "").isalnum():
                raise ValueError(f"a drafter's name is made of letters, digits, -, _ and ., got {name!r}")
        return drafters
