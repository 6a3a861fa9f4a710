"""Keep a share of the draft tokens, the most confident of the whole batch; the share falls as the batch grows.

With R requests the share q of the last entry ``[requests, q]`` whose ``requests`` ≤ R applies, and the round(q · R · G)
best draft tokens by survival are verified; a batch smaller than the first entry keeps everything.

Source: D-Cut (Tencent AngelSlim, docs/source/_extra/dcut.html; paper arXiv 2607.14647; vLLM pull request 47131): keep
ratios of the drafted positions, chosen by batch size, filled by cumulative confidence. Its published verify times are
for ratios 25, 50, 75 and 100 %; which ratio serves which batch is not published: the default schedule is ours.

Limits: D-Cut takes the drafter's own probability of the token that it drew for confidence. Under sampling that is known
only after the token is drawn and would not be lossless; here the confidence head's value, known before, is used. So it
needs a trace with confidence: the DFlash drafter, for which D-Cut was made, has none on this shelf. A later version of
the idea takes its budget from measured step times, as ``async_global`` does.

Lossless: the number of tokens depends on the number of requests alone, and ranking by survival is a joint stopping
rule. Overlapped: the size of the batch is known before drafting; filling it is a ranking on the device.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

from dspark_sim.policy import BudgetPolicy, BudgetView


def _schedule() -> list[list[float]]:
    return [[1, 1.0], [8, 0.75], [16, 0.5], [32, 0.25]]


@dataclass
class DCut(BudgetPolicy):
    """Verifies a share of all draft tokens, best first.

    Args:
        ratios: entries ``[requests, share]``, requests rising, shares 0 to 1.
    """

    ratios: list[list[float]] = field(default_factory=_schedule)

    _firsts: list[float] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        before = 0.0
        for entry in self.ratios:
            if len(entry) != 2 or not before < entry[0] or not 0 <= entry[1] <= 1:
                raise ValueError(f"ratios: got {entry}; allowed: rising [requests, share] with share 0 to 1")
            before = entry[0]
        if not self.ratios:
            raise ValueError("ratios: got none; allowed: one entry or more")
        self._firsts = [entry[0] for entry in self.ratios]

    def token_budget(self, view: BudgetView) -> int:
        """The share of R · G that the schedule gives for R."""
        at = bisect_right(self._firsts, view.requests) - 1
        return round((1.0 if at < 0 else self.ratios[at][1]) * view.requests * view.block_size)
