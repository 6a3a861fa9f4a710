"""Make the small traffic files of scenarios/traffic/ from your own copies of the public logs; nothing is fetched.

    python tools/convert_traffic.py FOLDER [--out scenarios/traffic] [--only NAME ...]

FOLDER holds the logs under the names that their publishers gave them (gzipped or not, both are found):

    AzureLLMInferenceTrace_code.csv, AzureLLMInferenceTrace_conv.csv
        github.com/Azure/AzurePublicDataset, 2023. CC-BY 4.0: the derived files' README names the source
        and what was changed.
    mooncake_conversation_trace.jsonl (or conversation_trace.jsonl)
        github.com/kvcache-ai/Mooncake, FAST25-release/traces. Apache-2.0.
    derived_servegen_deepseek-r1_busiest_hour.csv
        a CSV (arrived_at_s, input_tokens, output_tokens, ...) drawn from the rates and length distributions that
        github.com/alibaba/ServeGen publishes for deepseek-r1, busiest hour. Apache-2.0.

A derived file is the log or a window of it, counted from the window's start, with nothing but what a replay needs:
seconds (to the millisecond), prompt and output tokens, and Mooncake's hashes, renumbered. Every row of the window is
in it. Where the numbers come from stands in scenarios/traffic/README.md.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dspark_sim.errors import InputError
from dspark_sim.replay_log import TrafficLog
from dspark_sim.replay_read import read_log

MAX_BYTES = 200_000
WHOLE = 1e9  # later than any log ends


@dataclass(frozen=True)
class Recipe:
    """What becomes of one log: ``sources`` are its possible names, ``window`` the seconds that are kept."""

    sources: tuple[str, ...]
    window: tuple[float, float]
    write: Callable[[TrafficLog, slice, float], str]


def plain(log: TrafficLog, rows: slice, start: float) -> str:
    """Our plain CSV."""
    lines = ["arrival_s,prompt_tokens,output_tokens"]
    columns = (log.arrival[rows] - start, log.prompt[rows], log.output[rows])
    lines += [f"{t:.3f},{p},{o}" for t, p, o in zip(*(c.tolist() for c in columns), strict=True)]
    return "\n".join(lines) + "\n"


def mooncake(log: TrafficLog, rows: slice, start: float) -> str:
    """Mooncake's own format; hashes are renumbered in order of appearance, which keeps what is equal."""
    number: dict[int, int] = {}
    lines = []
    for i in range(rows.start, rows.stop):
        ids = [number.setdefault(block, len(number)) for block in log.prefix(i)]
        row = {"timestamp": round(1000 * (log.arrival[i] - start)), "input_length": int(log.prompt[i]),
               "output_length": int(log.output[i]), "hash_ids": ids}
        lines.append(json.dumps(row, separators=(",", ":")))
    return "\n".join(lines) + "\n"


RECIPES = {
    "azure-code.csv.gz": Recipe(("AzureLLMInferenceTrace_code.csv",), (0.0, WHOLE), plain),
    "azure-conversation.csv.gz": Recipe(("AzureLLMInferenceTrace_conv.csv",), (0.0, WHOLE), plain),
    "mooncake-conversation.jsonl.gz": Recipe(
        ("mooncake_conversation_trace.jsonl", "conversation_trace.jsonl"), (0.0, 600.0), mooncake),
    "reasoning-r1.csv.gz": Recipe(("derived_servegen_deepseek-r1_busiest_hour.csv",), (0.0, 600.0), plain),
}


def find(folder: Path, names: tuple[str, ...]) -> Path | None:
    """The log under one of its names, plain or gzipped."""
    return next((p for name in names for p in (folder / name, folder / f"{name}.gz") if p.is_file()), None)


def convert(source: Path, recipe: Recipe) -> tuple[bytes, int, int]:
    """(the derived file, its rows, the log's rows). The same log gives the same bytes."""
    log = read_log(source)
    low, high = np.searchsorted(log.arrival, recipe.window, side="left")
    if low == high:
        raise InputError(f"has no request in seconds {recipe.window[0]:g} to {recipe.window[1]:g}", file=source)
    text = recipe.write(log, slice(int(low), int(high)), recipe.window[0])
    return gzip.compress(text.encode(), compresslevel=9, mtime=0), int(high - low), log.rows


def main(arguments: list[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="your copies of the logs")
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parent.parent / "scenarios" / "traffic")
    parser.add_argument("--only", nargs="+", choices=sorted(RECIPES), default=sorted(RECIPES))
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    missing = 0
    for name in options.only:
        recipe = RECIPES[name]
        source = find(options.folder, recipe.sources)
        if source is None:
            print(f"{name}: {options.folder} holds no {' or '.join(recipe.sources)}", file=sys.stderr)
            missing += 1
            continue
        try:
            data, kept, rows = convert(source, recipe)
        except InputError as problem:
            print(f"{name}: {problem}", file=sys.stderr)
            missing += 1
            continue
        if len(data) > MAX_BYTES:
            print(f"{name}: {len(data)} bytes are more than {MAX_BYTES}; a shorter window is needed", file=sys.stderr)
            missing += 1
            continue
        (options.out / name).write_bytes(data)
        part = "" if kept == rows else f", seconds {recipe.window[0]:g} to {recipe.window[1]:g}"
        print(f"{name}: {kept} of {rows} requests{part}, {len(data)} bytes")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
