"""Other people's code at arm's length: it may print and hang, and the run goes on.

While code of a policy is :func:`supervised`, what it prints to stdout goes to stderr under its arm's name (the first
lines of it), and a watchdog thread looks now and then at the stack. Where it finds the same call of a
:func:`watched` function as for the last ``limit`` seconds, it breaks the call with :class:`Overdue`. Nothing is done
per call, so a decision costs what it cost before.

In the main thread a signal breaks the call (SIGALRM, where nobody else uses it): endless loops, sleeps and reads, in
the end even those that swallow every exception. Elsewhere an exception is set in the thread: endless loops of Python.
Native code that does not return to Python cannot be broken by either; the watchdog says so on stderr and the user has
to end the process.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any, ParamSpec, TypeVar

from dspark_sim.aside import aside

__all__ = ["DEFAULT_LIMIT_S", "LIMIT_VARIABLE", "Overdue", "asked", "limit_s", "limited", "stragglers", "supervised",
           "watched"]

P = ParamSpec("P")
T = TypeVar("T")

LIMIT_VARIABLE = "DSPARK_SIM_DECISION_TIMEOUT"  # in the environment, so that worker processes of a sweep have it too
DEFAULT_LIMIT_S = 30.0
_watched: set[CodeType] = set()
_here = threading.local()
_left: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


class Overdue(BaseException):
    """Raised inside a call that took too long. No ``Exception``, so that ``except Exception`` does not swallow it."""


def watched(function: Callable[P, T]) -> Callable[P, T]:
    """Marks a function of ours whose every call is other people's code and must not last longer than the limit."""
    _watched.add(function.__code__)
    return function


@watched
def asked(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """``call(...)``, watched: for code that runs before there is an engine (importing, constructing)."""
    return call(*args, **kwargs)


def limit_s() -> float:
    """Wall-clock seconds that one call may last, 0 for no limit; nonsense in the environment means the default."""
    try:
        limit = float(os.environ.get(LIMIT_VARIABLE, ""))
    except ValueError:
        return DEFAULT_LIMIT_S
    return limit if 0 <= limit < 1e9 else DEFAULT_LIMIT_S


@contextmanager
def limited(seconds: float | None) -> Iterator[None]:
    """Another limit for this process and those that it starts; None leaves it as it is."""
    before = os.environ.get(LIMIT_VARIABLE)
    if seconds is not None:
        os.environ[LIMIT_VARIABLE] = repr(float(seconds))
    try:
        yield
    finally:
        if seconds is not None:
            os.environ.pop(LIMIT_VARIABLE, None)
            if before is not None:
                os.environ[LIMIT_VARIABLE] = before


@contextmanager
def supervised(label: str) -> Iterator[None]:
    """Everything inside may call other people's code. Inside another supervised block it does nothing.

    Args:
        label: the arm, or the file: stands before what is printed.
    """
    if getattr(_here, "busy", False):
        yield
        return
    _here.busy = True
    before, folder = set(threading.enumerate()), _folder()
    watch = _Watch(label, limit_s())
    try:
        with aside(label):
            watch.start()
            try:
                yield
            finally:
                watch.stop()
    finally:
        _here.busy = False
        if folder is not None and _folder() != folder:  # the next arm, and the run folder, start where this one did
            os.chdir(folder)
        new = [t for t in threading.enumerate() if t not in before and t is not watch.thread and not t.daemon]
        _left.update(new)


def stragglers() -> list[str]:
    """Names of threads that supervised code has started, that still run, and that would keep the process alive."""
    return sorted(thread.name for thread in _left if thread.is_alive())


def _folder() -> str | None:
    try:
        return os.getcwd()
    except OSError:  # removed
        return None


class _Watch:
    """The watchdog of one supervised block."""

    def __init__(self, label: str, limit: float) -> None:
        self.label, self.limit = label, limit
        self.target = threading.get_ident()
        self.thread: threading.Thread | None = None
        self.done = threading.Event()
        self.overdue: FrameType | None = None
        self.by_signal, self.by_exception = False, False
        self.rings = 0

    def start(self) -> None:
        if not self.limit:
            return
        if threading.current_thread() is threading.main_thread() and hasattr(signal, "pthread_kill"):
            self.by_signal = signal.getsignal(signal.SIGALRM) == signal.SIG_DFL
            if self.by_signal:
                signal.signal(signal.SIGALRM, self._ring)
        self.thread = threading.Thread(target=self._look, name="dspark-sim watchdog", daemon=True)
        self.thread.start()

    def stop(self) -> None:
        if self.thread is None:
            return
        while True:  # an exception that was set at the last moment comes out here, late
            try:
                self.overdue = None
                self.done.set()
                self.thread.join()
                if self.by_exception:
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self.target), None)
                break
            except Overdue:
                continue
        if self.by_signal:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
        if sys.gettrace() is _no_trace:
            sys.settrace(None)

    def _look(self) -> None:
        """The watchdog's life: the same call at every look until their intervals add up to the limit."""
        interval = min(1.0, self.limit / 4)
        looks, enough, last = 0, round(self.limit / interval), None
        while not self.done.wait(interval):
            call = self._call()
            looks = looks + 1 if call is not None and call is last else 0
            last = call
            if call is not None and looks >= enough:  # again at every look, should the call swallow it
                if looks == 2 * enough + 1:
                    print(f"[{self.label}] a call has lasted {2 * self.limit:g} s and cannot be broken: it is in "
                          "native code that does not come back to Python; end the process to end it",
                          file=sys.stderr, flush=True)
                self._break(call)
            call = None

    def _call(self) -> FrameType | None:
        """The watched call that the thread is in, if any."""
        frame = sys._current_frames().get(self.target)
        while frame is not None and frame.f_code not in _watched:
            frame = frame.f_back
        return frame

    def _break(self, call: FrameType) -> None:
        if self.by_signal:
            self.overdue = call
            signal.pthread_kill(self.target, signal.SIGALRM)
        elif self._call() is call:
            self.by_exception = True
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self.target), ctypes.py_object(Overdue))

    def _ring(self, number: int, frame: FrameType | None) -> Any:
        """The signal's handler: raises if the call that was too long is still under way."""
        inside = []
        while frame is not None and frame is not self.overdue:
            inside.append(frame)
            frame = frame.f_back
        if frame is None:
            return
        self.rings += 1
        if self.rings > 2 and sys.gettrace() is None:  # it swallows what is raised: raise at every line from now on
            for frame in inside:
                frame.f_trace = _raise_overdue
            sys.settrace(_no_trace)
        raise Overdue


def _no_trace(frame: FrameType, event: str, argument: Any) -> None:
    """Lets new frames be; frames that have a trace function of their own keep it."""


def _raise_overdue(frame: FrameType, event: str, argument: Any) -> Any:
    if event == "exception":  # told where it was raised, inside the try; the next line is outside
        return _raise_overdue
    raise Overdue
