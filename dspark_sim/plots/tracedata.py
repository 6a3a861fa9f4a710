"""What pictures of acceptance need: the traces and profiles that a manifest names, if they still are what they were.

D documents, G block size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dspark_sim.errors import DsparkSimError, InputError
from dspark_sim.profile import load_profile
from dspark_sim.trace import AcceptanceTrace
from dspark_sim.traceset import find_traces

__all__ = ["Drafted", "reached", "read_drafted", "walk"]

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Drafted:
    """One drafter of a run.

    Attributes:
        name: ``target/drafter``.
        trace: its acceptance trace, the same one that the run used.
        round_s: seconds of a round with 1..G draft tokens per request, all verified, at ``requests``; None if the
            profile changed since.
        requests: how many decode at once in that round.
    """

    name: str
    trace: AcceptanceTrace
    round_s: npt.NDArray[np.float64] | None
    requests: int


def read_drafted(manifest: Mapping[str, Any], decoding: Mapping[str, float]) -> tuple[list[Drafted], list[str]]:
    """The drafters of a run in the arms' order, and sentences on those that cannot be read any more.

    Args:
        manifest: of a run.
        decoding: arm -> mean number of decoding requests.
    """
    out: dict[str, Drafted] = {}
    problems: dict[str, None] = {}
    file = manifest["scenario"].get("file")
    base = None if file is None else Path(file).resolve().parent
    for arm in manifest["arms"]:
        name = arm["trace"]
        if name is None or name in out or name in problems or arm["name"] not in decoding:
            continue
        facts = manifest["traces"][name]
        try:
            found = find_traces(facts["reference"], base)
            if found.sha256([arm["drafter"]]) != facts["sha256"]:
                raise InputError("it has changed since")
            trace = found.open(arm["drafter"])
        except DsparkSimError as problem:
            problems[f"No picture of the acceptance of {name}: the trace that the run used cannot be read any more "
                     f"({problem})."] = None
            continue
        requests = max(1, round(decoding[arm["name"]]))
        out[name] = Drafted(name, trace, _rounds(manifest, arm, trace.block_size, requests, base), requests)
    return list(out.values()), list(problems)


def _rounds(
    manifest: Mapping[str, Any], arm: Mapping[str, Any], G: int, R: int, base: Path | None
) -> npt.NDArray[np.float64] | None:
    facts = manifest["profiles"][arm["profile"]]
    try:
        profile = load_profile(facts["file"] or arm["profile"], base)
        if profile.sha256 != facts["sha256"]:
            return None
        arms: dict[str, dict[str, Any]] = {a["name"]: a for a in manifest["scenario"]["resolved"]["arms"]}
        priced_as = arms[arm["name"]].get("drafter_cost") or arm["drafter"]
        cost = profile.step_cost(drafter=priced_as, block_size=G, max_requests=R, max_tokens=R * (1 + G))
        seconds = np.array([cost.step(R * (1 + n), R, profile.measured_context * R, n) for n in range(1, G + 1)])
    except (DsparkSimError, ValueError):
        return None
    return seconds if np.all(np.isfinite(seconds)) else None


def walk(trace: AcceptanceTrace, domain: str, length: int) -> IntArray:
    """Accepted draft tokens of every round when each document of a domain is decoded in rounds of ``length`` verified
    draft tokens, as a server does; all documents at once, a round at a time."""
    chosen = np.array([d == domain for d in trace.domain])
    at, end = trace.document_start[:-1][chosen].copy(), trace.document_start[1:][chosen]
    rounds = []
    while at.size:
        kept = np.minimum(trace.accepted[at].astype(np.int64), length)
        rounds.append(kept)
        at = at + kept + 1
        going = at < end
        at, end = at[going], end[going]
    return np.concatenate(rounds) if rounds else np.zeros(0, dtype=np.int64)


def reached(accepted: npt.NDArray[Any], G: int) -> npt.NDArray[np.float64]:
    """(G,) conditional acceptance: of the rows that kept k − 1 draft tokens, the share that kept k; NaN for none."""
    counts = np.array([(accepted >= k).sum() for k in range(G + 1)], dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(counts[:-1] > 0, counts[1:] / counts[:-1], np.nan)
