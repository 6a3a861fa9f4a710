"""Routers: which engine takes a request. A router is a plain function; write your own the same way.

``route(request, loads, state) -> int``: the index in ``loads`` of the engine that takes the request. ``loads`` holds
the engines that may take it now, at least one, in the order of their numbers. ``state`` belongs to this router in this
run: a random stream and a dict for whatever it wants to remember.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Protocol, TypeAlias

import numpy as np

from dspark_sim.request import Request

__all__ = ["ROUTERS", "Load", "Router", "RouterState"]


class Load(Protocol):
    """What a router may know of an engine.

    Attributes:
        number: its number in the cluster.
        outstanding: requests that it runs or that wait for it.
        waiting: those of them that wait.
        free_blocks: free KV blocks; -1 when the profile sets no limit.
        kv_tokens: KV tokens of its decoding requests.
    """

    @property
    def number(self) -> int: ...
    @property
    def outstanding(self) -> int: ...
    @property
    def waiting(self) -> int: ...
    @property
    def free_blocks(self) -> int: ...
    @property
    def kv_tokens(self) -> int: ...
    def cached_tokens(self, request: Request) -> int:
        """Prompt tokens of ``request`` that its prefix cache holds."""
        ...


@dataclass
class RouterState:
    """What a router keeps between requests."""

    rng: np.random.Generator
    memory: dict[Any, Any] = field(default_factory=dict)


Router: TypeAlias = Callable[[Request, Sequence[Load], RouterState], int]


_number = attrgetter("number")


def round_robin(request: Request, loads: Sequence[Load], state: RouterState) -> int:
    """Each engine in turn; engines that are away are skipped."""
    after = bisect_right(loads, state.memory.get("last", -1), key=_number)
    chosen = after if after < len(loads) else 0
    state.memory["last"] = loads[chosen].number
    return chosen


def least_outstanding(request: Request, loads: Sequence[Load], state: RouterState) -> int:
    """The engine with the fewest requests; of equals the first."""
    return min(range(len(loads)), key=lambda i: loads[i].outstanding)


def most_free_kv(request: Request, loads: Sequence[Load], state: RouterState) -> int:
    """The engine with the most free KV blocks; without limits, with the fewest KV tokens; then the fewest requests."""
    return min(
        range(len(loads)), key=lambda i: (-loads[i].free_blocks, loads[i].kv_tokens, loads[i].outstanding)
    )


def power_of_two(request: Request, loads: Sequence[Load], state: RouterState) -> int:
    """The less loaded of two engines drawn at random (Mitzenmacher 2001)."""
    if len(loads) == 1:
        return 0
    i = int(state.rng.integers(len(loads)))
    j = int(state.rng.integers(len(loads) - 1))
    j += j >= i
    return j if loads[j].outstanding < loads[i].outstanding else i


def session_affinity(request: Request, loads: Sequence[Load], state: RouterState) -> int:
    """The engine that had this session before, while it is there; else the one with the fewest requests."""
    before = state.memory.get(request.session)
    chosen = next((i for i, load in enumerate(loads) if load.number == before), None)
    if chosen is None or request.session is None:
        chosen = least_outstanding(request, loads, state)
        if request.session is not None:
            state.memory[request.session] = loads[chosen].number
    return chosen


def prefix_affinity(request: Request, loads: Sequence[Load], state: RouterState) -> int:
    """The engine that holds most of the prompt's prefix; of equals the one with the fewest requests."""
    return min(range(len(loads)), key=lambda i: (-loads[i].cached_tokens(request), loads[i].outstanding))


ROUTERS: Mapping[str, Router] = {
    function.__name__: function
    for function in (
        round_robin, least_outstanding, most_free_kv, power_of_two, session_affinity, prefix_affinity,
    )
}
