"""Coupled, position-indexed traces of several drafters over the same documents.

**Rows.** Row t of a document is the round that begins when t of its R response tokens have been emitted: its anchor is
response token t − 1 (t = 0: the prompt's last token), its first draft token is compared with response token t. That is
what an engine looks up: a request that has emitted e tokens stands at row e. So a document has R rows, the prompt is
context and has none, and prefill having emitted token 0 a request enters its first document at row 1; row 0 serves
requests that come from the document before. The block of row R − 1 reaches G − 1 tokens past the end, which the target
samples here.

**Random numbers** come from (seed, document) alone, the same for every drafter: parts may be made in any order and by
several processes, and drafters collected apart agree with those collected together, bit for bit on one kind of machine.

Shapes: R rows, G block size, A blocks drafted together, Vd draft vocabulary.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from dspark_sim.errors import InputError
from dspark_sim.lab.collect_check import check_inputs
from dspark_sim.lab.collect_parts import Part, Parts, assembled, collected_facts
from dspark_sim.lab.corpus import Document
from dspark_sim.lab.coupling import couple
from dspark_sim.lab.drafters import Drafter
from dspark_sim.lab.reading import Reading, read
from dspark_sim.lab.target import Target
from dspark_sim.trace import MAX_BLOCK, AcceptanceTrace

__all__ = ["Rows", "collect", "draft_rows"]

ELEMENTS = 1 << 23  # draft logits held at once; a constant, as in reading.py
LARGEST = 512  # blocks drafted together


@dataclass(frozen=True)
class Rows:
    """What one drafter did at every row of some documents.

    Attributes:
        accepted: (R,) uint8.
        confidence: (R, G) float32, before each token is drawn; None without a confidence head.
        draft_probability: (R, G) float32 of the drawn token (greedy: of the softmax at temperature 1).
        coverage: sum over rows of the target's mass on the draft vocabulary; None if greedy or not reduced.
    """

    accepted: npt.NDArray[np.uint8]
    confidence: npt.NDArray[np.float32] | None
    draft_probability: npt.NDArray[np.float32]
    coverage: float | None


@torch.inference_mode()
def draft_rows(
    drafter: Drafter, reading: Reading, features: Tensor, accept: Tensor, place: Tensor
) -> Rows:
    """Draft a block at every row of one document, coupled to its text.

    Args:
        features: (S, F·H) of the drafter's own layers.
        accept, place: (R, G or more) uniform numbers, see :func:`~dspark_sim.lab.coupling.couple`.
    """
    G, R, T = drafter.config.block_size, reading.rows, reading.temperature
    reduced = drafter.draft_ids if drafter.config.draft_vocab_size is not None else None
    first = reading.prompt - 1  # text position of row 0's anchor
    read_ids = reading.ids[None, :reading.prompt + R]
    context = drafter.context(read_ids, features[None, :-1].to(drafter.fc.weight.dtype))
    size = max(1, min(LARGEST, ELEMENTS // drafter.config.outputs))
    accepted = torch.zeros(R, dtype=torch.long, device=reading.ids.device)
    probability = torch.zeros(R, G, device=reading.ids.device)
    confidence = torch.zeros(R, G, device=reading.ids.device)
    for rows in torch.split(torch.arange(R, device=reading.ids.device), size):
        previous = reading.ids[first + rows]
        state = drafter.begin(context, torch.zeros_like(rows), first + rows, previous)
        on_path = torch.ones_like(rows, dtype=torch.bool)
        for k in range(G):
            logits, sure = drafter.step(state, previous)
            if sure is not None:
                confidence[rows, k] = torch.sigmoid(sure.float())
            text = reading.ids[first + 1 + rows + k]
            draft = torch.softmax(logits / (T or 1.0), dim=-1)
            if T == 0:
                token = logits.argmax(dim=-1)
                on_path = on_path & (drafter.draft_ids[token] == text)
            else:
                def target_law(at: Tensor, begun: Tensor = rows, k: int = k) -> Tensor:
                    return reading.probabilities(begun[at] + k, reduced)

                token, on_path = couple(draft, drafter.draft_rows[text], reading.probability[rows + k], target_law,
                                        on_path, accept[rows, k], place[rows, k])
            probability[rows, k] = draft.gather(1, token[:, None])[:, 0]
            accepted[rows] += on_path
            previous = drafter.draft_ids[token]
    covered = None
    if reduced is not None and T:
        every = torch.split(torch.arange(R, device=reading.ids.device), size)
        covered = float(sum(reading.probabilities(at, reduced).double().sum().item() for at in every))
    return Rows(accepted.cpu().numpy().astype(np.uint8), confidence.cpu().numpy() if drafter.has_confidence else None,
                probability.clamp(max=1).cpu().numpy(), covered)


def collect(
    target: Target, drafters: Mapping[str, Drafter], documents: Sequence[Document], *, temperature: float = 1.0,
    seed: int = 0, folder: str | Path | None = None, bundle: int = 8, shard: tuple[int, int] = (0, 1),
    provenance: Mapping[str, object] | None = None,
    progress: Callable[[int, int, int], None] = lambda done, parts, rows: None,
) -> dict[str, AcceptanceTrace]:
    """Traces of all drafters over the same documents.

    Args:
        target: float32 unless you accept the error of another type; the provenance names it.
        drafters: name -> drafter, on the target's device.
        documents: responses that this target wrote at this temperature.
        temperature: of the target, and of the drafters' sampling; 0 is greedy.
        seed: of everything random here.
        folder: where parts are kept, one per ``bundle`` of documents, so that a killed run goes on; None: in memory.
        shard: (i, n): make only parts i, i + n, …, so that n processes share a folder.
        provenance: facts of the caller's that every trace keeps.
        progress: called with parts done, parts in all, rows made now.

    Returns:
        name -> trace; empty while other shards have parts to make.

    Raises:
        InputError: drafters, documents and target do not belong together, or the folder holds another collection.
    """
    check_inputs(target, drafters, documents, temperature)
    bundles = [range(i, min(i + bundle, len(documents))) for i in range(0, len(documents), bundle)]
    facts = collected_facts(target, drafters, documents, temperature, seed, bundle)
    parts = Parts(None if folder is None else Path(folder), facts, len(bundles))
    keys, made = _keys(documents), 0
    for number in range(shard[0], len(bundles), shard[1]):
        if parts.has(number):
            continue
        try:
            part = _part(target, drafters, documents, bundles[number], temperature, seed, keys)
        except torch.OutOfMemoryError:
            raise InputError(f"{target.device} has too little memory to collect {len(drafters)} drafters",
                             allowed="fewer drafters at a time (they agree with those collected apart), or a reduced "
                             "draft vocabulary") from None
        parts.put(number, part)
        made += len(part.document)
        progress(parts.done(), len(bundles), made)
    if parts.done() < len(bundles):
        return {}
    return assembled(parts, target, drafters, documents, temperature, dict(provenance or {}))


def _keys(documents: Sequence[Document]) -> list[list[int]]:
    """What seeds each document's random numbers: a hash of its tokens, and how many equal ones came before."""
    seen: Counter[bytes] = Counter()
    out = []
    for d in documents:
        digest = hashlib.sha256(d.prompt.tobytes() + b"|" + d.response.tobytes()).digest()
        out.append([*np.frombuffer(digest[:16], dtype="<u4").tolist(), seen[digest]])
        seen[digest] += 1
    return out


def _part(
    target: Target, drafters: Mapping[str, Drafter], documents: Sequence[Document], which: range, temperature: float,
    seed: int, keys: list[list[int]],
) -> Part:
    """All drafters over a bundle of documents."""
    began = time.perf_counter()
    layers = tuple(sorted({i for d in drafters.values() for i in d.config.target_layer_ids}))
    tail = max(d.config.block_size for d in drafters.values()) - 1
    H = target.hidden_size
    found: dict[str, list[Rows]] = {name: [] for name in drafters}
    numbers, surprises = [], []
    for i in which:
        past, blocks = (np.random.default_rng(np.random.SeedSequence([seed, *keys[i]], spawn_key=(79, n)))
                        for n in range(2))
        reading = read(target, documents[i], layers, temperature, tail, past)
        uniform = torch.from_numpy(blocks.random((2, reading.rows, MAX_BLOCK))).to(target.device)
        for name, drafter in drafters.items():
            columns = [slice(H * layers.index(n), H * layers.index(n) + H) for n in drafter.config.target_layer_ids]
            features = torch.cat([reading.features[:, c] for c in columns], dim=-1)
            found[name].append(draft_rows(drafter, reading, features, uniform[0], uniform[1]))
        numbers += [i] * reading.rows
        surprises.append(reading.surprise)
    return Part.joined(np.array(numbers, dtype=np.int32), found, surprises, time.perf_counter() - began)
