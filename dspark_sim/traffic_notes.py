"""What a reader must know of the traffic beside the numbers: the log, what was done to it, whose text it decodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dspark_sim.arrival_schema import Replay, Sessions

if TYPE_CHECKING:
    from dspark_sim.scenario_schema import Workload

__all__ = ["traffic_assumptions"]


def traffic_assumptions(workload: Workload) -> list[str]:
    """Sentences on the traffic, for the report; empty for the plain synthetic kinds."""
    arrival = workload.arrival
    if isinstance(arrival, Sessions):
        return ["sessions: a turn's prompt is all that was said before and the user's new tokens; a prefix cache keeps "
                "prompts, so the next turn computes the KV of the last answer once more"]
    if not isinstance(arrival, Replay):
        return []
    log = arrival.log
    done = []
    if arrival.window is not None:
        done.append(f"seconds {arrival.window[0]:g} to {arrival.window[1]:g}")
    if log.tick is not None and arrival.spread_ticks is not False:
        done.append(f"time stamps on ticks of {log.tick:.4g} s spread evenly within their tick")
    if arrival.thin is not None:
        done.append(f"thinned to {arrival.thin.keep:g} by {arrival.thin.by}")
    if arrival.rate_scale != 1.0:
        done.append(f"rate × {arrival.rate_scale:g}")
    if arrival.time_scale != 1.0:
        done.append(f"time × {arrival.time_scale:g}")
    lines = [f"traffic log {log.file.name} ({log.format}): {log.rows} requests" + "".join(f"; {part}" for part in done)]
    lines += [f"text of the log is not known: class {group.name} decodes documents of domain {group.domain}"
              for group in workload.classes if group.domain is not None]
    if log.classes is None and len(workload.classes) > 1:
        lines.append("class of the log's requests is not known: drawn by share"
                     + (", the same for all of a session" if log.session is not None else ""))
    return lines
