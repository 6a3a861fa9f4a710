"""Every error that dspark-sim raises on purpose.

::

    DsparkSimError
    ├── InputError (also a ValueError)  the user's input is wrong: the command line exits with code 2
    │   ├── ScenarioError               a scenario, an override (--set) or a workload
    │   ├── ProfileError                a hardware profile or a step-time curve
    │   ├── TraceError                  an acceptance trace or its parametric specification
    │   └── PolicyLoadError             a policy that cannot be found, loaded or configured
    ├── RunError                        a run cannot go on: the arm ends, the others finish, exit code 1
    │   ├── PolicyFailure               a policy raised or answered against its contract
    │   └── OutOfRange                  a step left the measured range of a curve
    └── IntegrityError (also an AssertionError)  our own mistake: tokens or blocks do not balance

An :class:`InputError` carries the place of the mistake, so that a message reads
``scenario.yaml:12: workload.arrival.rate: got -4, allowed: a number > 0 (did you mean …?)``.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

__all__ = [
    "DsparkSimError",
    "InputError",
    "IntegrityError",
    "OutOfRange",
    "PolicyFailure",
    "PolicyLoadError",
    "ProfileError",
    "RunError",
    "ScenarioError",
    "TraceError",
    "nearest",
    "shown",
]


class DsparkSimError(Exception):
    """The root of the tree."""


class InputError(DsparkSimError, ValueError):
    """What the user wrote cannot be used.

    Args:
        problem: one sentence, without the place.
        file: the file that holds the mistake, None when the value came from elsewhere (``--set``).
        line: 1-based line in that file, None if unknown.
        key: dotted key, e.g. ``workload.arrival.rate``.
        allowed: what may stand there instead.
        suggestion: the nearest allowed name, shown as "did you mean".
    """

    def __init__(
        self,
        problem: str,
        *,
        file: str | Path | None = None,
        line: int | None = None,
        key: str | None = None,
        allowed: str | None = None,
        suggestion: str | None = None,
    ) -> None:
        self.problem, self.file, self.line = problem, file, line
        self.key, self.allowed, self.suggestion = key, allowed, suggestion
        super().__init__(self._message())

    def _message(self) -> str:
        place = "" if self.file is None else f"{self.file}" + ("" if self.line is None else f":{self.line}") + ": "
        key = "" if not self.key else f"{self.key}: "
        allowed = "" if not self.allowed else f"; allowed: {self.allowed}"
        hint = "" if not self.suggestion else f" (did you mean {self.suggestion!r}?)"
        return f"{place}{key}{self.problem}{allowed}{hint}"


class ScenarioError(InputError):
    """A scenario, an override or a workload cannot be used."""


class ProfileError(InputError):
    """A hardware profile or a step-time curve cannot be used."""


class TraceError(InputError):
    """An acceptance trace or its parametric specification cannot be used."""


class PolicyLoadError(InputError):
    """A policy cannot be found, loaded or configured."""


class RunError(DsparkSimError):
    """A run cannot go on; the arm that caused it ends with this reason."""


class PolicyFailure(RunError):
    """A policy raised, or its answer broke the contract of :mod:`dspark_sim.policy`."""


class OutOfRange(RunError):
    """A step asked a curve for a batch that it does not cover and may not extrapolate to."""


class IntegrityError(DsparkSimError, AssertionError):
    """Requests, tokens or KV blocks do not balance: a mistake in the simulator, please report it."""


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The name most like ``name``, or the only one that holds it; None when nothing is close: for "did you mean"."""
    words, text = [str(n) for n in names], str(name)
    holding = [word for word in words if len(text) > 2 and text.lower() in word.lower()]
    found = holding if len(holding) == 1 else difflib.get_close_matches(text, words, n=1, cutoff=0.55)
    return found[0] if found else None


def shown(value: Any, limit: int = 60) -> str:
    """``value`` as it should stand in a one-line message: its repr, cut when long."""
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"
