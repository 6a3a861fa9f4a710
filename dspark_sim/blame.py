"""What a policy did wrong, in one line: what was raised, and where in the policy's own file.

Called by whoever calls policies: the engine's :mod:`dspark_sim.decide` and the stage of ``policy check``.
"""

from __future__ import annotations

import dis
import sys
import traceback

from dspark_sim.errors import shown
from dspark_sim.guard import Overdue, limit_s

__all__ = ["HANGS", "described", "is_interrupt", "one_line", "raised_at", "what_happened", "written_at"]

_RAISE = dis.opmap["RAISE_VARARGS"]
_LONGEST = 300
HANGS = "had not answered"


def is_interrupt(error: BaseException) -> bool:
    """Whether this is the user's Ctrl-C, which no policy may swallow, and no ``raise KeyboardInterrupt`` of its own.

    A signal's exception appears where the interpreter looks for signals, never at a ``raise``.
    """
    if not isinstance(error, KeyboardInterrupt):
        return False
    deepest = error.__traceback__
    while deepest is not None and deepest.tb_next is not None:
        deepest = deepest.tb_next
    if deepest is None or deepest.tb_lasti < 0:
        return True
    code = deepest.tb_frame.f_code.co_code
    return not (code[deepest.tb_lasti] == _RAISE and code[deepest.tb_lasti + 1] > 0)


def what_happened(error: BaseException) -> str:
    """``raised ValueError: …``, or that there was no answer in time."""
    if isinstance(error, Overdue):
        return f"{HANGS} after {limit_s():g} s"
    text = one_line(error)
    return f"raised {type(error).__name__}" + (f": {text}" if text else "")


def raised_at(error: BaseException, policy: object) -> str:
    """``file:line`` of the deepest frame in the policy's own files, else of the deepest frame."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return written_at(policy)
    files = _files(policy)
    own = [f for f in frames if f.filename in files]
    frame = (own or frames)[-1]
    return f"{frame.filename}:{frame.lineno}"


def written_at(method: object) -> str:
    """``file:line`` of a method; "" for what is no Python function."""
    code = getattr(getattr(method, "__func__", method), "__code__", None)
    return "" if code is None else f"{code.co_filename}:{code.co_firstlineno}"


def described(answer: object) -> str:
    """An answer that is no array of whole numbers, short; never raises."""
    shape, dtype = getattr(answer, "shape", None), getattr(answer, "dtype", None)
    if type(answer).__module__ == "numpy" and isinstance(shape, tuple) and shape:
        return f"shape {shape} of {dtype}"
    try:
        text = " ".join(shown(answer).split())
    except Exception:  # somebody's own __repr__
        text = f"a {type(answer).__name__}"
    return f"{text}, of shape ()" if isinstance(answer, (int, float)) or shape == () else text


def one_line(error: object) -> str:
    """``str(error)`` in one line, cut when long; never raises."""
    try:
        text = " ".join(str(error).split())
    except Exception:
        return "(its text cannot be shown)"
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _files(policy: object) -> set[str]:
    """Files of a policy's class and of its bases, ours left out."""
    names = {c.__module__ for c in type(policy).__mro__ if not c.__module__.startswith("dspark_sim.")}
    modules = map(sys.modules.get, names)
    return {file for m in modules if m is not None and isinstance(file := getattr(m, "__file__", None), str)}
