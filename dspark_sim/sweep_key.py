"""The key of a task: one hash of everything that determines its figures, and of nothing else.

In it: the workload, the measurement and the seed; the arm with its number, its resolved settings, its policy's
parameters and source; the profiles, traces and other files by content; the replication; the code that simulates and
measures, and the versions of the libraries it computes with. Not in it: the scenario's name and description, the other
arms, how many replications there are, paths, and the grid itself; so a wider grid finds the tasks of a narrower one.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dspark_sim.profile import HardwareProfile
from dspark_sim.registry import PolicySource
from dspark_sim.sweep_grid import canonical
from dspark_sim.trace import AcceptanceTrace

if TYPE_CHECKING:
    from dspark_sim.arms import ArmSetup
    from dspark_sim.scenario import Scenario

__all__ = ["FORMAT", "KeyMaker", "code_digest", "code_modules", "difference", "task_key"]

FORMAT = "dspark-sim cell 1"
ROOTS = ("simulate", "metrics", "arms", "scenario")  # what a task runs; what they import is found from there
LIBRARIES = ("numpy", "scipy", "simpy")
PARTS = {  # of a key, in words
    "format": "the format of cells", "code": "the code of dspark-sim",
    "libraries": f"versions of {', '.join(LIBRARIES)}", "scenario": "the scenario",
    "files": "files that the scenario names", "arm": "the arm's profile, trace or policy",
}
SAID_ONLY = ("name", "description", "profile", "traces", "seed", "replications", "engine", "record", "arms", "sweep",
             "plan")
_LABELS = ("label", "policy_reference", "policy_class")  # of an arm: words, and what policy_source says better
_IMPORT = re.compile(r"^\s*(?:from|import)\s+dspark_sim\.(\w+)", re.MULTILINE)
_FROM = re.compile(r"^\s*from dspark_sim import ([\w, ]+)", re.MULTILINE)


def task_key(parts: Mapping[str, str], replication: int) -> str:
    """64 hex digits for one replication (0, 1, 2, …) of an arm whose parts :meth:`KeyMaker.parts` gave."""
    return hashlib.sha256(f"{canonical(parts)} {replication}".encode()).hexdigest()


def difference(mine: Mapping[str, str], theirs: Mapping[str, str]) -> str:
    """In words, what two places do not have in common."""
    return ", ".join(words for part, words in PARTS.items() if mine.get(part) != theirs.get(part))


class KeyMaker:
    """Makes keys of arms; remembers the hashes of traces and files, which many arms share."""

    def __init__(self) -> None:
        self._traces: dict[int, tuple[AcceptanceTrace, str]] = {}
        self._files: dict[tuple[str, int, int], str] = {}

    def parts(self, scenario: Scenario, setup: ArmSetup) -> dict[str, str]:
        """A hash for each kind of thing that determines one arm of one grid point, all replications.

        Args:
            scenario: of the grid point.
            setup: the arm, loaded from it.
        """
        content = self.content(scenario, setup)
        return {part: hashlib.sha256(canonical(content[part]).encode()).hexdigest()[:32] for part in PARTS}

    def content(self, scenario: Scenario, setup: ArmSetup) -> dict[str, Any]:
        """What is hashed, as plain data."""
        shared = {k: v for k, v in scenario.resolved().items() if k not in SAID_ONLY}
        return {
            "format": FORMAT, "code": code_digest(), "libraries": versions(),
            "scenario": {"seed": scenario.seed, **shared}, "files": self._named_files(shared, scenario.base),
            "arm": self._plain(setup, scenario),
        }

    def _named_files(self, data: Any, base: Path) -> dict[str, str]:
        """Every text in ``data`` that names a file beside the scenario (lengths, logs of requests), with its hash."""
        if isinstance(data, Mapping):
            return {k: v for item in data.values() for k, v in self._named_files(item, base).items()}
        if isinstance(data, (list, tuple)):
            return {k: v for item in data for k, v in self._named_files(item, base).items()}
        if not isinstance(data, str) or not data or len(data) > 1000:
            return {}
        try:
            path = base / Path(data).expanduser()
            if not path.is_file():
                return {}
            stat = path.stat()
            place = (str(path), stat.st_mtime_ns, stat.st_size)
            if place not in self._files:
                self._files[place] = hashlib.sha256(path.read_bytes()).hexdigest()
        except (OSError, ValueError, RuntimeError):  # no file name at all
            return {}
        return {data: self._files[place]}

    def _plain(self, value: Any, scenario: Scenario) -> Any:
        """An arm as plain data: measured inputs by their hash, everything else field by field."""
        if isinstance(value, HardwareProfile):
            return {"profile": value.sha256}
        if isinstance(value, AcceptanceTrace):
            return {"trace": self._trace(value, scenario)}
        if isinstance(value, PolicySource):
            return {"policy": value.name, "sha256": value.sha256, "package": value.package_sha256}
        if isinstance(value, Mapping):
            return {str(k): self._plain(v, scenario) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._plain(v, scenario) for v in value]
        if is_dataclass(value) and not isinstance(value, type):
            return {f.name: self._plain(getattr(value, f.name), scenario) for f in fields(value)
                    if f.name not in _LABELS}
        if callable(value):  # a router: its source has a hash of its own beside it
            return getattr(value, "__qualname__", type(value).__qualname__)
        assert value is None or isinstance(value, (bool, int, float, str)), f"no rule for hashing {value!r}"
        return value

    def _trace(self, trace: AcceptanceTrace, scenario: Scenario) -> str:
        from dspark_sim.traceset import trace_sha256

        if id(trace) not in self._traces:
            digest = trace_sha256(scenario.traces or "", [trace.drafter], scenario.base)
            self._traces[id(trace)] = trace, f"{trace.drafter} {digest}"
        return self._traces[id(trace)][1]


@lru_cache(maxsize=1)
def code_digest() -> str:
    """Hash of the package's version and of every module that a task can run."""
    digest = hashlib.sha256(_version("dspark-sim").encode())
    for name, data in sorted(code_modules().items()):
        digest.update(f"\n{name} {len(data)}\n".encode() + data)
    return digest.hexdigest()


def code_modules() -> dict[str, bytes]:
    """Module -> source of everything that simulating and measuring imports, however deep."""
    package = Path(__file__).resolve().parent
    found: dict[str, bytes] = {}
    todo = list(ROOTS)
    while todo:
        name = todo.pop()
        if name in found:
            continue
        place = package / f"{name}.py"
        files = [place] if place.is_file() else sorted((package / name).glob("**/*.py"))
        found[name] = b"".join(path.read_bytes() for path in files)
        text = found[name].decode()
        todo += _IMPORT.findall(text)
        todo += [part.split()[0] for names in _FROM.findall(text) for part in names.split(",") if part.strip()]
    return found


@lru_cache(maxsize=1)
def versions() -> dict[str, str]:
    """Libraries whose version may change a random stream or the last digit of a number."""
    return {name: _version(name) for name in LIBRARIES}


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:  # run from a checkout that was never installed
        return "unknown"
