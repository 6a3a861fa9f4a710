"""A lean start for the command line and for the workers of a sweep: pyarrow without pandas."""

from __future__ import annotations

import importlib.abc
import sys

__all__ = ["WORKER", "arrow_without_pandas"]

WORKER = "a worker process"
TABLES = {"run", "plan", "sweep", "validate", WORKER}  # those that fill Arrow tables and make no data frame


def arrow_without_pandas(command: str) -> None:
    """Keep pyarrow from importing pandas at its first conversion, which costs a third of a second and 40 MB.

    pyarrow asks once per process whether pandas can be imported. Called by the command line and by workers of
    loky alone, in processes of their own and before anything else: a program that uses the package keeps ``to_pandas``.
    """
    if command not in TABLES or "pandas" in sys.modules:
        return
    hidden = _Hidden()
    sys.meta_path.insert(0, hidden)
    try:
        import pyarrow

        pyarrow.array([0])
    finally:
        sys.meta_path.remove(hidden)


class _Hidden(importlib.abc.MetaPathFinder):
    """Says that pandas is not there."""

    def find_spec(self, name: str, path: object, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name=name)
