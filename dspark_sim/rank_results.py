"""What a ranking found: one score per contestant and cell, and the leaderboard over them.

Changes are paired: contestant and baseline served the same requests in the same replication. A *win* is a change whose
95 % interval lies above 0, a *loss* one below, a *tie* everything else. *Regret* is how far a contestant stays below
the clairvoyant bound, in per cent of the bound, paired too; it can be negative, for the bound looks one step ahead.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dspark_sim.rank_define import AS_IS, BELIEFS, Cell, Contestant
from dspark_sim.stats import Figure, interval, paired_percent

__all__ = ["Entry", "Ranking", "Score"]


@dataclass(frozen=True)
class Score:
    """One contestant in one cell.

    Attributes:
        values: the cell's metric by replication; empty after an error.
        budget: mean verification budget, None after an error.
        microseconds: CPU time per decision, the smallest of the replications; None where not measured.
        error: why there are no values.
        unfit: it could not start here: a policy that needs confidence on a trace without, say.
        printed: bytes that the policy printed.
    """

    values: Sequence[float | None] = ()
    budget: float | None = None
    microseconds: float | None = None
    error: str | None = None
    unfit: bool = False
    printed: int = 0


@dataclass(frozen=True)
class Entry:
    """A line of the leaderboard.

    Attributes:
        contestant, lossless: who; the policy's claim.
        change: per cent against the baseline, geometric mean over the cells as they are that both served.
        wins, ties, losses: of those cells.
        regret: per cent below the bound, mean over the same cells.
        microseconds: CPU time per decision in the cell of the highest load.
        conditions: condition -> per cent; see :meth:`Ranking.entries`.
        cells: cells as they are that it served.
        errors: why it did not serve others, each once.
    """

    contestant: str
    lossless: bool
    change: Figure
    wins: int
    ties: int
    losses: int
    regret: Figure
    microseconds: float | None
    conditions: Mapping[str, Figure]
    cells: int
    errors: Sequence[str]


@dataclass(frozen=True)
class Ranking:
    """A finished (or interrupted) ranking.

    Attributes:
        contestants: in the user's order; the first is the baseline.
        bound: label of the clairvoyant bound among ``scores``.
        cells: in order of scenarios, loads, conditions.
        scores: of every contestant and the bound, by (cell, label).
        lossless: label -> the policy's claim.
        metrics: cell -> the figure that is compared.
        drafters: scenario -> drafter of all contestants that name none.
        replications: of every cell.
        notes: sentences for the reader.
        interrupted: not everything was run.
    """

    contestants: Sequence[Contestant]
    bound: str
    cells: Sequence[Cell]
    scores: Mapping[tuple[Cell, str], Score]
    lossless: Mapping[str, bool]
    metrics: Mapping[Cell, str]
    drafters: Mapping[str, str | None]
    replications: int
    notes: Sequence[str] = field(default=())
    interrupted: bool = False

    @property
    def baseline(self) -> str:
        """Label of the contestant that the others are compared with."""
        return self.contestants[0].label

    @property
    def conditions(self) -> list[str]:
        """Those beside :data:`AS_IS`, in order."""
        return list(dict.fromkeys(c.condition for c in self.cells if c.condition != AS_IS))

    def of(self, cell: Cell, label: str) -> Sequence[float | None]:
        """Values by replication, empty if there are none."""
        return self.scores.get((cell, label), Score()).values

    def change(self, cell: Cell, label: str) -> Figure:
        """Per cent against the baseline in a cell."""
        if label == self.baseline and self.of(cell, label):
            return Figure(0.0, 0.0, 0.0)
        return paired_percent(self.of(cell, label), self.of(cell, self.baseline))

    def regret(self, cell: Cell, label: str) -> Figure:
        """Per cent below the bound in a cell."""
        below = paired_percent(self.of(cell, label), self.of(cell, self.bound))
        return Figure(*(None if x is None else -x for x in (below.mean, below.ci95_high, below.ci95_low)))

    def verdict(self, cell: Cell, label: str) -> str | None:
        """``win``, ``tie`` or ``loss`` against the baseline; None without an interval, and for the baseline."""
        figure = self.change(cell, label)
        if figure.ci95_low is None or figure.ci95_high is None or label == self.baseline:
            return None
        return "win" if figure.ci95_low > 0 else "loss" if figure.ci95_high < 0 else "tie"

    def entries(self) -> list[Entry]:
        """The leaderboard: served cells first, then by change.

        The figure of a belief condition is the contestant's loss against *itself* with right beliefs (the world is the
        same), that of the others its change against the baseline in the same world.
        """
        found = [self._entry(c.label) for c in self.contestants]
        return sorted(found, key=lambda e: (e.change.mean is None, -e.cells, -(e.change.mean or 0.0)))

    def _entry(self, label: str) -> Entry:
        plain = [c for c in self.cells if c.condition == AS_IS and self.of(c, label)]
        verdicts = [self.verdict(c, label) for c in plain]
        conditions = {}
        for name in self.conditions:
            pairs = [(self.of(c, label), self._against(c, label)) for c in self.cells if c.condition == name]
            conditions[name] = _mean_percent(pairs)
        times = [(c.load or 0.0, t) for c in plain if (t := self.scores[c, label].microseconds) is not None]
        errors = dict.fromkeys(  # what is unfit under a condition only (no confidences to shift, say) is no failure
            s.error for (c, who), s in self.scores.items()
            if who == label and s.error is not None and (c.condition == AS_IS or not s.unfit))
        change = _mean_percent([(self.of(c, label), self.of(c, self.baseline)) for c in plain])
        if label == self.baseline and plain:
            change = Figure(0.0, 0.0, 0.0)
        below = _mean_percent([(self.of(c, label), self.of(c, self.bound)) for c in plain])
        return Entry(
            label, self.lossless.get(label, False), change,
            verdicts.count("win"), verdicts.count("tie"), verdicts.count("loss"),
            Figure(*(None if x is None else -x for x in (below.mean, below.ci95_high, below.ci95_low))),
            max(times)[1] if times else None, conditions, len(plain), tuple(errors),
        )

    def _against(self, cell: Cell, label: str) -> Sequence[float | None]:
        if cell.condition in BELIEFS:
            return self.of(Cell(cell.scenario, cell.load), label)
        return self.of(cell, self.baseline)


def _mean_percent(pairs: Sequence[tuple[Sequence[float | None], Sequence[float | None]]]) -> Figure:
    """Geometric mean of ratios over cells, per replication; then the interval over replications, in per cent."""
    logs = []
    for values in zip(*(zip(a, b, strict=False) for a, b in pairs if a and b), strict=False):
        known = [math.log(v / w) for v, w in values if v is not None and w is not None and v > 0 and w > 0]
        if known:
            logs.append(sum(known) / len(known))
    figure = interval(logs)
    return Figure(*(None if x is None else 100 * math.expm1(x)
                    for x in (figure.mean, figure.ci95_low, figure.ci95_high)))
