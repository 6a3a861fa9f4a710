"""The user's view of one replication: the requests that finished in the window, their speed, latencies and SLAs.

N requests. Percentiles interpolate linearly between ranks (numpy's ``linear``). Undefined is None, never NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from dspark_sim.curve import FloatArray
from dspark_sim.request import OUTCOMES

if TYPE_CHECKING:
    from dspark_sim.scenario import Scenario
    from dspark_sim.scenario_schema import RequestClass
    from dspark_sim.simulate import ArmRun

__all__ = ["Measured", "UserView", "in_ms", "product", "ratio"]

Measured: TypeAlias = dict[str, float | None]


class UserView:
    """The requests that finished inside the window, (N,) columns.

    ``skipped`` marks requests that were in mid-life when the simulation began: their arrival is not known, so they
    take part in TPS and TPOT (measured from time 0 on), but not in TTFT, E2E or in SLAs that limit those.
    """

    def __init__(
        self, run: ArmRun, scenario: Scenario, window: tuple[float, float] | None, only: str | None = None
    ) -> None:
        table = run.requests
        finished = np.asarray(table["finished"].to_numpy(), dtype=np.float64)  # null becomes NaN: never inside
        inside = np.isfinite(finished)
        if window is not None:
            inside &= (finished > window[0]) & (finished <= window[1])
        self.class_names = [c.name for c in scenario.workload.classes]
        names, outcome = _codes(table["class"], self.class_names), _codes(table["outcome"], OUTCOMES)
        wanted = None if only is None else self.class_names.index(only)
        refused, gave_up = OUTCOMES.index("refused"), OUTCOMES.index("timed_out")
        came = np.asarray(table["arrival"].to_numpy(), dtype=np.float64)
        lost = (outcome == refused) | (outcome == gave_up)
        if window is not None:
            lost &= (came > window[0]) & (came <= window[1])
        if wanted is not None:
            lost &= names == wanted
        self.refused = int((lost & (outcome == refused)).sum())
        self.timed_out = int((lost & (outcome == gave_up)).sum())
        self._lost = names[lost]
        if wanted is not None:
            inside &= names == wanted

        def column(name: str) -> FloatArray:
            return np.asarray(table[name].to_numpy(), dtype=np.float64)[inside]

        self.prompt, self.output, self.skipped = column("prompt_tokens"), column("output_tokens"), column("skipped")
        self.preemptions, self.requeued = column("preemptions"), column("requeued")
        self.cached, self.recomputed = column("cached_tokens"), column("recomputed_tokens")
        # prompt tokens that were looked up in a prefix cache: once more after every preemption and failure
        self.looked_up = float((self.prompt * (1.0 + self.preemptions + self.requeued)).sum())
        arrival, first, done = column("arrival"), column("first_token"), finished[inside]
        self.first_arrival = float(np.nanmin(arrival)) if arrival.size else 0.0
        self.last_finish = float(done.max()) if done.size else 0.0
        after_first = self.output - np.maximum(1.0, self.skipped)
        decoding = done - first
        with np.errstate(divide="ignore", invalid="ignore"):
            self.tps = np.where((after_first > 0) & (decoding > 0), after_first / decoding, np.nan)
        self.tpot = 1.0 / self.tps
        known = self.skipped == 0
        self.ttft = np.where(known, first - arrival, np.nan)
        self.e2e = np.where(known, done - arrival, np.nan)
        self._judge([c for c in scenario.workload.classes if only in (None, c.name)], names[inside])

    def _judge(self, groups: Sequence[RequestClass], names: npt.NDArray[Any]) -> None:
        self.judged = np.zeros(names.size, dtype=bool)  # an SLA applies and can be evaluated
        kept = np.ones(names.size, dtype=bool)  # vacuously, where nothing is promised
        unknown = np.zeros(names.size, dtype=bool)
        promised, broken = False, 0
        for group in groups:
            sla, code = group.sla, self.class_names.index(group.name)
            limits = [
                ("tps_user_min", self.tps, -1.0, 1.0), ("tpot_ms_max", self.tpot, 1.0, 1e3),
                ("ttft_ms_max", self.ttft, 1.0, 1e3), ("e2e_s_max", self.e2e, 1.0, 1.0),
            ]
            if group.sla is not None and any(getattr(group.sla, key) is not None for key, *_ in limits):
                broken += int((self._lost == code).sum())  # never served: its promises are broken
            for key, values, sign, scale in limits:
                limit = None if sla is None else getattr(sla, key)
                if limit is None:
                    continue
                promised = True
                mine = names == code
                self.judged |= mine
                if key in ("ttft_ms_max", "e2e_s_max"):
                    unknown |= mine & (self.skipped > 0)
                # NaN (a one-token output has no TPOT) breaks no promise
                kept &= ~(mine & (sign * values * scale > sign * limit))
        self.judged &= ~unknown
        self._broken = broken
        self._known = ~unknown
        self._kept = kept
        self.met = (self.judged & kept) if promised else None

    def speed(self) -> Measured:
        """TPS and TPOT over requests; requests without a token after the first have none."""
        return {
            "tps_user_mean": _mean(self.tps), "tps_user_p50": _percentile(self.tps, 50),
            "tps_user_p5": _percentile(self.tps, 5),
            "tpot_ms_mean": in_ms(_mean(self.tpot)), "tpot_ms_p50": in_ms(_percentile(self.tpot, 50)),
            "tpot_ms_p99": in_ms(_percentile(self.tpot, 99)), "tpot_ms_std": in_ms(_std(self.tpot)),
        }

    def latency(self) -> Measured:
        """TTFT and E2E over the requests whose arrival was simulated."""
        return {
            "ttft_ms_mean": in_ms(_mean(self.ttft)), "ttft_ms_p50": in_ms(_percentile(self.ttft, 50)),
            "ttft_ms_p99": in_ms(_percentile(self.ttft, 99)), "ttft_ms_std": in_ms(_std(self.ttft)),
            "e2e_ms_mean": in_ms(_mean(self.e2e)), "e2e_ms_p50": in_ms(_percentile(self.e2e, 50)),
            "e2e_ms_p99": in_ms(_percentile(self.e2e, 99)), "e2e_ms_std": in_ms(_std(self.e2e)),
        }

    def attainment(self) -> float | None:
        """Share of the requests under an SLA that met every limit of it; None where nothing is promised.

        Requests that were refused or gave up waiting count as not met.
        """
        return None if self.met is None else ratio(float(self.met.sum()), float(self.judged.sum()) + self._broken)

    def goodput_share(self) -> float | None:
        """Share of output tokens in requests that met every SLA they have; None where nothing is promised."""
        if self.met is None:
            return None
        kept = self._known & self._kept
        return ratio(float(self.output[kept].sum()), float(self.output[self._known].sum()))


def _codes(column: Any, vocabulary: Sequence[str]) -> npt.NDArray[np.int16]:
    """(N,) index of each word in ``vocabulary``, -1 for others; words are compared once per chunk, not once per row."""
    order = {word: i for i, word in enumerate(vocabulary)}
    parts = [np.zeros(0, dtype=np.int16)]
    for chunk in column.chunks:
        encoded = chunk.dictionary_encode()
        known = np.array([order.get(word, -1) for word in encoded.dictionary.to_pylist()], dtype=np.int16)
        parts.append(known[encoded.indices.to_numpy()])
    return np.concatenate(parts)


def ratio(top: float, bottom: float) -> float | None:
    """``top / bottom``, None where it is undefined."""
    return top / bottom if bottom > 0 and np.isfinite(top) else None


def product(a: float | None, b: float | None) -> float | None:
    """``a · b``, None if either is undefined."""
    return None if a is None or b is None else a * b


def in_ms(seconds: float | None) -> float | None:
    """Seconds as milliseconds."""
    return None if seconds is None else seconds * 1e3


def _defined(values: FloatArray) -> FloatArray:
    return values[np.isfinite(values)]


def _mean(values: FloatArray) -> float | None:
    values = _defined(values)
    return float(values.mean()) if values.size else None


def _std(values: FloatArray) -> float | None:
    values = _defined(values)
    return float(values.std()) if values.size else None


def _percentile(values: FloatArray, q: float) -> float | None:
    values = _defined(values)
    return float(np.percentile(values, q)) if values.size else None
