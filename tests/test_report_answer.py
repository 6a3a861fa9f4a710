"""The sentence at the head of a run's report: what it ranks by depends on who decides the throughput."""

from __future__ import annotations

from typing import Any

from dspark_sim.report.run_page import _answer, _open_loop


def arm(name: str, throughput: float, speed: float) -> dict[str, Any]:
    def figure(mean: float) -> dict[str, float]:
        return {"mean": mean, "ci95_low": mean - 1, "ci95_high": mean + 1}

    return {"arm": name, "lossless": True, "throughput_tok_s_gpu": figure(throughput), "tps_user_mean": figure(speed),
            "throughput_vs_first_pct": figure(throughput - 100)}


ARMS = [arm("plain", 100, 40), arm("most", 120, 50), arm("fast", 110, 90)]


def manifest(kind: str) -> dict[str, Any]:
    return {"scenario": {"resolved": {"workload": {"arrival": {"kind": kind}}}}}


def test_closed_loops_rank_by_throughput() -> None:
    assert not _open_loop(manifest("closed"))
    assert _answer(ARMS, False) == [
        "Most throughput of the lossless arms: most with 120 tokens/s per GPU (± 1), +20.0 % against plain; each user "
        "receives 50 tokens/s on average."]


def test_open_loops_rank_by_the_speed_of_users() -> None:
    assert all(_open_loop(manifest(kind)) for kind in ("poisson", "replay", "sessions"))
    (text,) = _answer(ARMS, True)
    assert text.startswith("Most speed for users of the lossless arms: fast with 90 tokens/s for each user (± 1). ")
    assert text.endswith("its throughput is the traffic's.")
