"""dspark-sim policy new: a file to start from, and its test."""

from __future__ import annotations

import keyword
import os
import re
import shlex
from pathlib import Path

from dspark_sim.commands.output import emit
from dspark_sim.errors import InputError

__all__ = ["new_command"]

_IMPORTED = ("BudgetPolicy", "BudgetView", "EngineSetup", "IntArray", "StepOutcome", "StepView", "Timing")
_ALLOWED = "a word of small letters, digits and underscores, such as load_aware"


def new_command(name: str, *, kind: str, folder: Path, force: bool) -> None:
    """Write ``NAME.py`` and ``test_NAME.py`` and say what to do next.

    Args:
        name: what scenarios will call it.
        kind: ``budget`` or ``full``.
        folder: where; made if need be.
        force: overwrite files that exist, and take a name that hides another policy.

    Raises:
        InputError: the name cannot be used, a file exists, or the folder cannot be written.
    """
    from dspark_sim.commands.policy_templates import TEMPLATES, TEST, filled

    _check_name(name, folder, force)
    policy, test = folder / f"{name}.py", folder / f"test_{name}.py"
    for path in (policy, test):
        if path.exists() and not force:
            raise InputError("exists already", file=path, allowed="another name, or --force to overwrite it")
    cls = "".join(part.capitalize() for part in name.split("_"))
    cls += "Policy" * (cls in _IMPORTED)
    words = {"name": name, "cls": cls}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, template in ((policy, TEMPLATES[kind]), (test, TEST)):
            aside = path.with_name(f".{path.name}.part")
            aside.write_text(filled(template, **words), encoding="utf-8", newline="\n")
            os.replace(aside, path)
    except OSError as problem:
        raise InputError(f"cannot be written ({problem.strerror})", file=problem.filename or folder,
                         key="--dir") from None
    emit(_next(name, policy, test))


def _check_name(name: str, folder: Path, force: bool) -> None:
    simple = re.sub(r"\W+", "_", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.removesuffix(".py"))).lower().strip("_")
    hint = simple if simple != name and _is_word(simple) else None
    if not _is_word(name):
        raise InputError(f"got {name!r}", key="NAME", allowed=_ALLOWED, suggestion=hint)
    if keyword.iskeyword(name) or name.startswith("test_") or name == "conftest":
        raise InputError(f"{name!r} means something else to Python or pytest", key="NAME", allowed=_ALLOWED)
    from dspark_sim.policy_places import by_name

    other = by_name().get(name)
    if other is not None and not force and not (folder / f"{name}.py").exists():
        raise InputError(f"there is a policy {name!r} already ({other.at}), which scenarios could not tell from yours",
                         key="NAME", allowed="another name, or --force")


def _is_word(name: str) -> bool:
    return re.fullmatch(r"[a-z][a-z0-9_]*", name) is not None and len(name) <= 40


def _next(name: str, policy: Path, test: Path) -> str:
    """What to do with the files."""
    found = policy.parent.resolve() == Path("policies").resolve()
    reference = name if found else f"./{policy.as_posix()}" if not policy.is_absolute() else policy.as_posix()
    reference = shlex.quote(reference)
    arms = (f"arms=[{{name: async-global, drafter: dspark-5, policy: async_global}}, "
            f"{{name: mine, drafter: dspark-5, policy: {reference if found else policy.resolve().as_posix()}}}]")
    return "\n".join((
        f"wrote {policy} and {test}",
        "",
        "Next:",
        f"  dspark-sim policy check {reference}",
        "      does it keep the contract, and is it lossless as it claims?",
        f"  python -m pytest {shlex.quote(test.as_posix())}",
        "      the same as tests, and a short run",
        f"  dspark-sim run quickstart --set {shlex.quote(arms)}",
        "      against another policy; or name it in a scenario of yours",
        f"  dspark-sim rank quickstart --policies async_global,threshold,{reference}",
        "      a leaderboard with paired intervals",
        "",
    ))
