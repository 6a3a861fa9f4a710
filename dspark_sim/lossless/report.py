"""What a check found, and what follows for the claim."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from dspark_sim.lossless.enumerate import Laws
from dspark_sim.lossless.explain import law_rows

__all__ = ["Check", "Counterexample", "Report", "WorldResult"]

EXACT = 1e-12


@dataclass(frozen=True)
class Check:
    """One thing that was checked.

    Attributes:
        group: contract, anticipation, output law.
        title: two or three words.
        passed: None for a remark that decides nothing.
        says: what was found, in a sentence.
    """

    group: Literal["contract", "anticipation", "output law", "remark"]
    title: str
    passed: bool | None
    says: str


@dataclass(frozen=True)
class Counterexample:
    """A smallest case of one leak: which method, and the case in words (see :mod:`.explain`)."""

    method: str
    effect: float
    lines: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class WorldResult:
    """One enumerated toy world: its laws, cut to the fewest first tokens in which they differ."""

    block_size: int
    laws: Laws
    total: float  # variation over all tokens that were compared

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        world, shown = self.laws.world, law_rows(self.laws)
        return {
            "world": world.name, "what": world.says, "requests": world.requests, "block_size": self.block_size,
            "steps": world.steps, "decisions": self.laws.decisions, "deviation": self.total,
            "lengths": list(self.laws.lengths),
            "outcomes": [{"tokens": name, "policy": p, "target": q} for name, p, q in shown],
        }


@dataclass(frozen=True, eq=False)
class Report:
    """The result of :func:`dspark_sim.testing.check_policy`.

    Attributes:
        policy: its name.
        lossless: its claim.
        greedy: checked for greedy decoding instead of sampling.
        checks: in the order in which they were made.
        worlds: enumerated toy worlds.
        counterexamples: one per method that leaks.
        decisions: policy decisions that the search asked for.
    """

    policy: str
    lossless: bool
    timing: str
    greedy: bool
    checks: Sequence[Check]
    worlds: Sequence[WorldResult] = ()
    counterexamples: Sequence[Counterexample] = ()
    decisions: int = 0

    @property
    def deviation(self) -> float:
        """The largest total variation between what comes out and what the target alone would emit."""
        worlds = [world.total for world in self.worlds]
        return max([0.0, *worlds, *(c.effect for c in self.counterexamples)])

    @property
    def kept(self) -> bool:
        """The contract holds."""
        return all(c.passed is not False for c in self.checks if c.group == "contract")

    @property
    def anticipates(self) -> bool:
        """It decides on what is not known yet."""
        return any(c.passed is False for c in self.checks if c.group == "anticipation")

    @property
    def exact(self) -> bool:
        """Every law that was computed equals the target's."""
        return self.deviation <= EXACT

    @property
    def ok(self) -> bool:
        """The contract holds, and so does the claim (a policy that claims nothing cannot break it)."""
        if not self.kept:
            return False
        if self.greedy:
            return self.exact and not self.anticipates
        return not self.lossless or (self.exact and not self.anticipates)

    @property
    def verdict(self) -> str:
        """One sentence."""
        size = f"{self.deviation:.6g}"
        if not self.kept:
            more = "" if self.exact else f", and changes the output distribution (total variation up to {size})"
            return f"{self.policy} breaks the contract of dspark_sim.policy{more}."
        if self.greedy:
            if self.ok:
                return f"{self.policy} is exact under greedy decoding."
            return f"{self.policy} is not usable under greedy decoding: it decides on what does not exist yet."
        if self.lossless and not self.exact:
            return (f"{self.policy} claims to be lossless and is NOT: it changes the output distribution "
                    f"(total variation up to {size} in these toys).")
        if self.lossless and self.anticipates:
            return (f"{self.policy} claims to be lossless, but this is NOT PROVEN: it decides on confidences that are "
                    "not known yet, though no law that was computed is wrong.")
        if self.lossless:
            laws = "every enumerated law is exact" if self.worlds else "no law could be enumerated"
            return f"{self.policy} is lossless in every check: no anticipation was found, and {laws}."
        if self.exact and not self.anticipates:
            return f"{self.policy} does not claim to be lossless, but nothing was found against it."
        return f"{self.policy} is not lossless, as it says (total variation up to {size} in these toys)."

    def to_dict(self) -> dict[str, Any]:
        """Plain values, the same for the same seed; what ``--format json`` prints."""
        return {
            "policy": self.policy, "claims_lossless": self.lossless, "timing": self.timing,
            "decoding": "greedy" if self.greedy else "sampling", "ok": self.ok, "verdict": self.verdict,
            "deviation": self.deviation, "decisions": self.decisions,
            "checks": [{"group": c.group, "title": c.title, "passed": c.passed, "says": c.says} for c in self.checks],
            "counterexamples": [{"method": c.method, "deviation": c.effect, "lines": list(c.lines)}
                                for c in self.counterexamples],
            "worlds": [world.to_dict() for world in self.worlds],
        }

    def __str__(self) -> str:
        marks = {True: "ok  ", False: "FAIL", None: "note"}
        lines = [self.verdict, *(f"  {marks[c.passed]} {c.title}: {c.says}" for c in self.checks)]
        for example in self.counterexamples:
            lines += [f"counterexample ({example.method}):", *(f"  {line}" for line in example.lines)]
        return "\n".join(lines)
