"""An async_global with lag 0: the budget is set by confidences of the very step that it is for."""

from __future__ import annotations

from dspark_sim.policy import BudgetPolicy, BudgetView, EngineSetup, expected_tokens


class AsyncLagZero(BudgetPolicy):
    """Reads the current survivals where only past ones exist."""

    def start(self, setup: EngineSetup) -> None:
        self.cost = setup.cost

    def token_budget(self, view: BudgetView) -> int:
        tau = expected_tokens(view.survival, view.requests)  # type: ignore[attr-defined]
        return int((tau / self.cost.table(view.requests, part="verify")[: tau.size]).argmax())
