"""Whether target, drafters and documents belong together, before an hour is spent on them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from dspark_sim.errors import InputError, TraceError
from dspark_sim.lab.corpus import Document
from dspark_sim.lab.drafters import Drafter
from dspark_sim.lab.target import Target

__all__ = ["check_inputs"]


def check_inputs(
    target: Target, drafters: Mapping[str, Drafter], documents: Sequence[Document], temperature: float
) -> None:
    """Raises InputError or TraceError for the first thing that does not fit."""
    if not (math.isfinite(temperature) and temperature >= 0):
        raise InputError(f"temperature {temperature}", allowed="0 (greedy) or more")
    if not drafters:
        raise InputError("no drafters", allowed="at least one")
    if not documents:
        raise InputError("no documents", allowed="at least one response")
    for name, drafter in drafters.items():
        _check_drafter(target, name, drafter)
    shortest = 1 if all(d.config.parallel for d in drafters.values()) else 2
    tail = max(d.config.block_size for d in drafters.values()) - 1
    longest = getattr(target.config, "max_position_embeddings", None) or math.inf
    for i, document in enumerate(documents):
        where = f"document {i} (prompt {document.prompt_id}, {document.domain})"
        if len(document.prompt) < shortest or not len(document.response):
            raise TraceError(f"{where} has {len(document.prompt)} prompt and {len(document.response)} response tokens",
                             allowed=f"at least {shortest} and 1")
        if len(document.prompt) + len(document.response) + tail > longest:
            raise TraceError(f"{where} has {len(document.prompt) + len(document.response)} tokens",
                             allowed=f"{longest - tail}, which the target's positions allow with a block behind it")
        top = int(max(document.prompt.max(), document.response.max()))
        least = int(min(document.prompt.min(), document.response.min()))
        if least < 0 or top >= target.vocab_size:
            raise TraceError(f"{where} holds token {top if least >= 0 else least}",
                             allowed=f"0 to {target.vocab_size - 1}, the vocabulary of {target.name}")


def _check_drafter(target: Target, name: str, drafter: Drafter) -> None:
    c = drafter.config
    if not name or "/" in name or name.startswith(".") or not name.isprintable():
        raise InputError(f"drafter name {name!r}", allowed="a plain file name: traces are written as <name>.parquet")
    for key, own, its in (("vocab_size", c.vocab_size, target.vocab_size),
                          ("hidden_size", c.hidden_size, target.hidden_size)):
        if own != its:
            raise InputError(f"drafter {name}: {key} {own}", allowed=f"{its}, as target {target.name} has")
    if c.num_target_layers not in (None, target.layers):
        raise InputError(f"drafter {name}: made for a target of {c.num_target_layers} layers",
                         allowed=f"{target.layers}, as target {target.name} has")
    try:
        target.check_layers(c.target_layer_ids)
    except InputError as error:
        raise InputError(f"drafter {name}: {error.problem}", allowed=error.allowed) from None
    if drafter.fc.weight.device != target.device:
        raise InputError(f"drafter {name} is on {drafter.fc.weight.device}", allowed=f"{target.device}, the target's")
