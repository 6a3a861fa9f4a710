"""``dspark-sim trace sample``: responses that a target writes itself."""

from __future__ import annotations

import time
from pathlib import Path

from dspark_sim.commands.lab_output import counted
from dspark_sim.commands.output import emit
from dspark_sim.errors import InputError

__all__ = ["sample_command"]


def sample_command(
    target: str, prompts: list[Path], *, out: Path, responses: int, tokens: int, temperature: float, held_out: float,
    split: str | None, split_seed: int, seed: int, batch: int, shard: str, device: str, dtype: str, threads: int | None,
) -> None:
    """Sample what is missing of a corpus; prints where it is and how many tokens there are."""
    from dspark_sim.lab.corpus import SPLITS, read_corpus, read_prompts
    from dspark_sim.lab.sample import SampleSettings, plan_parts, sample_corpus
    from dspark_sim.lab.target import device_named, load_target, set_threads

    if split not in (None, *SPLITS):
        raise InputError(f"got {split!r}", key="--split", allowed=", ".join(SPLITS))
    part, of = shard_of(shard)
    some = read_prompts(prompts, held_out, split_seed)
    settings = SampleSettings(responses, tokens, temperature, seed, batch, split)
    set_threads(threads)
    model = load_target(target, device=device_named(device), dtype=dtype, tokenizer=True)
    parts = len(plan_parts(some, settings))
    began = time.monotonic()
    with counted("parts", parts, len(list(out.glob("part-*.parquet")))) as advance:
        made = sample_corpus(model, some, out, settings, shard=(part, of),
                             progress=lambda done, _, tokens: advance(
                                 done, f"{tokens:,} tokens, {tokens / (time.monotonic() - began):.0f} tokens/s"))
    documents = read_corpus(out)
    by_domain: dict[str, list[int]] = {}
    for d in documents:
        by_domain.setdefault(d.domain, []).append(len(d.response))
    kinds = ", ".join(f"{name} {len(n)} responses of {sum(n) / len(n):.0f} tokens" for name, n in by_domain.items())
    done = len(list(out.glob("part-*.parquet")))
    emit(f"{out}: {done} of {parts} parts, {sum(len(d.response) for d in documents):,} tokens "
         f"({made:,} made now): {kinds}\n")


def shard_of(text: str) -> tuple[int, int]:
    """``0/2`` -> (0, 2).

    Raises:
        InputError: not of that form.
    """
    first, _, of = text.partition("/")
    if not (first.isdecimal() and of.isdecimal() and int(first) < int(of)):
        raise InputError(f"got {text!r}", key="--shard", allowed="0/1, or 0/2 and 1/2 for two processes, …")
    return int(first), int(of)
