"""Who sends requests, and when: closed loops, open loops and sessions, to one engine or whatever takes requests.

A source stops by itself: after a stated number of requests (``measure: whole_run``), at the end of a log, or never.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Protocol

import simpy

from dspark_sim.replay import ReplayStream
from dspark_sim.request import Request
from dspark_sim.scenario_schema import Closed, Measure, Replay, Sessions, Workload
from dspark_sim.sessions import Session, SessionStream
from dspark_sim.workload import RequestStream

__all__ = ["ClosedLoop", "OpenLoop", "SessionLoop", "Submit", "Traffic", "make_traffic"]

Submit = Callable[[Request], None]


class Traffic(Protocol):
    """What :mod:`dspark_sim.simulate` needs of a source.

    ``total`` is the number of requests that it will send in all, None if it never ends by itself.
    """

    total: int | None

    def start(self) -> None: ...
    def finished(self, request: Request) -> None: ...


def make_traffic(
    env: simpy.Environment, workload: Workload, measure: Measure, seed: int, replication: int, submit: Submit
) -> Traffic:
    """The source of one replication.

    Args:
        env, submit: the clock, and where requests go.
        workload, measure, seed: of the scenario.
        replication: 0, 1, 2, …
    """
    arrival = workload.arrival
    steady = measure.mode == "steady"
    limit = None if measure.mode == "steady" or measure.requests == "all" else measure.requests
    if isinstance(arrival, Replay):
        return OpenLoop(env, ReplayStream(workload, seed, replication), submit, limit=limit)
    if isinstance(arrival, Sessions):
        return SessionLoop(env, SessionStream(workload, seed, replication), submit, limit=limit)
    stream = RequestStream(workload, seed, replication)
    if isinstance(arrival, Closed):
        return ClosedLoop(env, stream, submit, concurrency=arrival.concurrency, think_s=arrival.think_time_s,
                          think_steps=arrival.think_steps,
                          residual=steady, limit=limit)
    return OpenLoop(env, stream, submit, limit=limit)


class ClosedLoop:
    """``concurrency`` users, each with one request at a time.

    Args:
        env, stream, submit: the clock, the requests, where they go.
        concurrency: users.
        think_s: pause between an answer and the user's next request.
        think_steps: further pause, in mean steps of the request that just ended.
        residual: start every user inside a request's life (``measure: steady``), so that they do not march in step.
        limit: requests in all, None for no end.
    """

    def __init__(
        self, env: simpy.Environment, stream: RequestStream, submit: Submit, *, concurrency: int, think_s: float,
        residual: bool, limit: int | None, think_steps: float = 0.0,
    ) -> None:
        self.env, self.stream, self.submit = env, stream, submit
        self.concurrency, self.think_s, self.residual = concurrency, think_s, residual
        self.left: int | None = limit
        self.total: int | None = limit
        self.think_steps = think_steps

    def start(self) -> None:
        """Send the first requests; called once, before the clock runs."""
        for _ in range(self.concurrency):
            self._send(self.stream.residual if self.residual else self.stream.take)

    def finished(self, request: Request) -> None:
        """A user has the answer and asks again."""
        pause = self.think_s
        if self.think_steps and request.steps and request.first_token is not None and request.finished is not None:
            pause += self.think_steps * (request.finished - request.first_token) / request.steps
        if pause > 0:
            self.env.process(self._think(pause))
        else:
            self._send(self.stream.take)

    def _think(self, pause: float) -> Generator[simpy.Event, Any, None]:
        yield self.env.timeout(pause)
        self._send(self.stream.take)

    def _send(self, take: Callable[[], Request]) -> None:
        if self.left is not None:
            if self.left == 0:
                return
            self.left -= 1
        request = take()
        request.arrival = self.env.now
        self.submit(request)


class OpenLoop:
    """Requests that arrive whether or not earlier ones are done.

    Args:
        env, stream, submit: the clock, the requests, where they go.
        limit: requests in all, None for no end.
    """

    def __init__(
        self, env: simpy.Environment, stream: RequestStream | ReplayStream, submit: Submit, *, limit: int | None
    ) -> None:
        self.env, self.stream, self.submit = env, stream, submit
        self.total: int | None = limit
        if isinstance(stream, ReplayStream):
            self.total = stream.total if limit is None else min(limit, stream.total)

    def start(self) -> None:
        """Begin the arrivals; called once, before the clock runs."""
        self.env.process(self._arrive())

    def finished(self, request: Request) -> None:
        """Nothing: nobody waits for an answer before asking."""

    def _arrive(self) -> Generator[simpy.Event, Any, None]:
        for i, when in enumerate(self.stream.arrivals()):
            if i == self.total:
                return
            if when > self.env.now:
                yield self.env.timeout(when - self.env.now)
            request = self.stream.take()
            request.arrival = self.env.now
            self.submit(request)


class SessionLoop:
    """Sessions that begin whether or not earlier ones are over; inside each, a turn waits for the answer before it.

    A session ends with a turn that was refused or timed out: the next one would build on an answer that never came.
    With a limit the turns of the first sessions are sent, as many as it says; so the requests are the same ones in
    every arm, whatever the order in which they come, but for the rest of sessions that ended early.

    Args:
        env, stream, submit: the clock, the sessions, where their turns go.
        limit: requests in all, None for no end.
    """

    def __init__(self, env: simpy.Environment, stream: SessionStream, submit: Submit, *, limit: int | None) -> None:
        self.env, self.stream, self.submit = env, stream, submit
        self.total: int | None = limit
        self.limit = limit
        self.unsent = 0  # turns of sessions that ended early
        self.open: dict[int, Session] = {}
        self.cut = 0  # turns that max_context left out, of the sessions that began

    def start(self) -> None:
        """Begin the arrivals of sessions; called once, before the clock runs."""
        self.env.process(self._begin())

    def finished(self, request: Request) -> None:
        """An answer is there; the next turn comes when the user has thought."""
        assert request.session is not None
        session = self.open[request.session]
        k = request.id - session.first_id + 1
        if k == len(session.turns) or session.first_id + k == self.limit:
            del self.open[session.number]
        elif session.turns[k].think > 0:
            self.env.process(self._think(session, k))
        else:
            self._send(session, k)

    def gone(self, request: Request) -> None:
        """A turn was refused or timed out: its session is over, and its other turns are never sent."""
        assert request.session is not None
        session = self.open.pop(request.session)
        end = session.first_id + len(session.turns)
        rest = (end if self.limit is None else min(end, self.limit)) - request.id - 1
        self.unsent += rest
        if self.total is not None:
            self.total -= rest

    def _begin(self) -> Generator[simpy.Event, Any, None]:
        for when in self.stream.arrivals():
            session = self.stream.take()
            if self.limit is not None and session.first_id >= self.limit:
                return
            if when > self.env.now:
                yield self.env.timeout(when - self.env.now)
            self.open[session.number] = session
            self.cut += session.cut
            self._send(session, 0)

    def _think(self, session: Session, k: int) -> Generator[simpy.Event, Any, None]:
        yield self.env.timeout(session.turns[k].think)
        self._send(session, k)

    def _send(self, session: Session, k: int) -> None:
        request = session.request(k)
        request.arrival = self.env.now
        self.submit(request)
