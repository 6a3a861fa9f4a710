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

from dspark_sim.blame import is_interrupt, what_happened
from dspark_sim.errors import PolicyLoadError, shown
from dspark_sim.guard import asked, supervised

__all__ = ["Loaded", "import_file", "import_module", "package_sha256", "raised"]

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
        PolicyLoadError: it cannot be read, is not Python, raised or hangs; names the file, and the line where known.
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
            with supervised(path.name):
                asked(loader.exec_module, module)
        except BaseException as problem:
            sys.modules.pop(name, None)
            if is_interrupt(problem):
                raise
            raise raised(problem, path, "importing it") from None
    return module, path, digest


def _module_name(path: Path, digest: str) -> str:
    unique = hashlib.sha256(f"{path}\0{digest}".encode()).hexdigest()[:16]
    return f"dspark_sim_policy_{re.sub('[^A-Za-z0-9_]', '_', path.stem)}_{unique}"


def import_module(name: str) -> Loaded:
    """Import an installed module by its dotted name.

    Raises:
        PolicyLoadError: not a dotted name, not installed, it raised or hangs, or was edited after it had been imported.
    """
    if not all(part.isidentifier() for part in name.split(".")):
        raise PolicyLoadError(f"{shown(name)} is neither a module nor a file", key="policy",
                              allowed="early_stop, ./mine.py:Mine or package.module:Class")
    try:
        with supervised(name):
            module = asked(importlib.import_module, name)
    except ModuleNotFoundError as problem:
        if problem.name and f"{name}.".startswith(f"{problem.name}."):
            raise PolicyLoadError(f"no module named {name!r} is installed", key="policy") from None
        raise raised(problem, None, f"importing {name}") from None
    except BaseException as problem:
        if is_interrupt(problem):
            raise
        raise raised(problem, None, f"importing {name}") from None
    file = getattr(module, "__file__", None)
    path = Path(file) if file else None
    digest = hashlib.sha256(path.read_bytes()).hexdigest() if path is not None and path.is_file() else ""
    return module, path, _unedited(name, digest, path)


_imported: dict[str, str] = {}  # module or package -> hash of its files when it was first asked for


def _unedited(name: str, digest: str, path: Path | None) -> str:
    """``digest``, if it is still that of what was imported: Python imports a module once."""
    if _imported.setdefault(name, digest) != digest:
        raise PolicyLoadError("was edited after this process imported it; start a new process, or name the file",
                              file=path, key="policy")
    return digest


def package_sha256(module: ModuleType) -> str:
    """Hash of all Python files of the package that an installed module belongs to; "" if it stands alone.

    A policy of a package may use its other modules; a sweep must not take figures of an older version for its own.

    Raises:
        PolicyLoadError: one was edited since this process imported the package.
    """
    top = sys.modules.get(module.__name__.partition(".")[0])
    if top is None or (top is module and not hasattr(module, "__path__")):
        return ""
    digest = hashlib.sha256()
    folders = list(getattr(top, "__path__", ()))
    for folder in map(Path, folders):
        for file in sorted(folder.rglob("*.py")):
            data = file.read_bytes()
            digest.update(f"{file.relative_to(folder).as_posix()} {len(data)}\n".encode() + data)
    return _unedited(f"{top.__name__}/", digest.hexdigest(), Path(folders[0]) if folders else None)


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
    return PolicyLoadError(f"{doing} {what_happened(problem)}", file=path, line=line, key="policy")
