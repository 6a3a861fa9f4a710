"""Is a policy what it says it is? For authors of policies: a function, and a test class to inherit.

>>> from dspark_sim.testing import check_policy
>>> check_policy("early_stop").verdict
'early_stop is lossless in every check: no anticipation was found, and every enumerated law is exact.'

In a test file of one's own::

    from dspark_sim.testing import PolicyContract

    class TestMine(PolicyContract):
        policy = "./mine.py:Mine"          # a reference, a class, an object, or a function that makes one
        parameters = {"threshold": 0.7}

pytest then runs one test per property. ``dspark-sim policy check`` prints the same for people.
What is checked and why it suffices stands in :mod:`dspark_sim.lossless`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from dspark_sim.errors import PolicyFailure
from dspark_sim.lossless.cases import Kind, Leak
from dspark_sim.lossless.contract import check_contract
from dspark_sim.lossless.enumerate import output_laws
from dspark_sim.lossless.explain import counterexample
from dspark_sim.lossless.implied import deviation, implied_law
from dspark_sim.lossless.report import Check, Counterexample, Report, WorldResult
from dspark_sim.lossless.search import Found, search
from dspark_sim.lossless.shrink import complexity, shrink
from dspark_sim.lossless.subject import PolicyLike, Subject, subject_of
from dspark_sim.lossless.worlds import greedy as greedy_world
from dspark_sim.lossless.worlds import worlds

__all__ = ["Check", "Counterexample", "PolicyContract", "Report", "WorldResult", "check_policy"]

CASES, THOROUGH = 1000, 12000
PLAIN = (0, 1, 3)  # no earlier step, one request, two positions: a counterexample cannot be much simpler
LARGEST = 7  # block size up to which all blocks of two tokens are enumerated


def check_policy(
    policy: PolicyLike, parameters: Mapping[str, Any] | None = None, *, base: Path | None = None,
    greedy: bool = False, thorough: bool = False, cases: int | None = None, seed: int = 1,
) -> Report:
    """Check one policy: the contract, anticipation, exact output laws.

    Args:
        policy: a reference as in a scenario, a class, an unused object (it is copied), or a function that makes one.
        parameters: for a reference or a class.
        base: folder that relative references start from.
        greedy: check for greedy decoding, where looking ahead does no harm.
        thorough: search twelve times as long, enumerate more steps.
        cases: how many decisions the search perturbs, None for 1,000 (12,000 if thorough).
        seed: of the search; the same seed, the same report.

    Raises:
        PolicyLoadError: the policy cannot be found, loaded or configured.
    """
    subject = subject_of(policy, parameters, base)
    checks = check_contract(subject, seed)

    def report(**more: Any) -> Report:
        return Report(subject.name, subject.lossless, subject.timing, greedy, tuple(checks), **more)

    if any(c.passed is False and c.title != "before drafting" for c in checks):
        checks.append(Check("remark", "not checked", None, "anticipation and output laws: the contract comes first"))
        return report()
    try:
        if subject.needs_oracle:
            found = Found()
            says = "decides on the outcome of its own step (needs_oracle)"
            checks.append(Check("anticipation", "outcome", None if greedy else False, says))
        else:
            found = search(subject, cases or (THOROUGH if thorough else CASES), seed)
        examples = _examples(subject, found)
        checks += _anticipation(subject, found, greedy=greedy)
        results = _enumerated(subject, greedy=greedy, thorough=thorough)
    except PolicyFailure as problem:
        checks.append(Check("contract", "answers", False, str(problem)))
        return report()
    checks.append(_law_check(results, greedy=greedy))
    if greedy:
        examples = [e for e in examples if e.method != "verify_lengths"]
    return report(worlds=results, counterexamples=examples, decisions=found.decisions)


def _examples(subject: Subject, found: Found) -> list[Counterexample]:
    """The smallest counterexample of each kind."""
    out = []
    for kind, leaks in found.leaks.items():
        bends = kind == "verify_lengths" and found.effect > 0
        small: list[Leak] = []
        for leak in leaks:
            small.append(shrink(subject, leak, bends=bends))
            if complexity(small[-1]) < PLAIN:
                break
        leak = min(small, key=complexity)
        law = implied_law(subject, leak)
        out.append(Counterexample(kind, deviation(subject, leak), tuple(counterexample(leak, law))))
    return out


METHODS: dict[Kind, str] = {
    "draft_lengths": "before drafting no confidence of the step exists",
    "stop_drafting": "drafting stops on what was computed until then",
    "verify_lengths": "ℓ is a joint stopping rule",
}


def _anticipation(subject: Subject, found: Found, *, greedy: bool) -> list[Check]:
    out = []
    policy = subject.make()
    for kind, rule in METHODS.items():
        if not hasattr(policy, kind) or (subject.needs_oracle and kind == "verify_lengths"):
            continue
        leaks: list[Leak] = found.leaks.get(kind, [])
        if not leaks:
            out.append(Check("anticipation", kind, True, f"{rule}: holds in {found.cases} cases at decision edges "
                             f"({found.decisions} decisions)"))
        elif greedy and kind == "verify_lengths":
            out.append(Check("anticipation", kind, None, "looks ahead, which greedy decoding allows"))
        else:
            out.append(Check("anticipation", kind, False, f"{rule}: does not hold; see the counterexample"))
    if found.moves_batch and subject.timing == "overlapped" and subject.lossless:
        out.append(Check("remark", "timing", None, "says overlapped, but the size of the batch follows confidences of "
                         "the same step: the host waits for them, so `synchronous` would be honest"))
    return out


def _enumerated(subject: Subject, *, greedy: bool, thorough: bool) -> list[WorldResult]:
    several = [G for G in subject.sizes if 1 < G <= LARGEST] or [G for G in subject.sizes if G <= LARGEST]
    out = []
    for G in several[: 2 if several[:1] == [2] else 1]:
        for world in worlds(G, thorough=thorough, wide=subject.needs_oracle or subject.probability):
            laws = output_laws(subject, greedy_world(world) if greedy else world, 0.0 if greedy else 1.0)
            out.append(WorldResult(G, laws.shortest(), float(laws.deviation)))
    return out


def _law_check(results: list[WorldResult], *, greedy: bool) -> Check:
    if not results:
        return Check("remark", "output law", None, f"not enumerated: block size above {LARGEST}")
    wrong = [r for r in results if r.total > 0]
    what = "the arg max text" if greedy else "the target's law"
    decisions = sum(r.laws.decisions for r in results)
    lengths = sorted({n for r in results for n in r.laws.lengths})
    answers = f"ℓ = {', '.join(map(str, lengths))}" if len(lengths) > 1 else f"ℓ = {lengths[0]} throughout"
    if not wrong:
        return Check("output law", "output law", True,
                     f"equal to {what}, as fractions, in {len(results)} toy worlds ({decisions} decisions, {answers})")
    worst = max(wrong, key=lambda r: r.total)
    return Check("output law", "output law", False, f"differs from {what} in {len(wrong)} of {len(results)} toy "
                 f"worlds; most in {worst.laws.world.name!r}: total variation {worst.total:.6g}")


class PolicyContract:
    """Inherit it in a test file, set ``policy``, and pytest checks your policy; see the module.

    Attributes:
        policy: a reference, a class, an unused object, or a function that makes one (as a ``staticmethod``).
        parameters: for a reference or a class.
        base: folder that relative references start from, None for the working directory.
        thorough, cases: see :func:`check_policy`.
    """

    policy: ClassVar[Any] = None
    parameters: ClassVar[Mapping[str, Any]] = {}
    base: ClassVar[Path | None] = None
    thorough: ClassVar[bool] = False
    cases: ClassVar[int | None] = None

    _reports: ClassVar[dict[tuple[type, bool], Report]] = {}

    @classmethod
    def report(cls, *, greedy: bool = False) -> Report:
        """The report behind the tests; made once per class."""
        assert cls.policy is not None, f"{cls.__name__} must set policy"
        key = (cls, greedy)
        if key not in PolicyContract._reports:
            PolicyContract._reports[key] = check_policy(
                cls.policy, cls.parameters, base=cls.base, greedy=greedy, thorough=cls.thorough, cases=cls.cases)
        return PolicyContract._reports[key]

    def test_contract(self) -> None:
        """Shape, whole numbers, range, views left alone, repeatable, started anew."""
        report = self.report()
        assert report.kept, str(report)

    def test_claim(self) -> None:
        """A policy with ``lossless = True`` anticipates nothing, and its output laws are exact."""
        report = self.report()
        assert report.ok, str(report)

    def test_greedy(self) -> None:
        """Under greedy decoding the text is the target's own."""
        report = self.report(greedy=True)
        assert report.ok, str(report)
