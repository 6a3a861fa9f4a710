"""Policy files that registry tests write, and how they look at a refusal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dspark_sim.errors import PolicyLoadError
from dspark_sim.registry import load_policy

GOOD = '''
"""A file."""
from __future__ import annotations
from dataclasses import dataclass
from typing import ClassVar, Literal
import numpy as np

@dataclass
class Mine:
    """A class."""
    needed: int
    share: float = 0.5
    flag: bool = False
    mode: Literal["fast", "slow", 3] = "fast"
    word: str | None = None
    ladder: tuple[float, ...] = ()
    steps: list[int] | None = None
    lossless: ClassVar[bool] = True
    timing: ClassVar[str] = "overlapped"

    def __post_init__(self):
        if self.needed < 0:
            raise ValueError(f"needed: got {self.needed}; allowed: 0 or more")
        if self.share > 1:
            raise ValueError("a share above 1 makes no sense")
        if self.needed > 99 and self.flag:
            raise ValueError("needed and flag do not go together")

    def verify_lengths(self, view):
        return np.zeros(view.requests, dtype=np.int64)
'''
MINIMAL = '''
class {name}:
    lossless = True
    timing = "overlapped"
    def verify_lengths(self, view):
        return view.drafted.copy()
'''


def refused(reference: Any, parameters: Any = None, base: Path | None = None) -> PolicyLoadError:
    with pytest.raises(PolicyLoadError) as caught:
        load_policy(reference, parameters, base)
    assert "Traceback" not in str(caught.value)
    assert "\n" not in str(caught.value)
    return caught.value
