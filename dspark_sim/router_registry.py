"""From what a scenario says under ``cluster.router`` to a function."""

from __future__ import annotations

from pathlib import Path

from dspark_sim.errors import PolicyLoadError, ScenarioError, nearest, shown
from dspark_sim.router import ROUTERS, Router
from dspark_sim.userfile import import_file

__all__ = ["find_router"]


def find_router(reference: str, base: Path) -> tuple[Router, str]:
    """A shipped router by name, or a function of a file: ``./mine.py:route``.

    Returns the function and the sha256 of its file, "" for a shipped one.

    Raises:
        ScenarioError: no such name, or not a function.
        PolicyLoadError: the file cannot be loaded.
    """
    if reference in ROUTERS:
        return ROUTERS[reference], ""
    file, colon, name = reference.rpartition(":")
    if not colon or not file.endswith(".py"):
        raise ScenarioError(f"got {shown(reference)}", allowed=", ".join(ROUTERS) + ", or ./mine.py:function",
                            suggestion=nearest(reference, ROUTERS))
    path = Path(file) if Path(file).is_absolute() else base / file
    if not path.is_file():
        raise ScenarioError(f"no such file: {path}")
    try:
        module, _, digest = import_file(path)
    except PolicyLoadError as problem:
        raise ScenarioError(problem.problem, file=problem.file, line=problem.line) from None
    function = getattr(module, name, None)
    if not callable(function):
        names = [n for n, f in vars(module).items() if callable(f) and not n.startswith("_")]
        raise ScenarioError(f"{path} has no function {shown(name)}", allowed=", ".join(names) or None,
                            suggestion=nearest(name, names))
    router: Router = function
    return router, digest
