"""The policy under examination: how to make fresh objects of it, what it claims, which engines it accepts."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from dspark_sim.blame import HANGS, is_interrupt, what_happened
from dspark_sim.curve import StepCurve
from dspark_sim.errors import PolicyFailure, PolicyLoadError, shown
from dspark_sim.lossless.bench import Bench, Rows, frozen
from dspark_sim.lossless.stage import Stage
from dspark_sim.policy import Policy
from dspark_sim.registry import find_policy, make_policy

__all__ = ["PolicyLike", "Subject", "subject_of"]

PolicyLike: TypeAlias = str | Policy | type[Any] | Callable[[], Policy]
SIZES = (2, 3, 1, 4, 5, 7)
LARGER = (6, 8, 10, 12, 16, 32, 64)


@dataclass(frozen=True)
class Subject:
    """A policy, its claims, and where it agrees to work.

    Attributes:
        name: as the user called it, or the class's name.
        make: a fresh object at every call.
        lossless, timing, needs_oracle: the class's claims.
        host_lag: the largest of 2, 1, 0 that it accepts.
        sizes: block sizes that it accepts, small ones first.
        refused: why it refuses other sizes, "" if it does not.
        broken: how it failed in the simplest engine; then nothing else can be checked.
        probability: it reads ``draft_probability``.
    """

    name: str
    make: Callable[[], Policy]
    lossless: bool
    timing: str
    needs_oracle: bool
    host_lag: int = 2
    sizes: tuple[int, ...] = ()
    refused: str = ""
    broken: str = ""
    probability: bool = False


def subject_of(
    policy: PolicyLike, parameters: Mapping[str, Any] | None = None, base: Path | None = None
) -> Subject:
    """What ``policy`` means: a reference as in a scenario, an object (copied), a class, or a function without
    arguments that makes one.

    Raises:
        PolicyLoadError: it cannot be found, loaded or configured, or lacks ``lossless`` or ``timing``.
    """
    given = dict(parameters or {})
    make: Callable[[], Any]
    first: Any
    if isinstance(policy, str):
        cls, source = find_policy(policy, base)
        first = make_policy(cls, source, given)
        name, make = source.name, _maker(first, lambda: make_policy(cls, source, given))
    elif callable(policy) and not callable(getattr(type(policy), "verify_lengths", None)):
        factory: Callable[..., Any] = policy
        make = lambda: factory(**given)  # noqa: E731 - one of three ways to make one
        try:
            first = make()
        except (TypeError, ValueError) as problem:
            raise PolicyLoadError(f"cannot be made: {problem}", key="policy") from None
        name = type(first).__name__
    else:
        if given:
            raise PolicyLoadError("parameters go with a reference or a class, not with an object", key="policy")
        first, name = policy, type(policy).__name__
        make = _maker(copy.deepcopy(policy), lambda: copy.deepcopy(policy))
    for what, allowed in (("lossless", (True, False)), ("timing", ("overlapped", "synchronous")),
                          ("verify_lengths", ())):
        value = getattr(first, what, None)
        if (allowed and value not in allowed) or value is None:
            raise PolicyLoadError(f"{name} has {what} = {shown(value)}", key="policy",
                                  allowed=" or ".join(map(str, allowed)) or "a method")
    oracle = bool(getattr(first, "needs_oracle", False))
    made: Callable[[], Policy] = make
    return _fitted(Subject(name, made, bool(first.lossless), str(first.timing), oracle))


def _maker(pristine: Any, slowly: Callable[[], Any]) -> Callable[[], Any]:
    """Copies of an object that nobody has used yet: much faster than checking parameters each time."""
    try:
        copy.deepcopy(pristine)
    except Exception:  # a class may hold what cannot be copied
        return slowly
    return lambda: copy.deepcopy(pristine)


def _fitted(subject: Subject) -> Subject:
    """Find the engines that the policy accepts, and what it reads there."""
    reason = ""
    for host_lag in (2, 1, 0):
        sizes: list[int] = []
        read: set[str] = set()
        refused = ""
        for G in (*SIZES, *LARGER):
            if G in LARGER and sizes:
                break
            problem, seen = _tried(subject, G, host_lag)
            if HANGS in problem:  # every further engine would cost the whole limit again
                return replace(subject, broken=problem)
            if problem:
                refused = refused or f"block size {G}: {problem}"
            else:
                sizes.append(G)
                read |= seen
        if sizes:
            sizes.sort(key=lambda G: (G == 1, G))
            return replace(subject, host_lag=host_lag, sizes=tuple(sizes), refused=refused,
                           probability="draft_probability" in read)
        reason = refused or reason
    return replace(subject, broken=reason)


def _tried(subject: Subject, G: int, host_lag: int) -> tuple[str, set[str]]:
    """(why it does not work, what it read) over four plain steps."""
    curve = StepCurve(np.arange(1, 3 * G + 4), np.linspace(1.0, 2.0, 3 * G + 3), extrapolate="linear")
    try:
        stage = Stage(subject.make(), Bench(G, curve, 3, host_lag=host_lag))
        for step in range(4):
            table = np.full((2, G), 0.9 - 0.1 * step, dtype=np.float32)
            kept = frozen(np.ones(2), np.int64)
            stage.decide(Rows((0, 1), table, kept, np.full((2, G), 0.6, dtype=np.float32)))
            stage.settle()
    except (ValueError, PolicyFailure) as problem:
        return str(problem), set()
    except BaseException as problem:
        if is_interrupt(problem):
            raise
        return f"start {what_happened(problem)}", set()
    return "", stage.read
