"""How far a replay is off for policies that read unverified tails of earlier rows: solved to the last digit in toys
(tools/replay_exact.py), and for more requests measured with an interval (tools/replay_error.py); docs/method.md."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

TOOLS = Path(__file__).resolve().parent.parent / "tools"
exact: dict[str, Any] = runpy.run_path(str(TOOLS / "replay_exact.py"))
sampled: dict[str, Any] = runpy.run_path(str(TOOLS / "replay_error.py"))


def off(really: float, replayed: float) -> tuple[float, float]:
    """Relative error of accepted tokens per step and of τ."""
    return replayed / really - 1, (1 + replayed) / (1 + really) - 1


@pytest.mark.parametrize("laws", ["STEADY", "SHARP"])
def test_rules_without_tails_are_exact(laws: str) -> None:
    """Always G, and a rule by the current row's first confidence: a stationary law, so every step ever made counts."""
    for choose in (lambda last, now: (3,) * len(now), lambda last, now: tuple(3 if r[0] > 0.6 else 1 for r in now)):
        really, replayed = exact["error"](exact[laws], 3, 1, lambda toy, choose=choose: choose)
        assert abs(off(really, replayed)[0]) < 1e-12


def test_the_real_engine_accepts_what_a_closed_form_says() -> None:
    """One token verified for ever: the anchor is a token of the target's own chain."""
    p, q = exact["SHARP"]
    toy = exact["Toy"](exact["SHARP"], 1, False)
    values, vectors = np.linalg.eig(p.T)
    law = np.real(vectors[:, np.argmax(np.real(values))])
    law /= law.sum()
    at_anchor = np.minimum(p, q).sum(axis=1)
    # anchors are every (1 + accepted)-th token: solve their own chain
    move = np.zeros((2, 2))
    for a in (0, 1):
        for d in (0, 1):
            keep = min(1.0, p[a, d] / q[a, d])
            move[a] += q[a, d] * keep * p[d]
            move[a, 1 - d] += q[a, d] * (1 - keep)
    anchors = np.linalg.solve(np.vstack([(move.T - np.eye(2))[0], np.ones(2)]), [0.0, 1.0])
    assert toy.accepted(1, lambda last, now: (1,)) == pytest.approx(float(anchors @ at_anchor), abs=1e-12)


def test_adversarial_rules_are_off_in_both_directions() -> None:
    """Verify all or nothing by what the last row's tail gives away: the sign is the rule's to choose."""
    for laws, low, high in (("STEADY", -0.110, 0.067), ("SHARP", -0.280, 0.175)):
        found = exact["extremes"](exact[laws], 3)
        worst, best = off(*found["lowest"][1:]), off(*found["highest"][1:])
        assert low - 0.01 < worst[0] < low + 0.01, (laws, worst)
        assert high - 0.01 < best[0] < high + 0.01, (laws, best)
        assert worst[1] < 0 < best[1]


@pytest.mark.parametrize(("laws", "R", "G", "slope"), [
    ("STEADY", 1, 3, 0.909), ("SHARP", 1, 3, 0.582), ("STEADY", 1, 2, 3.469), ("STEADY", 2, 2, 1.421),
])
def test_async_global_is_replayed_within_a_thousandth(laws: str, R: int, G: int, slope: float) -> None:
    """At the step costs where it was worst: elsewhere it verifies all or nothing, and nothing can be off."""
    really, replayed = exact["error"](exact[laws], G, R, lambda toy: exact["async_global"](R, G, slope))
    accepted, length = off(really, replayed)
    assert abs(accepted) < 0.001
    assert abs(length) < 0.001
    if (laws, R) == ("STEADY", 1) and G == 3:
        assert accepted > 0.0001  # an approximation all the same


@pytest.mark.parametrize("R", [4, 16])
def test_async_global_with_more_requests(R: int) -> None:
    """Measured: the error and its interval together stay within three per cent."""
    (a, sa), (b, sb) = (sampled["accepted_per_step"]("async_global lag 1", R, 800, 1 + r, bool(r)) for r in (0, 1))
    assert abs(b / a - 1) < 0.03 + 2 * np.hypot(sa, sb) / a
