"""Write scenarios/expected/NAME.csv: what the scenarios with replayed traffic give, for tests/test_replay_shelf.py.

    python tools/expected_tables.py [NAME ...]

Run it after a change that is meant to change results, and look at the difference before you commit it.
"""

from __future__ import annotations

import sys
from pathlib import Path

NAMES = ("azure-code", "azure-conversation", "mooncake-conversation", "reasoning-r1")
FOLDER = Path(__file__).resolve().parent.parent / "scenarios" / "expected"
FIGURES = (
    "throughput_tok_s_gpu", "goodput_tok_s_gpu", "sla_attainment", "tps_user_mean", "tps_user_p5", "ttft_ms_p50",
    "ttft_ms_p99", "acceptance_length", "verification_budget", "requests_decoding_mean",
)


def expected(name: str) -> str:
    """The table as CSV: a row per arm, six significant digits."""
    from dspark_sim import load_scenario, run

    results = run(load_scenario(name), keep=False)
    lines = [",".join(("arm", *FIGURES))]
    for arm in results.arms:
        assert arm.error is None, arm.error
        means = [arm.figures[figure].mean for figure in FIGURES]
        lines.append(",".join([arm.arm, *("" if mean is None else f"{mean:.6g}" for mean in means)]))
    return "\n".join(lines) + "\n"


def main(names: list[str]) -> None:
    """The command line."""
    FOLDER.mkdir(exist_ok=True)
    for name in names or NAMES:
        (FOLDER / f"{name}.csv").write_text(expected(name), encoding="utf-8")
        print(FOLDER / f"{name}.csv")


if __name__ == "__main__":
    main(sys.argv[1:])
