"""Results: the public names, strict JSON, CSV, tables that fit the width, failed arms, warnings."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest

from dspark_sim.notes import arm_warnings, assumptions, run_warnings
from dspark_sim.results import HEADLINE, MORE, ArmResult, Results, arm_result
from dspark_sim.runner import TaskResult, summarise
from tests.synthetic_run import scenario, setup

# The public interface: scripts of users depend on these names and their order.
NAMES = [
    "arm", "policy", "drafter", "lossless", "throughput_tok_s_gpu", "tps_user_mean", "tps_user_p50", "tps_user_p5",
    "tps_user_concurrent", "tpot_ms_p50", "tpot_ms_p99", "step_gap_ms_p99", "acceptance_length", "acceptance_rate",
    "accepted_per_drafted", "wasted_share", "verification_budget", "sla_attainment", "goodput_tok_s_gpu",
    "throughput_vs_first_pct", "steps", "requests",
]
PLAIN = {"arm", "policy", "drafter", "lossless", "steps", "requests"}


def measured(throughput: float, **more: Any) -> dict[str, Any]:
    return dict.fromkeys((*HEADLINE, *MORE), 0.5) | {
        "throughput_tok_s_gpu": throughput, "steps": 10.0, "requests": 200.0, "window_s": 2.0, "input_tokens": 100.0,
        "output_tokens": 400.0, "requests_met_sla": 150.0, "draft_tokens": 50.0, "accepted_tokens": 20.0,
        "drafts": 10.0, "acceptance_length": 3.0, "accepted_per_drafted": 0.4, "step_gap_ms_mean": 7.0,
    } | more


def task(arm: str, replication: int, throughput: float, **more: Any) -> TaskResult:
    return TaskResult(arm, replication, measured(throughput, **more), {"c": measured(throughput)}, None, (), 0.1, None)


@pytest.fixture(name="results")
def _results() -> Results:
    arms = [setup("base", gpus=2, drafter=None), setup("fast", gpus=2), setup("broken", gpus=2)]
    tasks = [task("base", 0, 100.0), task("fast", 0, 120.0), task("base", 1, 200.0), task("fast", 1, 240.0),
             TaskResult("broken", 0, {}, {}, "policy Broken raised ZeroDivisionError", (), 0.0, None)]
    return summarise(scenario(), arms, tasks)


def test_json_has_the_documented_names_in_order(results: Results) -> None:
    data = json.loads(results.to_json(), parse_constant=pytest.fail)
    arm = data["arms"][1]
    assert list(arm)[: len(NAMES)] == NAMES
    for name in NAMES:
        if name in PLAIN:
            assert not isinstance(arm[name], dict), name
        else:
            assert set(arm[name]) == {"mean", "ci95_low", "ci95_high"}, name
    assert arm["throughput_tok_s_gpu"]["mean"] == pytest.approx(180)
    assert arm["drafter"] == "d"
    assert data["arms"][0]["drafter"] is None
    assert arm["steps"] == 20
    assert arm["requests"] == 400


def test_csv_has_the_same_names_with_suffixes(results: Results) -> None:
    rows = list(csv.DictReader(io.StringIO(results.to_csv())))
    expected = [n for name in NAMES
                for n in ([name] if name in PLAIN else [name, f"{name}_ci95_low", f"{name}_ci95_high"])]
    assert list(rows[0])[: len(expected)] == expected
    assert rows[0]["drafter"] == ""
    assert rows[0]["lossless"] == "true"
    assert float(rows[1]["throughput_tok_s_gpu"]) == pytest.approx(180)
    assert rows[2]["throughput_tok_s_gpu"] == ""
    assert "ZeroDivisionError" in rows[2]["error"]


def test_differences_are_paired_against_the_first_arm(results: Results) -> None:
    figure = results["fast"].figures["throughput_vs_first_pct"]
    assert figure.mean == pytest.approx(20.0)
    assert figure.half_width == pytest.approx(0.0, abs=1e-9)
    own = results["base"].figures["throughput_vs_first_pct"]
    assert (own.mean, own.ci95_low, own.ci95_high) == (0.0, 0.0, 0.0)


def test_pairs_match_by_replication_not_by_rank() -> None:
    """The first arm lost replication 0 (an interrupted run): only replication 1 has a pair."""
    arms = [setup("base"), setup("fast")]
    got = summarise(scenario(), arms, [task("base", 1, 200.0), task("fast", 0, 100.0), task("fast", 1, 240.0)],
                    interrupted=True)
    assert got["fast"].figures["throughput_vs_first_pct"].mean == pytest.approx(20.0)
    assert "interrupted" in got.warnings[0]


def test_a_failed_arm_has_a_reason_and_no_figures(results: Results) -> None:
    broken = results["broken"]
    assert results.failed
    assert broken.error == "policy Broken raised ZeroDivisionError"
    assert broken.steps is None
    assert all(f.mean is None for f in broken.figures.values())
    assert "a class is odd" in results.warnings
    assert any("broken failed" in w and "ZeroDivisionError" in w for w in results.warnings)
    assert results["fast"].error is None


def test_an_arm_that_failed_late_has_no_figures_either() -> None:
    """Replication 0 had finished; its figures alone would look like a result."""
    got = summarise(scenario(), [setup("late")], [
        task("late", 0, 100.0), TaskResult("late", 1, {}, {}, "[bold]out of range[/bold]", (), 0.0, None)])
    assert got["late"].figures["throughput_tok_s_gpu"].mean is None
    assert got["late"].classes == {}
    assert "[bold]out of range[/bold]" in got.table(120)  # shown, not obeyed


def test_vllm_bench_names(results: Results) -> None:
    """Field names of vLLM's ``bench serve`` result; throughput is of the engine (2 GPUs), 200 requests in 2 s."""
    bench = results["fast"].vllm_bench
    for field in ("duration", "completed", "total_input_tokens", "total_output_tokens", "request_throughput",
                  "request_goodput", "output_throughput", "total_token_throughput"):
        assert field in bench, field
    for what in ("ttft", "tpot", "itl", "e2el"):
        assert {f"mean_{what}_ms", f"median_{what}_ms", f"p99_{what}_ms"} <= set(bench)
    assert bench["output_throughput"] == pytest.approx(2 * 180)
    assert bench["total_token_throughput"] == pytest.approx(2 * 180 + 50)
    assert bench["request_throughput"] == pytest.approx(100)
    assert bench["request_goodput"] == pytest.approx(75)
    assert bench["mean_itl_ms"] == pytest.approx(7.0)
    assert bench["spec_decode_acceptance_rate"] == pytest.approx(40.0)
    assert bench["spec_decode_acceptance_length"] == pytest.approx(3.0)
    assert not any(k.startswith("spec_decode") for k in arm_result(
        setup(drafter=None), [measured(1.0, draft_tokens=0.0)], []).vllm_bench)


@pytest.mark.parametrize("width", [80, 120, 200])
def test_the_table_fits_its_width_and_loses_nothing(results: Results, width: int) -> None:
    text = results.table(width)
    assert max(map(len, text.splitlines())) <= width
    for words in ("base", "fast", "broken", "throughput", "TPS/user", "TPOT", "step gap", "acceptance", "verify",
                  "accepted /", "wasted", "SLA met", "goodput", "steps", "requests", "+20.0 %", "first arm", "Warnings",
                  "What the figures rest on"):
        assert words in text, words
    assert "nan" not in text.lower()


def test_wider_terminals_stack_fewer_tables(results: Results) -> None:
    widths = (80, 120, 200, 300)
    tables = [sum(line.startswith("arm ") for line in results.table(w).splitlines()) for w in widths]
    assert tables == sorted(tables, reverse=True)
    assert tables[-1] == 1


def test_markup_in_names_is_shown_not_obeyed() -> None:
    got = summarise(scenario(), [setup("[red]x[/red]", policy_reference="./[b]m.py")], [task("[red]x[/red]", 0, 1.0)])
    assert "[red]x[/red]" in got.table(200)
    assert "./[b]m.py(length=5)" in got.table(200)


def test_a_lossy_arm_is_marked() -> None:
    lossy = setup("cheat", policy_source=type("S", (), {"name": "cheat", "lossless": False, "hides": ()}))
    got = summarise(scenario(), [lossy], [task("cheat", 0, 1.0), task("cheat", 1, 1.0)])
    assert " NO " in got.table(120)
    assert any("cheat: not lossless" in w for w in got.warnings)


def test_synthetic_inputs_are_called_so() -> None:
    got = run_warnings([setup(kind="synthetic"), setup(kind="synthetic")], 5, {})
    assert len([w for w in got if w.startswith("synthetic input: profile p;")]) == 1
    assert not any("synthetic" in w for w in run_warnings([setup(kind="measured")], 5, {}))
    assert any("one replication" in w for w in run_warnings([setup()], 1, {}))


def test_assumptions_name_every_input_once() -> None:
    a, b = setup("a"), setup("b")
    b.profile = b.belief_profile = a.profile
    a.belief_profile = a.profile
    b.step_scale = 0.5
    lines = assumptions([a, b])
    assert lines[0].startswith("profile p: measured")
    assert sum("trace t/d: derived" in line for line in lines) == 1
    assert any("arm b: its policy believes step times × 0.5" in line for line in lines)


def _warned(arrival: str = "closed", **figures: Any) -> str:
    done = [measured(100.0, **figures), measured(100.0, **figures)]
    result: ArmResult = arm_result(setup("arm"), done, done)
    return "\n".join(arm_warnings(scenario(arrival=arrival), result, done))


def test_doubts_are_told_in_words() -> None:
    assert _warned() == ""
    assert "rose by 20.0 %" in _warned(tok_s_first_half=100.0, tok_s_second_half=120.0)
    growing = {"waiting_first_half": 4.0, "waiting_second_half": 40.0}
    assert "queue grew from 4.0 to 40.0" in _warned("poisson", **growing)
    assert "queue" not in _warned("closed", **growing)
    assert "10 % of its steps lie outside the measured" in _warned(extrapolated_steps=1.0)
    assert "only 20 requests" in _warned(requests=10.0)
    assert "50 % of the measured requests had begun" in _warned(begun_before_start_share=0.5)
    assert "no request of some replication" in _warned(tps_user_mean=None)


def test_an_unknown_arm_is_a_key_error_with_the_names(results: Results) -> None:
    with pytest.raises(KeyError, match="base, fast, broken"):
        results["fats"]


def test_frame_has_a_row_per_arm(results: Results) -> None:
    frame = results.to_frame()
    assert frame["arm"].tolist() == ["base", "fast", "broken"]
    assert frame["throughput_tok_s_gpu"].isna().tolist() == [False, False, True]


def test_step_times_and_acceptance_of_different_models_are_pointed_out() -> None:
    """The hand-made trace's target is called t."""
    assert any("another model" in w for w in run_warnings([setup(model="Qwen3-8B (bf16)")], 5, {}))
    for model in ("none", "T-Flash, FP8"):
        assert not any("another model" in w for w in run_warnings([setup(model=model)], 5, {}))
