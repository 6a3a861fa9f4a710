"""From what a scenario says to a policy object: ``early_stop`` | ``./mine.py:Mine`` | ``mine.py`` | ``pkg.mod:Mine``.

A name is looked up in the places that :mod:`dspark_sim.policy_places` lists (one file = one policy = one class), the
shelf last; a path is read relative to the scenario's folder; ``module:Class`` is imported from the environment.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, cast, get_type_hints

from dspark_sim import policy_places
from dspark_sim.blame import is_interrupt
from dspark_sim.errors import PolicyLoadError, nearest, shown
from dspark_sim.guard import asked, supervised
from dspark_sim.parameters import choices, converted, described, type_name
from dspark_sim.policy import BudgetPolicy, Policy
from dspark_sim.policy_places import Found
from dspark_sim.userfile import Loaded, import_file, import_module, package_sha256, raised

__all__ = ["REQUIRED", "PolicySource", "all_policies", "find_policy", "list_policies", "load_policy", "make_policy"]

REQUIRED: Any = ...  # stands for the default of a parameter that has none


@dataclass(frozen=True)
class PolicySource:
    """Where a policy came from and what it says of itself.

    Attributes:
        name: as it was asked for by name, or the class's for a path or a module.
        path: its file; None if a module has none.
        sha256: of the file's bytes, "" without a file.
        shipped: from the shelf.
        lossless, timing, needs_confidence, needs_oracle: the class's claims.
        doc: docstrings of the file and the class.
        parameters: name -> (type as written in a scenario, default or :data:`REQUIRED`).
        place: where it was found, in words; see :class:`~dspark_sim.policy_places.Found`.
        hides: places that have a policy of this name too.
        package_sha256: of all Python files of its package, "" for a file or a module that stands alone.
    """

    name: str
    path: Path | None
    sha256: str
    shipped: bool
    lossless: bool
    timing: str
    needs_confidence: bool
    doc: str
    parameters: Mapping[str, tuple[str, Any]]
    needs_oracle: bool = False
    place: str = "shelf"
    hides: tuple[str, ...] = ()
    package_sha256: str = ""


def load_policy(
    reference: str, parameters: Mapping[str, Any] | None = None, base: Path | None = None
) -> tuple[Policy, PolicySource]:
    """A fresh policy object and its source.

    Args:
        reference: see the module.
        parameters: values for the class's dataclass fields.
        base: folder that relative paths start from (the scenario's), None for the working directory.

    Raises:
        PolicyLoadError: key ``policy`` for what concerns the reference or the class, ``policy.<parameter>`` for a
            parameter; file and line where the policy's own file is at fault.
    """
    cls, source = find_policy(reference, base)
    return make_policy(cls, source, parameters or {}), source


def list_policies() -> list[PolicySource]:
    """All policies of the shelf, by name."""
    return [_of(Found(name, "shelf", path))[1] for name, path in policy_places.shelf_files().items()]


def all_policies(base: Path | None = None, *, local: bool = True) -> tuple[list[PolicySource], list[PolicyLoadError]]:
    """Every policy that a name finds, by name, and what is wrong with those that cannot be loaded. Runs their files.

    Args:
        base: folder of a scenario, None for the working directory alone.
        local: files outside the shelf too; without them what they would hide comes back.
    """
    sources, problems = [], []
    for found in policy_places.by_name(base, local=local).values():
        try:
            sources.append(_of(found)[1])
        except PolicyLoadError as problem:
            problems.append(problem)
    return sources, problems


def find_policy(reference: str, base: Path | None = None) -> tuple[type[Policy], PolicySource]:
    """The class that a reference means, checked, and its source; nothing is constructed.

    Raises:
        PolicyLoadError: as :func:`load_policy`, except for parameters.
    """
    if not isinstance(reference, str) or not reference.strip():
        raise PolicyLoadError(f"got {shown(reference)}, not the name of a policy", key="policy")
    reference = reference.strip()
    if policy_places.is_name(reference):
        found = policy_places.where(reference, base)
        if found is None:
            names = policy_places.by_name(base)
            raise PolicyLoadError(f"unknown policy {shown(reference)}", key="policy",
                                  allowed=f"{', '.join(names)}, or a file such as ./mine.py:Mine",
                                  suggestion=nearest(reference, names))
        return _of(found)
    place, _, wanted = reference.rpartition(":") if ":" in reference else (reference, "", "")
    if ":" in reference and not wanted:
        raise PolicyLoadError(f"got {shown(reference)}, without a class after the colon", key="policy")
    if not policy_places.is_name(place):
        loaded, package, where = import_file(_existing(place, base or Path())), "", "file"
    else:
        loaded, where = import_module(place), "module"
        package = package_sha256(loaded[0])
    cls = _the_class(loaded, wanted)
    return cls, dataclasses.replace(_checked(cls, cls.__name__, loaded), place=where, package_sha256=package)


def make_policy(cls: type[Policy], source: PolicySource, parameters: Mapping[str, Any]) -> Policy:
    """A fresh object of a class that :func:`find_policy` gave; every parameter is checked.

    Raises:
        PolicyLoadError: see :func:`load_policy`.
    """
    known = source.parameters
    if not isinstance(parameters, Mapping):
        raise PolicyLoadError(f"got {shown(parameters)}, not a mapping of parameters", key="policy")
    for name in parameters:
        if name not in known:
            allowed = ", ".join(known) if known else f"{source.name} has no parameters"
            raise PolicyLoadError("unknown parameter", key=f"policy.{name}", allowed=allowed,
                                  suggestion=nearest(str(name), known))
    hints = _hints(cls, source.path)
    values = {}
    for name, (_, default) in known.items():
        if name in parameters:
            try:
                values[name] = converted(parameters[name], hints[name])
            except ValueError as problem:
                raise PolicyLoadError(str(problem), key=f"policy.{name}", allowed=described(hints[name]),
                                      suggestion=nearest(parameters[name], choices(hints[name]))) from None
        elif default is REQUIRED:
            raise PolicyLoadError("is missing", key=f"policy.{name}", allowed=described(hints[name]))
    try:
        if source.shipped:
            return cls(**values)
        with supervised(source.name):
            return asked(cls, **values)
    except ValueError as problem:
        key, text = _blamed(str(problem), known)
        raise PolicyLoadError(text, key=key) from None
    except BaseException as problem:
        if is_interrupt(problem):
            raise
        raise raised(problem, source.path, f"making a {cls.__name__}") from None


# -- where classes come from -----------------------------------------------------------------------------------------
def _of(found: Found) -> tuple[type[Policy], PolicySource]:
    """The class and source of what a name leads to."""
    if found.path is not None:
        loaded, wanted, package = import_file(found.path), "", ""
    else:
        name, _, wanted = found.target.partition(":")
        try:
            loaded = import_module(name)
        except PolicyLoadError as problem:
            raise PolicyLoadError(f"{found.place}: {problem.problem}", file=problem.file, line=problem.line,
                                  key="policy") from None
        package = package_sha256(loaded[0])
    cls = _the_class(loaded, wanted)
    source = _checked(cls, found.name, loaded)
    return cls, dataclasses.replace(source, place=found.place, hides=found.hides, package_sha256=package,
                                    shipped=found.place == policy_places.SHELF)


def _existing(place: str, base: Path) -> Path:
    others: list[str] = []
    try:
        path = base / Path(place).expanduser()
        if path.is_file():
            return path.resolve()
        problem = "is a folder" if path.is_dir() else f"no such file in {path.parent.resolve()}"
        others = [p.name for p in path.parent.glob("*.py")]
    except (OSError, RuntimeError, ValueError) as error:  # an unknown ~user, a null byte, a name that is too long
        problem = f"cannot be read ({error})"
    raise PolicyLoadError(f"{shown(place)}: {problem}", key="policy", suggestion=nearest(Path(place).name, others))


# -- what a class must be --------------------------------------------------------------------------------------------
def _the_class(loaded: Loaded, wanted: str) -> type[Policy]:
    """The policy class of a module: the one that is named, or the only public one that is defined there."""
    module, path, _ = loaded
    where: dict[str, Any] = {"file": path, "key": "policy"}
    here = [c for n, c in vars(module).items() if inspect.isclass(c) and c.__module__ == module.__name__]
    policies = {c.__name__: c for c in here if callable(getattr(c, "verify_lengths", None))}
    if wanted:
        found = getattr(module, wanted, None)
        if found is None:
            raise PolicyLoadError(f"has no class {wanted!r}", **where, allowed=", ".join(policies) or None,
                                  suggestion=nearest(wanted, policies))
        if not (inspect.isclass(found) and callable(getattr(found, "verify_lengths", None))):
            raise PolicyLoadError(f"{wanted} is no policy class", **where, allowed="a class with verify_lengths(view)")
        return cast(type[Policy], found)
    public = [name for name in policies if not name.startswith("_")]
    if not public:
        raise PolicyLoadError("has no policy class", **where, allowed="a class with verify_lengths(view)")
    if len(public) > 1:
        raise PolicyLoadError(f"has {len(public)} policy classes", **where,
                              allowed=" or ".join(f"…:{name}" for name in public))
    return cast(type[Policy], policies[public[0]])


def _checked(cls: type[Policy], name: str, loaded: Loaded) -> PolicySource:
    module, path, digest = loaded
    where: dict[str, Any] = {"file": path, "line": _line(cls), "key": "policy"}

    def attribute(what: str, allowed: tuple[Any, ...], default: Any) -> Any:
        value = getattr(cls, what, default)
        if not any(value is a or (isinstance(a, str) and value == a) for a in allowed):
            problem = f"must define {what}" if value is REQUIRED else f"has {what} = {shown(value)}"
            raise PolicyLoadError(f"{cls.__name__} {problem}", **where, allowed=" or ".join(map(str, allowed)))
        return value

    lossless = attribute("lossless", (True, False), REQUIRED)
    timing = attribute("timing", ("overlapped", "synchronous"), REQUIRED)
    needs_confidence = attribute("needs_confidence", (True, False), False)
    needs_oracle = attribute("needs_oracle", (True, False), False)
    if needs_oracle and lossless:
        raise PolicyLoadError(f"{cls.__name__} asks for the oracle, so it cannot be lossless", **where,
                              allowed="lossless = False with needs_oracle = True")
    unfinished = issubclass(cls, BudgetPolicy) and cls.token_budget is BudgetPolicy.token_budget
    if unfinished and cls.verify_lengths is BudgetPolicy.verify_lengths:
        raise PolicyLoadError(f"{cls.__name__} is a BudgetPolicy without token_budget(view)", **where)
    doc = _doc(module, cls)
    return PolicySource(name, path, digest, False, lossless, timing, needs_confidence, doc,
                        dict(_parameters(cls, path)), needs_oracle)


def _parameters(cls: type[Any], path: Path | None) -> Iterator[tuple[str, tuple[str, Any]]]:
    if not dataclasses.is_dataclass(cls):
        return
    hints = _hints(cls, path)
    for f in dataclasses.fields(cls):
        if f.init:
            default = f.default_factory() if f.default_factory is not dataclasses.MISSING else f.default
            yield f.name, (type_name(hints[f.name]), REQUIRED if default is dataclasses.MISSING else default)


def _hints(cls: type[Any], path: Path | None) -> dict[str, Any]:
    try:
        return get_type_hints(cls)
    except Exception as problem:
        raise PolicyLoadError(f"{cls.__name__}: a type cannot be read ({problem})", file=path, line=_line(cls),
                              key="policy") from None


def _doc(module: ModuleType, cls: type[Any]) -> str:
    own = cls.__doc__ or ""
    if own.startswith(f"{cls.__name__}("):  # what @dataclass writes where an author wrote nothing
        own = ""
    return "\n\n".join(text for text in map(inspect.cleandoc, (module.__doc__ or "", own)) if text)


def _line(cls: type[Any]) -> int | None:
    try:
        return inspect.getsourcelines(cls)[1]
    except (OSError, TypeError):
        return None


def _blamed(text: str, parameters: Mapping[str, Any]) -> tuple[str, str]:
    """(key, message): a ValueError that begins ``name: …`` or names a single parameter is laid at that parameter."""
    head, colon, rest = text.partition(":")
    if colon and head.strip() in parameters:
        return f"policy.{head.strip()}", rest.strip()
    named = [name for name in parameters if re.search(rf"\b{re.escape(name)}\b", text)]
    return (f"policy.{named[0]}" if len(named) == 1 else "policy"), text or "the parameters do not fit together"
