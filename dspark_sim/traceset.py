"""Acceptance traces by reference: a name on the shelf, a ``<target>.yaml`` specification, or a folder of recordings.

A specification is materialised once into :func:`~dspark_sim.shelves.cache_dir` and read from there afterwards. The
cache is a convenience only: what cannot be written stays in memory, what is damaged is made again.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from dspark_sim.errors import TraceError, nearest, shown
from dspark_sim.parametric import GENERATOR, Spec, generate
from dspark_sim.shelves import ACCEPTANCE_TRACES, cache_dir, shelf
from dspark_sim.trace import AcceptanceTrace, load_trace
from dspark_sim.yamlio import read_yaml, validated

__all__ = ["TraceSet", "find_traces", "list_traces", "open_traces", "trace_sha256"]

SPEC_SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True)
class TraceSet:
    """All drafters of one target that a reference leads to; nothing is materialised yet.

    Attributes:
        target: the served model.
        path: the specification, or the folder.
        drafters: names, in the order of the file (folder: alphabetical).
        spec: the validated specification, None for a folder of recordings.
        text: the specification as written ("" for a folder).
    """

    target: str
    path: Path
    drafters: tuple[str, ...]
    spec: Spec | None = None
    text: str = ""

    def check(self, drafter: str) -> None:
        """Raises TraceError, with the nearest name, if there is no such drafter."""
        if drafter not in self.drafters:
            raise TraceError(f"no drafter {drafter!r} for target {self.target}", file=self.path,
                             allowed=", ".join(self.drafters), suggestion=nearest(drafter, self.drafters))

    def sha256(self, drafters: Iterable[str] | None = None) -> str:
        """What a manifest keeps: the hash of the specification and the generator's version, or of the recordings.

        Args:
            drafters: only these recordings (a specification is always hashed whole); None for all.
        """
        digest = hashlib.sha256()
        if self.spec is not None:
            digest.update(f"generator {GENERATOR}\n{self.text}".encode())
            return digest.hexdigest()
        for name in sorted(self.drafters if drafters is None else set(drafters)):
            self.check(name)
            digest.update(f"{name}\n".encode() + _file_digest(self.path / f"{name}.parquet"))
        return digest.hexdigest()

    def open(self, drafter: str) -> AcceptanceTrace:
        """The trace of one drafter.

        Raises:
            TraceError: there is no such drafter, or its file cannot be read or belongs to another drafter.
        """
        self.check(drafter)
        if self.spec is not None:
            return _materialised(self.spec, drafter, self.sha256())
        path = self.path / f"{drafter}.parquet"
        trace = load_trace(path)
        if trace.drafter != drafter:
            raise TraceError(f"holds drafter {trace.drafter!r}", file=path, allowed=f"{drafter!r}, the file's name")
        return trace


def open_traces(
    reference: str, drafters: Sequence[str], base: Path | None = None
) -> dict[str, AcceptanceTrace]:
    """The traces of several drafters of one target, checked to cover the same text.

    Args:
        reference: a target on the shelf (``qwen3-4b``), the path of a specification, or of a folder of
            ``<drafter>.parquet``.
        drafters: which ones; doubles are opened once.
        base: the folder that relative paths start from (a scenario's own), None for the current one.

    Raises:
        TraceError: nothing there, not readable, an unknown drafter (with the nearest name), or traces whose
            documents or targets differ, which no paired comparison can use.
    """
    found = find_traces(reference, base)
    for name in drafters:
        found.check(name)
    traces = {name: found.open(name) for name in dict.fromkeys(drafters)}
    first = next(iter(traces.values()), None)
    for name, trace in traces.items():
        if first is not None and (trace.target != first.target or not trace.aligned_with(first)):
            raise TraceError(
                f"drafters {first.drafter!r} and {name!r} do not cover the same target, documents and positions",
                file=found.path, allowed="traces of one target, collected on the same text",
            )
    return traces


def trace_sha256(reference: str, drafters: Iterable[str] | None = None, base: Path | None = None) -> str:
    """The hash that identifies the traces a run used; see :meth:`TraceSet.sha256`."""
    return find_traces(reference, base).sha256(drafters)


def list_traces() -> dict[str, list[str]]:
    """Name on the shelf -> drafters of every trace set there (one target may have several, by temperature)."""
    return {name: list(_read(path).drafters) for name, path in _shelf().items()}


def find_traces(reference: str, base: Path | None = None) -> TraceSet:
    """What a reference leads to: a name on the shelf first, a path relative to ``base`` second.

    Raises:
        TraceError: nothing there (with the nearest name), or a specification with a mistake.
    """
    on_shelf = _shelf()
    if reference in on_shelf:
        return _read(on_shelf[reference])
    problem = f"no acceptance traces {shown(reference)}"
    try:
        path = Path(base or ".") / Path(reference).expanduser()
        exists = path.is_dir() or path.is_file()
    except (OSError, ValueError, RuntimeError) as error:  # a name too long, a zero byte, no home
        problem, exists = f"{problem} ({getattr(error, 'strerror', None) or error})", False
    if exists:
        return _read(path)
    raise TraceError(
        problem,
        allowed=f"one of {', '.join(on_shelf)}, the path of a <target>.yaml or of a folder of <drafter>.parquet",
        suggestion=nearest(reference, on_shelf),
    )


def _shelf() -> dict[str, Path]:
    """Name -> path of what lies on the shelf."""
    out = {}
    for path in sorted(shelf(ACCEPTANCE_TRACES).iterdir()):
        if path.suffix in SPEC_SUFFIXES and path.is_file():
            out[path.stem] = path
        elif path.is_dir() and any(path.glob("*.parquet")):
            out[path.name] = path
    return out


def _read(path: Path) -> TraceSet:
    if path.is_dir():
        files = sorted(path.glob("*.parquet"))
        if not files:
            raise TraceError("holds no <drafter>.parquet", file=path)
        return TraceSet(load_trace(files[0]).target, path, tuple(f.stem for f in files))
    if path.suffix not in SPEC_SUFFIXES:
        raise TraceError("is neither a folder nor a specification", file=path,
                         allowed="a <target>.yaml, or a folder of <drafter>.parquet")
    document = read_yaml(path, TraceError)
    spec = validated(Spec, document, TraceError)
    return TraceSet(spec.target, path, tuple(spec.drafters), spec, document.text)


def _materialised(spec: Spec, drafter: str, sha256: str) -> AcceptanceTrace:
    """From the cache if it is there and whole; generated, and kept if possible, otherwise."""
    path = cache_dir() / "traces" / f"{spec.target}-{drafter}-{sha256[:20]}.parquet"
    with contextlib.suppress(TraceError, OSError):  # not there yet, or damaged: made again below
        cached = load_trace(path)
        if cached.provenance.get("content_sha256") == _content(cached):
            return cached
    trace = generate(spec, drafter)
    trace = replace(trace, provenance={**trace.provenance, "spec_sha256": sha256, "content_sha256": _content(trace)})
    with contextlib.suppress(OSError):  # a read-only or full disk costs the next run its short cut, nothing else
        trace.save(path)
    return trace


def _content(trace: AcceptanceTrace) -> str:
    """Hash of the columns, so that a cache file with a flipped bit is noticed."""
    digest = hashlib.sha256()
    for column in (trace.accepted, trace.document_start, trace.confidence):
        if column is not None:
            digest.update(np.ascontiguousarray(column).data)
    return digest.hexdigest()


def _file_digest(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").digest()
    except OSError as error:
        raise TraceError(f"cannot be read ({error.strerror or error})", file=path) from None
