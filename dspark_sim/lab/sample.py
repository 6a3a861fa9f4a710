"""Responses sampled from the target itself, batch by batch; a killed run goes on where it was.

A part is one batch: prompts, seed and lengths follow from its number alone, so parts may be made in any order, by
several processes (``shard``), and a run that starts again makes only what is missing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dspark_sim.atomic import written_aside
from dspark_sim.errors import InputError
from dspark_sim.lab.corpus import FORMAT, Document, Prompt, corpus_facts, prompts_sha256, write_part
from dspark_sim.lab.target import Target

__all__ = ["SampleSettings", "draw", "sample_corpus"]

CHUNK = 512  # vocabulary entries per group of the two-level search


@dataclass(frozen=True)
class SampleSettings:
    """What decides a corpus, beside target and prompts.

    Attributes:
        responses: responses per prompt.
        tokens: longest response.
        temperature: of the target; 0 is greedy.
        seed: of everything random.
        batch: responses decoded together (one part).
        split: None for all prompts, else only ``train`` or ``held-out`` ones.
    """

    responses: int = 2
    tokens: int = 384
    temperature: float = 1.0
    seed: int = 0
    batch: int = 64
    split: str | None = None


def draw(logits: Tensor, temperature: float, generator: torch.Generator) -> Tensor:
    """One token id (B,) per row of float32 logits (B, V), by inverting the distribution function in two levels.

    Greedy at temperature 0 (the first of equal maxima).
    """
    if temperature == 0:
        return logits.argmax(dim=-1)
    B, V = logits.shape
    weight = (logits - logits.amax(dim=-1, keepdim=True)).div_(temperature).exp_()
    if V % CHUNK:
        weight = torch.nn.functional.pad(weight, (0, CHUNK - V % CHUNK))
    groups = weight.view(B, -1, CHUNK)
    total = groups.sum(dim=-1).double().cumsum(dim=-1)  # (B, groups)
    point = torch.rand(B, 1, generator=generator, dtype=torch.float64, device=logits.device) * total[:, -1:]
    group = torch.searchsorted(total, point, right=True).clamp_(max=total.shape[1] - 1)
    before = torch.where(group > 0, total.gather(1, (group - 1).clamp_(min=0)), torch.zeros_like(point))
    inside = groups[torch.arange(B, device=logits.device), group[:, 0]].double().cumsum(dim=-1)
    last = (inside < inside[:, -1:]).sum(dim=-1, keepdim=True)  # never a token of weight 0 at the group's end
    within = torch.minimum(torch.searchsorted(inside, point - before, right=True), last)
    return (group * CHUNK + within)[:, 0]


@torch.inference_mode()
def respond(
    target: Target, prompts: Sequence[list[int]], tokens: int, temperature: float, generator: torch.Generator
) -> list[tuple[list[int], bool]]:
    """Decode a batch of prompts together: per prompt the response and whether it ended by itself."""
    longest = max(map(len, prompts))
    ids = torch.zeros(len(prompts), longest, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):  # left-padded, so that all rows grow at the same column
        ids[row, longest - len(prompt):] = torch.tensor(prompt)
        mask[row, longest - len(prompt):] = 1
    ids, mask = ids.to(target.device), mask.to(target.device)
    positions = (mask.cumsum(dim=1) - 1).clamp_(min=0)
    out = target.forward(ids, mask=mask, positions=positions, keep=True)
    responses: list[list[int]] = [[] for _ in prompts]
    ended = [False] * len(prompts)
    alive = list(range(len(prompts)))  # rows of the batch -> prompts; the batch shrinks as responses end
    position = positions[:, -1]
    for _ in range(tokens):
        drawn = draw(target.logits(out.last[:, -1]), temperature, generator)
        keep = []
        for row, token in enumerate(drawn.tolist()):
            responses[alive[row]].append(token)
            if token in target.stops:
                ended[alive[row]] = True
            else:
                keep.append(row)
        if not keep:
            break
        if len(keep) < len(alive):
            rows = torch.tensor(keep, device=target.device)
            assert out.cache is not None
            out.cache.batch_select_indices(rows)
            alive = [alive[r] for r in keep]
            drawn, mask, position = drawn[rows], mask[rows], position[rows]
        mask = torch.cat([mask, torch.ones_like(mask[:, :1])], dim=1)
        position = position + 1
        out = target.forward(drawn[:, None], mask=mask, positions=position[:, None], cache=out.cache)
    return list(zip(responses, ended, strict=True))


def plan_parts(prompts: Sequence[Prompt], settings: SampleSettings) -> list[list[Prompt]]:
    """Which prompts each part holds: shuffled by the seed, then sorted by length in bundles, so that padding is low."""
    chosen = [p for p in prompts
              if settings.split is None or p.held_out == (settings.split == "held-out")]
    rng = np.random.default_rng(np.random.SeedSequence(settings.seed, spawn_key=(78,)))
    todo = [chosen[i] for _ in range(settings.responses) for i in rng.permutation(len(chosen))]
    bundle = 8 * settings.batch
    parts: list[list[Prompt]] = []
    for start in range(0, len(todo), bundle):
        some = sorted(todo[start:start + bundle], key=lambda p: (len(p.text), p.id))
        own = [some[i:i + settings.batch] for i in range(0, len(some), settings.batch)]
        parts += [own[i] for i in rng.permutation(len(own))]
    return parts


def sample_corpus(
    target: Target, prompts: Sequence[Prompt], folder: str | Path, settings: SampleSettings, *,
    shard: tuple[int, int] = (0, 1), progress: Callable[[int, int, int], None] = lambda done, parts, tokens: None,
) -> int:
    """Make the missing parts of a corpus; returns the number of tokens made now.

    Args:
        shard: (i, n): only parts i, i + n, i + 2 n, …, so that n processes share the work.
        progress: called with parts done, parts in all, tokens made now.

    Raises:
        InputError: the folder holds a corpus of another target, prompts or settings.
    """
    folder = Path(folder)
    facts = {
        "format": FORMAT, "target": target.name, "prompts_sha256": prompts_sha256(prompts), "dtype": str(target.dtype),
        "responses": settings.responses, "tokens": settings.tokens, "temperature": settings.temperature,
        "seed": settings.seed, "batch": settings.batch, "split": settings.split,
    }
    if (folder / "corpus.json").exists():
        there = corpus_facts(folder)
        for key, value in facts.items():
            if there.get(key) != value:
                raise InputError(f"{key} {value!r}", file=folder / "corpus.json", key=key,
                                 allowed=f"{there.get(key)!r}, as in this corpus; or another folder")
    else:
        with written_aside(folder / "corpus.json") as path:
            path.write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n")
    parts = plan_parts(prompts, settings)
    tokens = 0
    for number in range(shard[0], len(parts), shard[1]):
        if (folder / f"part-{number:05d}.parquet").exists():
            continue
        batch = parts[number]
        generator = torch.Generator(target.device).manual_seed(settings.seed * 1_000_003 + number)
        encoded = [list(target.tokenizer(p.text).input_ids) for p in batch]
        answers = respond(target, encoded, settings.tokens, settings.temperature, generator)
        write_part(folder, number, [
            Document(p.id, p.domain, "held-out" if p.held_out else "train", np.array(e), np.array(r), end)
            for p, e, (r, end) in zip(batch, encoded, answers, strict=True)
        ])
        tokens += sum(len(r) for r, _ in answers)
        progress(len(list(folder.glob("part-*.parquet"))), len(parts), tokens)
    return tokens
