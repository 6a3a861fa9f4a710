"""Lay the profile h100x2-qwen3-32b beside what NVIDIA measured of vLLM: the table of docs/profiles.md.

    python tools/check_derived_profiles.py [--host-ms 1.0] [--rows N]

Needs the extra aiconfigurator, whose wheel carries the measurements (systems/silicon_sample.csv): Qwen3-32B on two H100
with vLLM 0.12.0, 30 loads by prompt, output and concurrency. Their precision is not stated; bf16 is assumed, as the
name Qwen/Qwen3-32B says. Each load is simulated as a closed loop in steady state; nothing is fitted.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from dspark_sim import load_scenario, run

WHICH = ("Qwen/Qwen3-32B", "h100_sxm", "vllm", "agg")
SCENARIO = """\
name: check
description: one measured load
profile: h100x2-qwen3-32b
traces: qwen3-4b
workload:
  arrival: {{kind: closed, concurrency: {seats}}}
  prompt_tokens: {{kind: constant, value: {prompt}}}
  output_tokens: {{kind: constant, value: {output}}}
  classes: [{{name: all, share: 1.0, domain: chat}}]
engine: {{prefill: chunked}}
arms: [{{name: no-spec, policy: no_spec}}]
measure: {{mode: steady, warmup_s: 30, duration_s: 90}}
replications: 2
seed: 1
record: requests
"""


def measured() -> list[dict[str, str]]:
    """The rows of the package's sample that are laid beside."""
    import aiconfigurator_core

    file = Path(str(aiconfigurator_core.__file__)).parent / "systems" / "silicon_sample.csv"
    with file.open(encoding="utf-8", newline="") as text:
        rows = [r for r in csv.DictReader(text) if float(r["tp_size"] or 0) == 2 and not r["precision"]
                and (r["model_path"], r["system"], r["backend"], r["mode"]) == WHICH]
    return sorted(rows, key=lambda r: [float(r[k]) for k in ("isl", "osl", "batch_size")])


def predicted(prompt: int, output: int, seats: int, host_ms: float, folder: Path) -> tuple[float, float]:
    """(mean TPOT, median TTFT), ms."""
    file = folder / "check.yaml"
    file.write_text(SCENARIO.format(prompt=prompt, output=output, seats=seats), encoding="utf-8")
    overrides: dict[str, Any] = {}
    if host_ms != 1.0:
        overrides["profile"] = str(_with_host(host_ms, folder))
    (arm,) = run(load_scenario(file, overrides)).arms
    return float(arm.figures["tpot_ms_mean"].mean or 0), float(arm.figures["ttft_ms_p50"].mean or 0)


def _with_host(host_ms: float, folder: Path) -> Path:
    from dspark_sim.importers.derive import Options, derive
    from dspark_sim.importers.sheet import read_sheet
    from dspark_sim.profile_write import write_profile
    from dspark_sim.shelves import HARDWARE_PROFILES, shelf

    made = folder / "profile"
    if not made.exists():
        sheet = read_sheet(shelf(HARDWARE_PROFILES) / "h100x2-qwen3-32b" / "source.csv")
        write_profile(derive(sheet, Options(host_ms=host_ms)), made)
    return made


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--host-ms", type=float, default=1.0, help="instead of the profile's 1 ms")
    parser.add_argument("--rows", type=int, default=1000, help="the first so many loads only")
    args = parser.parse_args()
    errors: list[float] = []
    print("| prompt | output | concurrency | TPOT measured | predicted | error | TTFT measured | predicted |")
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as place:
        for row in measured()[: args.rows]:
            prompt, output, seats = (int(float(row[k])) for k in ("isl", "osl", "batch_size"))
            tpot, ttft = predicted(prompt, output, seats, args.host_ms, Path(place))
            was, first = float(row["silicon_tpot_ms"]), float(row["silicon_ttft_ms"])
            errors.append(100 * (tpot / was - 1))
            print(f"| {prompt:,} | {output:,} | {seats} | {was:.1f} | {tpot:.1f} | {errors[-1]:+.1f} % | "
                  f"{first:,.0f} | {ttft:,.0f} |", flush=True)
    print(f"\nmedian {median(errors):+.1f} %, median without sign {median(map(abs, errors)):.1f} %, "
          f"worst {max(errors, key=abs):+.1f} %")


if __name__ == "__main__":
    main()
