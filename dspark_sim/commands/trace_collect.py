"""``dspark-sim trace collect``: what drafters' tokens do against a target, at every position of its own responses."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dspark_sim.commands.lab_output import counted
from dspark_sim.commands.output import emit_rows, note
from dspark_sim.commands.trace_sample import shard_of
from dspark_sim.errors import InputError

if TYPE_CHECKING:
    from dspark_sim.lab.corpus import Document
    from dspark_sim.lab.target import Target
    from dspark_sim.trace import AcceptanceTrace

__all__ = ["collect_command", "walked"]


def collect_command(
    target: str, drafters: list[str], *, corpus: Path, out: Path, temperature: float | None, split: str,
    documents: int | None, seed: int, shard: str, device: str, dtype: str, threads: int | None, form: str,
) -> None:
    """Collect what is missing; when all parts are there, write a trace per drafter and say what they hold."""
    from dspark_sim.lab.checkpoint import load_drafter
    from dspark_sim.lab.collect import collect
    from dspark_sim.lab.corpus import corpus_facts, read_corpus
    from dspark_sim.lab.target import device_named, load_target, set_threads

    folders, part = _named(drafters), shard_of(shard)
    facts = corpus_facts(corpus)
    for key in ("target", "temperature", "dtype", "seed", "prompts_sha256"):
        if key not in facts:
            raise InputError("is missing", file=corpus / "corpus.json", key=key, allowed="as `trace sample` wrote it")
    heat = float(facts["temperature"]) if temperature is None else temperature
    if heat != facts["temperature"]:
        raise InputError(f"got {heat:g}", key="--temperature", allowed=f"{facts['temperature']:g}: the responses in "
                         f"{corpus} were sampled at that temperature, and blocks are coupled to them")
    texts = _chosen(read_corpus(corpus, split=None if split == "all" else split), documents, seed)
    set_threads(threads)
    where = device_named(device)
    model = load_target(target, device=where, dtype=dtype)
    _same_target(model, facts, corpus)
    opened = {name: load_drafter(folder, target=model, device=where) for name, folder in folders.items()}
    bundle, parts = 8, out / "parts"
    count, began = -(-len(texts) // bundle), time.monotonic()
    with counted("parts", count, len(list(parts.glob("part-*.parquet")))) as advance:
        traces = collect(
            model, opened, texts, temperature=heat, seed=seed, folder=parts, bundle=bundle, shard=part,
            progress=lambda done, _, rows: advance(done, f"{rows / (time.monotonic() - began):.0f} positions/s"),
            provenance={"text": f"{len(texts)} responses, split {split}; sampled at temperature {heat:g} in "
                                f"{str(facts['dtype']).removeprefix('torch.')}, seed {facts['seed']}",
                        "prompts_sha256": facts["prompts_sha256"], "seed": seed},
        )
    if not traces:
        note(f"{len(list(parts.glob('part-*.parquet')))} of {count} parts are in {parts}; the process that makes the "
             "last one writes the traces")
        return
    for name, trace in traces.items():
        trace.save(out / f"{name}.parquet")
    rows = [row for trace in traces.values() for row in _summary(trace)]
    emit_rows(rows, form, TITLES)
    first = next(iter(traces.values()))
    note(f"{len(traces)} traces of {first.positions:,} positions in {first.documents} documents: {out}")
    note(f"text against target: {first.provenance['text_fit']}")


TITLES = {"drafter": "drafter", "domain": "domain", "rounds": "rounds", "acceptance_length": "τ walked",
          "conditional_acceptance": "P(token k accepted | 1..k-1 accepted), walked", "mean_confidence": "confidence 1"}


def _named(drafters: Sequence[str]) -> dict[str, Path]:
    """``NAME=FOLDER`` or a folder, whose name it then is."""
    out: dict[str, Path] = {}
    for word in drafters:
        name, equals, folder = word.partition("=")
        path = Path(folder if equals else word)
        name = name if equals else path.expanduser().resolve().name
        if name in out:
            raise InputError(f"two drafters are called {name!r}", key="--drafters", allowed="NAME=FOLDER for one")
        out[name] = path
    if not out:
        raise InputError("is missing", key="--drafters", allowed="a drafter's folder; may be repeated")
    return out


def _same_target(model: Target, facts: Mapping[str, Any], corpus: Path) -> None:
    if facts["target"] != model.name:
        raise InputError(f"target {model.name!r}", file=corpus / "corpus.json", key="target",
                         allowed=f"{facts['target']!r}, which wrote these responses")
    if facts["dtype"] != str(model.dtype):
        note(f"warning: the responses were sampled in {facts['dtype']}, the target is read in {model.dtype}: they are "
             "not drawn from quite the same distribution")


def _chosen(texts: list[Document], most: int | None, seed: int) -> list[Document]:
    """At most so many documents, of every domain its share, in the corpus's order."""
    if most is None or most >= len(texts):
        return texts
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(80,)))
    chosen: list[int] = []
    for domain in dict.fromkeys(t.domain for t in texts):
        own = [i for i, t in enumerate(texts) if t.domain == domain]
        chosen += rng.permutation(own)[: max(1, round(most * len(own) / len(texts)))].tolist()
    if len(chosen) > most:  # rounding, and domains that have one each
        chosen = rng.permutation(chosen)[:most].tolist()
    return [texts[i] for i in sorted(chosen)]


def walked(trace: AcceptanceTrace, domain: str) -> list[int]:
    """Row numbers of the rounds when every document of a domain is decoded with full verification from row 0."""
    rows, jumps = [], (trace.accepted.astype(np.int64) + 1).tolist()
    for d, name in enumerate(trace.domain):
        at, end = int(trace.document_start[d]), int(trace.document_start[d + 1])
        while name == domain and at < end:
            rows.append(at)
            at += jumps[at]
    return rows


def _summary(trace: AcceptanceTrace) -> list[dict[str, Any]]:
    out = []
    for domain in trace.domains:
        rows = walked(trace, domain)
        accepted = trace.accepted[rows]
        reached = [int((accepted >= k).sum()) for k in range(trace.block_size + 1)]
        out.append({
            "drafter": trace.drafter, "domain": domain, "rounds": len(rows),
            "acceptance_length": round(1 + float(accepted.mean()), 3),
            "conditional_acceptance": [round(b / a, 2) if a else None
                                       for a, b in pairwise(reached)],
            "mean_confidence": None if trace.confidence is None else round(float(trace.confidence[rows, 0].mean()), 3),
        })
    return out
