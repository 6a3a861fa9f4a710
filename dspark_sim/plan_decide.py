"""Does a load meet the SLAs? A verdict that waits for enough replications, and says when it cannot know.

Attainment of a class is the share of its requests that met every limit of their SLA. After each batch of replications
two intervals are made: Student's t over the replications' shares (requests of one replication share their bursts), and
Clopper and Pearson's over all requests (a few requests that all met their SLA prove little). The wider ends count. A
load passes when every class's interval lies above the target, fails when some class's lies below, and is looked at
again with more replications otherwise; after the last look it is *undecided*, or *sparse* where so few requests
finished that even if all of them had met their SLA it would not be proved. As there are several looks, each uses the
level 1 − 5 % / looks, so that a verdict is wrong in at most 5 % of the loads.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from dspark_sim.stats import interval

__all__ = ["Attainment", "Counts", "Decision", "Verdict", "attainment", "decide", "least_requests", "looks"]

Verdict = Literal["pass", "fail", "undecided", "sparse", "error"]
ERROR = 0.05  # of a verdict at one load, all looks together
FIRST = 3  # replications at the first look
GROWTH = 1.6


@dataclass(frozen=True)
class Counts:
    """One class in one replication: requests that count, and those of them that met every limit."""

    judged: int
    met: int


@dataclass(frozen=True)
class Attainment:
    """What is known of one class at one load.

    Attributes:
        share: of all replications together, None where nobody counts.
        low, high: interval at the look's level; 0 and 1 where nothing is known.
        requests: that count, all replications.
    """

    share: float | None
    low: float
    high: float
    requests: int


@dataclass(frozen=True)
class Decision:
    """The verdict at one load after some replications; ``worst`` is the class with the lowest attainment."""

    verdict: Verdict
    classes: Mapping[str, Attainment]
    worst: str | None
    saturated: bool = False


def looks(most: int) -> list[int]:
    """Replications at each look: 3, 5, 8, 13, … up to ``most``."""
    out = [min(FIRST, most)]
    while out[-1] < most:
        out.append(min(most, max(out[-1] + 1, round(out[-1] * GROWTH))))
    return out


def level_of(most: int) -> float:
    """The level of each look, so that all of them together err in 5 % of the cases at most."""
    return 1.0 - ERROR / len(looks(most))


def attainment(counts: Sequence[Counts], level: float) -> Attainment:
    """The attainment of a class from its replications, with the wider ends of the two intervals."""
    from scipy.special import betaincinv

    judged, met = sum(c.judged for c in counts), sum(c.met for c in counts)
    if judged == 0:
        return Attainment(None, 0.0, 1.0, 0)
    tail = (1.0 - level) / 2
    low = 0.0 if met == 0 else float(betaincinv(met, judged - met + 1, tail))
    high = 1.0 if met == judged else float(betaincinv(met + 1, judged - met, 1 - tail))
    over = interval([c.met / c.judged for c in counts if c.judged], low=0.0, high=1.0, level=level)
    if over.ci95_low is None or over.ci95_high is None:  # one replication tells nothing of the next
        return Attainment(met / judged, 0.0, 1.0, judged)
    return Attainment(met / judged, min(low, over.ci95_low), max(high, over.ci95_high), judged)


def decide(
    replications: Sequence[Mapping[str, Counts]], target: float, level: float, *, saturated: Sequence[bool] = (),
) -> Decision:
    """The verdict after some replications at one load.

    Args:
        replications: by class, of each replication.
        target: share that must meet the SLA, in every class.
        level: of this look's intervals, see :func:`level_of`.
        saturated: whether the queue grew without end, by replication; if it did in more than half of them the load
            fails, whatever the requests that were served say.
    """
    names = dict.fromkeys(name for one in replications for name in one)
    classes = {name: attainment([one[name] for one in replications if name in one], level) for name in names}
    known = {name: a for name, a in classes.items() if a.share is not None}
    worst = min(known, key=lambda name: (known[name].share or 0.0, known[name].high)) if known else None
    if sum(saturated) * 2 > len(replications):
        return Decision("fail", classes, worst, saturated=True)
    if any(a.high < target for a in classes.values()):
        return Decision("fail", classes, worst)
    if known and all(a.low >= target for a in classes.values()):
        return Decision("pass", classes, worst)
    few = not known or min(a.requests for a in classes.values()) < least_requests(target, level)
    return Decision("sparse" if few else "undecided", classes, worst)


def least_requests(target: float, level: float) -> int:
    """Requests that must all have met their SLA before an interval at ``level`` can lie above ``target``."""
    return math.ceil(math.log((1.0 - level) / 2) / math.log(target))
