"""Records of benchmark tools: JSON, JSON lines or objects one after the other; and whose they are, by their fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dspark_sim.errors import ProfileError, nearest, shown
from dspark_sim.jsonvalues import json_values

__all__ = ["LARGEST", "Record", "read_records", "recognised", "wrong_tool"]

LARGEST = 10**15  # of any figure of a benchmark
TOOLS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("SGLang's SPS table", ("sample_batch_tokens",), "profile import sps"),
    ("SGLang's SPS table", ("bias_seconds", "theta_seconds"), "profile import sps"),
    ("a cost table of TensorRT-LLM", ("token_counts", "step_time_ms"), ""),
    ("sglang.bench_one_batch", ("batch_size", "median_decode_latency"), "profile import sglang"),
    ("sglang.bench_one_batch_server", ("batch_size", "last_gen_throughput"), ""),
    ("vllm bench latency", ("avg_latency", "latencies"), "profile import vllm FILE=BATCH"),
    ("vllm bench throughput", ("elapsed_time", "tokens_per_second"), ""),
    ("sglang.bench_serving", ("mean_tpot_ms", "total_output_tokens_retokenized"), "profile import sglang"),
    ("sglang.bench_serving", ("mean_tpot_ms", "accept_length"), "profile import sglang"),
    ("vllm bench serve", ("completed", "model_id"), "profile import vllm"),
    ("vllm bench serve", ("completed", "max_concurrency", "request_rate"), "profile import vllm"),
)
"""(tool, fields that only it has together, command that reads it)."""


@dataclass(frozen=True)
class Record:
    """One object of a file; its getters name file, line and field in what they raise."""

    data: Mapping[str, Any]
    file: Path
    line: int | None

    def refuse(self, problem: str, field: str | None = None, allowed: str | None = None) -> ProfileError:
        """An error at this record."""
        return ProfileError(problem, file=self.file, line=self.line, key=field, allowed=allowed)

    def number(self, field: str, *, least: float = 0.0, strict: bool = True) -> float:
        """A number above ``least`` (or at it, unless ``strict``), up to :data:`LARGEST`.

        Raises:
            ProfileError: missing, or something else.
        """
        if field not in self.data:
            guess = nearest(field, self.data)
            raise ProfileError(f"has no field {field}", file=self.file, line=self.line, suggestion=guess)
        value = self.data[field]
        good = isinstance(value, (int, float)) and not isinstance(value, bool) and least <= value <= LARGEST
        if not good or (strict and value == least):
            raise self.refuse(f"got {shown(value)}", field, f"a number {'>' if strict else '≥'} {least:g}, up to 1e15")
        return float(value)

    def whole(self, field: str) -> int:
        """A whole number from 1.

        Raises:
            ProfileError: missing, or something else.
        """
        value = self.number(field)
        if value != int(value):
            raise self.refuse(f"got {shown(value)}", field, "a whole number ≥ 1")
        return int(value)

    def optional(self, field: str) -> float | None:
        """As :meth:`number`; None where the field is missing or null."""
        return None if self.data.get(field) is None else self.number(field)


def read_records(path: Path) -> list[Record]:
    """All objects of a file.

    Raises:
        ProfileError: unreadable, no JSON, empty, or something else than objects.
    """
    found = list[Record]()
    for value, line in json_values(path, ProfileError, "a benchmark's result"):
        for item in value if isinstance(value, list) else [value]:
            if not isinstance(item, dict):
                raise ProfileError(f"holds {shown(item)}", file=path, line=line, allowed="JSON objects")
            found.append(Record(item, path, line))
    if not found:
        raise ProfileError("is empty", file=path, allowed="a benchmark's result")
    return found if len(found) > 1 else [Record(found[0].data, path, None)]


def recognised(record: Record) -> str | None:
    """The tool that wrote a record, None if no one that is known."""
    return next((tool for tool, fields, _ in TOOLS if all(f in record.data for f in fields)), None)


def wrong_tool(record: Record, wanted: str) -> ProfileError:
    """The error for a record that is not what ``wanted`` writes, with the right command where there is one."""
    tool = recognised(record)
    if tool is None:
        known = ", ".join(map(str, list(record.data)[:6]))
        return record.refuse(f"is no result of {wanted}; it has the fields {shown(known)}", allowed=f"what {wanted} "
                                                                                                    "writes")
    command = next(c for t, _, c in TOOLS if t == tool)
    return record.refuse(f"is a result of {tool}, not of {wanted}",
                         allowed=f"dspark-sim {command}" if command else f"what {wanted} writes; {tool} is not read")
