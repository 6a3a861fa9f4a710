"""Cases of the knobs of traffic: (turned, base) per knob, as in knob_cases.py, and the logs that they replay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

__all__ = ["TRAFFIC_CASES", "TRAFFIC_REFUSED", "write_logs"]

Changes = dict[str, Any]
Pair = tuple[Changes, Changes]


def write_logs(folder: Path) -> None:
    """Logs of 30 requests beside the scenario."""
    rows = [(0.4 * i if i % 3 else 0.4 * i + 0.1, 20 + i, 10 + i % 7, ("easy", "hard")[i % 2], i // 3, i % 4)
            for i in range(30)]
    head = "arrival_s,prompt_tokens,output_tokens"
    plain = [f"{t:.2f},{p},{o}" for t, p, o, *_ in rows]
    (folder / "log.csv").write_text("\n".join([head, *plain]))
    (folder / "log2.csv").write_text("\n".join([head, *plain[:20], *plain[21:]]))
    (folder / "back.csv").write_text("\n".join([head, *plain[:3], plain[4], plain[3], *plain[5:]]))
    (folder / "ticks.csv").write_text("\n".join([head, *(f"{i // 5},{p},{o}" for i, (_, p, o, *_) in enumerate(rows))]))
    (folder / "who.csv").write_text("\n".join(
        [head + ",session,client,team", *(f"{t:.2f},{p},{o},s{s},c{c},{k}" for t, p, o, k, s, c in rows)]))
    (folder / "two.csv").write_text("\n".join(
        [head + ",Timestamp,Request tokens,Response tokens", *(f"{t:.2f},{p},{o},{t:.2f},{p},{o + 1}"
                                                               for t, p, o, *_ in rows)]))


def replay(file: str = "log.csv", **more: Any) -> Changes:
    return {"workload.arrival": {"kind": "replay", "file": file, **more}, "workload.prompt_tokens": None,
            "workload.output_tokens": None}


POISSON = {"workload.arrival": {"kind": "poisson", "rate_per_s": 6.0}}
PIECES = {"workload.arrival": {"kind": "piecewise", "rates": [[0, 3.0], [1, 9.0]]}}
WAVES = {"workload.arrival": {"kind": "diurnal", "mean_rate_per_s": 6.0, "amplitude": 0.8, "period_s": 2.0}}
TALKS = {"workload.arrival": {
    "kind": "sessions", "rate_per_s": 2.0, "turns": {"kind": "constant", "value": 4}, "think_time_s": {"mean": 0.2},
}, "engine.prefill": "chunked"}
NAMED = replay("who.csv", class_column="team") | {
    "workload.classes": [{"name": "easy", "domain": "math"}, {"name": "hard", "domain": "chat"}]}
A = "workload.arrival."

TRAFFIC_CASES: dict[str, Pair] = {
    "Piecewise.kind": (PIECES, POISSON),
    "Piecewise.rates": ({A + "rates": [[0, 3.0], [1, 8.0]]}, PIECES),
    "Piecewise.between": ({A + "between": "linear"}, PIECES),
    "Piecewise.cv": ({A + "cv": 2.0}, PIECES),
    "Diurnal.kind": (WAVES, POISSON),
    "Diurnal.mean_rate_per_s": ({A + "mean_rate_per_s": 7.0}, WAVES),
    "Diurnal.amplitude": ({A + "amplitude": 0.7}, WAVES),
    "Diurnal.period_s": ({A + "period_s": 3.0}, WAVES),
    "Diurnal.phase_s": ({A + "phase_s": 0.5}, WAVES),
    "Diurnal.cv": ({A + "cv": 2.0}, WAVES),
    "Sessions.kind": (TALKS, POISSON),
    "Sessions.rate_per_s": ({A + "rate_per_s": 3.0}, TALKS),
    "Sessions.cv": ({A + "cv": 3.0}, TALKS),
    "Sessions.turns": ({A + "turns.value": 3}, TALKS),
    "Sessions.think_time_s": ({A + "think_time_s": {"mean": 0.3}}, TALKS),
    "Sessions.shared_tokens": ({A + "shared_tokens": 30}, TALKS),
    "Sessions.max_context": ({A + "max_context": 111}, TALKS),
    "ThinkTime.mean": ({A + "think_time_s.mean": 0.3}, TALKS),
    "ThinkTime.cv": ({A + "think_time_s.cv": 0.0}, TALKS),
    "Replay.kind": (replay(), POISSON),
    "Replay.file": ({A + "file": "log2.csv"}, replay() | {"measure.requests": "all"}),
    "Replay.format": ({A + "format": "csv"}, replay("two.csv")),
    "Replay.class_column": (NAMED, replay("who.csv")),
    "Replay.window": ({A + "window": [2.0, 9.0]}, replay()),
    "Replay.spread_ticks": ({A + "spread_ticks": False}, replay("ticks.csv")),
    "Replay.thin": ({A + "thin": {"keep": 0.6}}, replay()),
    "Replay.rate_scale": ({A + "rate_scale": 1.5}, replay()),
    "Replay.time_scale": ({A + "time_scale": 0.5}, replay()),
    "Thin.keep": ({A + "thin.keep": 0.6}, replay(thin={"keep": 0.7})),
    "Thin.by": ({A + "thin.by": "client"}, replay("who.csv", thin={"keep": 0.6})),
}

TRAFFIC_REFUSED: dict[str, Pair] = {
    "Replay.unordered": ({A + "unordered": "error"}, replay("back.csv", unordered="sort")),
}
