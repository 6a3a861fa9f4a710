"""rank(): policies against each other over scenarios × loads × conditions, each arm in a process that can be ended.

First every contestant, and the clairvoyant bound, in every cell as it is; then the conditions, for ``spikes`` needs to
know what the baseline served. Tasks go replication by replication, so that what is finished at any moment is balanced.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dspark_sim.arms import Inputs, load_arms
from dspark_sim.errors import InputError
from dspark_sim.rank_define import AS_IS, BOUND, CONDITIONS, Cell, Contestant, contestants, loaded, text_of
from dspark_sim.rank_pool import Pool
from dspark_sim.rank_results import Ranking, Score
from dspark_sim.registry import find_policy, list_policies, make_policy
from dspark_sim.scenario import Scenario, load_scenario

__all__ = ["default_policies", "rank"]

LIMIT_S = 300.0
_Key = tuple[Cell, str, int]


def default_policies() -> str:
    """The baseline ``async_global``, then every lossless policy of the shelf."""
    names = [source.name for source in list_policies() if source.lossless and source.name != "async_global"]
    return ",".join(["async_global", *names])


def rank(
    scenarios: Sequence[str | Path | Scenario], policies: str | None = None, *, loads: Sequence[float] = (),
    replications: int | None = None, conditions: Sequence[str] = (), drafter: str | None = None, jobs: int = 1,
    limit_s: float = LIMIT_S, overrides: Mapping[str, Any] | None = None, seed: int | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Ranking:
    """Rank policies.

    Args:
        scenarios: names on the shelf, paths, or loaded ones; their arms only tell which drafter is meant.
        policies: see :func:`~dspark_sim.rank_define.contestants`; the first is the baseline; None for
            :func:`default_policies`.
        loads: concurrency (closed loops) or requests per second (open ones); none: as the scenario has it.
        replications: instead of the scenarios'.
        conditions: keys of :data:`~dspark_sim.rank_define.CONDITIONS` to add.
        drafter: of contestants that name none; None: the scenario's first drafter with confidences, else its first.
        jobs: processes at a time.
        limit_s: seconds of wall clock that one replication of one arm may take.
        overrides, seed: as for :func:`~dspark_sim.scenario.load_scenario`.
        progress: called with (tasks done, tasks known so far).

    Raises:
        InputError: a scenario, a policy, a parameter or a load cannot be used; nothing has run.
    """
    entries = contestants(policies if policies is not None else default_policies())
    run = _Run(scenarios, entries, replications, drafter, overrides, seed, loads)
    for name in conditions:
        if name not in CONDITIONS:
            raise InputError(f"no condition {name!r}", allowed=", ".join(CONDITIONS))
    with Pool(jobs, limit_s) as pool:
        try:
            run.go(pool, [AS_IS], progress)
            run.go(pool, list(conditions), progress)
        except KeyboardInterrupt:
            run.interrupted = True
    return run.ranking()


class _Run:
    """The state of a ranking under way."""

    def __init__(
        self, scenarios: Sequence[str | Path | Scenario], entries: list[Contestant], replications: int | None,
        drafter: str | None, overrides: Mapping[str, Any] | None, seed: int | None, loads: Sequence[float],
    ) -> None:
        self.entries, self.interrupted, self.total, self.finished = entries, False, 0, 0
        self.lossless: dict[str, bool] = {}
        self.data: dict[Cell, dict[str, Any]] = {}
        self.base: dict[str, Path] = {}
        self.drafters: dict[str, str | None] = {}
        self.answers: dict[_Key, Mapping[str, Any]] = {}
        self.gone: dict[str, str] = {}  # contestant -> why it is not asked any more
        self.cells: list[Cell] = []
        self.metrics: dict[Cell, str] = {}
        for reference in scenarios:
            scenario = _found(reference, overrides, seed)
            if scenario.name in self.base:
                raise InputError(f"two scenarios are named {scenario.name!r}", allowed="different names")
            self.base[scenario.name] = scenario.base
            self.drafters[scenario.name] = drafter or _drafter(scenario)
            self.replications = replications or max(getattr(self, "replications", 0), scenario.replications)
            wanted: Sequence[float | None] = loads or (None,)
            for load in wanted:
                self.data[Cell(scenario.name, load)] = loaded(scenario, load)
            for entry in entries:
                self._know(entry, scenario.base)

    def _know(self, entry: Contestant, base: Path) -> None:
        """Find the policy and check its parameters, so that a mistyped one is told before anything runs."""
        try:
            cls, source = find_policy(entry.policy, base)
            make_policy(cls, source, entry.parameters)
        except InputError as problem:
            inside = (problem.key or "").removeprefix("policy").removeprefix(".")
            raise type(problem)(problem.problem, file=problem.file, line=problem.line,
                                key=f"--policies: {entry.label}: {inside}" if inside else "--policies",
                                allowed=problem.allowed, suggestion=problem.suggestion) from None
        self.lossless[entry.label] = source.lossless

    def go(self, pool: Pool, conditions: Sequence[str], progress: Callable[[int, int], None]) -> None:
        """Run all contestants under these conditions."""
        tasks: list[tuple[_Key, Mapping[str, Any]]] = []
        for plain, data in self.data.items():
            for condition in conditions:
                cell = Cell(plain.scenario, plain.load, condition)
                served, kind = self._served(plain), data["workload"]["arrival"]["kind"]
                closed = kind == "closed" and condition != "spikes"
                self.metrics[cell] = "throughput_tok_s_gpu" if closed else "tps_user_mean"
                self.cells.append(cell)
                for entry in [*self.entries, BOUND]:
                    text = text_of(data, entry, self.drafters[plain.scenario], condition, served)
                    if text is None or (entry is BOUND and self.drafters[plain.scenario] is None):
                        continue
                    task = {"text": text, "base": str(self.base[plain.scenario])}
                    tasks += [((cell, entry.label, r), {**task, "replication": r}) for r in range(self.replications)]
        tasks.sort(key=lambda item: item[0][2])
        self.total += len(tasks)
        for key, answer in pool.run(tasks, self._reason):
            self.answers[key] = answer
            if answer.get("fatal"):
                self.gone.setdefault(key[1], str(answer["error"]))
            self.finished += 1
            progress(self.finished, self.total)

    def _reason(self, key: _Key) -> str | None:
        """Why a task need not run: the contestant hung or crashed, or failed in this cell already."""
        if key[1] in self.gone:
            return self.gone[key[1]]
        before = (self.answers.get((key[0], key[1], r), {}).get("error") for r in range(key[2]))
        return next((str(error) for error in before if error is not None), None)

    def _served(self, plain: Cell) -> float | None:
        """Requests per second that the baseline finished, mean over replications."""
        rates = []
        for r in range(self.replications):
            figures = self.answers.get((plain, self.entries[0].label, r), {}).get("figures")
            if figures and figures["requests"] and figures["window_s"]:
                rates.append(figures["requests"] / figures["window_s"])
        return sum(rates) / len(rates) if rates else None

    def ranking(self) -> Ranking:
        """What there is."""
        scores = {(cell, entry.label): self._score(cell, entry.label)
                  for cell in self.cells for entry in [*self.entries, BOUND]}
        notes = [f"{scenario}: drafter {drafter or 'none'}" for scenario, drafter in self.drafters.items()]
        notes += [f"{label} printed while it ran; what it printed was thrown away"
                  for label in dict.fromkeys(label for (_, label), s in scores.items() if s.printed)]
        return Ranking(self.entries, BOUND.label, self.cells, scores, self.lossless, self.metrics, self.drafters,
                       self.replications, tuple(notes), self.interrupted)

    def _score(self, cell: Cell, label: str) -> Score:
        answers = [a for r in range(self.replications) if (a := self.answers.get((cell, label, r))) is not None]
        printed = sum(a.get("printed", 0) for a in answers)
        failed = next((a for a in answers if a.get("error") is not None), None)
        if failed is not None:
            return Score(error=failed["error"], unfit=bool(failed.get("unfit")), printed=printed)
        figures = [a["figures"] for a in answers]
        budgets = [f["verification_budget"] for f in figures if f["verification_budget"] is not None]
        times = [a["microseconds"] for a in answers if a["microseconds"] is not None]
        return Score(
            tuple(f[self.metrics[cell]] for f in figures), sum(budgets) / len(budgets) if budgets else None,
            min(times, default=None), printed=printed,
        )


def _found(reference: str | Path | Scenario, overrides: Mapping[str, Any] | None, seed: int | None) -> Scenario:
    return reference if isinstance(reference, Scenario) else load_scenario(reference, overrides, seed=seed)


def _drafter(scenario: Scenario) -> str | None:
    """The first drafter with confidences, else the first, else None."""
    setups = [group.setup for arm in load_arms(scenario, Inputs()) for group in arm.engines]
    drafting = [setup for setup in setups if setup.trace is not None]
    able = [setup for setup in drafting if setup.trace is not None and setup.trace.confidence is not None]
    return next((setup.drafter for setup in (*able, *drafting)), None)
