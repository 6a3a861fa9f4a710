"""Peak memory of whole runs: by requests, by simulated time, and by rows of a replayed log.

    python tools/bench_memory.py requests [--engines 1000] [N ...]      # default 250000 500000 1000000
    python tools/bench_memory.py time [SECONDS ...]                     # one busy engine, longer and longer
    python tools/bench_memory.py log [ROWS ...]                         # a plain CSV, default 1000000 5000000

Each line is `dspark-sim run` in a process of its own (`record: requests`, folder written, no pictures): its peak
resident memory, its seconds of computing, and between two lines the slope in bytes per request (or row). Pages of
temporary files that are mapped count as resident while the machine has room for them; the column *private* leaves them
out (sampled from the kernel's count of anonymous pages ten times a second).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MB = 1 << 20
PROFILE = """
description: 10 ms and 0.01 ms per token, for a benchmark of the simulator
gpus: 1
max_num_seqs: 64
max_num_batched_tokens: 512
verify: {points: [[1, 10.01], [512, 15.12]], unit: ms}
provenance: {kind: synthetic, device: none, model: none, software: none, date: unknown, source: tools/bench_memory.py,
             command: none, assumptions: [every number is invented]}
"""
SCENARIO = """
name: memory
profile: ./memory-profile
replications: 1
record: requests
interval_s: {interval}
engine: {{prefill: none, kv_blocks: unlimited}}
{cluster}
workload:
  arrival: {arrival}
  {lengths}
  sla: {{ttft_ms_max: 1000, tpot_ms_max: 50}}
  classes: [{{name: chat, share: 0.7}}, {{name: code, share: 0.3}}]
measure: {measure}
arms: [{{name: no-spec, policy: no_spec}}]
"""
LENGTHS = """prompt_tokens: {kind: constant, value: 100}
  output_tokens: {kind: lognormal, mean: 8, cv: 0.5, min: 4, max: 16}"""


def write(folder: Path, text: str) -> Path:
    """The scenario and its profile."""
    (folder / "memory-profile").mkdir()
    (folder / "memory-profile" / "profile.yaml").write_text(PROFILE)
    (folder / "memory.yaml").write_text(text)
    return folder / "memory.yaml"


def by_requests(folder: Path, requests: int, engines: int) -> Path:
    """Short requests on many engines, each engine half busy."""
    return write(folder, SCENARIO.format(
        cluster=f"cluster: {{engines: [{{name: node, count: {engines}}}], router: round_robin}}",
        lengths=LENGTHS, interval=1.0,
        arrival=f"{{kind: poisson, rate_per_s: {40 * engines}}}",
        measure=f"{{mode: whole_run, requests: {requests}}}",
    ))


def by_time(folder: Path, seconds: int, engines: int) -> Path:
    """Few long requests: steps and time grow, requests hardly do."""
    del engines
    return write(folder, SCENARIO.format(
        cluster="", interval=max(1.0, seconds / 600), arrival="{kind: poisson, rate_per_s: 0.02}",
        lengths="prompt_tokens: {kind: constant, value: 100}\n  output_tokens: {kind: constant, value: 2000}",
        measure=f"{{mode: steady, warmup_s: 10, duration_s: {seconds}}}",
    ))


def by_rows(folder: Path, rows: int, engines: int) -> Path:
    """A log of many rows of which a window is played: what is left is the cost of reading."""
    del engines
    import numpy as np

    rng = np.random.default_rng(1)
    with (folder / "log.csv").open("w") as file:
        file.write("arrival_s,prompt_tokens,output_tokens\n")
        at = 0.0
        for start in range(0, rows, 100_000):
            n = min(100_000, rows - start)
            when = at + np.cumsum(rng.exponential(0.01, n))
            at = float(when[-1])
            lines = zip(when.tolist(), rng.integers(1, 4000, n).tolist(), rng.integers(1, 800, n).tolist(), strict=True)
            file.writelines(f"{a:.6f},{p},{o}\n" for a, p, o in lines)
    return write(folder, SCENARIO.format(
        cluster="", interval=1.0, lengths="", arrival="{kind: replay, file: log.csv, window: [100, 101]}",
        measure="{mode: whole_run, requests: all}",
    ))


def peak(scenario: Path) -> tuple[float, float, float, float]:
    """(peak resident MB, peak of private pages in MB, CPU seconds, wall seconds) of one run."""
    began = time.monotonic()
    child = subprocess.Popen(
        [sys.executable, "-m", "dspark_sim", "run", str(scenario), "--no-plots", "--quiet", "--out",
         str(scenario.parent / "out")], stdout=subprocess.DEVNULL,
    )
    private = 0
    while True:
        pid, status, usage = os.wait4(child.pid, os.WNOHANG)
        if pid:
            break
        private = max(private, anonymous(child.pid))
        time.sleep(0.1)
    if os.waitstatus_to_exitcode(status) != 0:
        raise SystemExit(f"the run of {scenario} failed")
    child.returncode = 0
    return usage.ru_maxrss / 1024, private / 1024, usage.ru_utime + usage.ru_stime, time.monotonic() - began


def anonymous(pid: int) -> int:
    """kB of private pages now, 0 where the kernel does not say."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in text.splitlines() if line.startswith("RssAnon")), 0)


KINDS = {"requests": (by_requests, (250_000, 500_000, 1_000_000)), "time": (by_time, (3_600, 36_000, 144_000)),
         "log": (by_rows, (1_000_000, 5_000_000))}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=sorted(KINDS))
    parser.add_argument("sizes", nargs="*", type=int)
    parser.add_argument("--engines", type=int, default=1000)
    given = parser.parse_args()
    make, sizes = KINDS[given.kind]
    print(f"{given.kind:>12}   peak MB  private MB    CPU s   wall s   B more per {given.kind} (peak, private)")
    before: tuple[int, float, float] | None = None
    for size in given.sizes or sizes:
        with tempfile.TemporaryDirectory() as folder:
            resident, private, cpu, wall = peak(make(Path(folder), size, given.engines))
        slope = "" if before is None else "   ".join(
            f"{(now - then) * MB / (size - before[0]):8.1f}"
            for now, then in ((resident, before[1]), (private, before[2])))
        print(f"{size:>12,} {resident:9.0f} {private:11.0f} {cpu:8.1f} {wall:8.1f}   {slope}", flush=True)
        before = size, resident, private


if __name__ == "__main__":
    main()
