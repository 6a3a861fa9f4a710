"""Appendix A of the DSpark paper, enumerated: what a policy does to the distribution of the next token.

One request, tokens A and B. The target gives A 0.7; the drafter draws A or B with 0.5 each; rejection sampling keeps
the first draft token with chance 0.8. After A the drafter is sure of its second token (0.9), after B it knows that it
is lost (0). Steps per second at 1, 2 and 3 batch tokens: 1, 0.5, 0.45. Every draw and every acceptance is summed, so
the laws are exact. A lossless policy must give back the target's.

    python tools/leak.py [POLICY ...]
"""

from __future__ import annotations

import argparse
from types import SimpleNamespace
from typing import Any

import numpy as np

from dspark_sim.curve import StepCost, StepCurve
from dspark_sim.policy import EngineSetup
from dspark_sim.registry import load_policy

TARGET, DRAFTER, SECOND = (0.7, 0.3), (0.5, 0.5), (0.9, 0.0)
FIRST = 0.8  # survival of the first draft token, before it is drawn: 0.5 · 1 + 0.5 · (0.3 / 0.5)
SPS = (1.0, 0.5, 0.45)
DEFAULT = ("fixed", "threshold", "early_stop", "async_global", "sync_global")


def lengths(name: str) -> list[int]:
    """How many draft tokens the policy verifies when the first one is A, and when it is B."""
    curve = StepCurve(np.array([1, 2, 3]), np.array([1 / sps for sps in SPS]))
    setup = EngineSetup(
        drafter="toy", block_size=2, temperature=1.0, max_num_seqs=1, max_num_batched_tokens=3, host_lag=2,
        cost=StepCost(curve, block_size=2, max_requests=1, max_tokens=3), rng=np.random.default_rng(0),
    )
    found = []
    for second in SECOND:
        policy: Any = load_policy(name, {"length": 2} if name == "fixed" else {})[0]
        if hasattr(policy, "start"):
            policy.start(setup)
        before = np.array([[FIRST, FIRST * SECOND[0]]], dtype=np.float32)
        view = SimpleNamespace(
            requests=1, drafted=np.array([2]), prefill_tokens=0, kv_tokens=0, block_size=2, host_lag=2, step=10,
            confidence=np.array([[FIRST, second]], dtype=np.float32),
            survival=np.array([[FIRST, FIRST * second]], dtype=np.float32), past=lambda n, rows=before: rows,
        )
        if hasattr(policy, "draft_lengths"):
            policy.draft_lengths(view)  # policies with a budget fix it here
        found.append(int(policy.verify_lengths(view)[0]))
    return found


def law(verified: list[int]) -> tuple[float, float]:
    """P(next token is A), P(B), when ``verified`` tokens are checked after drawing A, and after drawing B."""
    out = [0.0, 0.0]
    residual = np.maximum(np.subtract(TARGET, DRAFTER), 0)
    residual /= residual.sum()
    for drawn, chance in enumerate(DRAFTER):
        keep = min(1.0, TARGET[drawn] / DRAFTER[drawn])
        for token in range(2):
            if verified[drawn] == 0:  # nothing is verified: the target draws the token itself
                out[token] += chance * TARGET[token]
            else:
                out[token] += chance * (keep * (token == drawn) + (1 - keep) * residual[token])
    return out[0], out[1]


def main() -> None:
    parser = argparse.ArgumentParser(description="The law of the next token under a policy, in the paper's Appendix A")
    parser.add_argument("policy", nargs="*", default=DEFAULT, help="shipped policies")
    print("policy        verifies after A, B    next token A, B    leak")
    print(f"{'the target':32}   {TARGET[0]:7.4f} {TARGET[1]:7.4f}")
    for name in parser.parse_args().policy:
        verified = lengths(name)
        a, b = law(verified)
        leak = f"{abs(a - TARGET[0]):.4f}" if abs(a - TARGET[0]) > 1e-12 else "none"
        print(f"{name:12}  {verified[0]:14} {verified[1]:2}    {a:10.4f} {b:7.4f}    {leak}")


if __name__ == "__main__":
    main()
