"""The waiting line of an engine: by priority of class, first come first served within it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from dspark_sim.request import Request

__all__ = ["Line"]


class Line:
    """Requests that wait to be admitted.

    A preempted request goes to the head of its own priority. A request that was never admitted may give up
    (``deadline``); one that has begun stays.
    """

    __slots__ = ("_jumbled", "_length", "_queues")

    def __init__(self) -> None:
        self._queues: dict[int, deque[Request]] = {}
        self._length = 0
        self._jumbled = False  # somebody gives up before one further ahead: it came from an engine that failed

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Request]:
        for queue in self._queues.values():
            yield from queue

    def _queue(self, priority: int) -> deque[Request]:
        queue = self._queues.get(priority)
        if queue is None:
            queue = self._queues[priority] = deque()
            self._queues = dict(sorted(self._queues.items(), reverse=True))
        return queue

    def append(self, request: Request) -> None:
        """Behind everybody of its priority."""
        queue = self._queue(request.priority)
        self._jumbled = bool(self._length) and (
            self._jumbled or (bool(queue) and request.deadline < queue[-1].deadline)
        )
        queue.append(request)
        self._length += 1

    def appendleft(self, request: Request) -> None:
        """Before everybody of its priority."""
        self._queue(request.priority).appendleft(request)
        self._length += 1

    def head(self) -> Request:
        """Who is next; the line must not be empty."""
        return next(queue[0] for queue in self._queues.values() if queue)

    def popleft(self) -> Request:
        """Take :meth:`head` out."""
        queue = next(queue for queue in self._queues.values() if queue)
        self._length -= 1
        return queue.popleft()

    def expire(self, now: float) -> list[Request]:
        """Take out those who gave up by ``now``, the longest waiting first."""
        gone: list[Request] = []
        for queue in self._queues.values():
            stays: list[Request] = []
            while queue and (self._jumbled or queue[0].admitted is not None or queue[0].deadline <= now):
                request = queue.popleft()
                (gone if request.admitted is None and request.deadline <= now else stays).append(request)
            queue.extendleft(reversed(stays))
        self._length -= len(gone)
        return gone

    def clear(self) -> list[Request]:
        """Everybody, in order; the line is empty afterwards."""
        everybody = list(self)
        self._queues.clear()
        self._length = 0
        return everybody
