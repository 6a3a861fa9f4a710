"""``validate live``: texts, traces, timings, predictions, real runs, checks; piece by piece into one folder.

For each concurrency the steps are timed, then the arms are simulated, then they run for real, all arms within a repeat
before the next one begins and another arm first each time, so that a drift of the machine hits all alike; at last the
steps are timed again, which tells how far the machine has drifted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dspark_sim.arms import ArmSetup
from dspark_sim.errors import InputError
from dspark_sim.lab.collect_facts import machine
from dspark_sim.lab.corpus import read_part
from dspark_sim.lab.live_check import Greedy, compare_greedy, greedy_outputs, plain_setup, replay_difference
from dspark_sim.lab.live_engine import LiveRun, live_run
from dspark_sim.lab.live_texts import LiveWork, make_traces
from dspark_sim.lab.live_timing import Timing, between, measure_steps, profile_of
from dspark_sim.lab.live_world import predicted, setups_of, write_requests, write_scenario
from dspark_sim.metrics import measure
from dspark_sim.profile_write import write_profile
from dspark_sim.validate_live import FORMAT, compared, drift

__all__ = ["validate_live"]

REHEARSED = 12  # tokens of a rehearsal


def validate_live(work: LiveWork) -> dict[str, Any]:
    """Everything; gives what ``live.json`` holds, which is written too.

    Raises:
        InputError: something does not fit; nothing is lost.
        KeyboardInterrupt: stopped; the same call goes on.
    """
    try:
        return _everything(work)
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError | torch.OutOfMemoryError) and "allocate memory" not in str(error):
            raise
        raise InputError(f"{work.target.device} has too little memory for this; what is done is kept in "
                         f"{work.pieces.folder}",
                         allowed="a lower --concurrency, fewer --tokens, or --dtype bfloat16") from None


def _everything(work: LiveWork) -> dict[str, Any]:
    plan = work.plan
    write_requests(work.pieces.path("requests.csv"), work.prompts, plan.tokens)
    make_traces(work)
    blocks = [_load(work, c) for c in plan.concurrency]
    result: dict[str, Any] = {
        "format": FORMAT, "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "plan": plan.facts(), "requests": len(work.prompts),
        "domains": {d: sum(p.domain == d for p in work.prompts) for d in dict.fromkeys(p.domain for p in work.prompts)},
        "machine": {k: v for k, v in machine(work.target).items() if k != "source"}, "loads": blocks,
        "records": [r for block in blocks for r in block["records"]], "greedy": _greedy(work),
    }
    work.pieces.write("live.json", result)
    return result


# -- one concurrency -------------------------------------------------------------------------------------------------
def _load(work: LiveWork, c: int) -> dict[str, Any]:
    plan, pieces = work.plan, work.pieces
    place = pieces.path(f"c{c}")
    timing = _timed(work, c, f"c{c}/timing.json")
    scenario = write_scenario(place, plan, plan.arms, work.prompts, c, work.drafter.config.block_size)
    write_profile(profile_of(timing, work.drafter, plan.drafter_name, work.command), place / "profile", force=True)
    setups_of(scenario)  # what does not fit is told before anything runs
    if not timing.other:
        timing = _rehearsed(work, c, timing, scenario)
        pieces.write(f"c{c}/timing.json", timing.to_dict())
        write_profile(profile_of(timing, work.drafter, plan.drafter_name, work.command), place / "profile", force=True)
    work.say(f"c={c}: simulating")
    expected = predicted(scenario, plan.samples)
    pieces.write(f"c{c}/predicted.json", expected)
    _announce(work, c, expected)
    _, setups = setups_of(scenario)
    done: dict[str, list[dict[str, Any]]] = {s.name: [] for s in setups}
    for repeat in range(plan.repeat):
        order = [*setups[repeat % len(setups):], *setups[:repeat % len(setups)]]
        for setup in order:
            if any(run["error"] for run in done[setup.name]):
                continue
            name = f"c{c}/runs/{repeat}-{_plain_name(setup)}.json"
            done[setup.name].append(pieces.once(name, partial(_live, work, scenario, setup, repeat)))
    after = _timed(work, c, f"c{c}/timing-after.json", "again")
    records, arms, on_gpu = [], [], work.target.device.type == "cuda"
    for setup in setups:
        runs, simulated = done[setup.name], expected[setup.name]
        error = next((run["error"] for run in runs if run["error"]), None)
        arm = {"arm": setup.name, "error": error, "replay_pct": None}
        if isinstance(simulated, str):
            arm["error"] = error or simulated
        elif error is None:
            records += compared(c, setup.name, simulated, [run["figures"] for run in runs], on_gpu)
            if work.replay and setup.trace is not None and plan.temperature > 0:
                key = f"c{c}/replay-{_plain_name(setup)}-{plan.repeat}.json"
                arm["replay_pct"] = pieces.once(key, partial(_replay, work, scenario, setup, runs))
        arms.append(arm)
    write_profile(profile_of(between(timing, after), work.drafter, plan.drafter_name, work.command),
                  place / "hindsight", force=True)
    hindsight = predicted(scenario, plan.samples, "./hindsight")
    late: list[dict[str, Any]] = []
    for setup in setups:
        simulated, runs = hindsight[setup.name], done[setup.name]
        if not isinstance(simulated, str) and not any(run["error"] for run in runs):
            late += compared(c, setup.name, simulated, [run["figures"] for run in runs], on_gpu)[:1]
    return {
        "concurrency": c, "drift_pct": drift(timing.to_dict(), after.to_dict()),
        "hindsight_pct": {r["arm"]: r["error_pct"]["mean"] for r in late}, "timing": timing.to_dict(), "arms": arms,
        "prefill_s": sum(run["prefill_s"] for runs in done.values() for run in runs), "records": records,
    }


def _plain_name(setup: ArmSetup) -> str:
    """An arm as part of a file's name; with the hash of a policy that may be edited."""
    name, source = "".join(ch if ch.isalnum() or ch in "._-" else "-" for ch in setup.name), setup.policy_source
    return name if source.shipped else f"{name[-60:]}-{source.sha256[:8]}"


def _timed(work: LiveWork, c: int, name: str, again: str = "") -> Timing:
    if work.pieces.has(name):
        found = work.pieces.read(name)
        try:
            return Timing(**{**found, **{key: [(int(n), float(s)) for n, s in found[key]]
                                         for key in ("verify", "draft_one", "draft_all")}})
        except (KeyError, TypeError, ValueError):
            raise InputError("damaged", file=work.pieces.path(name),
                             allowed="delete it: the next run makes it again") from None
    work.say(f"c={c}: timing steps {again}".rstrip())
    half = work.plan.tokens // 2
    texts = [[*d.prompt.tolist(), *d.response[:half].tolist()]
             for d in read_part(work.pieces.path("texts/part-00000.parquet"))]
    timing = measure_steps(work.target, work.drafter, texts, c, work.plan.temperature, work.plan.rounds)
    work.pieces.write(name, timing.to_dict())
    return timing


def _rehearsed(work: LiveWork, c: int, timing: Timing, scenario: Path) -> Timing:
    """Short runs of all arms: the seconds of a step that neither drafts nor verifies."""
    _, setups = setups_of(scenario)
    around: dict[bool, list[float]] = {False: [], True: []}
    decisions: list[float] = []
    for setup in setups:
        run = _run(work, setup, -1, min(REHEARSED, work.plan.tokens), c)
        steps = run.run.steps
        if steps is None or run.run.error is not None:
            continue
        around[setup.trace is not None] += steps["other_s"].to_pylist()
        if setup.policy_source.timing == "synchronous":
            decisions += steps["schedule_s"].to_pylist()
    middle = {key: float(np.median(values)) if values else 0.0 for key, values in around.items()}
    plain = middle[False] or middle[True]
    return replace(timing, other=max(plain, 1e-9), other_spec=middle[True] or plain,
                   schedule=float(np.median(decisions)) if decisions else 0.0)


def _run(work: LiveWork, setup: ArmSetup, repeat: int, tokens: int, requests: int | None = None) -> LiveRun:
    """``requests``: only so many of the prompts."""
    prompts = [p.tokens for p in work.prompts[:requests]]
    return live_run(setup, work.target, work.drafter, prompts, tokens, work.names[:requests],
                    seed=work.plan.seed, replication=1000 + repeat)


def _live(work: LiveWork, path: Path, setup: ArmSetup, repeat: int) -> dict[str, Any]:
    """One real run, as a piece."""
    work.say(f"c={setup.engine.max_num_seqs}: repeat {repeat + 1} of {work.plan.repeat}, {setup.name}")
    scenario, _ = setups_of(path)
    live = _run(work, setup, repeat, work.plan.tokens)
    table = live.run.requests.select(["id", "steps"]).to_pydict()
    steps = dict(zip(table["id"], table["steps"], strict=True))
    if live.run.steps is not None and live.run.error is None:
        import pyarrow.parquet as pq

        from dspark_sim.atomic import written_aside

        name = f"c{setup.engine.max_num_seqs}/runs/{repeat}-{_plain_name(setup)}.steps.parquet"
        with written_aside(work.pieces.path(name)) as aside:
            pq.write_table(live.run.steps, aside, compression="zstd")
    return {
        "arm": setup.name, "repeat": repeat, "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "error": live.run.error, "figures": {} if live.run.error else dict(measure(live.run, scenario, setup)),
        "prefill_s": live.prefill_seconds, "outputs": live.outputs,
        "steps": [int(steps.get(i, 0)) for i in range(len(work.prompts))],
    }


def _replay(work: LiveWork, path: Path, setup: ArmSetup, runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    c = setup.engine.max_num_seqs
    work.say(f"c={c}: replaying {setup.name} on its own texts")
    scenario, _ = setups_of(path)
    return replay_difference(scenario, setup, work.target, work.drafter, work.prompts,
                             [(run["outputs"], run["steps"]) for run in runs], work.plan.seed,
                             work.pieces.path(f"c{c}/replay/{_plain_name(setup)}-{len(runs)}"))


def _announce(work: LiveWork, c: int, expected: dict[str, Any]) -> None:
    tokens = len(work.prompts) * work.plan.tokens
    speeds = [runs[0]["throughput_tok_s_gpu"] for runs in expected.values() if not isinstance(runs, str)]
    seconds = sum(tokens / speed for speed in speeds if speed) * work.plan.repeat
    work.say(f"c={c}: {len(speeds)} arms for real, {work.plan.repeat} times: about {seconds / 60:.1f} minutes")


# -- greedy ----------------------------------------------------------------------------------------------------------
def _greedy(work: LiveWork) -> list[dict[str, Any]]:
    """Every arm's greedy text against plain decoding, at the largest concurrency."""
    plan = work.plan
    requests, tokens = min(plan.check[0], len(work.prompts)), min(plan.check[1], plan.tokens)
    if requests < 1 or tokens < 2:
        return []
    some = work.prompts[:requests]
    _, setups = setups_of(work.pieces.path(f"c{plan.concurrency[-1]}/scenario.yaml"))
    plain = plain_setup(setups[0])
    reference: list[list[int]] | None = None
    out = []
    for setup in setups:
        def make(setup: ArmSetup = setup) -> dict[str, Any]:
            nonlocal reference
            if reference is None:
                reference = greedy_outputs(plain, work.target, work.drafter, some, tokens, plan.seed).outputs
            work.say(f"greedy: {setup.name} against plain decoding")
            run = greedy_outputs(setup, work.target, work.drafter, some, tokens, plan.seed)
            found = (Greedy(requests, 0, 0, 0.0, False, run.run.error) if run.run.error else
                     compare_greedy(work.target, some, reference, run.outputs))
            return {"arm": setup.name, **found.to_dict()}

        out.append(work.pieces.once(f"greedy/{_plain_name(setup)}.json", make))
    return out

