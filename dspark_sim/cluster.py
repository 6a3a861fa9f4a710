"""Several engines behind one router: who takes a request, who is up, and what is refused.

Requests come in by :meth:`Cluster.submit` and leave by the ``over`` callback, once each. Between the two they may be
handed from a prefill engine to a decode engine, and from an engine that failed to another.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from math import inf
from typing import Any

import simpy

from dspark_sim.engine import Engine
from dspark_sim.errors import IntegrityError, RunError, shown
from dspark_sim.prefix import PREFIX_TOKENS
from dspark_sim.record import Recorder
from dspark_sim.request import Request
from dspark_sim.router import Router, RouterState
from dspark_sim.scenario_cluster import Admission, Transfer

__all__ = ["Cluster", "Member"]


class Member:
    """An engine of a cluster, and what a router may know of it (:class:`~dspark_sim.router.Load`).

    Attributes:
        engine: the engine.
        takes: ``fresh`` requests, ``prefilled`` ones, or both; from its role.
        draining: it takes nothing new and will be stopped when it is idle.
    """

    def __init__(self, engine: Engine, role: str) -> None:
        self.engine = engine
        self.takes_fresh, self.takes_prefilled = role != "decode", role != "prefill"
        self.draining = False

    @property
    def number(self) -> int:
        return self.engine.number

    @property
    def outstanding(self) -> int:
        return self.engine.roster.running + len(self.engine.roster.waiting)

    @property
    def waiting(self) -> int:
        return len(self.engine.roster.waiting)

    @property
    def free_blocks(self) -> int:
        return self.engine.roster.pool.free

    @property
    def kv_tokens(self) -> int:
        return self.engine.roster.kv_tokens

    def cached_tokens(self, request: Request) -> int:
        """Prompt tokens of ``request`` that its prefix cache holds."""
        prefixes = self.engine.roster.prefixes
        return 0 if prefixes is None else PREFIX_TOKENS * prefixes.match(request.prefix, request.prompt_tokens)


class Cluster:
    """The engines, the router and the door.

    Args:
        env: the simulation's environment.
        router, state: see :mod:`dspark_sim.router`.
        admission: queue limit and patience.
        transfer: how KV moves between prefill and decode engines, None without them.
        priorities: by class index.
        recorder: told of every request that is over, and when engines are up.
        over: called with each request that is over: finished, refused or timed out.
    """

    def __init__(
        self, env: simpy.Environment, router: Router, state: RouterState, admission: Admission,
        transfer: Transfer | None, priorities: Sequence[int], recorder: Recorder, over: Callable[[Request], None],
    ) -> None:
        self.env, self.router, self.state, self.admission, self.transfer = env, router, state, admission, transfer
        self.priorities, self.recorder, self.over = priorities, recorder, over
        self.members: list[Member] = []
        self.parked: list[Request] = []  # nobody is up who could take them
        self._open: dict[bool, tuple[Member, ...]] = {}  # who takes fresh (False) and prefilled requests now
        self.moving: dict[int, Request] = {}
        self.dark_since = inf  # second from which on no engine has been in service

    # -- in ----------------------------------------------------------------------------------------------------
    def submit(self, request: Request) -> None:
        """A request arrives: it is refused, or it goes to an engine."""
        request.priority = self.priorities[request.class_index]
        limit = self.admission.max_queue
        if limit is not None and self.queued() >= limit:
            request.outcome = "refused"
            self._over(request)
            return
        if self.admission.timeout_s is not None:
            request.deadline = self.env.now + self.admission.timeout_s
        self.route(request)

    def queued(self) -> int:
        """Requests that wait for an engine, in all lines."""
        return len(self.parked) + sum(len(m.engine.roster.waiting) for m in self.members if m.engine.up)

    def route(self, request: Request) -> None:
        """Give a request to one of the engines that may take it; park it if there is none."""
        loads = self._open.get(request.prefilled)
        if loads is None:
            loads = self._open[request.prefilled] = tuple(
                m for m in self.members
                if m.engine.up and not m.draining and (m.takes_prefilled if request.prefilled else m.takes_fresh)
            )
        if not loads:
            self.parked.append(request)
            if request.admitted is None and request.deadline < inf:
                self.env.process(self._patience(request))
            return
        try:
            chosen = self.router(request, loads, self.state)
        except Exception as problem:
            raise RunError(f"the router raised {type(problem).__name__}: {problem}") from None
        if not isinstance(chosen, int) or isinstance(chosen, bool) or not 0 <= chosen < len(loads):
            raise RunError(f"the router answered {shown(chosen)}; allowed: 0 to {len(loads) - 1}, an index of loads")
        loads[chosen].engine.submit(request)

    def _patience(self, request: Request) -> Generator[simpy.Event, Any, None]:
        """Somebody who is parked gives up as those in a line do."""
        yield self.env.timeout(max(0.0, request.deadline - self.env.now))
        if request.admitted is None and any(other is request for other in self.parked):
            self.parked = [other for other in self.parked if other is not request]
            request.outcome = "timed_out"
            self._over(request)

    # -- out ---------------------------------------------------------------------------------------------------
    def left(self, request: Request) -> None:
        """An engine has no more to do with a request."""
        if request.prefilled and request.outcome == "unfinished":
            self.moving[request.id] = request
            self.env.process(self._move(request))
        else:
            self._over(request)

    def _over(self, request: Request) -> None:
        self.recorder.request(request, request.engine)
        self.over(request)

    def _move(self, request: Request) -> Generator[simpy.Event, Any, None]:
        assert self.transfer is not None
        size = self.transfer.kv_bytes_per_token * (request.prompt_tokens + request.emitted)
        yield self.env.timeout(self.transfer.latency_ms / 1e3 + size / (self.transfer.bandwidth_gb_s * 1e9))
        del self.moving[request.id]
        self.route(request)

    # -- up and down -------------------------------------------------------------------------------------------
    def stop(self, member: Member) -> None:
        """An engine goes down; whoever was there is served by others, those who ran first."""
        requests = member.engine.stop()
        self.drain(member, False)
        self.recorder.down(member.number, self.env.now)
        if not any(m.engine.up for m in self.members):
            self.dark_since = self.env.now
        for request in requests:
            if request.prefilled:  # its KV had come from another engine and is gone
                request.prefilled = False
                request.requeued += 1
            self.route(request)

    def start(self, member: Member) -> None:
        """An engine is (back) up; whoever was parked gets another chance."""
        member.engine.start()
        self.dark_since = inf
        self._open.clear()
        self.recorder.up(member.number, self.env.now)
        waiting, self.parked = self.parked, []
        for request in waiting:
            self.route(request)

    def drain(self, member: Member, draining: bool) -> None:
        """An engine takes nothing new from now on, or takes requests again."""
        member.draining = draining
        self._open.clear()

    def dark(self) -> str | None:
        """A sentence where nobody is left to serve those who wait, else None."""
        if self.dark_since == inf or not self.parked:
            return None
        return (f"no engine has been in service since second {self.dark_since:g}, and {len(self.parked)} requests wait "
                "for one: let failures end (down_s, mttr_s), or state admission.timeout_s")

    # -- the books ---------------------------------------------------------------------------------------------
    def unfinished(self) -> list[Request]:
        """Everybody still in the cluster, by engine, then on the way, then parked; the engines are empty afterwards."""
        left: list[Request] = []
        for member in self.members:
            running, waiting = member.engine.roster.evict()
            left += running + waiting
        return left + list(self.moving.values()) + self.parked

    def check(self, submitted: int, over: int) -> None:
        """Everybody who came in is over, or still somewhere.

        Raises:
            IntegrityError: a request was lost, or counted twice.
        """
        here = sum(m.outstanding for m in self.members) + len(self.moving) + len(self.parked)
        if submitted != over + here:
            raise IntegrityError(f"cluster: {submitted} requests came, {over} are over and {here} are here")
