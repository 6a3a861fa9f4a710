"""Strict YAML for everything a user writes: scenarios, profiles, trace specifications.

A file is parsed to plain lists, dicts and scalars with the line of every key remembered; anything clever (tags,
anchors, duplicate keys, enormous or binary files) is refused. :func:`validated` turns pydantic's findings into one
:class:`~dspark_sim.errors.InputError` with file, line, dotted key, value, what is allowed and the nearest name.
"""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from dspark_sim.errors import InputError, nearest, shown

__all__ = ["Document", "StrictModel", "apply_overrides", "parse_scalar", "parse_yaml", "read_yaml", "validated"]

MAX_BYTES = 4 << 20
MAX_DEPTH = 40
Path_ = tuple[str | int, ...]
M = TypeVar("M", bound=BaseModel)


class StrictModel(BaseModel):
    """Base of everything read from a file: no unknown keys, no silent conversions, no NaN or infinity, frozen."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class _Loader(yaml.SafeLoader):
    """SafeLoader whose floats are those of YAML 1.2 (``1e-3`` is a number), and whose yes/no/on/off are words."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, rx) for tag, rx in rules if tag not in ("tag:yaml.org,2002:float", "tag:yaml.org,2002:bool",
                                                         "tag:yaml.org,2002:int", "tag:yaml.org,2002:timestamp")]
    for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"^[-+]?[0-9](?:_?[0-9])*$"), list("-+0123456789"))
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^(?:[-+]?(?:\.[0-9]+|[0-9](?:_?[0-9])*(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"),
    list("-+0123456789."),
)


@dataclass
class Document:
    """A parsed file (or string): the data, and where each key stood.

    Attributes:
        data: dicts, lists and scalars.
        file: for messages; None when the text did not come from a file.
        lines: path of keys -> 1-based line.
        text: the source as read, for the manifest.
    """

    data: Any
    file: Path | None
    lines: dict[Path_, int] = field(default_factory=dict)
    text: str = ""

    def line(self, path: Path_) -> int | None:
        """The line of a key, or of the nearest parent that has one."""
        while path:
            if path in self.lines:
                return self.lines[path]
            path = path[:-1]
        return self.lines.get(())

    def error(
        self, problem: str, path: Path_ = (), *, error: type[InputError] = InputError, allowed: str | None = None,
        suggestion: str | None = None,
    ) -> InputError:
        """An error that names this file, the line of ``path`` and its dotted key."""
        return error(problem, file=self.file, line=self.line(path), key=dotted(path) or None, allowed=allowed,
                     suggestion=suggestion)


def dotted(path: Path_) -> str:
    """``("arms", 2, "policy")`` -> ``arms[2].policy``."""
    out = ""
    for part in path:
        out += f"[{part}]" if isinstance(part, int) else (f".{part}" if out else str(part))
    return out


def read_yaml(path: str | Path, error: type[InputError] = InputError) -> Document:
    """Parse one file; see :func:`parse_yaml`.

    Raises:
        InputError (of the given class): missing, a folder, too large, not text, not YAML.
    """
    path = Path(path)
    try:
        size = path.stat().st_size
        if path.is_dir():
            raise error("is a folder, not a file", file=path)
        if size > MAX_BYTES:
            raise error(f"is {size} bytes long", file=path, allowed=f"at most {MAX_BYTES}")
        raw = path.read_bytes()
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        if isinstance(problem, InputError):
            raise
        raise error(f"cannot be read ({reason})", file=path) from None
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise error(f"is not UTF-8 text (byte {problem.start})", file=path) from None
    return parse_yaml(text, path, error)


def parse_yaml(text: str, file: Path | None = None, error: type[InputError] = InputError) -> Document:
    """Parse YAML text strictly.

    Raises:
        InputError (of the given class): a syntax error, a tag, an anchor or alias, a duplicate key, a key that is
        not a word, more than one document, or nesting deeper than 40.
    """
    document = Document(None, file, text=text)
    try:
        for event in yaml.parse(text, Loader=_Loader):
            if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
                raise error("YAML anchors and aliases (& and *) are not allowed", file=file, line=_line(event))
        node = yaml.compose(text, Loader=_Loader)
        document.data = None if node is None else _build(node, (), document, error)
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        what = " ".join(str(problem.problem or problem.context or "syntax error").split())
        raise error(f"is not valid YAML ({what})", file=file, line=None if mark is None else mark.line + 1) from None
    except (yaml.YAMLError, ValueError, RecursionError) as problem:
        if isinstance(problem, InputError):
            raise
        what = "nested too deeply" if isinstance(problem, RecursionError) else str(problem).splitlines()[0]
        raise error(f"is not valid YAML ({what})", file=file) from None
    return document


def _line(node: Any) -> int | None:
    return None if node.start_mark is None else int(node.start_mark.line) + 1


def _build(node: yaml.Node, path: Path_, document: Document, error: type[InputError]) -> Any:
    line = _line(node)
    document.lines.setdefault(path, line or 1)
    if len(path) > MAX_DEPTH:
        raise error("is nested too deeply", file=document.file, line=line, allowed=f"at most {MAX_DEPTH} levels")
    if not (node.tag or "").startswith("tag:yaml.org,2002:") or node.tag.rpartition(":")[2] in ("binary", "set", "omap"):
        raise error(f"YAML tag {shown(node.tag)} is not allowed", file=document.file, line=line, key=dotted(path) or None)
    if isinstance(node, yaml.MappingNode):
        out: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
            if key is None or key_node.tag == "tag:yaml.org,2002:merge":
                raise error("a key must be a plain word", file=document.file, line=_line(key_node), key=dotted(path) or None)
            if key in out:
                raise error("stands twice", file=document.file, line=_line(key_node), key=dotted((*path, key)))
            document.lines[(*path, key)] = _line(key_node) or 1
            out[key] = _build(value_node, (*path, key), document, error)
        return out
    if isinstance(node, yaml.SequenceNode):
        return [_build(item, (*path, i), document, error) for i, item in enumerate(node.value)]
    return _scalar(node, path, document, error)


def _scalar(node: yaml.Node, path: Path_, document: Document, error: type[InputError]) -> Any:
    kind, text = node.tag.rpartition(":")[2], node.value
    if kind == "null":
        return None
    if kind == "bool":
        return text.lower() == "true"
    try:
        if kind == "int":
            if len(text) > 400:
                raise ValueError("too many digits")
            return int(text.replace("_", ""))
        if kind == "float":
            lowered = text.lower().replace("_", "")
            return float(lowered.replace(".inf", "inf").replace(".nan", "nan"))
    except (ValueError, OverflowError):
        raise error(f"got {shown(text)}, not a number", file=document.file, line=_line(node), key=dotted(path)) from None
    return text


def parse_scalar(text: str) -> Any:
    """The value of ``--set key=TEXT``: YAML, so that ``8``, ``1e-3``, ``true``, ``[1, 2]`` and words mean what they say.

    Raises:
        InputError: the text is not YAML.
    """
    return parse_yaml(text).data


def apply_overrides(document: Document, overrides: Mapping[str, Any], error: type[InputError] = InputError) -> Document:
    """A copy of ``document`` with dotted keys set, e.g. ``{"workload.arrival.rate": 4, "arms.0.policy": "fixed"}``.

    A list item is addressed by its number (``arms.0.…``) or by its ``name`` (``arms.mtp-1.policy``). A missing
    mapping on the way is made; a missing list item is an error. Validation of the result finds wrong names.

    Raises:
        InputError (of the given class): the key leads through something that is neither a mapping nor a list.
    """
    import copy

    out = Document(copy.deepcopy(document.data), document.file, dict(document.lines), document.text)
    for key, value in overrides.items():
        here, parts, done = out.data, key.split("."), []
        path: Path_ = ()
        for i, part in enumerate(parts):
            last, step = i == len(parts) - 1, part
            done.append(part)
            spot = f"--set {'.'.join(done)}"
            if isinstance(here, list):
                names = [item.get("name") for item in here if isinstance(item, dict)]
                if part.isdecimal() and int(part) < len(here):
                    index = int(part)
                elif part in names:
                    index = next(j for j, item in enumerate(here) if isinstance(item, dict) and item.get("name") == part)
                else:
                    raise error(f"no such item {part!r}", key=spot, allowed=", ".join(map(str, names)) or "a number",
                                suggestion=nearest(part, [n for n in names if n]))
                path = (*path, index)
                if last:
                    here[index] = value
                else:
                    here = here[index]
                continue
            if not isinstance(here, dict):
                raise error(f"leads into {shown(here)}, which has no keys", key=spot)
            path = (*path, step)
            if last:
                here[step] = value
                for known in [k for k in out.lines if k[: len(path)] == path]:
                    del out.lines[known]
            else:
                if here.get(step) is None:
                    here[step] = {}
                here = here[step]
    return out


def validated(model: type[M], document: Document, error: type[InputError] = InputError, at: Path_ = ()) -> M:
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
    located = []
    for finding in findings:
        path = _real_path(data, finding["loc"])
        missing = finding["type"] == "missing"  # often the other half of a misspelt key, so it comes last
        located.append(((missing, document.line((*at, *path)) or 0, -len(path)), finding, (*at, *path)))
    located.sort(key=lambda item: item[0])
    _, first, path = located[0]
    raise _translate(first, path, document, model, error, at, len({item[2] for item in located}) - 1)


def _real_path(data: Any, loc: tuple[int | str, ...]) -> Path_:
    """pydantic's location without the names of union branches that it adds."""
    path: Path_ = ()
    for i, part in enumerate(loc):
        if isinstance(data, dict) and part in data:
            data = data[part]
        elif isinstance(data, list) and isinstance(part, int) and part < len(data):
            data = data[part]
        elif i == len(loc) - 1 and isinstance(data, dict) and isinstance(part, str):
            return (*path, part)
        else:
            continue
        path = (*path, part)
    return path


_PHRASES = {
    "bool_type": "true or false", "bool_parsing": "true or false",
    "string_type": "a word", "int_type": "a whole number", "int_from_float": "a whole number",
    "int_parsing": "a whole number", "int_parsing_size": "a whole number of at most 4300 digits",
    "float_type": "a number", "float_parsing": "a number", "finite_number": "a finite number",
    "list_type": "a list", "dict_type": "a mapping of keys", "model_type": "a mapping of keys",
    "model_attributes_type": "a mapping of keys", "none_required": "nothing",
}


def _translate(
    finding: Any, path: Path_, document: Document, model: type[BaseModel], error: type[InputError], at: Path_, more: int
) -> InputError:
    kind, ctx, value = finding["type"], finding.get("ctx") or {}, finding.get("input")
    tail = f" (and {more} more mistake{'s' if more > 1 else ''} after this one)" if more > 0 else ""
    allowed, suggestion = _PHRASES.get(kind), None
    got = f"got {shown(value)}"
    if kind == "extra_forbidden":
        names = _names_at(model, path[len(at):-1], document.data, at)
        return document.error(f"unknown key{tail}", path, error=error, allowed=", ".join(names) or None,
                              suggestion=nearest(str(path[-1]), names))
    if kind == "missing":
        return document.error(f"is missing{tail}", path, error=error)
    if kind in ("literal_error", "enum", "union_tag_invalid"):
        expected = str(ctx.get("expected") or ctx.get("expected_tags") or "")
        names = re.findall(r"'([^']*)'", expected)
        allowed, suggestion = ", ".join(names) or expected, nearest(str(value), names)
        if kind == "union_tag_invalid":
            key = str(ctx.get("discriminator", "kind")).strip("'")
            tag = value.get(key) if isinstance(value, dict) else value
            return document.error(f"got {shown(tag)}{tail}", (*path, key), error=error, allowed=allowed,
                                  suggestion=nearest(str(tag), names))
    elif kind == "union_tag_not_found":
        return document.error(f"needs the key {ctx.get('discriminator')}{tail}", path, error=error)
    elif kind in ("greater_than", "greater_than_equal", "less_than", "less_than_equal"):
        sign = {"greater_than": ">", "greater_than_equal": "≥", "less_than": "<", "less_than_equal": "≤"}[kind]
        allowed = f"a number {sign} {next(iter(ctx.values())):g}"
    elif kind == "value_error":
        cause = ctx.get("error")
        if isinstance(cause, InputError):
            extra = tuple(cause.key.split(".")) if cause.key else ()
            return document.error(f"{cause.problem}{tail}", (*path, *extra), error=error, allowed=cause.allowed,
                                  suggestion=cause.suggestion)
        return document.error(f"{cause}{tail}", path, error=error)
    elif kind in ("too_short", "string_too_short", "too_long", "string_too_long"):
        allowed = ", ".join(f"{k.replace('_', ' ')} {v}" for k, v in ctx.items() if k.startswith(("min", "max")))
    elif allowed is None:
        allowed = str(finding["msg"])
    return document.error(f"{got}{tail}", path, error=error, allowed=allowed, suggestion=suggestion)


def _names_at(model: type[BaseModel], path: Path_, data: Any, at: Path_) -> list[str]:
    """The keys that may stand at ``path``, found by walking the model's annotations beside the data."""
    for part in at:
        data = data[part]
    candidates: list[Any] = [model]
    for part in path:
        data = data[part]
        step: list[Any] = []
        for candidate in candidates:
            if isinstance(part, int):
                step += _models_in(candidate)
            elif isinstance(candidate, type) and issubclass(candidate, BaseModel) and part in candidate.model_fields:
                step += _models_in(candidate.model_fields[str(part)].annotation)
        candidates = step or [c for c in candidates if isinstance(part, int)]
    fitting = [c for c in candidates if _tag_fits(c, data)] or candidates
    return list(dict.fromkeys(name for c in fitting for name in c.model_fields))


def _tag_fits(model: type[BaseModel], data: Any) -> bool:
    kind = model.model_fields.get("kind")
    allowed = typing.get_args(kind.annotation) if kind is not None else ()
    return not allowed or not isinstance(data, dict) or data.get("kind") in allowed


def _models_in(annotation: Any) -> list[Any]:
    if isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias):
        return [annotation] if issubclass(annotation, BaseModel) else []
    return [m for arg in typing.get_args(annotation) for m in _models_in(arg)]
