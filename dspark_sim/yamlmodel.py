"""From parsed YAML to a pydantic model, and from pydantic's findings to one message that a user can act on."""

from __future__ import annotations

import re
import types
import typing
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from dspark_sim.errors import InputError, nearest, shown
from dspark_sim.yamlfile import Document, KeyPath

__all__ = ["StrictModel", "validated"]

M = TypeVar("M", bound=BaseModel)
_TAGS = ("kind", "mode")  # keys that choose between the shapes of a mapping


class StrictModel(BaseModel):
    """Base of everything read from a file: no unknown keys, no silent conversions, no NaN or infinity, frozen."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


def validated(model: type[M], document: Document, error: type[InputError] = InputError, at: KeyPath = ()) -> M:
    """Check ``document`` against a pydantic model.

    Args:
        model: the model.
        document: parsed YAML.
        error: the class to raise.
        at: check only this part of the document.

    Raises:
        InputError (of the given class): the first finding, in the order of the file, and how many more there are.
    """
    data = document.data
    for part in at:
        data = data[part]
    if not isinstance(data, dict):
        what = "is empty" if data is None else f"got {shown(data)}"
        raise document.error(f"{what}, not a mapping of keys", at, error=error, allowed=", ".join(model.model_fields))
    try:
        return model.model_validate(data)
    except ValidationError as problem:
        findings = problem.errors(include_url=False)
    located: dict[KeyPath, list[Any]] = {}
    for finding in findings:
        located.setdefault(_real_path(data, finding["loc"], finding["type"] == "missing"), []).append(finding)

    def rank(path: KeyPath) -> tuple[bool, bool, int, int]:
        missing = located[path][0]["type"] == "missing"  # often the other half of a misspelt key, so it comes last
        from_file = not any((*at, *path)[:n] in document.overridden for n in range(len(at) + len(path) + 1))
        return missing, from_file, document.line((*at, *path)) or 0, -len(path)

    path = min(located, key=rank)
    raise _Finding(model, document, error, at, path, len(located) - 1).message(located[path])


def _real_path(data: Any, loc: tuple[int | str, ...], missing: bool) -> KeyPath:
    """pydantic's location without the names of union branches that it adds; a missing key is not in the data."""
    path: KeyPath = ()
    for i, part in enumerate(loc):
        if part in data if isinstance(data, dict) else isinstance(data, list) and part in range(len(data)):
            data = data[part]
        elif missing and i == len(loc) - 1:
            return (*path, part)
        else:
            continue
        path = (*path, part)
    return path


_PHRASES = {
    "bool_type": "true or false",
    "string_type": "a word (in quotes if it looks like a number)",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a mapping of keys",
    "model_type": "a mapping of keys",
    "model_attributes_type": "a mapping of keys",
    "none_required": "nothing",
}
_SIGNS = {"greater_than": ">", "greater_than_equal": "≥", "less_than": "<", "less_than_equal": "≤"}


class _Finding:
    """What pydantic found at one place, on its way to a message."""

    def __init__(
        self, model: type[BaseModel], document: Document, error: type[InputError], at: KeyPath, path: KeyPath, more: int
    ) -> None:
        self.model, self.document, self.error_class, self.at, self.path = model, document, error, at, path
        self.tail = f" (and {more} more mistake{'s' if more > 1 else ''} after this one)" if more > 0 else ""

    def error(
        self, problem: str, extra: KeyPath = (), allowed: str | None = None, hint: str | None = None
    ) -> InputError:
        path, text = (*self.at, *self.path, *extra), f"{problem}{self.tail}"
        return self.document.error(text, path, error=self.error_class, allowed=allowed, suggestion=hint)

    def message(self, findings: list[Any]) -> InputError:
        """One error from all that was found at this place (several, where a value may have several shapes)."""
        first = findings[0]
        kind, ctx, value = first["type"], first.get("ctx") or {}, first.get("input")
        if kind == "extra_forbidden":
            names = _names_at(self.model, self.path[:-1], self.document.data, self.at)
            key, data = str(self.path[-1]), self.document.data
            elsewhere = [] if self.at else [
                place for place in _places_of(key, data) if key in _names_at(self.model, place[:-1], data, ())]
            hint = ".".join(map(str, elsewhere[0])) if elsewhere else nearest(key, names)
            return self.error("unknown key", (), ", ".join(names) or None, hint)
        if kind == "missing":
            return self.error("is missing")
        if kind == "union_tag_invalid":
            names = re.findall(r"'([^']*)'", str(ctx.get("expected_tags", "")))
            key = str(ctx.get("discriminator", "kind")).strip("'")
            tag = value.get(key) if isinstance(value, dict) else value
            return self.error(f"got {shown(tag)}", (key,), ", ".join(names), nearest(str(tag), names))
        if kind == "union_tag_not_found":
            key = str(ctx.get("discriminator", "kind")).strip("'")
            return self.error(f"needs the key {key}", (), ", ".join(_tags_at(self.model, self.path, key)))
        if kind == "value_error":
            cause = ctx.get("error")
            if isinstance(cause, InputError):
                extra: KeyPath = tuple(cause.key.split(".")) if cause.key else ()
                return self.error(cause.problem, extra, cause.allowed, cause.suggestion)
            return self.error(str(cause))
        allowed = " or ".join(dict.fromkeys(_allowed(f) for f in findings))
        words = [w for f in findings if f["type"] in ("literal_error", "enum") for w in _words(f)]
        return self.error(f"got {shown(value)}", (), allowed, nearest(str(value), words))


def _places_of(key: str, data: Any, above: KeyPath = ()) -> list[KeyPath]:
    """Where the file has ``key``, lists left out: a key without its path is easily meant."""
    if not isinstance(data, dict):
        return []
    here = [(*above, key)] if key in data else []
    return here + [place for name, value in data.items() for place in _places_of(key, value, (*above, str(name)))]


def _words(finding: Any) -> list[str]:
    return re.findall(r"'([^']*)'", str((finding.get("ctx") or {}).get("expected", "")))


def _allowed(finding: Any) -> str:
    kind, ctx = finding["type"], finding.get("ctx") or {}
    if kind in _PHRASES:
        return _PHRASES[kind]
    if kind in ("literal_error", "enum"):
        return ", ".join(_words(finding)) or str(ctx.get("expected"))
    if kind in _SIGNS:
        bound = next(iter(ctx.values()))
        return f"a number {_SIGNS[kind]} {bound if isinstance(bound, int) else format(bound, '.12g')}"
    if kind in ("too_short", "too_long"):
        words = "at least" if kind == "too_short" else "at most"
        return f"{words} {ctx.get('min_length', ctx.get('max_length'))} of them"
    if kind in ("string_too_short", "string_too_long"):
        words = "at least" if kind == "string_too_short" else "at most"
        return f"{words} {ctx.get('min_length', ctx.get('max_length'))} characters"
    return str(finding["msg"])


def _names_at(model: type[BaseModel], path: KeyPath, data: Any, at: KeyPath) -> list[str]:
    """The keys that may stand at ``path``, found by walking the model's annotations beside the data."""
    for part in at:
        data = data[part]
    candidates: list[type[BaseModel]] = [model]
    for part in path:
        data = data[part]
        if isinstance(part, str):
            step: list[type[BaseModel]] = []
            for candidate in candidates:
                if part in candidate.model_fields:
                    step += _models_in(candidate.model_fields[part].annotation)
                else:  # a value of a mapping by free names
                    step.append(candidate)
            candidates = step
    fitting = [c for c in candidates if _tag_fits(c, data)] or candidates
    return list(dict.fromkeys(name for c in fitting for name in c.model_fields))


def _tags_at(model: type[BaseModel], path: KeyPath, tag: str) -> list[str]:
    candidates = [model]
    for part in path:
        if isinstance(part, str):
            fields = [c.model_fields[part] for c in candidates if part in c.model_fields]
            candidates = [m for f in fields for m in _models_in(f.annotation)] or candidates
    fields = [c.model_fields[tag] for c in candidates if tag in c.model_fields]
    return [str(v) for f in fields for v in typing.get_args(f.annotation)]


def _tag_fits(model: type[BaseModel], data: Any) -> bool:
    for tag in _TAGS:
        field = model.model_fields.get(tag)
        allowed = typing.get_args(field.annotation) if field is not None else ()
        if allowed and isinstance(data, dict) and data.get(tag) not in allowed:
            return False
    return True


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias):
        return [annotation] if issubclass(annotation, BaseModel) else []
    return [m for arg in typing.get_args(annotation) for m in _models_in(arg)]
