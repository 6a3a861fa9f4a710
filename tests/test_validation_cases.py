"""The shipped validation cases at their ends: every one loads, runs, and predicts within its own worst error."""

from __future__ import annotations

import pytest

from dspark_sim.validate import run_case
from dspark_sim.validate_case import Case, list_cases, load_case

CASES = list_cases()


def reduced(name: str) -> Case:
    """The case without the points that take long and are judged nowhere."""
    case = load_case(name)
    if name == "t1-v4-pro":
        tables = [t.model_copy(update={"rows": [r for r in t.rows or [] if r[0] in (16, 256)]})
                  for t in case.published if t.arm in ("fixed_k5", "fixed_k3")]
        small = case.model_copy(update={"published": tables})
        small._document, small._name = case._document, case._name
        return small
    return case


def test_all_seven_questions_have_a_case() -> None:
    assert {"t1-v4-pro", "paper-v4-flash-fig7", "paper-v4-flash-fig8", "h20-qwen3-8b", "s1-staircase",
            "paper-acceptance", "rtx5090-open-loop", "k0-is-not-no-spec"} <= set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_a_case_stays_inside_its_worst_error(name: str) -> None:
    result = run_case(reduced(name), quick=True)
    assert result.points
    assert all(p.predicted is not None for p in result.points), [p for p in result.points if p.predicted is None]
    assert result.passed, [s for s in result.summaries if not s.passed]
    fitted = [abs(p.error) for p in result.points if p.role == "fitted" and p.error is not None and not p.absolute]
    assert not fitted or max(fitted) < 6, "the case no longer reproduces what its inputs were fitted on"


@pytest.mark.parametrize("name", CASES)
def test_a_case_says_what_was_fitted_and_where_it_comes_from(name: str) -> None:
    case = load_case(name)
    assert case.source
    assert case.fitted.on
    assert case.predicted
    judged = [t for t in (*case.published, *case.acceptance) if t.role == "predicted"]
    assert judged or case.findings  # a demonstration says what it shows


def test_nothing_predicted_is_in_the_source_tables_of_the_profiles() -> None:
    from dspark_sim.shelves import HARDWARE_PROFILES, shelf

    source = (shelf(HARDWARE_PROFILES) / "b300x8-deepseek-v4-pro" / "source.csv").read_text()
    assert "fixed_k5" not in source
    source = (shelf(HARDWARE_PROFILES) / "rtx5090-qwen3-4b" / "source.csv").read_text()
    assert [line.split(",")[0] for line in source.splitlines() if line[:1].isdigit()] == ["1", "4", "8"]
    source = (shelf(HARDWARE_PROFILES) / "h20-qwen3-8b" / "throughput_source.csv").read_text()
    assert {line.split(",")[1] for line in source.splitlines() if line.startswith(("DFlash", "EAGLE"))} == {"4", "8"}
    assert "D-Cut" not in source


def test_early_stop_verifies_nothing_where_the_staircase_says_so() -> None:
    case = load_case("s1-staircase")
    show = case.show[0].model_copy(update={"at": [16, 20], "arms": ["no-spec", "early-stop", "async-global"]})
    small = case.model_copy(update={"show": [show], "published": []})
    small._document, small._name = case._document, case._name
    got = {(p.arm, p.at, p.quantity): p.predicted or 0.0 for p in run_case(small).points}
    assert got["early-stop", 16, "verification_budget"] == pytest.approx(1.0, abs=0.01)
    assert got["early-stop", 20, "verification_budget"] > 1.4
    speed = {arm: got[arm, 16, "throughput_tok_s_gpu"] for arm in ("no-spec", "early-stop", "async-global")}
    assert speed["early-stop"] < 0.85 * speed["no-spec"]
    assert speed["async-global"] > 1.5 * speed["no-spec"]
