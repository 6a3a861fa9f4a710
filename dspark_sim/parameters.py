"""Parameters of a policy: values from a scenario checked against the types of the class's dataclass fields.

Understands ``bool``, ``int``, ``float``, ``str``, ``Literal[…]``, ``X | None``, ``list[X]`` and ``tuple[X, …]``:
what a line of YAML can hold. Called by the registry when a policy is loaded.
"""

from __future__ import annotations

import math
import types
from typing import Any, Literal, Union, get_args, get_origin

from dspark_sim.errors import shown

__all__ = ["choices", "converted", "described", "type_name"]

_UNIONS = (Union, types.UnionType)

_SCALARS: dict[Any, str] = {
    bool: "true or false", int: "a whole number", float: "a finite number", str: "a word", types.NoneType: "null",
}


def type_name(annotation: Any) -> str:
    """As a programmer writes it, short: ``int``, ``step | verify``, ``list[float]``."""
    if annotation in _SCALARS:
        return "null" if annotation is types.NoneType else str(annotation.__name__)
    if get_origin(annotation) is Literal:
        return " | ".join(choices(annotation))
    if get_origin(annotation) in _UNIONS:
        return " | ".join(type_name(a) for a in get_args(annotation))
    if (item := _item(annotation)) is not None:
        return f"list[{type_name(item)}]"
    return str(getattr(annotation, "__name__", annotation))


def described(annotation: Any) -> str:
    """What may stand in a scenario, in words: for the ``allowed`` of an error."""
    if annotation in _SCALARS:
        return _SCALARS[annotation]
    if get_origin(annotation) is Literal:
        return " or ".join(choices(annotation))
    if get_origin(annotation) in _UNIONS:
        return " or ".join(described(a) for a in get_args(annotation))
    if (item := _item(annotation)) is not None:
        return f"a list, each item {described(item)}"
    return f"nothing: no line of a scenario can hold a {type_name(annotation)}"


def choices(annotation: Any) -> list[str]:
    """The words of a ``Literal``, none for other types."""
    if get_origin(annotation) is not Literal:
        return []
    return ["null" if a is None else str(a) for a in get_args(annotation)]


def converted(value: Any, annotation: Any) -> Any:
    """``value`` as the annotation wants it: a whole number is a number, a list becomes a tuple; nothing else changes.

    Raises:
        ValueError: the value is not of that type; the text says what was got.
    """
    wrong = ValueError(f"got {shown(value)}")
    if annotation in (bool, str, types.NoneType):
        if type(value) is annotation:
            return value
    elif annotation is int:
        if type(value) is int:
            return value
    elif annotation is float:
        if type(value) in (int, float):
            try:
                number = float(value)
            except OverflowError:
                raise wrong from None
            if math.isfinite(number):
                return number
    elif get_origin(annotation) is Literal:
        for allowed in get_args(annotation):
            if type(value) is type(allowed) and value == allowed:
                return value
    elif get_origin(annotation) in _UNIONS:
        for choice in get_args(annotation):
            try:
                return converted(value, choice)
            except ValueError:
                continue
    elif (item := _item(annotation)) is not None and isinstance(value, (list, tuple)):
        items = [converted(v, item) for v in value]
        return tuple(items) if get_origin(annotation) is tuple else items
    raise wrong


def _item(annotation: Any) -> Any:
    """X of ``list[X]`` and ``tuple[X, ...]``, else None."""
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is list and len(args) == 1:
        return args[0]
    return args[0] if origin is tuple and len(args) == 2 and args[1] is Ellipsis else None
