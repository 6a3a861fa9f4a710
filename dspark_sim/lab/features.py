"""What training reads of the target, computed once: features, last hidden states and log-normalisers of a corpus.

A store is a folder: ``store.json`` (corpus, target, layers, scale) and one safetensors file per part of the corpus,
made one after another and renamed into place, so a killed run goes on. Features are divided by one constant per layer
(their root mean square in the first part), so that layers of very different size train alike; a saved drafter has the
constants folded into ``fc``.

Log-normalisers are taken over the ``normaliser`` likeliest tokens only (32,768 by default; of Gemma's 262,144 they
hold about 99 % of the mass), which costs an eighth. Training may; collection uses the whole vocabulary.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dspark_sim.atomic import written_aside
from dspark_sim.errors import InputError, TraceError, shown
from dspark_sim.lab.corpus import Document, corpus_facts, read_part
from dspark_sim.lab.target import Target

__all__ = ["FeatureStore", "Sequenced", "build_store", "draft_vocabulary_of", "expected_mass", "stored_layers"]

FORMAT = "dspark-sim features 1"
LONGEST = 1024  # tokens of prompt and response that a training sequence keeps


@dataclass(frozen=True)
class Sequenced:
    """One training sequence: prompt and response, L tokens.

    Attributes:
        ids: (L,) token ids.
        prompt: how many of them are the prompt.
        features: (L, F·H) scaled features; None when not read.
        last: (L, H) what the target's head reads; position j predicts token j + 1.
        normaliser: (L,) log of the summed exponentials of the target's logits.
    """

    ids: Tensor
    prompt: int
    features: Tensor
    last: Tensor
    normaliser: Tensor


def expected_mass(target: Target, documents: Sequence[Document], positions: int = 4096, batch: int = 512) -> Tensor:
    """(V,) mean probability of every token over some positions of the responses: better than counts for choosing a
    draft vocabulary, since it knows of likely tokens that were not drawn."""
    mass = torch.zeros(target.vocab_size, dtype=torch.float64)
    seen, order = 0, torch.Generator().manual_seed(0)
    for document in documents:
        if seen >= positions:
            break
        ids = _ids(document)
        last = target.forward(ids[None].to(target.device)).last[0, max(0, len(document.prompt) - 1):-1]
        some = torch.randperm(len(last), generator=order)[: max(1, positions // 64)].to(last.device)
        for chunk in torch.split(last[some], batch):
            mass += torch.softmax(target.logits(chunk), dim=-1).double().sum(0).cpu()
            seen += len(chunk)
    return (mass / max(seen, 1)).float()


def draft_vocabulary_of(store: FeatureStore, size: int) -> Tensor:
    """(Vd,) token ids, rising: the ``size`` ones with the largest mean probability under the target.

    Raises:
        InputError: the store knows fewer.
    """
    known = len(store.facts["likeliest"])
    if size > known:
        raise InputError(f"got {size}", key="--draft-vocabulary", file=store.folder / "store.json",
                         allowed=f"up to {known}, the likeliest tokens that this store knows; or the whole vocabulary")
    return torch.tensor(store.facts["likeliest"][:size]).sort().values


def _ids(document: Document) -> Tensor:
    return torch.cat([torch.from_numpy(document.prompt), torch.from_numpy(document.response)])[:LONGEST]


def build_store(
    target: Target, corpus: Path, folder: Path, layer_ids: tuple[int, ...], *, split: str = "train",
    normaliser: int = 32768, shard: tuple[int, int] = (0, 1),
    progress: Callable[[int, int], None] = lambda done, parts: None,
) -> None:
    """Compute the missing parts of a store; parts of the corpus that are not there yet are left for a later call.

    Raises:
        InputError: the folder holds a store of another target, layers or corpus.
    """
    target.check_layers(layer_ids)
    parts = sorted(corpus.glob("part-*.parquet"))
    facts: dict[str, Any] = {
        "format": FORMAT, "target": target.name, "layer_ids": list(layer_ids), "split": split,
        "corpus": corpus_facts(corpus), "normaliser": min(normaliser, target.vocab_size),
        "hidden_size": target.hidden_size, "vocab_size": target.vocab_size,
    }
    rows = scale = None
    index = folder / "store.json"
    if index.exists():
        there = _facts(folder)
        for key, value in facts.items():
            if there.get(key) != value:
                raise InputError(f"{key} {shown(value)}", file=index, key=key,
                                 allowed=f"{shown(there.get(key))}, as in this store; or another folder")
        rows, scale = torch.tensor(there["likeliest"]).sort().values, torch.tensor(there["scale"])
    elif parts:
        some = [d for part in parts[:8] for d in list(read_part(part))[::4] if d.split == split]
        likeliest = expected_mass(target, some).topk(facts["normaliser"]).indices
        rows = likeliest.sort().values
        square, count = torch.zeros(len(layer_ids)), 0
        for d in some[:16]:
            f = target.forward(_ids(d)[None].to(target.device), layer_ids=layer_ids).features[0].float().cpu()
            square += f.view(len(f), len(layer_ids), -1)[1:].square().mean(-1).sum(0)  # the first token is an outlier
            count += len(f) - 1
        scale = (square / max(count, 1)).sqrt()
        with written_aside(index) as path:
            path.write_text(json.dumps(facts | {"likeliest": likeliest.tolist(), "scale": scale.tolist()}))
    if rows is None or scale is None:
        return
    for number, part in enumerate(parts):
        out = folder / f"{part.stem}.safetensors"
        if number % shard[1] == shard[0] and not out.exists():
            _write_part(target, [d for d in read_part(part) if d.split == split], out, layer_ids, rows, scale)
            progress(len(list(folder.glob("part-*.safetensors"))), len(parts))


def _write_part(
    target: Target, documents: Sequence[Document], out: Path, layer_ids: tuple[int, ...], rows: Tensor, scale: Tensor
) -> None:
    from safetensors.torch import save_file

    dtype = torch.bfloat16
    head = rows.to(target.device)
    divisor = scale.repeat_interleave(target.hidden_size).to(target.device)
    ids, prompts, features, last, normal = [], [], [], [], []
    for document in documents:
        tokens = _ids(document)
        got = target.forward(tokens[None].to(target.device), layer_ids=layer_ids)
        ids.append(tokens)
        prompts.append(min(len(document.prompt), len(tokens)))
        features.append((got.features[0].float() / divisor).to(dtype).cpu())
        last.append(got.last[0].to(dtype).cpu())
        first = max(prompts[-1] - 1, 0)
        z = torch.zeros(len(tokens))
        chunks = torch.split(got.last[0, first:], 256)
        z[first:] = torch.cat([target.logits(c, head).logsumexp(-1).cpu() for c in chunks])
        normal.append(z)
    start = torch.tensor([0, *(len(i) for i in ids)]).cumsum(0)
    empty = torch.zeros(0)
    with written_aside(out) as path:
        save_file({
            "start": start, "prompt": torch.tensor(prompts, dtype=torch.int64),
            "ids": torch.cat(ids) if ids else empty.long(), "features": torch.cat(features) if ids else empty,
            "last": torch.cat(last) if ids else empty, "normaliser": torch.cat(normal) if ids else empty,
        }, path)


def _facts(folder: Path) -> dict[str, Any]:
    path = folder / "store.json"
    try:
        facts: dict[str, Any] = json.loads(path.read_text())
        if facts["format"] != FORMAT:
            raise ValueError(facts["format"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise InputError("no feature store", file=path, allowed="a folder that `dspark-sim trace train` made") from None
    return facts


def stored_layers(folder: Path) -> tuple[int, ...]:
    """Layers of a store; none if there is no store yet."""
    return tuple(_facts(folder)["layer_ids"]) if (folder / "store.json").exists() else ()


class FeatureStore:
    """A store opened for reading; sequences are mapped from disk, nothing is held in memory.

    Attributes:
        layer_ids: the layers stored.
        scale: (F,) what each layer was divided by.
        hidden_size: H.
    """

    def __init__(self, folder: str | Path) -> None:
        from safetensors import SafetensorError, safe_open

        self.folder = Path(folder)
        facts = self.facts = _facts(self.folder)
        self.layer_ids = tuple(facts["layer_ids"])
        self.scale = torch.tensor(facts["scale"])
        self.hidden_size = int(facts["hidden_size"])
        self._factor: Tensor | None = None
        self._files: list[Any] = []
        self._where: list[tuple[int, int, int, int]] = []  # file, first row, past the last, prompt
        for path in sorted(self.folder.glob("part-*.safetensors")):
            try:
                file: Any = safe_open(path, framework="pt")
                start, prompt = file.get_tensor("start").tolist(), file.get_tensor("prompt").tolist()
            except (SafetensorError, OSError, ValueError) as error:
                raise TraceError(f"damaged part of a feature store ({error})", file=path,
                                 allowed="delete it: the next run makes it again") from None
            self._where += [(len(self._files), a, b, p)
                            for a, b, p in zip(start, start[1:], prompt, strict=False) if b - a - p >= 2]
            self._files.append(file)
        if not self._where:
            raise InputError("the feature store holds no response of two tokens or more", file=self.folder)

    def __len__(self) -> int:
        return len(self._where)

    def rescale(self, other: FeatureStore) -> None:
        """Scale features as another store does: what a drafter trained on that one expects."""
        self._factor = (self.scale / other.scale).repeat_interleave(self.hidden_size)

    def columns(self, layer_ids: tuple[int, ...]) -> Tensor:
        """Which columns of ``features`` belong to a subset of the layers.

        Raises:
            InputError: a layer is not in the store.
        """
        missing = [i for i in layer_ids if i not in self.layer_ids]
        if missing:
            raise InputError(f"layers {missing} are not in the store", file=self.folder,
                             allowed=", ".join(map(str, self.layer_ids)))
        H = self.hidden_size
        return torch.cat([torch.arange(H) + H * self.layer_ids.index(i) for i in layer_ids])

    def anchors(self, index: int) -> tuple[int, int]:
        """(first, past the last) position of sequence ``index`` that may be an anchor: a token with one after it."""
        _, a, b, prompt = self._where[index]
        return prompt, b - a - 1

    def read(self, index: int) -> Sequenced:
        """One sequence."""
        number, a, b, prompt = self._where[index]
        file = self._files[number]
        get = {name: file.get_slice(name)[a:b] for name in ("ids", "features", "last", "normaliser")}
        features = get["features"] if self._factor is None else get["features"] * self._factor
        return Sequenced(get["ids"], prompt, features, get["last"], get["normaliser"])
