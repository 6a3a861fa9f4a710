"""Long-run throughput as a renewal reward, with everything it rests on learned while serving. This project's own.

**Budget.** A step that earns τ tokens in s seconds is a cycle of a renewal process; the best long-run rate λ satisfies
max E[τ − λ s] = 0 (Dinkelbach, Management Science 13, 1967). So a step maximises τ − λ s, λ being the measured tokens
per second, drafter and fixed costs in it, without the seconds that prompts add, which come whatever is decided. Θ of a
single step (``async_global``) admits too much where a prompt makes it long. Few are pooled with past ones, a budget
fills its graph's bucket; a padded engine, which pays for the longest row, gets one length for all.

**Rows that rest** (``draft``). In a closed loop slow requests stay longer, and the time of serving a fixed mix is the
sum over requests of tokens / own rate: each row should maximise its *own* rate, tokens over its own seconds plus an
equal share of the fixed ones. A row drafts if what its drafts have been worth exceeds its share of the drafter's time,
both at the rate of a row that rests. All rest while drafting as a whole does not pay (the limitation that the paper
names). Every ``probe`` steps all draft, to see.

**What is learned** (``learn``). *Confidence*: tokens kept over tokens predicted, by position and level of survival, for
budget and ranking. *Curve*: measured over believed seconds, interpolated between the sizes that occurred; a size that
was padded up costs what the padded one costs, so unknown buckets are found.

Limits: needs a trace with confidence. With right beliefs there is next to nothing to win (docs/ranking.md), and with
``learn: none`` wrong confidences cost more than in ``async_global``, for λ is measured and τ believed.

Lossless: budget, draft lengths and corrections come from steps whose outcome has reached the host; current survivals,
corrected position by position, only rank, and the rank never rises along a row: a joint stopping rule. Overlapped: the
size of the batch is known before drafting; filling it is a ranking on the device.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isnan
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from dspark_sim.curve import FloatArray, StepCost
from dspark_sim.policy import MAX_LAG, BudgetView, EngineSetup, IntArray, StepOutcome, StepView, Timing

# isort: split
from dspark_sim.policy import expected_tokens, top_k_lengths

_BINS = 20  # levels of survival that are corrected apart
_EVERY = 32  # steps between updates of what changes slowly
_POOL = 48  # rows that a budget should rest on
_DOUBT = 8.0  # kept tokens that a level must have seen before they outweigh its position's
_CHEAP = 0.2  # tokens that a row's share of the drafter must cost before rows are looked at one by one
_Table = npt.NDArray[np.float32]
_Mask = npt.NDArray[np.bool_]


class _Confidence:
    """Kept tokens over predicted ones by position and level of survival: a factor for every survival."""

    def __init__(self, G: int) -> None:
        self.size = G * (_BINS + 1)
        self.hits, self.sums = np.zeros(self.size), np.zeros(self.size)
        self.column = (np.arange(G) * (_BINS + 1)).astype(np.int32)
        self.level = np.tile((np.arange(_BINS + 1) + 0.5) / _BINS, G)
        self.factor: _Table | None = None  # None: the drafter can be believed
        self.kept: dict[int, _Table] = {}  # survivals by step, until its outcome is known

    def learn(self, outcome: StepOutcome) -> None:
        """Enter a step whose survivals were kept."""
        if (survival := self.kept.pop(outcome.step, None)) is None:
            return
        position = np.arange(survival.shape[1])
        verified = (position < outcome.verified[:, None]).ravel()
        cell = ((survival * _BINS).astype(np.int32) + self.column).ravel()[verified]
        accepted = (position < outcome.accepted[:, None]).ravel()[verified]
        self.hits += np.bincount(cell, accepted, self.size)
        self.sums += np.bincount(cell, survival.ravel()[verified], self.size)

    def update(self) -> None:
        """New factors from the counts; then the counts fade, so that a drift is followed."""
        hits, sums = (table.reshape(-1, _BINS + 1) for table in (self.hits, self.sums))
        position = (hits.sum(axis=1) + _DOUBT) / (sums.sum(axis=1) + _DOUBT)  # a level not seen is as its position
        factor = (hits + _DOUBT * position[:, None]) / (sums + _DOUBT)
        noise, off = np.sqrt(self.sums * (1 - self.level).clip(0)).sum(), np.abs(self.hits - self.sums).sum()
        self.factor = factor.astype(np.float32).ravel() if off > noise + 0.02 * self.sums.sum() else None
        self.hits, self.sums = 0.9 * self.hits, 0.9 * self.sums

    def corrected(self, survival: _Table) -> _Table:
        """``survival`` times its factors, at most 1; what was not drafted stays 0."""
        if self.factor is None:
            return survival
        cell = (survival * np.float32(_BINS)).astype(np.int32)
        cell += self.column
        out = self.factor.take(cell)
        out *= survival
        return np.minimum(out, np.float32(1.0), out=out)


class _Curve:
    """Seconds of the target's pass by tokens: the belief, corrected by what steps took."""

    def __init__(self, cost: StepCost) -> None:
        self.believed = np.maximum(cost.verify_curve.dense(cost.max_tokens) * cost.scale, 1e-9)
        self.seconds: FloatArray = self.believed
        self.seen: dict[int, tuple[int, float]] = {}  # size -> (the size it was padded to, its seconds)
        self.news = False

    def learn(self, size: int, padded: int, seconds: float) -> None:
        """Enter a step of ``size`` tokens; a noisy engine's seconds are averaged."""
        if not 0 < size <= padded < self.believed.size:
            return
        old = self.seen.get(size)
        new = seconds if old is None else old[1] + 0.3 * (seconds - old[1])
        self.news = self.news or old is None or abs(new - old[1]) > 0.005 * old[1]
        self.seen[size] = (padded, new)

    def update(self) -> None:
        """Rebuild the curve if there is news."""
        if not self.news:
            return
        known = sorted((size, to, taken) for size, (to, taken) in self.seen.items())
        at = np.array([to for _, to, _ in known])
        ratio = np.array([taken for _, _, taken in known]) / self.believed[at]
        self.seconds = self.believed * np.interp(np.arange(self.believed.size), at, ratio)
        for size, to, taken in known:
            self.seconds[size : to + 1] = taken
        self.news = False


@dataclass
class Renewal:
    """Budget by τ − λ s; rows draft where it pays.

    Args:
        lag: decode steps between the confidences that set the budget and the step, at least the engine's ``host_lag``.
        memory: steps that λ remembers, 8 or more.
        learn: what outcomes correct: ``both``, the ``confidence``, the step ``curve``, or ``none``.
        draft: who may rest: single ``rows``, the ``batch`` as a whole, or ``none``.
        probe: steps after which resting rows draft again to see, 2 or more.
        slo_weight: added weight of a row that is twice as slow as its TPOT limit, 0 or more; 0 looks at no limit.
    """

    lag: int = 2
    memory: int = 256
    learn: Literal["both", "confidence", "curve", "none"] = "both"
    draft: Literal["rows", "batch", "none"] = "rows"
    probe: int = 24
    slo_weight: float = 0.0

    lossless: ClassVar[bool] = True
    timing: ClassVar[Timing] = "overlapped"
    needs_confidence: ClassVar[bool] = True

    _cost: StepCost = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name, least in (("lag", 1), ("memory", 8), ("probe", 2), ("slo_weight", 0)):
            value = getattr(self, name)
            if not least <= value <= (MAX_LAG if name == "lag" else np.inf):
                most = f"to {MAX_LAG}" if name == "lag" else "or more"
                raise ValueError(f"{name}: got {value}; allowed: {least} {most}")

    def start(self, setup: EngineSetup) -> None:
        """Forgets everything learned.

        Raises:
            ValueError: confidences reach the host later than ``lag``.
        """
        if self.lag < setup.host_lag:
            raise ValueError(f"lag: got {self.lag}, but confidences reach the host after {setup.host_lag} steps "
                             f"(host_lag); allowed: {setup.host_lag} to {MAX_LAG}")
        G, size, self._cost = setup.block_size, setup.max_num_seqs + 1, setup.cost
        self._padded, self._confidence, self._curve = setup.ragged == "padded", _Confidence(G), _Curve(setup.cost)
        self._tokens = self._seconds = 0.0  # fading sums: λ is their ratio
        self._typical: _Table = np.ones(G, dtype=np.float32)  # survivals of a row without a past
        self._plan, self._planned, self._probed, self._budget = (-1, -1), -1, -1, 0  # what for, and when
        self._drafts: _Mask | None = None  # rows that draft, None for all
        self._weight: FloatArray | None = None
        self._rests, self._patience = False, 1  # the whole batch rests; how many times rarer it is probed
        self._token_price = self._row_price = 0.0  # in tokens: of verifying one, of a row's share of the drafter
        self._worth, self._owner = np.zeros(size), np.full(size, np.nan)

    def draft_lengths(self, view: BudgetView) -> IntArray | int:
        """Who drafts and how far; fixes the budget."""
        step, R, G = view.step, view.requests, view.block_size
        if step % _EVERY == 0 or step in (4, 8, 16):
            self._confidence.update()
            self._curve.update()
        if self.slo_weight:
            self._weight = self._urgency(view)
        probing = step % (self.probe * self._patience) == 0
        # A padded engine verifies a resting row all the same: there rows are not looked at one by one.
        choosy = self.draft == "rows" and not self._padded and self._row_price > _CHEAP
        plan = (R, view.prefill_tokens)
        due = plan != self._plan or step - self._planned > 3 or step == self._probed + self.lag
        if due or probing:
            past, known = self._past(view)
            if choosy:
                self._appraise(view, past, known)
        self._drafts = self._worth[view.slot] >= self._row_price if choosy and not probing else None
        if due or probing:
            self._decide(view, past, known)
            self._plan, self._planned = plan, step
        if probing:
            self._probed = step
        elif self._rests:
            return 0
        return G if self._drafts is None else np.where(self._drafts, G, 0)

    def _past(self, view: BudgetView) -> tuple[_Table, _Mask | None]:
        """(R, G) corrected survivals of ``lag`` steps ago, gaps filled; and which rows had any, None for all."""
        raw = view.past(self.lag)
        if not isnan(raw.ravel().dot(raw.ravel())):
            past = self._confidence.corrected(raw)
            self._typical = self._typical + np.float32(0.1) * (past.mean(axis=0) - self._typical)
            return past, None
        missing = np.isnan(raw)
        past = self._confidence.corrected(np.where(missing, np.float32(0.0), raw))
        return np.where(missing, self._typical, past), ~missing[:, 0]

    def _decide(self, view: BudgetView, past: _Table, known: _Mask | None) -> None:
        """The best budget at this λ, whether drafting pays at all, and what a row must be worth to draft."""
        R, G, cost = view.requests, view.block_size, self._cost
        rate = self._tokens / self._seconds if self._seconds else 0.0  # λ; 0 before anything was seen
        if self._weight is not None:
            past = (past * self._weight[:, None]).astype(np.float32)
        if self._drafts is not None:
            past = past[self._drafts]
        n, first = len(past), R + (view.prefill_tokens if cost.prefill_curve is None else 0)
        if self._padded:  # by width instead of by tokens
            tau = R + np.concatenate(([0.0], past.sum(axis=0).cumsum()))
            seconds = self._curve.seconds[first : first + R * G + 1 : R]
        else:
            tau = self._expected(view, past, known)
            seconds = self._curve.seconds[first : first + n * G + 1]
        tau = tau[: seconds.size]
        fixed = (drafting := cost.draft_seconds(n, G)) + cost.other_seconds(R, view.kv_tokens)
        s = seconds[: tau.size]  # tokens of survival 0 are no candidates
        K = int((tau - rate * s if rate else tau / (s + fixed)).argmax())
        if self.draft != "none" and rate and (known is None or 2 * int(known.sum()) > R):
            self._rests = bool(tau[K] / (s[K] + fixed) < R / (s[0] + fixed - drafting))
            self._patience = min(2 * self._patience, 16) if self._rests else 1
        dearer = seconds[K:] > seconds[K]
        K = K + int(dearer.argmax()) - 1 if dearer.any() else seconds.size - 1  # the edge of its bucket
        self._budget, low, half = K, K // 2, max(R // 2, 1)
        slope = max(float(seconds[K] - seconds[low]), 0.0) / max(K - low, 1)  # below K: above may stand a cliff
        share = (cost.draft_seconds(R, G) - cost.draft_seconds(half, G)) / max(R - half, 1)
        own = (float(seconds[K]) + fixed - slope * (R + K) - share * n) / R  # of the fixed seconds, by row
        alone = 1.0 / (max(own, 1e-9) + slope)  # tokens per second of a row that rests
        self._token_price, self._row_price = alone * slope, alone * share

    def _expected(self, view: BudgetView, past: _Table, known: _Mask | None) -> FloatArray:
        """τ by number of draft tokens; few rows are pooled with those of the steps before."""
        R, tables = view.requests, [past]
        if known is None and self._weight is None and self._drafts is None:
            for n in range(self.lag + 1, min(self.lag + _POOL // R, MAX_LAG) + 1):
                more = view.past(n)
                if isnan(float(more.sum())):
                    break
                tables.append(self._confidence.corrected(more))
        M = len(tables)
        return expected_tokens(past, R) if M == 1 else R + expected_tokens(np.concatenate(tables), 0)[::M] / M

    def _appraise(self, view: BudgetView, past: _Table, known: _Mask | None) -> None:
        """What each row's drafts would have been worth above the price of verifying them."""
        slot, worth = view.slot, self._worth
        new = self._owner[slot] != view.first_token
        if new.any():
            worth[slot[new]], self._owner[slot[new]] = self._row_price + 1.0, view.first_token[new]  # drafts at first
        gain = np.maximum(past - np.float32(self._token_price), np.float32(0.0)).sum(axis=1)
        if known is not None:
            slot, gain = slot[known], gain[known]
        worth[slot] += 0.2 * (gain - worth[slot])

    def _urgency(self, view: BudgetView) -> FloatArray | None:
        """(R,) weights: 1, more for a row slower than its limit."""
        pace = (view.now - view.first_token) / np.maximum(view.emitted - 1, 1)
        late = np.clip(pace / view.tpot_sla - 1.0, 0.0, 1.0)
        return 1.0 + self.slo_weight * late if late.any() else None

    def verify_lengths(self, view: StepView) -> IntArray:
        """(R,) the best tokens of the budget by corrected current survival; one length for all if padded."""
        if self._padded:
            return np.minimum(view.drafted, self._budget)
        survival, confidence = view.survival, self._confidence
        if self.learn in ("both", "confidence") and view.step % (1 + view.requests // 16) == 0:
            confidence.kept[view.step] = survival.copy()
        if confidence.factor is not None:
            survival = confidence.corrected(survival)
            np.minimum.accumulate(survival, axis=1, out=survival)
        if self._weight is not None:
            survival = (survival * self._weight[:, None]).astype(np.float32)
        return top_k_lengths(survival, self._budget)

    def observe(self, outcome: StepOutcome) -> None:
        """Moves λ; notes what was kept, and what the step took."""
        fade = 1.0 - 1.0 / self.memory
        self._tokens = fade * self._tokens + float(outcome.emitted.sum())
        tokens, priced = outcome.batch_tokens - outcome.prefill_tokens, self._cost.verify_seconds
        prompts = priced(tokens, outcome.prefill_tokens) - priced(tokens) if outcome.prefill_tokens else 0.0
        self._seconds = fade * self._seconds + max(outcome.seconds - prompts, 1e-9)
        self._confidence.learn(outcome)  # of steps whose survivals were kept, if any
        if self.learn in ("both", "curve") and (self._cost.prefill_curve is None or not outcome.prefill_tokens):
            longest = outcome.slot.size * (1 + int(outcome.verified.max())) + outcome.prefill_tokens
            size = longest if self._padded else outcome.batch_tokens
            self._curve.learn(size, outcome.padded_tokens, outcome.verify_seconds)
