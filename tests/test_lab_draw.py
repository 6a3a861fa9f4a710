"""Drawing from a target's logits: it follows the softmax, and inverts the distribution function exactly."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import chi2

from dspark_sim.lab.sample import draw


@pytest.mark.parametrize(("vocabulary", "temperature"), [(37, 1.0), (512, 1.0), (1400, 0.6)])
def test_draws_follow_the_softmax(vocabulary: int, temperature: float) -> None:
    n = 20_000
    logits = 2 * torch.randn(1, vocabulary, generator=torch.Generator().manual_seed(3))
    drawn = draw(logits.expand(n, -1), temperature, torch.Generator().manual_seed(4))
    expected = n * torch.softmax(logits[0].double() / temperature, 0).numpy()
    seen = np.bincount(drawn.numpy(), minlength=vocabulary)
    rare = expected < 5  # together one more bin
    want, got = np.append(expected[~rare], expected[rare].sum()), np.append(seen[~rare], seen[rare].sum())
    want, got = want[want > 0], got[want > 0]
    assert ((got - want) ** 2 / want).sum() < chi2.ppf(0.999, len(want) - 1)


class Points:
    """Stands for torch.rand in ``draw``: the points at which the distribution function is inverted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, points: list[float]) -> None:
        monkeypatch.setattr(torch, "rand", lambda *a, **k: torch.tensor(points, dtype=torch.float64)[:, None])


def test_the_inverse_is_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights 1, 0, 2, 1 at tokens 0, 1, 511, 600 of 700: a point falls on the token whose share it lies in."""
    logits = torch.full((700,), -torch.inf)
    logits[0], logits[511], logits[600] = 0.0, float(np.log(2.0)), 0.0
    points = [0.0, 0.2499, 0.2501, 0.7499, 0.7501, 1 - 2**-53]
    Points(monkeypatch, points)
    drawn = draw(logits.expand(len(points), -1), 1.0, torch.Generator())
    assert drawn.tolist() == [0, 0, 511, 511, 600, 600]


def test_nothing_of_weight_zero_is_ever_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    logits = torch.full((1030,), -torch.inf)
    logits[513] = 0.0
    points = [0.0, 0.5, 1 - 2**-53]
    Points(monkeypatch, points)
    assert draw(logits.expand(3, -1), 1.0, torch.Generator()).tolist() == [513] * 3


def test_temperature_zero_takes_the_first_of_the_best() -> None:
    logits = torch.tensor([[0.0, 3.0, 3.0, 1.0], [5.0, 0.0, 0.0, 5.0]])
    assert draw(logits, 0, torch.Generator()).tolist() == [1, 0]
