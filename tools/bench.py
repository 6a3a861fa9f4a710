"""What a simulated step costs: microseconds per engine step by policy and batch size, and a whole run without drafts.

    python tools/bench.py [--quick] [--requests R ...] [--repeats N]

CPU time of this process, minimum over repeats after a warm-up. Machines differ and two busy neighbours can double
everything, so each row stands beside a calibration: one numpy gather of the step's R x 7 confidences from the trace,
a sort and a cumulative sum, measured in the same minute. Quote ratios to it. The split comes from one more run with a
clock around the policy's methods (with what their views gather for them) and one around the recorder (all three
tables); *engine* is the rest. The clocks themselves cost one or two microseconds of that.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from dspark_sim.arms import ArmSetup, load_arms
from dspark_sim.record import Recorder
from dspark_sim.registry import list_policies
from dspark_sim.scenario import Scenario, load_scenario
from dspark_sim.simulate import simulate
from dspark_sim.traceset import open_traces

GAMMA = 7
SECONDS = {8: 40, 32: 40, 200: 50, 1024: 30}  # simulated; some thousand steps each
STEPS = """
name: bench
profile: synthetic-roofline
traces: qwen3-4b
replications: 1
record: all
engine: {{max_num_seqs: {R}, max_num_batched_tokens: 16384, kv_blocks: unlimited}}
workload:
  arrival: {{kind: closed, concurrency: {R}}}
  prompt_tokens: {{kind: constant, value: 512}}
  output_tokens: {{kind: lognormal, mean: 1000, cv: 0.5, min: 2, max: 4000}}
  classes:
    - {{name: math, share: 0.4, domain: math}}
    - {{name: code, share: 0.3, domain: code}}
    - {{name: chat, share: 0.3, domain: chat}}
measure: {{mode: steady, warmup_s: 0, duration_s: {seconds}}}
arms: [{arms}]
"""

# The workload on which other simulators were timed: 1,000 requests, 4 a second, 512 tokens in, 256 out, no
# speculation. The curve is chosen so that it takes as many steps (about 13,000) as it took them.
PLAIN = """
name: plain
profile: ./plain-profile
replications: 1
record: all
engine: {{prefill: chunked}}
workload:
  arrival: {{kind: poisson, rate_per_s: 4}}
  prompt_tokens: {{kind: constant, value: 512}}
  output_tokens: {{kind: constant, value: 256}}
  classes: [{{name: all, share: 1.0}}]
measure: {{mode: whole_run, requests: {requests}}}
arms: [{{name: no-spec, policy: no_spec}}]
"""

PLAIN_PROFILE = """
description: 18 ms and 0.01 ms per token, for a benchmark of the simulator
gpus: 1
max_num_seqs: 256
max_num_batched_tokens: 4096
verify: {points: [[1, 18.0], [4096, 59.0]], unit: ms}
provenance: {kind: synthetic, device: none, model: none, software: none, date: unknown, source: tools/bench.py,
             command: none, assumptions: [every number is invented]}
"""


@dataclass
class Row:
    """One arm at one R: CPU seconds of the fastest run, what that run did, and the split of another one."""

    cpu: float = np.inf
    steps: int = 0
    tokens: int = 0
    policy: float = 0.0  # share of the time, 0..1
    recording: float = 0.0

    @property
    def micro(self) -> float:
        return 1e6 * self.cpu / self.steps


def timed(arm: ArmSetup, scenario: Scenario, row: Row) -> float:
    """Run once; keep it in ``row`` if it is the fastest. Returns CPU seconds."""
    began = time.process_time()
    run = simulate(arm, scenario, 0)
    cpu = time.process_time() - began
    if run.error:
        raise SystemExit(f"{arm.name}: {run.error}")
    row.cpu = min(row.cpu, cpu)
    row.steps, row.tokens = (sum(run.intervals[name].to_pylist()) for name in ("steps", "emitted"))
    return cpu


class Clock:
    """Adds up the time inside the functions that it wraps; calls within calls count once."""

    def __init__(self) -> None:
        self.seconds, self._depth = 0.0, 0

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if self._depth:
                return function(*args, **kwargs)
            self._depth = 1
            began = time.process_time()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds += time.process_time() - began
                self._depth = 0

        return call


def split(arm: ArmSetup, scenario: Scenario, row: Row) -> None:
    """One run with clocks around the policy and the recorder; sets the shares of ``row``."""
    policy, recording = Clock(), Clock()
    make = ArmSetup.make_policy

    def clocked(setup: ArmSetup) -> Any:
        made = make(setup)
        for name in ("draft_lengths", "stop_drafting", "verify_lengths", "observe"):
            if hasattr(made, name):
                setattr(made, name, policy.around(getattr(made, name)))
        return made

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(ArmSetup, "make_policy", clocked))
        for name in ("step", "gap", "request", "steps", "intervals", "requests"):
            method = recording.around(getattr(Recorder, name))
            stack.enter_context(mock.patch.object(Recorder, name, method))
        total = timed(arm, scenario, Row())
    row.policy, row.recording = policy.seconds / total, recording.seconds / total


def calibration(R: int, repeats: int = 400) -> float:
    """Microseconds of one gather, sort and cumulative sum over R x 7 confidences of the trace."""
    trace = open_traces("qwen3-4b", ["dspark"])["dspark"]
    table = trace.survival()
    assert table is not None
    rows = np.random.default_rng(0).integers(0, trace.positions, size=(64, R))
    best = np.inf
    for _ in range(5):
        began = time.process_time()
        for i in range(repeats):
            flat = table.take(rows[i % 64], axis=0).ravel()
            flat.sort()
            flat.cumsum(dtype=np.float64)
        best = min(best, (time.process_time() - began) / repeats)
    return 1e6 * best


def scenario_for(folder: Path, R: int, seconds: float) -> Scenario:
    """The bench scenario: an arm for each shipped policy."""
    arms = []
    for policy in list_policies():
        how = f"{{name: fixed, length: {GAMMA}}}" if policy.name == "fixed" else policy.name
        drafter = "" if policy.name == "no_spec" else "drafter: dspark, "
        arms.append(f"{{name: {policy.name}, {drafter}policy: {how}}}")
    path = folder / f"bench-{R}.yaml"
    path.write_text(STEPS.format(R=R, seconds=seconds, arms=", ".join(arms)))
    return load_scenario(path)


def measure(scenario: Scenario, R: int, repeats: int) -> tuple[dict[str, Row], float]:
    """Rows by arm, and the calibration: the fastest of ``repeats`` each, all arms taking turns."""
    arms, unit = load_arms(scenario), np.inf
    rows = {arm.name: Row() for arm in arms}
    for arm in arms:  # warms caches and allocators
        timed(arm, scenario, Row())
    for _ in range(repeats):
        for arm in arms:
            timed(arm, scenario, rows[arm.name])
        unit = min(unit, calibration(R))
    for arm in arms:
        split(arm, scenario, rows[arm.name])
    return rows, unit


def print_steps(folder: Path, sizes: list[int], repeats: int, quick: bool) -> None:
    print("R     policy            µs/step   x calibration   M tokens/s   engine + policy + recording, µs")
    for R in sizes:
        rows, unit = measure(scenario_for(folder, R, 1 if quick else SECONDS.get(R, 40)), R, repeats)
        for name, row in rows.items():
            parts = (1 - row.policy - row.recording, row.policy, row.recording)
            print(f"{R:<5} {name:<17} {row.micro:7.1f}   {row.micro / unit:13.1f}   {row.tokens / row.cpu / 1e6:10.2f}"
                  f"   {' + '.join(f'{part * row.micro:.1f}' for part in parts)}")
        print(f"{R:<5} calibration       {unit:7.1f}", flush=True)


def print_plain(folder: Path, requests: list[int], repeats: int) -> None:
    """The whole command as a child (wall clock, peak memory), and the event loop alone inside this process.

    All children before the first loop: a child's peak memory on Linux is at least its parent's.
    """
    (folder / "plain-profile").mkdir()
    (folder / "plain-profile" / "profile.yaml").write_text(PLAIN_PROFILE)
    paths = {n: folder / f"plain-{n}.yaml" for n in requests}
    for n, path in paths.items():
        path.write_text(PLAIN.format(requests=n))
    commands = {n: command(path, min(repeats, 3)) for n, path in paths.items()}
    print("requests    steps   loop s   command s   command MB")
    for n, path in paths.items():
        scenario, row = load_scenario(path), Row()
        for _ in range(repeats + 1):
            timed(load_arms(scenario)[0], scenario, row)
        print(f"{n:8}   {row.steps:6}   {row.cpu:6.2f}   {commands[n][0]:9.2f}   {commands[n][1]:10.0f}", flush=True)


def command(path: Path, repeats: int) -> tuple[float, float]:
    """Fastest wall clock seconds and largest peak memory (MB) of ``dspark-sim run`` in a process of its own."""
    wall, memory = np.inf, 0.0
    for i in range(repeats):
        argv = [sys.executable, "-m", "dspark_sim", "run", str(path), "--no-plots", "--quiet", "--out",
                str(path.with_suffix(f".{i}"))]
        began = time.perf_counter()
        child = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            raise SystemExit(f"{' '.join(argv)} ended with {child.returncode}")
        wall, memory = min(wall, time.perf_counter() - began), max(memory, megabytes(used))
    return float(wall), memory


def megabytes(used: resource.struct_rusage) -> float:
    """Peak resident memory; Linux counts kilobytes, macOS bytes."""
    return used.ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)


def main() -> None:
    parser = argparse.ArgumentParser(description="What a simulated step costs")
    parser.add_argument("--quick", action="store_true", help="a look: one repeat, few steps, no useful figures")
    parser.add_argument("--requests", type=int, nargs="+", default=list(SECONDS), metavar="R", help="batch sizes")
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    repeats = 1 if arguments.quick else arguments.repeats
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        versions = f"Python {platform.python_version()}, numpy {np.__version__}"
        print(f"{versions}, {platform.machine()}, {os.cpu_count()} cores\n")
        print("No speculation, chunked prefill, Poisson 4/s, 512 tokens in, 256 out; the command with --no-plots:\n")
        print_plain(folder, [50] if arguments.quick else [1000, 10000], repeats)
        print(f"\nBlock size {GAMMA}, record: all, closed loop of R requests:\n")
        print_steps(folder, arguments.requests, repeats, arguments.quick)
        print(f"\npeak memory of this process: {megabytes(resource.getrusage(resource.RUSAGE_SELF)):.0f} MB")


if __name__ == "__main__":
    main()
