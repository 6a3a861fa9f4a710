"""Who sends requests, and when: closed loops and open loops, on one engine or whatever takes requests.

A source stops by itself: after a stated number of requests (``measure: whole_run``), or never.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Protocol

import simpy

from dspark_sim.request import Request
from dspark_sim.workload import RequestStream

__all__ = ["ClosedLoop", "OpenLoop", "Submit", "Traffic"]

Submit = Callable[[Request], None]


class Traffic(Protocol):
    """What :mod:`dspark_sim.simulate` needs of a source."""

    def start(self) -> None: ...
    def finished(self, request: Request) -> None: ...


class ClosedLoop:
    """``concurrency`` users, each with one request at a time.

    Args:
        env, stream, submit: the clock, the requests, where they go.
        concurrency: users.
        think_s: pause between an answer and the user's next request.
        residual: start every user inside a request's life (``measure: steady``), so that they do not march in step.
        limit: requests in all, None for no end.
    """

    def __init__(
        self, env: simpy.Environment, stream: RequestStream, submit: Submit, *, concurrency: int, think_s: float,
        residual: bool, limit: int | None,
    ) -> None:
        self.env, self.stream, self.submit = env, stream, submit
        self.concurrency, self.think_s, self.residual = concurrency, think_s, residual
        self.left = limit

    def start(self) -> None:
        """Send the first requests; called once, before the clock runs."""
        for _ in range(self.concurrency):
            self._send(self.stream.residual if self.residual else self.stream.take)

    def finished(self, request: Request) -> None:
        """A user has the answer and asks again."""
        if self.think_s > 0:
            self.env.process(self._think())
        else:
            self._send(self.stream.take)

    def _think(self) -> Generator[simpy.Event, Any, None]:
        yield self.env.timeout(self.think_s)
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

    def __init__(self, env: simpy.Environment, stream: RequestStream, submit: Submit, *, limit: int | None) -> None:
        self.env, self.stream, self.submit, self.limit = env, stream, submit, limit

    def start(self) -> None:
        """Begin the arrivals; called once, before the clock runs."""
        self.env.process(self._arrive())

    def finished(self, request: Request) -> None:
        """Nothing: nobody waits for an answer before asking."""

    def _arrive(self) -> Generator[simpy.Event, Any, None]:
        for i, when in enumerate(self.stream.arrivals()):
            if i == self.limit:
                return
            if when > self.env.now:
                yield self.env.timeout(when - self.env.now)
            request = self.stream.take()
            request.arrival = self.env.now
            self.submit(request)
