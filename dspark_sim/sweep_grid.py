"""What a sweep varies: dotted keys with their values, the points of the grid, and the scenario of each point.

Values come as ``--over KEY=VALUES`` or from the scenario's ``sweep.over``. VALUES are separated by commas, each read as
YAML (``8``, ``1e-3``, ``true``, words, ``[1, 2]``, ``{kind: poisson, rate_per_s: 4}``); a range is ``first:last:step``
(``4:64:4``) or ``first:last:*factor`` (``1:256:*2``), both ends included where the steps meet them.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dspark_sim.errors import InputError, ScenarioError, shown
from dspark_sim.yamlio import Document, apply_overrides, parse_scalar, parse_yaml

if TYPE_CHECKING:
    from dspark_sim.scenario import Scenario

__all__ = ["Definition", "Point", "axes_of", "canonical", "parse_over", "parse_values", "short_names", "where", "word"]

MAX_TASKS = 1_000_000
MAX_RANGE = 100_000
OPTION = "--over"
FIXED = ("name", "sweep", "record", "replications")  # keys that are the same at every point
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_RANGE = re.compile(rf"^({_NUMBER}):({_NUMBER}):(\*?)({_NUMBER})$")

Point = Mapping[str, Any]  # dotted key -> value


def canonical(data: Any) -> str:
    """JSON in one spelling: equal data gives equal text, in any process."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def where(point: Point) -> str:
    """A grid point as it stands in messages and tables: ``concurrency=4, lag=2``; keys by :func:`short_names`."""
    names = short_names(point)
    return ", ".join(f"{names[key]}={word(value)}" for key, value in point.items()) or "the only point"


def short_names(keys: Iterable[str]) -> dict[str, str]:
    """Each dotted key by as few of its last parts as tell it from the others."""
    parts = {key: key.split(".") for key in keys}
    out = {}
    for key, own in parts.items():
        n = 1
        while n < len(own) and any(other[-n:] == own[-n:] for k, other in parts.items() if k != key):
            n += 1
        out[key] = ".".join(own[-n:])
    return out


def word(value: Any) -> str:
    """A grid value as text: words as they are, everything else as JSON."""
    return value if isinstance(value, str) else canonical(value)


def parse_over(options: Sequence[str]) -> dict[str, tuple[Any, ...]]:
    """``["a.b=1,2", …]`` as ``{"a.b": (1, 2), …}``, in the order given; the last key will vary fastest.

    Raises:
        InputError: no ``=``, no key, a key twice, or values that cannot be read.
    """
    axes: dict[str, tuple[Any, ...]] = {}
    for option in options:
        key, equals, text = option.partition("=")
        key = key.strip()
        if not equals or not key:
            raise InputError(f"got {option!r}", key=OPTION, allowed="dotted.key=value,value,… or dotted.key=1:256:*2")
        if key in axes:
            raise InputError("is given twice", key=f"{OPTION} {key}", allowed="all values of a key in one list")
        axes[key] = parse_values(text, f"{OPTION} {key}")
    return axes


def axes_of(over: Mapping[str, Any], label: str) -> dict[str, tuple[Any, ...]]:
    """Axes from Python or from the scenario's section: lists of values, or text as on the command line."""
    axes = {}
    for key, values in over.items():
        name = f"{label} {key}"
        if isinstance(values, str):
            axes[key] = parse_values(values, name)
        elif isinstance(values, Mapping) or not hasattr(values, "__iter__"):
            raise InputError(f"got {shown(values)}", key=name, allowed="a list of values, or text such as 1:256:*2")
        else:
            axes[key] = _distinct(tuple(_plain(v, name) for v in values), name)
    return axes


def _plain(value: Any, label: str) -> Any:
    """Python's number types and containers as YAML would have given them."""
    if hasattr(value, "item") and callable(value.item) and getattr(value, "ndim", 1) == 0:
        value = value.item()  # numpy
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError):
        raise InputError(f"got {shown(value)}", key=label, allowed="finite numbers, words, lists, mappings") from None


def parse_values(text: str, label: str) -> tuple[Any, ...]:
    """The right side of ``--over KEY=``.

    Raises:
        InputError (with ``label`` as its key): empty, not YAML, a range that leads nowhere, a value twice.
    """
    values: list[Any] = []
    for part in _split(text):
        steps = _RANGE.match(part)
        if not part:
            raise InputError(f"got {shown(text)}, with an empty value", key=label, allowed="values separated by commas")
        if steps is not None:
            values += _steps(part, steps, label)
            continue
        try:
            values.append(parse_scalar(part))
        except InputError as problem:
            raise InputError(f"{part!r} {problem.problem}", key=label) from None
    return _distinct(tuple(values), label)


def _split(text: str) -> list[str]:
    """Cut at commas that stand outside brackets, braces and quotes."""
    parts, depth, quote = [""], 0, ""
    for c in text:
        if quote:
            quote = "" if c == quote else quote
        elif c in "\"'":
            quote = c
        elif c in "[{":
            depth += 1
        elif c in "]}":
            depth -= 1
        elif c == "," and depth == 0:
            parts.append("")
            continue
        parts[-1] += c
    return [part.strip() for part in parts]


def _steps(part: str, match: re.Match[str], label: str) -> list[Any]:
    whole = not any(c in part for c in ".eE")
    first, last, step = (int(match[i]) if whole else float(match[i]) for i in (1, 2, 4))
    grows = bool(match[3])
    if grows and not (step > 1 and first > 0 and last >= first):
        raise InputError(f"got {part}", key=label, allowed="first:last:*factor with 0 < first ≤ last and factor > 1")
    if not grows and not (step > 0 and last >= first):
        raise InputError(f"got {part}", key=label, allowed="first:last:step with first ≤ last and step > 0")
    count = math.log(last / first, step) if grows else (last - first) / step
    if count > MAX_RANGE:
        raise InputError(f"got {part}, about {count:.3g} values", key=label, allowed=f"at most {MAX_RANGE}")
    out: list[Any] = []
    slack = 0 if whole else abs(last) * 1e-9
    while (value := first * step ** len(out) if grows else first + step * len(out)) <= last + slack:
        out.append(value if whole else float(f"{value:.12g}"))  # 0.1 + 2 · 0.1 is meant to be 0.3
    return out


def _distinct(values: tuple[Any, ...], label: str) -> tuple[Any, ...]:
    if not values:
        raise InputError("has no values", key=label, allowed="one or more")
    seen: set[str] = set()
    for value in values:
        if isinstance(value, float) and not math.isfinite(value):
            raise InputError(f"got {value}", key=label, allowed="finite numbers")
        text = canonical(value)
        if text in seen:
            raise InputError(f"holds {shown(value)} twice", key=label, allowed="different values")
        seen.add(text)
    return values


@dataclass(frozen=True)
class Definition:
    """What was asked for: the scenario's text, what is set in it, and the grid. Plain data, so it travels to workers.

    Attributes:
        text: the scenario as written.
        file: for messages; "" if it came from no file.
        base: folder that its references start from.
        settings: dotted keys set at every point (``--set``, ``--seed``, ``--replications``).
        axes: dotted keys and their values; () of keys means one point.
        label: the option that messages blame for an axis.
    """

    text: str
    file: str
    base: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    axes: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    label: str = OPTION

    def check(self) -> None:
        """Axes that contradict each other or the settings.

        Raises:
            InputError: a key stands inside another, is set as well, or cannot vary; or the grid is too large.
        """
        for key in self.axes:
            name = f"{self.label} {key}"
            if key.split(".")[0] in FIXED:
                raise InputError("cannot vary within a sweep", key=name,
                                 allowed="the option --replications" if key == "replications" else None)
            if key in self.settings:
                raise InputError("is set by another option as well", key=name, allowed="one of them")
            inside = [other for other in (*self.axes, *self.settings) if other.startswith(f"{key}.")]
            if inside:
                raise InputError(f"holds {inside[0]}, which is set as well", key=name, allowed="one of them")
        if self.size > MAX_TASKS:
            raise InputError(f"the grid has {self.size} points", key=self.label, allowed=f"at most {MAX_TASKS}")

    @property
    def size(self) -> int:
        """Number of grid points."""
        return math.prod(len(values) for values in self.axes.values())

    def points(self) -> Iterator[Point]:
        """Every combination; the last key varies fastest."""
        for values in itertools.product(*self.axes.values()):
            yield dict(zip(self.axes, values, strict=True))

    def digest(self) -> str:
        """8 hex digits that name the default folder: the same command finds its sweep again."""
        content = {"data": _parsed(self.text, self.file).data, "settings": dict(self.settings),
                   "axes": [[key, list(values)] for key, values in self.axes.items()]}
        return hashlib.sha256(canonical(content).encode()).hexdigest()[:8]

    def scenario(self, point: Point) -> Scenario:
        """The scenario of one point; no table of steps is kept.

        Raises:
            ScenarioError: the point makes no valid scenario.
        """
        from dspark_sim.scenario import scenario_from_document

        plain = {key: value for key, value in self.settings.items() if key not in FIXED and key != "seed"}
        document = apply_overrides(_parsed(self.text, self.file), plain, ScenarioError)
        document = apply_overrides(document, point, ScenarioError, option=self.label)
        for key, value in {**self.settings, "record": "requests"}.items():
            if key not in plain and isinstance(document.data, dict):
                document.data[key] = value
                document.overridden[(key,)] = f"--{key}"
        return scenario_from_document(document, Path(self.base))


@lru_cache(maxsize=8)
def _parsed(text: str, file: str) -> Document:
    return parse_yaml(text, Path(file) if file else None, ScenarioError)
