"""Processes that run contestants, each task within a limit of wall-clock time; a hanging policy loses only its arm."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from queue import SimpleQueue
from typing import Any

__all__ = ["Pool"]

Answer = Mapping[str, Any]


class _Worker:
    """One child process; started with its first task, and again after it had to be ended."""

    def __init__(self) -> None:
        self.child: subprocess.Popen[bytes] | None = None

    def ask(self, task: Mapping[str, Any], limit: float) -> dict[str, Any]:
        """The child's answer; an error after ``limit`` seconds, or when the child dies."""
        if self.child is None:
            self.child = self._start()
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        try:
            self.child.stdin.write(json.dumps(task).encode() + b"\n")
            self.child.stdin.flush()
            text, deadline = b"", time.monotonic() + limit
            while not text.endswith(b"\n"):
                left = deadline - time.monotonic()
                if left <= 0 or not select.select([self.child.stdout], [], [], left)[0]:
                    self.stop()
                    return {"error": f"took longer than {limit:g} s for one replication and was ended", "fatal": True}
                piece = os.read(self.child.stdout.fileno(), 1 << 16)
                if not piece:
                    raise BrokenPipeError
                text += piece
        except OSError:
            code = self.child.wait()
            self.child = None
            return {"error": f"its process ended with code {code} (a crash, or out of memory)", "fatal": True}
        answer: dict[str, Any] = json.loads(text)
        return answer

    @staticmethod
    def _start() -> subprocess.Popen[bytes]:
        package = Path(__file__).resolve().parent.parent
        path = os.pathsep.join(p for p in (str(package), os.environ.get("PYTHONPATH")) if p)
        threads = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "dspark_sim.rank_worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env=os.environ | threads | {"PYTHONPATH": path}, start_new_session=True,  # Ctrl-C is the parent's to handle
        )

    def stop(self) -> None:
        """End the child, whatever it does."""
        if self.child is not None:
            self.child.kill()
            self.child.wait()
            for pipe in (self.child.stdin, self.child.stdout):
                if pipe is not None:
                    pipe.close()
            self.child = None


class Pool:
    """``jobs`` workers; a context manager.

    Args:
        jobs: processes at a time.
        limit: seconds that one task may take.
    """

    def __init__(self, jobs: int, limit: float) -> None:
        self.limit = limit
        self._workers = [_Worker() for _ in range(jobs)]
        self._idle: SimpleQueue[_Worker] = SimpleQueue()
        for worker in self._workers:
            self._idle.put(worker)
        self._threads = ThreadPoolExecutor(jobs)

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        for worker in self._workers:
            worker.stop()

    def run(
        self, tasks: Sequence[tuple[Any, Mapping[str, Any]]], skip: Callable[[Any], str | None]
    ) -> Iterator[tuple[Any, Answer]]:
        """Answers as they come.

        Args:
            tasks: (key, task) pairs.
            skip: asked just before a task starts: a reason not to run it, or None.
        """
        def one(key: Any, task: Mapping[str, Any]) -> tuple[Any, Answer]:
            worker = self._idle.get()
            try:
                reason = skip(key)
                return key, ({"error": reason} if reason is not None else worker.ask(task, self.limit))
            finally:
                self._idle.put(worker)

        left: set[Future[tuple[Any, Answer]]] = {self._threads.submit(one, key, task) for key, task in tasks}
        while left:
            done, left = wait(left, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)
