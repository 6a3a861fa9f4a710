"""State kept between steps: the view of an earlier step, which is the same object as this step's."""

from __future__ import annotations

from typing import Any

from dspark_sim.policy import BudgetPolicy, BudgetView, EngineSetup, IntArray, StepView, expected_tokens


class KeptView(BudgetPolicy):
    """Believes that it reads the previous step's survivals."""

    kept: Any = None

    def start(self, setup: EngineSetup) -> None:
        self.cost, self.kept = setup.cost, None

    def token_budget(self, view: BudgetView) -> int:
        if self.kept is None:
            return 0
        tau = expected_tokens(self.kept.survival, view.requests)
        return int((tau / self.cost.table(view.requests, part="verify")[: tau.size]).argmax())

    def verify_lengths(self, view: StepView) -> IntArray:
        self.kept = view
        return super().verify_lengths(view)
