"""When requests arrive: the kinds of ``workload.arrival`` that a scenario may state, one model each.

Closed loops wait for answers; open loops do not (``poisson``, ``gamma``, ``piecewise``, ``diurnal``, ``replay``);
``sessions`` start like an open loop and go on like a closed one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from pydantic import Field, PrivateAttr, model_validator

from dspark_sim.errors import ScenarioError
from dspark_sim.lengths import Lengths
from dspark_sim.yamlmodel import StrictModel

if TYPE_CHECKING:
    from dspark_sim.replay_log import TrafficLog

__all__ = ["Arrival", "Closed", "Diurnal", "Gamma", "Piecewise", "Poisson", "Replay", "Sessions", "Thin", "ThinkTime"]

MAX_CONCURRENCY = 100_000
MAX_SECONDS = 10_000_000.0
MAX_RATE = 1_000_000.0
Rate: TypeAlias = Annotated[float, Field(gt=0, le=MAX_RATE)]
Cv: TypeAlias = Annotated[float, Field(gt=0, le=100)]
Seconds: TypeAlias = Annotated[float, Field(gt=0, le=MAX_SECONDS)]
Point: TypeAlias = Annotated[tuple[float, float], Field(strict=False)]
_BURSTS = "standard deviation of a gap / mean gap, measured at constant rate; 1 is Poisson, above 1 comes in bursts"

ExactAfter: TypeAlias = Annotated[int, Field(ge=1, le=10_000_000)]
_EXACT = ("this many requests take exactly as long as at the stated rate: their gaps are stretched or shrunk together, "
          "as some benchmark clients do")


class Closed(StrictModel):
    """A fixed number of users, each with one request at a time."""

    kind: Literal["closed"] = Field(description="closed: a fixed number of users, each with one request at a time")
    concurrency: int = Field(ge=1, le=MAX_CONCURRENCY, description="users; above max_num_seqs they queue")
    think_time_s: float = Field(default=0.0, ge=0, le=MAX_SECONDS, description="pause between a user's requests")
    think_steps: float = Field(
        default=0.0, ge=0, le=10_000, description="further pause, in mean steps of the request that just ended: an "
        "engine tells its end steps late, and takes the next one in at a step's border"
    )


class Poisson(StrictModel):
    """Requests that arrive independently of each other and of the system's state."""

    kind: Literal["poisson"] = Field(description="poisson: exponential gaps between arrivals")
    rate_per_s: Rate = Field(description="mean arrivals per second")
    exact_after: ExactAfter | None = Field(default=None, description=_EXACT)


class Gamma(StrictModel):
    """Gamma gaps: burstier than Poisson with cv > 1, more regular with cv < 1."""

    kind: Literal["gamma"] = Field(description="gamma: gaps between arrivals with a chosen coefficient of variation")
    rate_per_s: Rate = Field(description="mean arrivals per second")
    cv: Cv = Field(description="standard deviation of a gap / mean gap; 1 is Poisson")
    exact_after: ExactAfter | None = Field(default=None, description=_EXACT)


class Piecewise(StrictModel):
    """A rate that changes at stated times: steps, or straight lines between the points."""

    kind: Literal["piecewise"] = Field(description="piecewise: the rate changes at stated times")
    rates: Annotated[tuple[Point, ...], Field(strict=False, min_length=1, max_length=10_000)] = Field(
        description="points [second, arrivals per second]; the first at second 0, the last rate holds on for ever"
    )
    between: Literal["hold", "linear"] = Field(
        default="hold", description="hold: a rate holds until the next point (steps); linear: straight lines"
    )
    cv: Cv = Field(default=1.0, description=_BURSTS)

    @model_validator(mode="after")
    def _usable(self) -> Piecewise:
        before = -1.0
        for i, (second, rate) in enumerate(self.rates):
            at = f"rates[{i}]"
            if i == 0 and second != 0:
                raise ScenarioError(f"begins at second {second:g}", key=at, allowed="a first point at second 0")
            if not before < second <= MAX_SECONDS:
                raise ScenarioError(f"got second {second:g} after {before:g}", key=at,
                                    allowed=f"rising seconds, at most {MAX_SECONDS:g}")
            if not 0 <= rate <= MAX_RATE:
                raise ScenarioError(f"got a rate of {rate:g}", key=at, allowed=f"0 to {MAX_RATE:g} per second")
            before = second
        if self.rates[-1][1] == 0:
            last = f"rates[{len(self.rates) - 1}]"
            raise ScenarioError("the last rate is 0: nothing would ever arrive again", key=last,
                                allowed="a last rate above 0")
        return self


class Diurnal(StrictModel):
    """A rate that swings like the hours of a day: mean · (1 + amplitude · sin(2π (t + phase) / period))."""

    kind: Literal["diurnal"] = Field(
        description="diurnal: rate(t) = mean_rate_per_s · (1 + amplitude · sin(2π · (t + phase_s) / period_s))"
    )
    mean_rate_per_s: Rate = Field(description="arrivals per second, mean over a period")
    amplitude: float = Field(ge=0, le=1, description="0: constant; 1: from nothing to twice the mean")
    period_s: Seconds = Field(default=86_400.0, description="length of a period, a day unless stated")
    phase_s: float = Field(
        default=0.0, ge=-MAX_SECONDS, le=MAX_SECONDS,
        description="0: starts at the mean and rises; a quarter of a period: starts at the peak",
    )
    cv: Cv = Field(default=1.0, description=_BURSTS)


class ThinkTime(StrictModel):
    """How long a user reads and types before the next turn: gamma distributed."""

    mean: float = Field(ge=0, le=MAX_SECONDS, description="mean seconds between an answer and the next turn")
    cv: float = Field(default=1.0, ge=0, le=100, description="standard deviation / mean; 0 constant, 1 exponential")


class Sessions(StrictModel):
    """Conversations and agents: each turn waits for the answer before it, and its prompt is all that went before."""

    kind: Literal["sessions"] = Field(
        description="sessions: conversations; a turn is sent a think time after the answer before it"
    )
    rate_per_s: Rate = Field(description="mean new sessions per second")
    cv: Cv = Field(default=1.0, description="of the gaps between new sessions; 1 is Poisson")
    turns: Lengths = Field(description="requests of a session, stated like a length")
    think_time_s: ThinkTime = Field(description="pause between an answer and the next turn")
    shared_tokens: int = Field(
        default=0, ge=0, le=10_000_000, description="tokens that all sessions of a class begin with (a system prompt)"
    )
    max_context: int = Field(
        default=131_072, ge=1, le=10_000_000,
        description="a session ends before a turn whose prompt and answer would be longer than this",
    )


class Thin(StrictModel):
    """Keep a part of a log."""

    keep: float = Field(gt=0, le=1, description="share that is kept; smaller shares are subsets of larger ones")
    by: Literal["auto", "session", "client", "request"] = Field(
        default="auto",
        description="what is kept or left out whole; auto: sessions where the file has them, else requests",
    )


class Replay(StrictModel):
    """Requests out of a traffic log, at the times and with the lengths that it holds."""

    kind: Literal["replay"] = Field(description="replay: requests out of a traffic log")
    file: Annotated[str, Field(min_length=1, max_length=4000)] = Field(
        description="the log, as it is or gzipped; a path from this file"
    )
    format: Literal["auto", "azure", "mooncake", "burstgpt", "csv"] = Field(
        default="auto", description="auto: by its first line"
    )
    class_column: Annotated[str, Field(min_length=1, max_length=100)] | None = Field(
        default=None, description="column that names each row's class; absent: `class` if a plain CSV has it"
    )
    unordered: Literal["error", "sort"] = Field(
        default="error", description="rows that are not in order of time: an error, or sorted (equal times keep order)"
    )
    window: tuple[float, float] | None = Field(
        default=None, strict=False,
        description="[start, end): seconds of the log that are played, its start is second 0",
    )
    spread_ticks: bool | Literal["auto"] = Field(
        default="auto",
        description="time stamps on coarse ticks are spread evenly within the tick; auto: where ticks are found",
    )
    thin: Thin | None = Field(default=None, description="keep a part of the log")
    rate_scale: float = Field(
        default=1.0, gt=0, le=10_000,
        description="so many times the requests in the same time: copies above 1, a part below 1",
    )
    time_scale: float = Field(
        default=1.0, gt=0, le=10_000, description="simulated seconds per second of the log: 0.5 is twice as fast"
    )
    _log: TrafficLog | None = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _window_has_a_length(self) -> Replay:
        if self.window is not None and not 0 <= self.window[0] < self.window[1]:
            raise ScenarioError(f"got {list(self.window)}", key="window", allowed="[start, end] with 0 ≤ start < end")
        return self

    @property
    def log(self) -> TrafficLog:
        """The rows of the file.

        Raises:
            RuntimeError: it has not been read; loading the scenario does.
        """
        if self._log is None:
            raise RuntimeError("the log of a replay is read by load_scenario")
        return self._log

    def _keep(self, log: TrafficLog) -> None:
        self._log = log


Arrival: TypeAlias = Annotated[
    Closed | Poisson | Gamma | Piecewise | Diurnal | Sessions | Replay, Field(discriminator="kind")
]
