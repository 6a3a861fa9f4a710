"""AcceptanceTrace: what a drafter's tokens did against a target, recorded at every text position.

Why by position: a recording of decoding *rounds* cannot be replayed under a policy that verifies less, because it
would visit other positions. Here row t answers "had drafting started at t, with the text before t known, how
confident was the drafter, and how many of its tokens would the target have kept?", with the block coupled to one
sampled target continuation. Then ``t += 1 + min(ℓ, accepted[t])`` replays every lossless policy (docs/method.md).

Shapes: P text positions, D documents, G block size.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from dspark_sim.atomic import written_aside
from dspark_sim.errors import TraceError, shown

__all__ = ["KINDS", "AcceptanceTrace", "TraceKind", "calibrate", "load_trace"]

TraceKind: TypeAlias = Literal["measured", "derived", "published", "synthetic"]
KINDS: tuple[TraceKind, ...] = ("measured", "derived", "published", "synthetic")
MAX_BLOCK = 64
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # a terminal would obey some of them
_FORMAT = "dspark-sim acceptance trace 1"
_EPS = 1e-6


def calibrate(
    confidence: npt.NDArray[Any],
    temperatures: npt.ArrayLike | None = None,
    bias: npt.ArrayLike | None = None,
    shift: float = 0.0,
) -> npt.NDArray[np.float32]:
    """Confidence after Sequential Temperature Scaling: σ(logit(c) / T_k + b_k + shift), position by position.

    Args:
        confidence: (..., G) raw, 0..1.
        temperatures: (G,) > 0, None for 1.
        bias: (G,) added to the logit, None for 0.
        shift: added to every logit: a belief that is off (an arm's ``belief: {confidence_shift: …}``).
    """
    c = np.clip(np.asarray(confidence, dtype=np.float64), _EPS, 1 - _EPS)
    logit = np.log(c) - np.log1p(-c)
    if temperatures is not None:
        logit = logit / np.asarray(temperatures, dtype=np.float64)
    if bias is not None:
        logit = logit + np.asarray(bias, dtype=np.float64)
    return np.asarray(1.0 / (1.0 + np.exp(-(logit + shift))), dtype=np.float32)


@dataclass(frozen=True, eq=False)
class AcceptanceTrace:
    """One drafter against one target, by text position. Read-only and checked at birth.

    Attributes:
        target, drafter: names.
        block_size: G, draft tokens proposed per row.
        accepted: (P,) uint8: draft tokens the target keeps when drafting starts here, all G verified.
        document_start: (D + 1,) rising; document d holds rows document_start[d] .. document_start[d + 1] - 1.
        domain: D names, e.g. "math".
        confidence: (P, G) raw, before the token is drawn; None if the drafter has no confidence head.
        draft_probability: (P, G) the drafter's own probability of the token it drew; None if not recorded.
        temperature: sampling temperature of the target (0: greedy).
        kind: measured, derived, published or synthetic: never mix these words.
        sts_temperature, sts_bias: (G,) calibration fitted on held-out documents, applied by ``calibrated: true``.
        provenance: free-form facts (source, date, command, assumptions) that the report prints.

    Raises:
        TraceError: at construction, for anything inconsistent.
    """

    target: str
    drafter: str
    block_size: int
    accepted: npt.NDArray[np.uint8]
    document_start: npt.NDArray[np.int64]
    domain: tuple[str, ...]
    confidence: npt.NDArray[np.float32] | None = None
    draft_probability: npt.NDArray[np.float32] | None = None
    temperature: float = 1.0
    kind: TraceKind = "synthetic"
    sts_temperature: tuple[float, ...] | None = None
    sts_bias: tuple[float, ...] | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        G, where = self.block_size, f"trace {self.target}/{self.drafter}"
        if not (isinstance(G, int) and 1 <= G <= MAX_BLOCK):
            raise TraceError(f"{where}: block_size {shown(G)}", allowed=f"1 to {MAX_BLOCK}")
        if self.kind not in KINDS:
            raise TraceError(f"{where}: kind {shown(self.kind)}", allowed=", ".join(KINDS))
        accepted = np.asarray(self.accepted)
        start = np.asarray(self.document_start, dtype=np.int64)
        if accepted.ndim != 1 or accepted.size == 0 or accepted.dtype.kind not in "ui":
            raise TraceError(f"{where}: accepted must be one column of whole numbers, at least one row")
        if accepted.min() < 0 or accepted.max() > G:
            raise TraceError(f"{where}: accepted has {accepted.min()}..{accepted.max()}", allowed=f"0 to {G}")
        whole = start.ndim == 1 and start.size >= 2 and start[0] == 0 and start[-1] == accepted.size
        if not whole or np.any(np.diff(start) < 1):
            raise TraceError(f"{where}: document_start must rise from 0 to {accepted.size}, no document empty")
        if len(self.domain) != start.size - 1 or not all(isinstance(d, str) and d for d in self.domain):
            raise TraceError(f"{where}: {start.size - 1} documents need {start.size - 1} domain names")
        for name in ("confidence", "draft_probability"):
            table = getattr(self, name)
            if table is None:
                continue
            table = np.asarray(table, dtype=np.float32)
            if table.shape != (accepted.size, G):
                raise TraceError(f"{where}: {name} has shape {table.shape}", allowed=f"({accepted.size}, {G})")
            if not np.all(np.isfinite(table)) or table.min() < 0 or table.max() > 1:
                raise TraceError(f"{where}: {name} has values outside 0..1 or not finite")
            self._freeze(name, table)
        for name in ("sts_temperature", "sts_bias"):
            values = getattr(self, name)
            if values is not None and (len(values) != G or not all(np.isfinite(values))):
                raise TraceError(f"{where}: {name} needs {G} finite numbers")
        if self.sts_temperature is not None and min(self.sts_temperature) <= 0:
            raise TraceError(f"{where}: sts_temperature must be > 0")
        if not (np.isfinite(self.temperature) and self.temperature >= 0):
            raise TraceError(f"{where}: temperature {shown(self.temperature)}", allowed="0 or more")
        self._freeze("accepted", accepted.astype(np.uint8))
        self._freeze("document_start", start)

    def _freeze(self, name: str, array: npt.NDArray[Any]) -> None:
        array = array.copy() if array.flags.writeable and array.base is not None else array
        array.flags.writeable = False
        object.__setattr__(self, name, array)

    @property
    def positions(self) -> int:
        """P."""
        return int(self.accepted.size)

    @property
    def documents(self) -> int:
        """D."""
        return len(self.domain)

    @property
    def domains(self) -> tuple[str, ...]:
        """The distinct domain names, in order of first appearance."""
        return tuple(dict.fromkeys(self.domain))

    def rows(self, domain: str | None = None) -> npt.NDArray[np.int64]:
        """All row numbers of one domain (None: of the whole trace)."""
        if domain is None:
            return np.arange(self.positions)
        parts = [
            np.arange(self.document_start[d], self.document_start[d + 1])
            for d, name in enumerate(self.domain)
            if name == domain
        ]
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)

    def survival(self, *, calibrated: bool = True, shift: float = 0.0) -> npt.NDArray[np.float32] | None:
        """(P, G) survivals a_k = c_1 … c_k, as a policy sees them; None without confidence.

        Args:
            calibrated: apply the trace's Sequential Temperature Scaling where it has one.
            shift: added to every logit (a belief that is off).
        """
        if self.confidence is None:
            return None
        c: npt.NDArray[Any] = self.confidence
        has_sts = calibrated and (self.sts_temperature is not None or self.sts_bias is not None)
        if has_sts or shift:
            c = calibrate(c, self.sts_temperature if has_sts else None, self.sts_bias if has_sts else None, shift)
        return np.asarray(np.cumprod(c, axis=1, dtype=np.float64), dtype=np.float32)

    def aligned_with(self, other: AcceptanceTrace) -> bool:
        """Whether both traces cover the same documents and positions, so that arms may be compared in pairs."""
        return np.array_equal(self.document_start, other.document_start) and self.domain == other.domain

    def with_sts(self, temperature: npt.ArrayLike, bias: npt.ArrayLike | None = None) -> AcceptanceTrace:
        """The same trace with a calibration (G,) attached."""
        t = tuple(float(x) for x in np.asarray(temperature).ravel())
        b = None if bias is None else tuple(float(x) for x in np.asarray(bias).ravel())
        return replace(self, sts_temperature=t, sts_bias=b)

    # -- files -------------------------------------------------------------------------------------------------
    def save(self, path: str | Path) -> None:
        """Write a Parquet file (zstd), aside first and then renamed, so that no partial file bears the name."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        document = np.repeat(np.arange(self.documents, dtype=np.int32), np.diff(self.document_start))
        columns: dict[str, Any] = {"document": document, "accepted": self.accepted}
        for name in ("confidence", "draft_probability"):
            table = getattr(self, name)
            if table is not None:
                columns |= {f"{name}_{k + 1}": table[:, k].astype(np.float16) for k in range(self.block_size)}
        meta = {
            "format": _FORMAT, "target": self.target, "drafter": self.drafter, "block_size": self.block_size,
            "temperature": self.temperature, "kind": self.kind, "domain": list(self.domain),
            "sts_temperature": self.sts_temperature, "sts_bias": self.sts_bias, "provenance": dict(self.provenance),
        }
        table = pa.table({k: pa.array(v) for k, v in columns.items()}).replace_schema_metadata(
            {"dspark_sim": json.dumps(meta, sort_keys=True)}
        )
        with written_aside(path) as aside:
            pq.write_table(table, aside, compression="zstd")


def _words(data: Any) -> Iterator[str]:
    """Every text in parsed JSON."""
    if isinstance(data, str):
        yield data
    elif isinstance(data, (dict, list)):
        for item in [*data, *data.values()] if isinstance(data, dict) else data:
            yield from _words(item)


def load_trace(path: str | Path) -> AcceptanceTrace:
    """Read a trace written by :meth:`AcceptanceTrace.save`.

    Raises:
        TraceError: the file is missing, truncated, not Parquet, or not an acceptance trace; names the file.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = Path(path)
    if not path.is_file():
        raise TraceError("no such file", file=path)
    try:
        table = pq.read_table(path, memory_map=False)
        raw = (table.schema.metadata or {}).get(b"dspark_sim")
        meta = json.loads(raw) if raw else None
        odd = any(_CONTROL.search(word) for word in _words(meta))
    except (pa.ArrowException, OSError, ValueError, RecursionError) as error:
        raise TraceError(f"not a readable Parquet file ({str(error).splitlines()[0]})", file=path) from None
    if not isinstance(meta, dict) or meta.get("format") != _FORMAT:
        raise TraceError("a Parquet file, but not an acceptance trace", file=path, allowed=f"metadata {_FORMAT!r}")
    if odd:
        raise TraceError("its metadata holds a control character, which is no text", file=path)
    try:
        G = int(meta["block_size"])
        if not 1 <= G <= MAX_BLOCK:  # before anything of that width is allocated
            raise TraceError(f"block_size {shown(G)}", allowed=f"1 to {MAX_BLOCK}")
        names = table.column_names

        def block(name: str) -> npt.NDArray[np.float32] | None:
            if f"{name}_1" not in names:
                return None
            out = np.empty((table.num_rows, G), dtype=np.float32)
            for k in range(G):
                out[:, k] = table.column(f"{name}_{k + 1}").to_numpy()
            return out

        document = table.column("document").to_numpy()
        domain = tuple(meta["domain"])
        if document.size and (np.any(np.diff(document) < 0) or document[0] < 0 or document[-1] >= len(domain)):
            raise TraceError("column document must rise from 0 to the number of domains - 1")
        start = np.searchsorted(document, np.arange(len(domain) + 1))
        sts, bias = meta.get("sts_temperature"), meta.get("sts_bias")
        return AcceptanceTrace(
            target=str(meta["target"]), drafter=str(meta["drafter"]), block_size=G,
            accepted=table.column("accepted").to_numpy(), document_start=start, domain=domain,
            confidence=block("confidence"), draft_probability=block("draft_probability"),
            temperature=float(meta["temperature"]), kind=meta["kind"],
            sts_temperature=None if sts is None else tuple(map(float, sts)),
            sts_bias=None if bias is None else tuple(map(float, bias)), provenance=dict(meta.get("provenance") or {}),
        )
    except TraceError as error:
        raise TraceError(error.problem, file=path, allowed=error.allowed) from None
    except (KeyError, TypeError, ValueError, OverflowError, pa.ArrowException) as error:
        raise TraceError(f"damaged acceptance trace ({type(error).__name__}: {error})", file=path) from None
