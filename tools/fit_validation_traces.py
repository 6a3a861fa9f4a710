"""Make the traces and profiles that validation cases need beside the shipped ones, under scenarios/validation/.

    python tools/fit_validation_traces.py      half a minute on one core; writes the same files each time

Nothing but numbers that a case names as fitted goes in. ``traces/qwen3-8b-h20``: greedy acceptance lengths that
explain batches 4 and 8 of a benchmark on one H20. ``profiles/v4-flash-paper-fig8`` and ``-fig7``: the paper's service
with steps as long as MTP-1's accepted length under the case's mix of texts says.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import yaml

sys.path.insert(0, str(Path(__file__).resolve().parent))

from fit_traces import Bench, Plain, rounded
from profiles import h20, paper
from trace_figures import walked

from dspark_sim.parametric import Spec
from dspark_sim.profile import load_profile
from dspark_sim.shelves import ACCEPTANCE_TRACES, HARDWARE_PROFILES, SCENARIOS, shelf
from dspark_sim.traceset import open_traces
from dspark_sim.yamlio import read_yaml, validated

HEADER = "# Written by tools/fit_validation_traces.py: change the script, not the numbers.\n"
MIX = {"code": 0.75, "chat": 0.25}
COMMAND = "python tools/fit_validation_traces.py"
EXTRA = {"EAGLE-3": 3, "DFlash-B8": 7, "DFlash-B16": 15}
NAMES = {"EAGLE-3": "eagle3", "DFlash-B8": "dflash-8", "DFlash-B16": "dflash-16"}


def shipped(name: str) -> dict[str, Any]:
    """A shipped specification as plain data."""
    return validated(Spec, read_yaml(shelf(ACCEPTANCE_TRACES) / f"{name}.yaml")).model_dump(mode="json",
                                                                                            exclude_none=True)


def paper_profile(figure: int) -> str:
    """The paper's service after one figure, its steps as long as MTP-1's accepted length under the case's mix says."""
    name = "deepseek-v4-flash-paper" + ("-fig7" if figure == 7 else "")
    source = load_profile(name)
    trace = open_traces("deepseek-v4", ["mtp"])["mtp"]
    length = 1 / sum(share / (1 + walked(trace, domain)[1].mean()) for domain, share in MIX.items())
    scale = length / (1 + paper.ACCEPTED)
    points = ", ".join(f"[{b}, {1e3 * ms * scale:.4f}]" for b, ms in
                       zip(source.verify.batch_tokens.tolist(), source.verify.seconds.tolist(), strict=True))
    zero = "{points: [[1, 0.0], [400, 0.0]], unit: ms}"
    mix = " and ".join(f"{100 * share:.0f} % {domain}" for domain, share in MIX.items())
    return f"""{HEADER}description: >-
  {name} with steps {scale:.4f} times as long, because MTP-1 emits {length:.4f} tokens a step
  under a mix of {mix} instead of {1 + paper.ACCEPTED}.
gpus: 1
max_num_seqs: 400
max_num_batched_tokens: 4096
verify:
  unit: ms
  between: linear
  extrapolate: linear
  points: [{points}]
drafters:
  mtp: {{kind: parallel, seconds: {zero}, assumption: inside the curve}}
  dspark: {{kind: parallel, seconds: {zero}, assumption: the same as MTP-1's}}
prefill: shared
provenance:
  kind: derived
  device: {source.provenance.device}
  model: {source.provenance.model}
  software: {source.provenance.software}
  date: "{source.provenance.date}"
  source: >-
    {source.provenance.source}
  command: {COMMAND}
  assumptions: [MTP-1 accepts under the case's mix as the trace's MTP does, "otherwise as {name}"]
"""


def qwen_8b() -> dict[str, Any]:
    """Acceptance lengths that explain batches 4 and 8; how they fall over positions is borrowed from Qwen3-4B."""
    spec = shipped("qwen3-4b")
    folder = shelf(HARDWARE_PROFILES) / h20.NAME
    x = h20.fit(h20.points(folder))
    passes = {"EAGLE-3": 3}
    wanted = {arm: h20.acceptance(folder, x, arm, 1 + n, passes.get(arm, 0))[0] for arm, n in EXTRA.items()}
    spec |= {"target": "qwen3-8b-h20", "kind": "derived", "temperature": 0.0,
             "domains": [{"name": "five-benchmarks", "documents": 600}],
             "description": "Qwen3-8B, greedy, mean of five benchmarks on one H20; for validation."}
    old, says = spec["drafters"], spec["drafters"]["dspark"]["confidence"]
    spec["drafters"] = {}
    for arm, n in EXTRA.items():
        source = old["eagle3" if arm == "EAGLE-3" else "dflash"]
        shape = np.array(source["levels"]["math"])
        shape = np.concatenate([shape, np.full(max(0, n - 7), shape[-1])])[:n]
        spread = np.array(source["spread"])
        spread = np.concatenate([spread, spread[-1] + (spread[-1] - spread[-2]) * np.arange(1, max(0, n - 7) + 1)])[:n]
        made: dict[str, Any] = {"block_size": n, "levels": {"five-benchmarks": [0.0] * n}, "spread": rounded(spread)}
        spec["drafters"][NAMES[arm]] = made
        if arm == "DFlash-B8":
            made["confidence"] = {key: says[key][:n] for key in ("shift", "gain", "noise", "sts_temperature")}
        made["notes"] = [f"{arm}: acceptance length {wanted[arm]:.3f} explains its throughput at batches 4 and 8 on "
                         "profile h20-qwen3-8b; the profile over positions is borrowed from Qwen3-4B in math."]
    typed = Spec.model_validate(spec)
    for arm, n in EXTRA.items():
        made = spec["drafters"][NAMES[arm]]
        bench, spread = Bench(typed, "five-benchmarks", NAMES[arm], n), np.array(made["spread"])
        source = np.array(old["eagle3" if arm == "EAGLE-3" else "dflash"]["levels"]["math"])
        shape = np.concatenate([source, np.full(max(0, n - 7), source[-1])])[:n]
        move = bench.solve_length(wanted[arm], partial(np.add, shape), spread, n)
        made["levels"]["five-benchmarks"] = rounded(shape + move)
        print(f"{arm}: acceptance length {wanted[arm]:.3f}, levels moved by {move:+.3f}")
    spec["provenance"] = {
        "source": [h20.SOURCE, *spec["provenance"]["source"][:1]], "date": "2026", "command": COMMAND,
        "assumptions": [
            "One number per drafter, its acceptance length, comes from batches 4 and 8; nothing else was published.",
            "DFlash has no confidence head. D-Cut ranks by the drafter's own probability: here DSpark's confidence on "
            "Qwen3-4B stands for it, as good and as well calibrated.",
            "The difficulty of the text is that of Qwen3-4B's traces.",
        ],
    }
    return spec


def main() -> None:
    """Write all."""
    folder = shelf(SCENARIOS) / "validation" / "traces"
    folder.mkdir(parents=True, exist_ok=True)
    spec = qwen_8b()
    text = yaml.dump(spec, Dumper=Plain, sort_keys=False, allow_unicode=True, width=116, default_flow_style=None)
    (folder / f"{spec['target']}.yaml").write_text(HEADER + text, encoding="utf-8")
    for figure in (8, 7):
        place = shelf(SCENARIOS) / "validation" / "profiles" / f"v4-flash-paper-fig{figure}.yaml"
        place.parent.mkdir(exist_ok=True)
        place.write_text(paper_profile(figure), encoding="utf-8")


if __name__ == "__main__":
    main()
