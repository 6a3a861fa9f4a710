"""Which format a file has, and what it says: rates by domain, or rounds."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from dspark_sim.errors import TraceError
from dspark_sim.trace_import import deepspec, plain, rounds, sglang, vllm
from dspark_sim.trace_import.rates import Rates
from dspark_sim.trace_import.read import json_values, text_of

__all__ = ["FORMATS", "Format", "Options", "Source", "read_source"]

Format: TypeAlias = Literal["auto", "rates", "vllm-metrics", "vllm-log", "vllm-bench", "vllm-requests",
                            "sglang-requests", "deepspec", "rounds"]
FORMATS: dict[str, str] = {
    "rates": "acceptance rates by position in CSV, YAML or JSON",
    "vllm-metrics": "the text of vLLM's /metrics",
    "vllm-log": "vLLM's log with lines SpecDecoding metrics: …",
    "vllm-bench": "results of vllm bench serve --save-result",
    "vllm-requests": "responses of vLLM with metrics.speculative_decoding",
    "sglang-requests": "responses of SGLang with meta_info.spec_correct_drafts_histogram",
    "deepspec": "metrics.json of DeepSpec's evaluation",
    "rounds": "a log of decoding rounds, JSON lines",
}
_ROUND_KEYS = (*rounds.ACCEPTED, rounds.WITH_BONUS)


@dataclass(frozen=True)
class Options:
    """What the command line says about how to read: see the readers."""

    form: str = "auto"
    since: Path | None = None
    model: str | None = None
    block_size: int | None = None


@dataclass(frozen=True)
class Source:
    """What one file holds.

    Attributes:
        form: its format.
        rates: by domain (None: the file names none); empty for a log of rounds.
        requests: of a log of rounds.
        notes: assumptions of reading a log.
    """

    form: str
    rates: dict[str | None, Rates] = field(default_factory=dict)
    requests: tuple[rounds.Request, ...] = ()
    notes: tuple[str, ...] = ()


def read_source(path: Path, options: Options) -> Source:
    """Read one file; ``auto`` looks at its content, and at its name for CSV and YAML.

    Raises:
        TraceError: it cannot be read, or is none of the formats; says which there are.
    """
    form = options.form
    if form == "auto":
        form = _guess(path)
    if options.since is not None and form != "vllm-metrics":
        raise TraceError(f"has no effect on {form}", key="--since", allowed="with vllm-metrics")
    if form == "rates":
        return Source(form, plain.from_csv(path) if path.suffix == ".csv" else plain.from_yaml(path))
    if form in _TEXT:
        return Source(form, {None: _TEXT[form](path, options)})
    values = json_values(text_of(path), path)
    if form == "rounds" or (form == "vllm-requests" and _detailed(values)):
        requests, notes = rounds.read_requests(values, path)
        if form == "vllm-requests":
            notes.append("steps without draft tokens are not in vLLM's arrays: the text between them is missing")
        return Source("rounds", requests=tuple(requests), notes=tuple(notes))
    if form == "vllm-requests":
        return Source(form, {None: vllm.from_requests(path, values)})
    if form == "sglang-requests":
        return Source(form, {None: sglang.from_responses(path, values, options.block_size)})
    found: dict[str | None, Rates] = {}
    for line, value in values:
        if not deepspec.is_metrics_json(value):
            raise TraceError("is no metrics.json of DeepSpec", file=path, line=line,
                             allowed="spec.accept_rates_by_position")
        domain = deepspec.domain_of(value)
        if domain in found:
            raise TraceError(f"holds data set {domain!r} twice", file=path, line=line, allowed="each data set once")
        found[domain] = deepspec.from_metrics_json(value, path)
    return Source(form, found)


_TEXT: dict[str, Callable[[Path, Options], Rates]] = {
    "vllm-metrics": lambda path, o: vllm.from_metrics(path, o.since, o.model),
    "vllm-log": lambda path, o: vllm.from_log(path),
    "vllm-bench": lambda path, o: vllm.from_bench(path),
}


def _detailed(values: Sequence[tuple[int, Any]]) -> bool:
    """Whether every response with metrics has the arrays of ``--per-request-spec-decode-metrics detailed``."""
    found = [spec for _, value in values if (spec := vllm.speculative(value)) is not None]
    return len(found) == len(values) and all("per_step_accepted" in spec for spec in found)


def _guess(path: Path) -> str:
    if path.suffix in (".csv", ".yaml", ".yml"):
        return "rates"
    text = text_of(path)
    if text.lstrip()[:1] in "{[":
        return _guess_json(path, text)
    if re.search(r"^(# (HELP|TYPE) |\w+:\w+[{ ])", text, re.MULTILINE):
        return "vllm-metrics"
    if "SpecDecoding metrics:" in text or re.search(r"^.*\b(INFO|WARNING)\b.*\d\d:\d\d", text, re.MULTILINE):
        return "vllm-log"
    raise TraceError("is none of the formats that can be imported", file=path, allowed=_known())


def _guess_json(path: Path, text: str) -> str:
    _, value = json_values(text, path)[0]
    if deepspec.is_metrics_json(value):
        return "deepspec"
    if vllm.speculative(value) is not None:
        return "vllm-requests"
    if isinstance(value, dict):
        if any(key in value for key in _ROUND_KEYS):
            return "rounds"
        if any(key in value for key in ("domains", *plain.GIVEN)):
            return "rates"
        if sglang.meta(value) is not None and "output_throughput" not in value:
            return "sglang-requests"
        if "accept_length" in value and "output_throughput" in value:
            raise TraceError("is a result of SGLang's benchmark, which has the mean acceptance length only "
                             f"({value['accept_length']})", file=path,
                             allowed="--acceptance-length and --block-size; or responses with meta_info")
        if "output_throughput" in value or any(str(key).startswith("spec_decode_") for key in value):
            return "vllm-bench"
    raise TraceError(f"is none of the formats that can be imported (begins with {json.dumps(value)[:60]})", file=path,
                     allowed=_known())


def _known() -> str:
    return "; ".join(f"{name}: {what}" for name, what in FORMATS.items())
