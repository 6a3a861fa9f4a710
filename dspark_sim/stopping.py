"""Ctrl-C, SIGTERM and a terminal that is closed: all three end the work and keep what is finished.

Python raises ``KeyboardInterrupt`` for Ctrl-C alone; inside :func:`obeyed`, which is around every command, the other
two do the same. Blocks that must not end half way are :func:`undisturbed` or :func:`unstoppable`.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["exit_code", "keeping_handlers", "obeyed", "undisturbed", "unstoppable"]

_OTHERS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))
_heard: list[int] = []  # the first of the other signals, since the command began


def exit_code() -> int:
    """What shells expect of a program that a signal ended: 130 after Ctrl-C, 143 after SIGTERM, 129 after SIGHUP."""
    return 128 + (_heard[0] if _heard else signal.SIGINT)


def _stop(number: int, frame: FrameType | None) -> None:
    _heard.append(number)
    signal.default_int_handler(number, frame)  # not "raise": a policy that raises KeyboardInterrupt is told by that


@contextmanager
def obeyed() -> Iterator[None]:
    """SIGTERM and SIGHUP act like Ctrl-C, unless somebody else handles or ignores them (``nohup``)."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _heard.clear()
    mine = [number for number in _OTHERS if signal.getsignal(number) == signal.SIG_DFL]
    for number in mine:
        signal.signal(number, _stop)
    try:
        yield
    finally:
        for number in mine:
            if signal.getsignal(number) == _stop:
                signal.signal(number, signal.SIG_DFL)


@contextmanager
def keeping_handlers() -> Iterator[None]:
    """Around libraries that install handlers of their own (ray does for SIGTERM): afterwards they are as before."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, *_OTHERS)}
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None and signal.getsignal(number) != handler:
                signal.signal(number, handler)


def _ours() -> list[int]:
    return [signal.SIGINT, *(number for number in _OTHERS if signal.getsignal(number) == _stop)]


@contextmanager
def undisturbed() -> Iterator[None]:
    """Ctrl-C waits until the block is done: half a row group would spoil the whole file."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pressed: list[int] = []
    before = {number: signal.signal(number, lambda number, frame: pressed.append(number)) for number in _ours()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if pressed:
            _heard.extend(number for number in pressed if number != signal.SIGINT)
            raise KeyboardInterrupt


@contextmanager
def unstoppable() -> Iterator[None]:
    """Ctrl-C is not heard: the second of two would throw away what the first was to keep. For blocks of a moment."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in _ours()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
