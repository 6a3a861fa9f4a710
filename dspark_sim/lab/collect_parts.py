"""Parts of a collection: a Parquet file per bundle of documents, and the traces that all of them make.

``collect.json`` beside the parts says what they belong to: a run with other drafters, documents, seed or temperature is
refused, never mixed in. Parts hold numbers, no tokens.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dspark_sim.atomic import written_aside
from dspark_sim.errors import InputError, TraceError, shown
from dspark_sim.lab.collect_facts import facts_of, machine
from dspark_sim.lab.corpus import Document
from dspark_sim.lab.drafters import Drafter
from dspark_sim.lab.reading import Surprise
from dspark_sim.lab.target import Target
from dspark_sim.trace import AcceptanceTrace

if TYPE_CHECKING:
    from dspark_sim.lab.collect import Rows

__all__ = ["Part", "Parts", "assembled", "collected_facts"]

FORMAT = "dspark-sim collection 1"


@dataclass(frozen=True)
class Part:
    """A bundle of documents.

    Attributes:
        document: (R,) int32 number of each row's document.
        accepted: name -> (R,) uint8; confidence, draft_probability: name -> (R, G) float32 (confidence may lack).
        coverage: name -> summed target mass on the draft vocabulary, where measured.
        surprise: of the texts, summed.
        seconds: that it took.
    """

    document: npt.NDArray[np.int32]
    accepted: dict[str, npt.NDArray[np.uint8]]
    confidence: dict[str, npt.NDArray[np.float32]]
    draft_probability: dict[str, npt.NDArray[np.float32]]
    coverage: dict[str, float]
    surprise: Surprise
    seconds: float

    @classmethod
    def joined(
        cls, document: npt.NDArray[np.int32], found: Mapping[str, Sequence[Rows]], surprises: Sequence[Surprise],
        seconds: float,
    ) -> Part:
        """From per-document rows of every drafter."""
        return cls(
            document, {n: np.concatenate([r.accepted for r in rows]) for n, rows in found.items()},
            {n: np.concatenate([r.confidence for r in rows if r.confidence is not None]) for n, rows in found.items()
             if rows[0].confidence is not None},
            {n: np.concatenate([r.draft_probability for r in rows]) for n, rows in found.items()},
            {n: sum(r.coverage or 0.0 for r in rows) for n, rows in found.items() if rows[0].coverage is not None},
            Surprise(sum(s.tokens for s in surprises), sum(s.excess for s in surprises),
                     sum(s.square for s in surprises), sum(s.foreign for s in surprises)),
            seconds,
        )

    def write(self, path: Path) -> None:
        """Atomically."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        columns: dict[str, Any] = {"document": pa.array(self.document)}
        columns |= {f"accepted:{n}": pa.array(a) for n, a in self.accepted.items()}
        for word in ("confidence", "draft_probability"):
            for name, table in getattr(self, word).items():
                columns[f"{word}:{name}"] = pa.FixedSizeListArray.from_arrays(pa.array(table.ravel()), table.shape[1])
        facts = {"coverage": self.coverage, "surprise": asdict(self.surprise), "seconds": self.seconds}
        table = pa.table(columns).replace_schema_metadata({"dspark_sim": json.dumps(facts)})
        with written_aside(path) as aside:
            pq.write_table(table, aside, compression="zstd")

    @classmethod
    def load(cls, path: Path) -> Part:
        """Raises TraceError: the file is damaged."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            table = pq.read_table(path, memory_map=False)
            facts = json.loads(table.schema.metadata[b"dspark_sim"])
            out: dict[str, dict[str, Any]] = {"accepted": {}, "confidence": {}, "draft_probability": {}}
            for full in table.column_names[1:]:
                word, name = full.split(":", 1)
                column = table.column(full).combine_chunks()
                out[word][name] = (column.to_numpy() if word == "accepted" else
                                   column.flatten().to_numpy().reshape(len(column), -1))
            return cls(table.column("document").to_numpy(), out["accepted"], out["confidence"],
                       out["draft_probability"], facts["coverage"], Surprise(**facts["surprise"]), facts["seconds"])
        except (pa.ArrowException, OSError, AttributeError, KeyError, TypeError, ValueError) as error:
            raise TraceError(f"damaged part of a collection ({str(error).splitlines()[0]})", file=path,
                             allowed="delete it: the next run makes it again") from None


class Parts:
    """The parts made so far.

    Args:
        folder: where they are kept; None for memory.
        facts: what they belong to.
        count: how many there will be.

    Raises:
        InputError: the folder holds parts of something else.
    """

    def __init__(self, folder: Path | None, facts: dict[str, Any], count: int) -> None:
        self.folder, self.count = folder, count
        self._made: dict[int, Part] = {}
        if folder is None:
            return
        index = folder / "collect.json"
        if not index.exists():
            with written_aside(index) as path:
                path.write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n")
        try:
            there = json.loads(index.read_text())
        except (OSError, ValueError, RecursionError):
            there = {}
        for key, value in json.loads(json.dumps(facts)).items():
            if not isinstance(there, dict) or there.get(key) != value:
                old = there.get(key) if isinstance(there, dict) else None
                raise InputError(f"{key} is {_difference(value, old)}", file=index, key=key,
                                 allowed="the same as when this collection was begun; or another folder")

    def path(self, number: int) -> Path:
        """Where part ``number`` is or will be."""
        assert self.folder is not None
        return self.folder / f"part-{number:05d}.parquet"

    def has(self, number: int) -> bool:
        """Whether it is there."""
        return number in self._made if self.folder is None else self.path(number).exists()

    def put(self, number: int, part: Part) -> None:
        """Keep it."""
        if self.folder is None:
            self._made[number] = part
        else:
            part.write(self.path(number))

    def done(self) -> int:
        """How many are there, whoever made them."""
        return sum(self.has(n) for n in range(self.count))

    def all(self) -> list[Part]:
        """In order of documents."""
        return [self._made[n] if self.folder is None else Part.load(self.path(n)) for n in range(self.count)]


def _difference(new: Any, old: Any) -> str:
    if isinstance(new, dict) and isinstance(old, dict):
        names = [n for n in sorted({*new, *old}) if new.get(n) != old.get(n)]
        return f"different for {', '.join(names)}"
    return f"{shown(new)}, was {shown(old)}"


def collected_facts(
    target: Target, drafters: Mapping[str, Drafter], documents: Sequence[Document], temperature: float, seed: int,
    bundle: int,
) -> dict[str, Any]:
    """What identifies a collection; drafters by a hash of configuration and weights, documents by one of their text."""
    text = hashlib.sha256()
    for d in documents:
        text.update(f"{d.domain} {len(d.prompt)} {len(d.response)};".encode())
        text.update(d.prompt.tobytes() + d.response.tobytes())
    return {
        "format": FORMAT, "target": target.name, "dtype": str(target.dtype), "device": target.device.type,
        "temperature": temperature, "seed": seed, "bundle": bundle, "documents": len(documents),
        "text_sha256": text.hexdigest(), "drafters": {name: _weights(d) for name, d in drafters.items()},
    }


def _weights(drafter: Drafter) -> str:
    import torch

    digest = hashlib.sha256(json.dumps(asdict(drafter.config), sort_keys=True).encode())
    for name, tensor in sorted([*drafter.named_parameters(), ("draft_ids", drafter.draft_ids)]):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def assembled(
    parts: Parts, target: Target, drafters: Mapping[str, Drafter], documents: Sequence[Document], temperature: float,
    provenance: dict[str, Any],
) -> dict[str, AcceptanceTrace]:
    """All parts as one trace per drafter, kind measured.

    Raises:
        TraceError: a part is damaged or is not of these documents.
    """
    every = parts.all()
    lengths = [len(d.response) for d in documents]
    expected = np.repeat(np.arange(len(documents), dtype=np.int32), lengths)
    if not np.array_equal(np.concatenate([p.document for p in every]), expected):
        raise TraceError("the parts do not hold the rows of these documents", file=parts.folder)
    start = np.concatenate([[0], np.cumsum(lengths)])
    out, common = {}, machine(target)
    for name, drafter in drafters.items():
        has = drafter.has_confidence
        out[name] = AcceptanceTrace(
            target=target.name, drafter=name, block_size=drafter.config.block_size,
            accepted=np.concatenate([p.accepted[name] for p in every]), document_start=start,
            domain=tuple(d.domain for d in documents),
            confidence=np.concatenate([p.confidence[name] for p in every]) if has else None,
            draft_probability=np.concatenate([p.draft_probability[name] for p in every]), temperature=temperature,
            kind="measured", provenance={**common, **facts_of(name, drafter, every, temperature), **provenance},
        )
    return out
