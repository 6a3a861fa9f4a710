"""Python from a file or the environment: hashed, run under a name of its own, its failures told in one line.

The bytes that are hashed are the bytes that run. A file is loaded under a name made of its path and hash, so two files
may share a name and an edited file is loaded anew. Called by the registry, for shipped and for users' policies alike.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.abc
import importlib.util
import re
import sys
from pathlib import Path
from types import CodeType, ModuleType

from dspark_sim.errors import PolicyLoadError, shown

__all__ = ["Loaded", "import_file", "import_module", "raised"]

Loaded = tuple[ModuleType, Path | None, str]  # the module, its file, the sha256 of that file ("" without one)


class _Loader(importlib.abc.InspectLoader):
    """Runs bytes that were read before, and leaves no ``__pycache__`` beside a user's file."""

    def __init__(self, data: bytes, path: Path) -> None:
        self.data, self.path = data, path

    def get_source(self, fullname: str) -> str:
        return importlib.util.decode_source(self.data)

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.data, str(self.path))


def import_file(path: Path) -> Loaded:
    """Run one file, once per content.

    Raises:
        PolicyLoadError: it cannot be read, is not Python, or raised; names the file, and the line where known.
    """
    try:
        data = path.read_bytes()
    except OSError as problem:
        raise PolicyLoadError(f"cannot be read ({problem.strerror})", file=path, key="policy") from None
    digest = hashlib.sha256(data).hexdigest()
    name = _module_name(path, digest)
    module = sys.modules.get(name)
    if module is None:
        loader = _Loader(data, path)
        spec = importlib.util.spec_from_loader(name, loader, origin=str(path))
        assert spec is not None
        module = importlib.util.module_from_spec(spec)
        module.__file__ = str(path)
        sys.modules[name] = module  # dataclasses and typing look a class's module up by name
        try:
            loader.exec_module(module)
        except BaseException as problem:
            del sys.modules[name]
            if isinstance(problem, (Exception, SystemExit)):
                raise raised(problem, path, "importing it") from None
            raise
    return module, path, digest


def _module_name(path: Path, digest: str) -> str:
    unique = hashlib.sha256(f"{path}\0{digest}".encode()).hexdigest()[:16]
    return f"dspark_sim_policy_{re.sub('[^A-Za-z0-9_]', '_', path.stem)}_{unique}"


def import_module(name: str) -> Loaded:
    """Import an installed module by its dotted name.

    Raises:
        PolicyLoadError: not a dotted name, not installed, or it raised.
    """
    if not all(part.isidentifier() for part in name.split(".")):
        raise PolicyLoadError(f"{shown(name)} is neither a module nor a file", key="policy",
                              allowed="early_stop, ./mine.py:Mine or package.module:Class")
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as problem:
        if problem.name and f"{name}.".startswith(f"{problem.name}."):
            raise PolicyLoadError(f"no module named {name!r} is installed", key="policy") from None
        raise raised(problem, None, f"importing {name}") from None
    except (Exception, SystemExit) as problem:
        raise raised(problem, None, f"importing {name}") from None
    file = getattr(module, "__file__", None)
    path = Path(file) if file else None
    digest = hashlib.sha256(path.read_bytes()).hexdigest() if path is not None and path.is_file() else ""
    return module, path, digest


def raised(problem: BaseException, path: Path | None, doing: str) -> PolicyLoadError:
    """One line for an exception of the user's code, at the deepest of its frames that lies in the user's file."""
    if isinstance(problem, SyntaxError):
        return PolicyLoadError(f"is not valid Python ({problem.msg})", file=problem.filename or path,
                               line=problem.lineno, key="policy")
    line, traceback = None, problem.__traceback__
    while traceback is not None:
        if path is not None and traceback.tb_frame.f_code.co_filename == str(path):
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    text = " ".join(str(problem).split())
    what = f"{doing} raised {type(problem).__name__}" + (f": {text}" if text else "")
    return PolicyLoadError(what, file=path, line=line, key="policy")
