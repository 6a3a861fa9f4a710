"""How much faster a sweep is on all cores than on one, and what a task costs beside its simulation.

    python tools/bench_sweep.py [--jobs N] [--repeats 3] [--scenario quickstart]

Runs the same sweep with one job and with N, each from an empty folder, in turn; prints the wall time of computing (the
manifest's ``seconds``, start of the workers included), the ratio over N (the aim is 0.85 or more), and the share of the
one-job sweep that was not simulation. A busy machine makes the ratio worse; the calibration says how busy it is: the
same pure-Python loop in one process and in N at once, whose ratio is what the cores can give. CPU seconds of all
processes (the command's own start included) say what N jobs cost beside one, on a machine of any business.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

OVER = ("--over", "workload.arrival.concurrency=8,32,128", "--replications", "4")


def spin(_: int) -> float:
    """Seconds that a fixed piece of pure Python takes."""
    began = time.perf_counter()
    x = 0
    for i in range(8_000_000):
        x += i & 3
    return time.perf_counter() - began


def capacity(jobs: int) -> float:
    """What N processes at once get done, in units of one alone: N on a quiet machine with N cores."""
    with ProcessPoolExecutor(jobs) as pool:
        list(pool.map(spin, range(jobs)))  # warm
        alone = min(pool.submit(spin, 0).result() for _ in range(3))
        began = time.perf_counter()
        list(pool.map(spin, range(jobs)))
        return jobs * alone / (time.perf_counter() - began)


def sweep(scenario: str, jobs: int, folder: Path) -> tuple[float, float, float]:
    """Seconds: of the sweep without reading and checking, of simulation in all tasks, of CPU in all processes."""
    out = folder / f"jobs-{jobs}-{time.monotonic_ns()}"
    command = [sys.executable, "-m", "dspark_sim", "sweep", scenario, *OVER, "--jobs", str(jobs), "--out", str(out)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([*command, "--quiet", "--format", "csv"], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    with (out / "timing.csv").open(encoding="utf-8") as file:
        simulated = sum(float(row["wall_s"]) for row in csv.DictReader(file))
    return json.loads((out / "manifest.json").read_text(encoding="utf-8"))["seconds"], simulated, cpu


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--scenario", default="quickstart")
    options = parser.parse_args()
    n = options.jobs
    print(f"sweep {options.scenario} {' '.join(OVER)}; load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    best = {1: float("inf"), n: float("inf")}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(options.repeats):
            room = capacity(n)
            alone, simulated, cpu_alone = sweep(options.scenario, 1, Path(folder))
            together, _, cpu = sweep(options.scenario, n, Path(folder))
            best = {1: min(best[1], alone), n: min(best[n], together)}
            print(f"  1 job {alone:6.2f} s ({100 * (1 - simulated / alone):4.1f} % of it not simulation)   "
                  f"{n} jobs {together:6.2f} s   {alone / together:.2f} times as fast = {alone / together / n:.2f} per "
                  f"core; bare loops: {room:.2f}; CPU {cpu_alone:.1f} s and {cpu:.1f} s")
    print(f"best of each: {best[1] / best[n]:.2f} times as fast on {n} = {best[1] / best[n] / n:.2f} per core")


if __name__ == "__main__":
    main()
