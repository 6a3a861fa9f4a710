"""Everything a user writes in YAML comes in here: parse strictly, override keys, validate against a model.

The three parts: :mod:`dspark_sim.yamlfile` parses and remembers lines, :func:`apply_overrides` sets dotted keys
(``--set``), :mod:`dspark_sim.yamlmodel` validates and words the messages.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from dspark_sim.errors import InputError, nearest, shown
from dspark_sim.yamlfile import Document, KeyPath, dotted, parse_scalar, parse_yaml, read_yaml
from dspark_sim.yamlmodel import StrictModel, validated

__all__ = [
    "Document", "KeyPath", "StrictModel", "apply_overrides", "dotted", "parse_scalar", "parse_yaml", "read_yaml",
    "validated",
]


def apply_overrides(
    document: Document,
    overrides: Mapping[str, Any],
    error: type[InputError] = InputError,
    *,
    option: str = "--set",
) -> Document:
    """A copy of ``document`` with dotted keys set, e.g. ``{"workload.arrival.rate": 4, "arms.0.policy": "fixed"}``.

    A list item is addressed by its number (``arms.0.…``) or by its ``name`` (``arms.mtp-1.policy``). A missing
    mapping on the way is made; a missing list item is an error. Validation of the result finds wrong names, and
    says which ``option`` set them.

    Raises:
        InputError (of the given class): the key leads through something that is neither a mapping nor a list.
    """
    out = Document(
        copy.deepcopy(document.data), document.file, dict(document.lines), document.text, dict(document.overridden)
    )
    for key, value in overrides.items():
        _set(out, key, copy.deepcopy(value), f"{option} {key}", error)
    return out


def _set(document: Document, key: str, value: Any, label: str, error: type[InputError]) -> None:
    parts = key.split(".")
    if not all(parts):
        allowed = "a dotted key, e.g. workload.arrival.concurrency"
        raise error("has an empty part", file=document.file, key=label, allowed=allowed)
    here, path = document.data, ()  # type: tuple[Any, KeyPath]
    for i, part in enumerate(parts):
        step: str | int = part
        if isinstance(here, list):
            step = _item(here, part, document, label, error)
        elif not isinstance(here, dict):
            raise error(f"{dotted(path) or 'the file'} holds {shown(here)}, which has no key {part!r}",
                        file=document.file, key=label)
        path = (*path, step)
        if i == len(parts) - 1:
            here[step] = value
        else:
            if isinstance(here, dict) and here.get(part) is None:
                here[part] = {}
                document.overridden[path] = label
            here = here[step]
    for known in [k for k in document.lines if k[: len(path)] == path]:
        del document.lines[known]
    document.overridden[path] = label


def _item(items: list[Any], part: str, document: Document, label: str, error: type[InputError]) -> int:
    names = [item.get("name") if isinstance(item, dict) else None for item in items]
    if part in names:
        return names.index(part)
    if part.isascii() and part.isdecimal() and len(part) < 10 and int(part) < len(items):
        return int(part)
    words = [str(n) for n in names if n is not None]
    numbers = f"0 to {len(items) - 1}" if items else "nothing: the list is empty"
    raise error(f"no such item {part!r}", file=document.file, key=label, allowed=", ".join([*words, numbers]),
                suggestion=nearest(part, words))
