"""Hardware profiles: what one engine's steps cost, read from ``profile.yaml`` and the CSV files it names.

A profile is read-only and says where its numbers come from; nothing is repaired in silence.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from dspark_sim.curve import DraftCost, StepCost, StepCurve
from dspark_sim.errors import ProfileError, nearest, shown
from dspark_sim.profile_curves import Axis, CurveReader, refusal
from dspark_sim.profile_schema import CurveSpec, ProfileSpec
from dspark_sim.shelves import HARDWARE_PROFILES, shelf
from dspark_sim.yamlio import Document, read_yaml, validated

__all__ = ["HardwareProfile", "Provenance", "list_profiles", "load_profile"]

FILE = "profile.yaml"
DEFAULT_BLOCK_TOKENS = 64


@dataclass(frozen=True)
class Provenance:
    """Where a profile's numbers come from; printed with every result, so that nobody takes a guess for a measurement.

    Attributes:
        kind: ``measured`` on the named device; ``derived`` from measurements by a stated method; ``published`` by
            somebody else as a curve or picture; ``synthetic``: made up for teaching.
        date: of the measurement or publication, ``YYYY[-MM[-DD]]`` or ``unknown``.
        command: how the files of the profile can be made again.
        assumptions: what was assumed, in sentences.
    """

    kind: Literal["measured", "derived", "published", "synthetic"]
    device: str
    model: str
    software: str
    date: str
    source: str
    command: str
    assumptions: tuple[str, ...]

    @property
    def system(self) -> str:
        """``model on device``, and words that can be read where the device is not named."""
        if self.model == self.device == "none":
            return "no real model or device"
        return f"{self.model}{', device ' if self.device.startswith('not ') else ' on '}{self.device}"


@dataclass(frozen=True, eq=False)
class HardwareProfile:
    """One engine: the cost of its steps, its limits, and the provenance of both.

    Attributes:
        name: of the shelf's folder, or of the file's folder.
        description: one paragraph.
        path: the ``profile.yaml``.
        gpus: GPUs of one engine; throughput is reported per GPU.
        price_per_gpu_hour: None when nobody stated one.
        currency: of the price.
        verify: seconds of the target's forward pass by batch tokens.
        measured_context: KV tokens per request that ``verify`` contains already.
        drafters: cost by drafter.
        drafter_notes: how each drafter's cost is known (``measured: …`` or ``assumed: …``), printed with the result.
        speculation_overhead: seconds by requests that a speculative engine adds to every step, None for nothing.
        prefill: seconds by prefill tokens of their own pass; None: they share the target's pass (``shared``).
        schedule: seconds by requests of a synchronous decision.
        fixed: seconds by requests that every step pays.
        per_request: seconds per decoding request (alpha).
        per_kv_token: seconds per KV token read beyond ``measured_context`` (kappa).
        kv_blocks: KV blocks of the engine, None for no limit.
        kv_block_tokens: tokens of one block.
        max_num_seqs: requests running at once, unless a scenario says otherwise.
        max_num_batched_tokens: tokens of a step, unless a scenario says otherwise.
        provenance: where all this comes from.
        sha256: over ``profile.yaml`` and the CSV files it names.
    """

    name: str
    description: str
    path: Path | None
    gpus: int
    price_per_gpu_hour: float | None
    currency: str
    verify: StepCurve
    measured_context: int
    drafters: Mapping[str, DraftCost]
    drafter_notes: Mapping[str, str]
    speculation_overhead: StepCurve | None
    prefill: StepCurve | None
    schedule: StepCurve | None
    fixed: StepCurve | None
    per_request: float
    per_kv_token: float
    kv_blocks: int | None
    kv_block_tokens: int
    max_num_seqs: int
    max_num_batched_tokens: int
    provenance: Provenance
    sha256: str

    def drafter_entry(self, drafter: str) -> str:
        """The key of ``drafters`` that prices ``drafter``: ``dspark-5`` itself, else ``dspark``.

        Raises:
            ProfileError: neither is there.
        """
        stem, dash, number = drafter.rpartition("-")
        for name in (drafter, stem if dash and number.isdecimal() else drafter):
            if name in self.drafters:
                return name
        raise ProfileError(
            f"profile {self.name} has no cost for drafter {shown(drafter)}", file=self.path, key="drafters",
            allowed=", ".join(self.drafters) or "none: this profile has no drafter",
            suggestion=nearest(drafter, self.drafters),
        )

    def step_cost(
        self,
        *,
        drafter: str | None,
        block_size: int,
        max_requests: int,
        max_tokens: int,
        ragged: Literal["flattened", "padded"] = "flattened",
        synchronous: bool = False,
        scale: float = 1.0,
    ) -> StepCost:
        """The cost of this engine's steps under one arm; called once per engine (and once for a policy's belief).

        Args:
            drafter: name in the acceptance traces or in ``drafters``; None: no drafter and no speculation overhead.
            block_size: draft tokens per request and step.
            max_requests: tables reach this number of requests.
            max_tokens: tables reach this many batch tokens.
            ragged: how the engine lays out rows of different lengths.
            synchronous: the step waits for the policy, so ``schedule`` is paid.
            scale: multiplies the target's seconds.

        Raises:
            ProfileError: no cost for that drafter.
        """
        return StepCost(
            self.verify,
            block_size=block_size,
            max_requests=max_requests,
            max_tokens=max_tokens,
            draft=None if drafter is None else self.drafters[self.drafter_entry(drafter)],
            schedule=self.schedule if synchronous else None,
            fixed=self.fixed,
            overhead=None if drafter is None else self.speculation_overhead,
            per_request=self.per_request,
            per_kv_token=self.per_kv_token,
            measured_context=self.measured_context,
            ragged=ragged,
            prefill=self.prefill,
            scale=scale,
        )

    def statements(self, drafters: Iterable[str] = ()) -> list[str]:
        """What a reader must know beside the numbers: kind and source, assumptions, and how each drafter was priced."""
        p = self.provenance
        lines = [f"profile {self.name}: {p.kind}; {p.system}; {p.source}"]
        lines += [f"profile {self.name}: assumes {text}" for text in p.assumptions]
        entries = dict.fromkeys(self.drafter_entry(d) for d in drafters)
        return lines + [f"profile {self.name}: cost of drafter {d} {self.drafter_notes[d]}" for d in entries]


def list_profiles() -> list[str]:
    """Names on the shelf, sorted."""
    return sorted(p.parent.name for p in shelf(HARDWARE_PROFILES).glob(f"*/{FILE}"))


def load_profile(reference: str | Path, base: Path | None = None) -> HardwareProfile:
    """Read one profile.

    Args:
        reference: a name on the shelf, or a path to a folder that holds ``profile.yaml``, or to a YAML file.
        base: folder that a relative path starts from (the scenario's); None: the working directory.

    Raises:
        ProfileError: unknown name, unreadable file, or anything in it that is not a profile.
    """
    path = _find(reference, base)
    return _build(path, read_yaml(path, ProfileError))


def _find(reference: str | Path, base: Path | None) -> Path:
    text = str(reference)
    if not text or "\0" in text or len(text) > 1000:
        raise ProfileError(f"got {shown(text)}", key="profile", allowed="a name or a path")
    place = (base or Path.cwd()) / Path(text).expanduser()
    is_path = isinstance(reference, Path) or "/" in text or "\\" in text or text.startswith((".", "~"))
    if not is_path and text in list_profiles():
        return shelf(HARDWARE_PROFILES) / text / FILE
    is_path = is_path or text.endswith((".yaml", ".yml"))
    try:
        if place.is_dir() and (is_path or (place / FILE).is_file()):
            if not (place / FILE).is_file():
                raise ProfileError(f"the folder holds no {FILE}", file=place)
            return place / FILE
        if place.is_file() and is_path:
            return place
    except OSError as problem:
        raise ProfileError(f"cannot be read ({problem.strerror or problem})", file=place) from None
    if is_path:
        raise ProfileError("no such file or folder", file=place)
    names = list_profiles()
    raise ProfileError(f"no profile {shown(text)}", allowed=", ".join(names), suggestion=nearest(text, names))


def _build(path: Path, document: Document) -> HardwareProfile:
    spec = validated(ProfileSpec, document, ProfileError)
    reader = CurveReader(document, path.parent)

    def curve(part: CurveSpec | None, axis: Axis, *key: str, positive: bool = False) -> StepCurve | None:
        return None if part is None else reader.read(part, key, axis, positive=positive)

    def refuse(problem: str, *key: str, allowed: str | None = None) -> ProfileError:
        return refusal(document, problem, key, allowed)

    verify = reader.read(spec.verify, ("verify",), "batch_tokens", positive=True)
    if verify.first == 0:
        raise refuse("a forward pass of 0 tokens cannot be measured", "verify", allowed="sizes from 1")
    reach = verify.at(np.arange(1, spec.max_num_batched_tokens + 1))
    if reach.min() <= 0:
        raise refuse(f"extrapolation reaches 0 seconds at {int(reach.argmin()) + 1} tokens", "verify",
                     allowed="a curve that stays above 0 up to max_num_batched_tokens")
    if spec.max_num_seqs > spec.max_num_batched_tokens:
        raise refuse(f"got {spec.max_num_seqs}, more than max_num_batched_tokens "
                     f"({spec.max_num_batched_tokens}): each request takes at least one token", "max_num_seqs")
    drafters: dict[str, DraftCost] = {}
    notes: dict[str, str] = {}
    for name, d in spec.drafters.items():
        seconds = reader.read(d.seconds, ("drafters", name, "seconds"), "requests")
        catch_up = curve(d.catch_up, "requests", "drafters", name, "catch_up")
        per_token = curve(d.per_token, "requests", "drafters", name, "per_token")
        drafters[name] = DraftCost(d.kind, seconds, catch_up, per_token)
        notes[name] = "; ".join(f"{word}: {' '.join(text.split())}" for word, text in
                                (("measured", d.source), ("assumed", d.assumption)) if text)
    p: dict[str, Any] = spec.provenance.model_dump()
    p["assumptions"] = tuple(" ".join(a.split()) for a in p["assumptions"])
    return HardwareProfile(
        name=path.parent.name if path.name == FILE else path.stem,
        description=" ".join(spec.description.split()),
        path=path,
        gpus=spec.gpus,
        price_per_gpu_hour=spec.price_per_gpu_hour,
        currency=spec.currency,
        verify=verify,
        measured_context=spec.measured_context,
        drafters=MappingProxyType(drafters),
        drafter_notes=MappingProxyType(notes),
        speculation_overhead=curve(spec.speculation_overhead, "requests", "speculation_overhead"),
        prefill=None if spec.prefill == "shared" else curve(spec.prefill, "batch_tokens", "prefill", positive=True),
        schedule=curve(spec.schedule, "requests", "schedule"),
        fixed=curve(spec.fixed, "requests", "fixed"),
        per_request=spec.per_request,
        per_kv_token=spec.per_kv_token,
        kv_blocks=None if spec.kv is None else spec.kv.blocks,
        kv_block_tokens=DEFAULT_BLOCK_TOKENS if spec.kv is None else spec.kv.block_tokens,
        max_num_seqs=spec.max_num_seqs,
        max_num_batched_tokens=spec.max_num_batched_tokens,
        provenance=Provenance(**p),
        sha256=_digest(document.text, reader.files),
    )


def _digest(text: str, files: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(files):
        digest.update(f"\0{name}\0{len(files[name])}\0".encode() + files[name])
    return digest.hexdigest()
