"""Responses that a target wrote itself: prompts in, a folder of Parquet parts out.

A corpus folder holds ``corpus.json`` (target, temperature, seed, lengths, hash of the prompts) and
``part-NNNNN.parquet``, one row per response: ``prompt_id``, ``domain``, ``split`` (``train`` or ``held-out``),
``prompt`` and ``response`` (token ids), ``ended`` (a stop token was drawn). Parts are written aside and renamed: what
is there is whole.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dspark_sim.atomic import written_aside
from dspark_sim.errors import InputError, TraceError, shown

__all__ = [
    "Document", "Prompt", "corpus_facts", "prompts_sha256", "read_corpus", "read_part", "read_prompts", "write_part",
]

SPLITS = ("train", "held-out")
# A base model has no chat template; "code" is for tasks in prose: a prompt that holds a "def" already stays as it is.
TEMPLATES = {"math": "Problem: {}\n\nSolution:", "chat": "Question: {}\n\nAnswer:", "code": '"""{}"""\n\ndef'}
FORMAT = "dspark-sim corpus 1"
LONGEST_DOMAIN = 80  # a scenario's names have 100 characters


@dataclass(frozen=True)
class Prompt:
    """One prompt: its number in the file, domain, text, and whether it is held out from training."""

    id: int
    domain: str
    text: str
    held_out: bool


@dataclass(frozen=True)
class Document:
    """One response with its prompt, as token ids (int64).

    Attributes:
        ended: the target drew a stop token, which is the last of ``response``.
    """

    prompt_id: int
    domain: str
    split: str
    prompt: npt.NDArray[np.int64]
    response: npt.NDArray[np.int64]
    ended: bool


def read_prompts(paths: Sequence[Path], held_out: float = 0.2, seed: int = 0) -> list[Prompt]:
    """Prompts of JSONL files with keys ``domain`` and ``prompt``.

    Args:
        held_out: share of each domain's prompts that training never sees, chosen by ``seed``; at least one.

    Raises:
        InputError: names file and line.
    """
    if not 0 < held_out < 1:
        raise InputError(f"held-out share {held_out}", allowed="more than 0, less than 1")
    rows: list[tuple[str, str]] = []
    for path in paths:
        if not path.is_file():
            raise InputError("no such file", file=path, allowed="a JSONL file with keys domain and prompt")
        try:
            lines = path.read_text(encoding="utf-8").split("\n")  # not splitlines: JSON may hold U+2028 and U+0085
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"cannot be read ({error})", file=path) from None
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                raise InputError("not JSON", file=path, line=number) from None
            if not isinstance(row, dict) or not all(_is_text(row.get(k)) for k in ("domain", "prompt")) or not (
                    row["domain"].isprintable() and len(row["domain"]) <= LONGEST_DOMAIN):
                raise InputError(f"got {shown(row)}", file=path, line=number,
                                 allowed='{"domain": "math", "prompt": "…"}, the domain a short name')
            rows.append((row["domain"], row["prompt"]))
    if not rows:
        raise InputError("no prompts", file=paths[0] if paths else None)
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(77,)))
    out = set()
    for domain in dict.fromkeys(d for d, _ in rows):
        own = [i for i, (d, _) in enumerate(rows) if d == domain]
        out |= set(rng.permutation(own)[: max(1, round(held_out * len(own)))].tolist())
    return [Prompt(i, d, _framed(d, text), i in out) for i, (d, text) in enumerate(rows)]


def _is_text(value: Any) -> bool:
    """Some words, in characters that UTF-8 has (JSON can name halves of surrogate pairs)."""
    return isinstance(value, str) and bool(value.strip()) and not any("\ud800" <= c <= "\udfff" for c in value)


def _framed(domain: str, text: str) -> str:
    if domain == "code" and "def " in text:
        return text
    return TEMPLATES.get(domain, "{}").replace("{}", text)


def prompts_sha256(prompts: Sequence[Prompt]) -> str:
    """What identifies the prompts of a corpus."""
    return hashlib.sha256(json.dumps([[p.domain, p.text, p.held_out] for p in prompts]).encode()).hexdigest()


def write_part(folder: Path, number: int, documents: Sequence[Document]) -> None:
    """Write one part, atomically."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({
        "prompt_id": pa.array([d.prompt_id for d in documents], pa.int32()),
        "domain": pa.array([d.domain for d in documents]),
        "split": pa.array([d.split for d in documents]),
        "prompt": pa.array([d.prompt.tolist() for d in documents], pa.list_(pa.int32())),
        "response": pa.array([d.response.tolist() for d in documents], pa.list_(pa.int32())),
        "ended": pa.array([d.ended for d in documents]),
    })
    with written_aside(folder / f"part-{number:05d}.parquet") as path:
        pq.write_table(table, path, compression="zstd")


def corpus_facts(folder: Path) -> dict[str, Any]:
    """``corpus.json``.

    Raises:
        InputError: there is none, or it is no corpus of ours.
    """
    path = folder / "corpus.json"
    try:
        facts = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError):
        raise InputError("no corpus", file=path, allowed="a folder that `dspark-sim trace sample` wrote") from None
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        raise InputError(f"format {shown(facts.get('format') if isinstance(facts, dict) else facts)}", file=path,
                         allowed=FORMAT)
    return facts


def read_corpus(folder: str | Path, *, split: str | None = None) -> list[Document]:
    """All responses, in order of parts.

    Raises:
        InputError, TraceError: no corpus there, or a part that is damaged; names the file.
    """
    if split is not None and split not in SPLITS:
        raise InputError(f"split {shown(split)}", allowed=", ".join(SPLITS))
    corpus_facts(Path(folder))
    out = [d for path in sorted(Path(folder).glob("part-*.parquet")) for d in read_part(path)
           if split is None or d.split == split]
    if not out:
        raise InputError(f"the corpus has no {split or 'complete'} responses yet", file=Path(folder),
                         allowed="run `dspark-sim trace sample` until it ends")
    return out


def read_part(path: Path) -> Iterator[Document]:
    """The responses of one part.

    Raises:
        TraceError: the file is damaged.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        rows = pq.read_table(path).to_pylist()
        for row in rows:
            yield Document(int(row["prompt_id"]), row["domain"], row["split"], np.array(row["prompt"], dtype=np.int64),
                           np.array(row["response"], dtype=np.int64), bool(row["ended"]))
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
        raise TraceError(f"damaged part of a corpus ({str(error).splitlines()[0]})", file=path) from None
