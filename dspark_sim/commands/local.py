"""Code that is not on the shelf: say once that it is executed, or refuse it before it is.

Shelf and installed packages' entry points are code that somebody installed on purpose; ``--no-local-policies`` lets
them pass and refuses files and modules, wherever a scenario finds them.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from dspark_sim.commands.output import note
from dspark_sim.errors import InputError

if TYPE_CHECKING:
    from dspark_sim.policy_places import Found
    from dspark_sim.scenario import Scenario

__all__ = ["announce", "refuse_local"]


def refuse_local(scenario: Scenario, forbidden: bool, quiet: bool) -> None:
    """Policies and routers of a scenario; called before any of them is imported.

    Raises:
        InputError: one is neither on the shelf nor installed, and that is forbidden.
    """
    from dspark_sim.policy_places import outside
    from dspark_sim.router import ROUTERS

    arms: dict[str, tuple[Found, list[str]]] = {}
    for i, arm in enumerate(scenario.arms):
        found = outside(arm.policy.name, scenario.base)
        if found is None:
            continue
        if forbidden and not found.trusted:
            raise scenario.source.error(_refusal(found), ("arms", i, "policy"), allowed=_trusted(scenario.base))
        arms.setdefault(found.name, (found, []))[1].append(arm.name)
    router = None if scenario.cluster is None else scenario.cluster.router
    if router is not None and router not in ROUTERS and forbidden:
        raise scenario.source.error(f"router {router!r} is a file, and --no-local-policies refuses it",
                                    ("cluster", "router"), allowed=", ".join(ROUTERS))
    if quiet:
        return
    for found, names in arms.values():
        note(_sentence(found, f" ({'arm' if len(names) == 1 else 'arms'} {', '.join(names)})"))
    if router is not None and router not in ROUTERS:
        note(f"note: router {router} is not on the shelf; its code is executed")


def announce(references: Iterable[str], *, allowed: bool, quiet: bool = False, base: Path | None = None) -> None:
    """The same for policies that the command line names.

    Raises:
        InputError: one is neither on the shelf nor installed, and that is not allowed.
    """
    from dspark_sim.policy_places import outside

    for reference in dict.fromkeys(references):
        found = outside(reference, base)
        if found is None:
            continue
        if not allowed and not found.trusted:
            raise InputError(_refusal(found))
        if not quiet:
            note(_sentence(found, ""))


def _sentence(found: Found, who: str) -> str:
    file = f": {found.at}" if found.path is not None or found.trusted else ""
    hides = f"; it hides {', '.join(found.hides)}" if found.hides else ""
    return f"note: policy {found.name}{who} is not on the shelf; its code is executed{file}{hides}"


def _refusal(found: Found) -> str:
    file = f" ({found.at})" if found.path is not None else ""
    return f"policy {found.name!r} is not on the shelf, and --no-local-policies refuses it{file}"


def _trusted(base: Path) -> str:
    from dspark_sim.policy_places import by_name

    return ", ".join(by_name(base, local=False))
