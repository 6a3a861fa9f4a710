"""What the slow engine shows to policies: the same views as the fast one, built anew in every step from lists."""

from __future__ import annotations

from typing import Any

import numpy as np

from dspark_sim.policy import BudgetView, StepOutcome, StepView
from dspark_sim.request import Request, document_of
from dspark_sim.trace import calibrate

__all__ = ["SlowRows", "SlowText", "budget_view", "outcome_of", "step_view"]


class SlowText:
    """Where requests stand in the trace, and what the arm's policy believes of that place."""

    def __init__(self, setup: Any, pools: list[np.ndarray]) -> None:
        self.trace, self.pools = setup.trace, pools
        self.survival, self.confidence = None, None
        if self.trace is None:
            return
        trace, shift = self.trace, setup.confidence_shift
        self.survival = trace.survival(calibrated=setup.calibrated, shift=shift)
        self.confidence = trace.confidence
        sts = setup.calibrated and (trace.sts_temperature is not None or trace.sts_bias is not None)
        if self.confidence is not None and (sts or shift):
            self.confidence = calibrate(self.confidence, trace.sts_temperature if sts else None,
                                        trace.sts_bias if sts else None, shift)

    def row_of(self, request: Request) -> int:
        """The trace row at which the request drafts: position ``emitted`` of its documents laid end to end."""
        position, n = request.emitted, 0
        while True:
            document = document_of(request.text, n, self.pools[request.class_index])
            start, stop = (int(p) for p in self.trace.document_start[document : document + 2])
            if position < stop - start:
                return start + position
            position -= stop - start
            n += 1

    def survival_of(self, row: int, drafted: int, absent: float) -> np.ndarray:
        """(G,) survivals that the policy sees of one row, ``absent`` where nothing was drafted."""
        out = np.full(self.trace.block_size, absent, dtype=np.float32)
        if self.survival is not None:
            out[:drafted] = self.survival[row, :drafted]
        return out


class SlowRows:
    """The rows that the decoding requests draft in this step."""

    def __init__(self, engine: Any, seats: list[Any]) -> None:
        self.engine, self.seats, self.block_size = engine, seats, engine.G
        self.rows = [engine.text.row_of(seat.request) for seat in seats]
        self.drafted: list[int] = [0] * len(seats)

    def _masked(self, table: Any) -> np.ndarray | None:
        """(R, G) of the rows of a (P, G) table, 0 where nothing was drafted."""
        if table is None:
            return None
        out = np.zeros((len(self.rows), self.block_size), dtype=np.float32)
        for r, (row, n) in enumerate(zip(self.rows, self.drafted, strict=True)):
            out[r, :n] = table[row, :n]
        out.flags.writeable = False
        return out

    def confidence(self) -> np.ndarray | None:
        return self._masked(self.engine.text.confidence)

    def survival(self) -> np.ndarray | None:
        if self.engine.trace.confidence is None:
            return None
        pairs = zip(self.rows, self.drafted, strict=True)
        out = np.array([self.engine.text.survival_of(row, n, 0.0) for row, n in pairs], dtype=np.float32)
        out.flags.writeable = False
        return out

    def draft_probability(self) -> np.ndarray | None:
        return self._masked(self.engine.trace.draft_probability)

    def oracle(self) -> np.ndarray:
        kept = [int(self.engine.trace.accepted[row]) for row in self.rows]
        return np.array([min(k, n) for k, n in zip(kept, self.drafted, strict=True)], dtype=np.int64)

    def past(self, n: int) -> np.ndarray:
        blank = np.full(self.block_size, np.nan, dtype=np.float32)
        out = np.array([seat.history[-n] if len(seat.history) >= n else blank for seat in self.seats], dtype=np.float32)
        out.flags.writeable = False
        return out


def _fill(view: BudgetView, engine: Any, seats: list[Any], rows: SlowRows, facts: dict[str, Any]) -> None:
    for name, value in facts.items():
        setattr(view, name, value)
    view.requests, view.host_lag, view._rows = len(seats), engine.config.host_lag, rows
    columns: dict[str, tuple[Any, Any]] = {
        "slot": (np.int64, [s.slot for s in seats]),
        "request_class": (np.int64, [s.request.class_index for s in seats]),
        "context": (np.int64, [s.context for s in seats]),
        "emitted": (np.int64, [s.request.emitted for s in seats]),
        "remaining": (np.int64, [s.request.output_tokens - s.request.emitted for s in seats]),
        "arrival": (np.float64, [s.request.arrival for s in seats]),
        "first_token": (np.float64, [s.request.first_token for s in seats]),
        "tpot_sla": (np.float64, [engine.tpot_sla[s.request.class_index] for s in seats]),
    }
    for name, (dtype, values) in columns.items():
        array = np.array(values, dtype=dtype)
        array.flags.writeable = False
        setattr(view, name, array)


def budget_view(engine: Any, seats: list[Any], rows: SlowRows, facts: dict[str, Any]) -> BudgetView:
    """What ``draft_lengths`` may know."""
    view = BudgetView()
    _fill(view, engine, seats, rows, facts)
    return view


def step_view(engine: Any, seats: list[Any], rows: SlowRows, facts: dict[str, Any]) -> StepView:
    """What ``stop_drafting`` and ``verify_lengths`` may know."""
    view = StepView()
    _fill(view, engine, seats, rows, facts)
    view.drafted = np.array(rows.drafted, dtype=np.int64)
    view.drafted.flags.writeable = False
    view._oracle_allowed = bool(getattr(engine.policy, "needs_oracle", False)) and not engine.policy.lossless
    return view


def outcome_of(number: int, columns: dict[str, Any], step: dict[str, Any]) -> StepOutcome:
    """What ``observe`` is told of decode step ``number``: a column per fact, and the step's row of the table."""
    out = StepOutcome()
    out.step = number
    for name, values in columns.items():
        setattr(out, name, np.array(values, dtype=np.bool_ if name == "finished" else np.int64))
    out.draft_seconds, out.schedule_seconds = step["draft_s"], step["schedule_s"]
    out.verify_seconds, out.other_seconds = step["verify_s"], step["other_s"]
    for name in ("batch_tokens", "padded_tokens", "prefill_tokens"):
        setattr(out, name, step[name])
    return out
