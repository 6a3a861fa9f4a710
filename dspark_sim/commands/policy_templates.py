"""What ``dspark-sim policy new`` writes: two policies that work, and a test. ``{name}`` and ``{cls}`` are filled in."""

__all__ = ["TEMPLATES", "TEST", "filled"]

_BUDGET = '''"""As many draft tokens as a step of a given size has room for, the likeliest first.

The first line is what `dspark-sim policy list` shows. Say here where the idea comes from and what it assumes.
"""

from __future__ import annotations

from dataclasses import dataclass

from dspark_sim.policy import BudgetPolicy, BudgetView, EngineSetup


@dataclass
class {cls}(BudgetPolicy):
    """A BudgetPolicy decides how many draft tokens the whole batch verifies; the base class spends them on the
    likeliest. It decides before anything is drafted, so it is lossless whatever you write below.

    Args:
        step_tokens: tokens that the target's forward pass should have at most.
    """

    # Fields are parameters: `policy: {{name: {name}, step_tokens: 300}}`.
    # Names and types are checked for you.
    step_tokens: int = 512

    def __post_init__(self) -> None:
        # Begin with the parameter's name, and the user is shown the line of the scenario that it stands in.
        if self.step_tokens < 1:
            raise ValueError(f"step_tokens: got {{self.step_tokens}}; allowed: 1 or more")

    def start(self, setup: EngineSetup) -> None:
        """Once per engine, before its first step. Whatever you remember must be forgotten here."""
        self.cost = setup.cost  # what the policy believes that a step costs: .table(R, prefill, kv), in seconds
        self.rng = setup.rng  # the only randomness you may use: same seed, same result

    def token_budget(self, view: BudgetView) -> int:
        """Once per step, before drafting. `view` is reused: copy what you keep.

        Known here: view.requests (R), prefill_tokens, waiting, kv_tokens, and arrays of length R such as slot, emitted,
        remaining, tpot_sla. view.past(2) has the (R, G) survivals of two steps ago, NaN for requests without a past.
        """
        room = self.step_tokens - view.requests - view.prefill_tokens  # every request has one token of its own
        return max(0, min(room, view.requests * view.block_size))
'''

_FULL = '''"""Verifies a token while it is likely enough to survive, and asks for more when many are thrown away.

The first line is what `dspark-sim policy list` shows. Say here where the idea comes from and what it assumes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dspark_sim.policy import EngineSetup, IntArray, StepOutcome, StepView, Timing


@dataclass
class {cls}:
    """A full policy decides the length of every request, and may look at this step's confidences.

    Args:
        least: survival that a token needs to be verified, as long as half of the verified tokens are kept.
        memory: how slowly the share of kept tokens is forgotten, 0 to 1.
    """

    # Fields are parameters: `policy: {{name: {name}, least: 0.4}}`.
    # Names and types are checked for you.
    least: float = 0.3
    memory: float = 0.95

    # Claims, which `dspark-sim policy check {name}` examines.
    # Lossless: no length may depend on a confidence behind the first token that a request leaves out, its own or
    # another request's.
    lossless: ClassVar[bool] = True
    timing: ClassVar[Timing] = "synchronous"  # waits for this step's confidences; "overlapped": decides from the past
    needs_confidence: ClassVar[bool] = True

    def __post_init__(self) -> None:
        # Begin with the parameter's name, and the user is shown the line of the scenario that it stands in.
        if not 0 < self.least <= 1:
            raise ValueError(f"least: got {{self.least}}; allowed: above 0, to 1")
        if not 0 <= self.memory < 1:
            raise ValueError(f"memory: got {{self.memory}}; allowed: 0 to below 1")

    def start(self, setup: EngineSetup) -> None:
        """Once per engine, before its first step. Whatever you remember must be forgotten here."""
        self._kept = 0.5
        # Also there: setup.block_size, host_lag, cost (seconds of a step, as believed), and rng, the only randomness
        # that you may use.

    # Optional, called before drafting, when nothing of this step is known: tokens that each request drafts.
    # def draft_lengths(self, view: BudgetView) -> IntArray | int:
    #     return view.block_size

    def verify_lengths(self, view: StepView) -> IntArray:
        """Once per step: (R,) whole numbers, 0 to view.drafted. `view` is reused: copy what you keep.

        view.survival is (R, G): the chance that tokens 1..k are all kept. Along a row it never rises.
        """
        bar = min(1.0, self.least * 0.5 / max(self._kept, 0.05))
        lengths: IntArray = (view.survival >= bar).sum(axis=1)
        return lengths

    def observe(self, outcome: StepOutcome) -> None:
        """Optional: what a step did, told `host_lag` steps later."""
        verified = int(outcome.verified.sum())
        if verified:
            share = int(outcome.accepted.sum()) / verified
            self._kept += (1 - self.memory) * (share - self._kept)
'''

TEMPLATES = {"budget": _BUDGET, "full": _FULL}

TEST = '''"""Tests of {name}.py, for pytest."""

from __future__ import annotations

from pathlib import Path

import dspark_sim
from dspark_sim.testing import PolicyContract

FILE = Path(__file__).with_name("{name}.py")


class TestContract(PolicyContract):
    """Contract, claim and greedy decoding: what `dspark-sim policy check` prints, as tests."""

    policy = f"{{FILE}}:{cls}"


def test_runs_in_an_engine() -> None:
    """A short run beside another policy; ask it for what your policy is good at."""
    mine = {{"name": "mine", "drafter": "dspark-5", "policy": f"{{FILE}}:{cls}"}}
    other = {{"name": "all", "drafter": "dspark-5", "policy": {{"name": "fixed", "length": 5}}}}
    results = dspark_sim.run(
        "quickstart",
        overrides={{"arms": [other, mine], "replications": 1, "measure.warmup_s": 1, "measure.duration_s": 2}},
    )
    assert results["mine"].error is None
    budget = results["mine"].figures["verification_budget"].mean
    assert budget is not None
    assert 1 <= budget <= 6
'''


def filled(template: str, **words: str) -> str:
    """A template with its words."""
    return template.format(**words)
