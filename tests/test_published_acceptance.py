"""The shipped parametric traces reproduce what was published: every figure is recomputed here from the shipped files.

Measured by a literal walk of every document with full verification (as the published numbers were), written apart
from the walker of tools/fit_traces.py. Published numbers with their sources: tests/data/published_acceptance.json.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import rankdata

from dspark_sim.parametric import generate
from dspark_sim.trace import AcceptanceTrace
from dspark_sim.traceset import find_traces

PUBLISHED = json.loads((Path(__file__).parent / "data" / "published_acceptance.json").read_text())
PAIRS = [(drafter, domain) for drafter in ("dspark", "dflash", "eagle3") for domain in ("math", "code", "chat")]
POSITIONS = (1, 3, 5, 7)


def published(name: str) -> Any:
    return PUBLISHED[name]["values"]


@cache
def trace(target: str, drafter: str) -> AcceptanceTrace:
    spec = find_traces(target).spec
    assert spec is not None
    return generate(spec, drafter)


@cache
def rounds(target: str, drafter: str, domain: str, width: int) -> tuple[Any, Any]:
    """(rows, accepted) of all rounds of a domain, at most ``width`` tokens verified."""
    it = trace(target, drafter)
    accepted, rows, kept = it.accepted.tolist(), [], []
    for d, name in enumerate(it.domain):
        if name == domain:
            t, end = int(it.document_start[d]), int(it.document_start[d + 1])
            while t < end:
                rows.append(t)
                kept.append(min(width, accepted[t]))
                t += 1 + kept[-1]
    return np.array(rows), np.array(kept)


def tau(target: str, drafter: str, domain: str, width: int) -> float:
    return float(1 + rounds(target, drafter, domain, width)[1].mean())


def auc(score: Any, kept: Any) -> float:
    good = np.count_nonzero(kept)
    return float((rankdata(score)[kept].sum() - good * (good + 1) / 2) / (good * (kept.size - good)))


def ece(predicted: Any, kept: Any) -> float:
    edges = np.linspace(0, 1, 21)
    which = np.clip(np.digitize(predicted, edges) - 1, 0, 19)
    return sum(abs(predicted[which == b].sum() - kept[which == b].sum()) for b in range(20)) / kept.size


@pytest.mark.parametrize(("drafter", "domain"), PAIRS)
def test_figure_2_within_one_hundredth_at_every_position(drafter: str, domain: str) -> None:
    _, accepted = rounds("qwen3-4b", drafter, domain, 7)
    for k, wanted in enumerate(published("figure2")[drafter][domain], start=1):
        got = (accepted >= k).sum() / (accepted >= k - 1).sum()
        assert got == pytest.approx(wanted, abs=0.01), f"position {k}"


@pytest.mark.parametrize(("drafter", "domain"), PAIRS)
def test_table_1_domain_means_within_two_per_cent(drafter: str, domain: str) -> None:
    wanted = np.mean(list(published("table1")[drafter][domain].values()))
    assert tau("qwen3-4b", drafter, domain, 7) == pytest.approx(wanted, rel=0.02)
    product = 1 + np.cumprod(published("figure2")[drafter][domain]).sum()
    assert product == pytest.approx(wanted, rel=0.01)  # the two publications agree, so both can be met


@pytest.mark.parametrize("k", POSITIONS)
def test_figure_6_scores_the_product_of_confidences(k: int) -> None:
    """Its printed AUC follows from its own histogram and reliability curve, so it is the prefix's, not one token's."""
    panel = published("figure6")[str(k)]
    share, was = np.array(panel["histogram"]), np.array([x or 0.0 for x in panel["observed_before"]])
    good, bad = share * was, share * (1 - was)
    binned = float((good * (np.cumsum(bad) - bad / 2)).sum() / (good.sum() * bad.sum()))
    assert binned == pytest.approx(panel["auc"], abs=0.01)


@pytest.mark.parametrize("k", POSITIONS)
def test_figure_6_in_the_chat_domain(k: int) -> None:
    it, panel = trace("qwen3-4b", "dspark"), published("figure6")[str(k)]
    rows, accepted = rounds("qwen3-4b", "dspark", "chat", 7)
    raw, calibrated = it.survival(calibrated=False), it.survival()
    assert raw is not None
    assert calibrated is not None
    before, after, kept = raw[rows, k - 1], calibrated[rows, k - 1], accepted >= k
    assert auc(before, kept) == pytest.approx(panel["auc"], abs=0.02)
    assert ece(before, kept) == pytest.approx(panel["ece_before"], abs=0.015)
    assert ece(after, kept) == pytest.approx(panel["ece_after"], abs=AFTER_TOLERANCE)
    assert ece(after, kept) < 0.6 * ece(before, kept)
    wanted = np.array(panel["histogram"]) / sum(panel["histogram"])
    share = np.histogram(before, bins=20, range=(0, 1))[0] / before.size
    assert np.abs(share - wanted).sum() / 2 < 0.12  # total variation between the two histograms


AFTER_TOLERANCE = 0.01


def test_temperatures_help_where_they_were_not_fitted() -> None:
    """Fitted on every other round of chat; calibration must help in the other domains as well."""
    it = trace("qwen3-4b", "dspark")
    raw, calibrated = it.survival(calibrated=False), it.survival()
    assert raw is not None
    assert calibrated is not None
    for domain in ("math", "code", "a3-mix"):
        rows, accepted = rounds("qwen3-4b", "dspark", domain, 7)
        before = sum(ece(raw[rows, k - 1], accepted >= k) for k in POSITIONS)
        assert sum(ece(calibrated[rows, k - 1], accepted >= k) for k in POSITIONS) < 0.75 * before


@pytest.mark.parametrize("drafter", ["dspark", "dflash"])
def test_a3_histogram_within_three_points_per_bar_and_u_shaped(drafter: str) -> None:
    counts = np.array(published("a3")[drafter])
    _, accepted = rounds("qwen3-4b", drafter, "a3-mix", 7)
    share = 100 * np.bincount(accepted, minlength=8) / accepted.size
    assert share == pytest.approx(100 * counts / counts.sum(), abs=3)
    assert share.argmin() not in (0, 7)
    assert share[7] > 2 * share[6]


@pytest.mark.parametrize(("drafter", "k"), [*(("dspark-5", k) for k in range(1, 6)), ("dspark-7", 7), ("mtp", 1)])
def test_a5_lengths_of_deepseek_v4_within_two_per_cent(drafter: str, k: int) -> None:
    wanted = published("a5")[drafter.split("-")[0]][k - 1]
    assert tau("deepseek-v4", drafter, "code", k) == pytest.approx(wanted, rel=0.02)


def test_domains_of_deepseek_v4_keep_the_order_of_qwen() -> None:
    for drafter in ("dspark-5", "dspark-7", "mtp"):
        math, code, chat = (tau("deepseek-v4", drafter, domain, 7) for domain in ("math", "code", "chat"))
        assert math > code > chat


def test_kinds_and_assumptions_are_said() -> None:
    assert {trace("qwen3-4b", d).kind for d in ("dspark", "dflash", "eagle3")} == {"published"}
    assert {trace("deepseek-v4", d).kind for d in ("dspark-5", "dspark-7", "mtp")} == {"derived"}
    assert "a3-mix is derived" in " ".join(trace("qwen3-4b", "eagle3").provenance["notes"])
    for target, drafter in (("qwen3-4b", "dspark"), ("deepseek-v4", "mtp")):
        says = trace(target, drafter).provenance
        assert says["source"]
        assert says["assumptions"]
        assert says["command"]


def test_only_dspark_has_a_confidence_head() -> None:
    have = {d: trace(t, d).confidence is not None for t, d in
            (("qwen3-4b", "dspark"), ("qwen3-4b", "dflash"), ("qwen3-4b", "eagle3"), ("deepseek-v4", "dspark-5"),
             ("deepseek-v4", "dspark-7"), ("deepseek-v4", "mtp"))}
    assert have == {"dspark": True, "dflash": False, "eagle3": False, "dspark-5": True, "dspark-7": True, "mtp": False}
    for target, drafter in (("qwen3-4b", "dspark"), ("deepseek-v4", "dspark-5"), ("deepseek-v4", "dspark-7")):
        assert trace(target, drafter).sts_temperature is not None
