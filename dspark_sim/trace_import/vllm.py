"""What vLLM counts about its drafts: /metrics, log lines, results of ``vllm bench serve``, per-request metrics.

Formats as in vLLM's sources: vllm/v1/spec_decode/metrics.py (counters and log line), vllm/benchmarks/serve.py (result
fields), docs/features/speculative_decoding/acceptance_metrics.md (responses). In all of them an acceptance rate by
position is the share of *all* drafts that kept this token: unconditional.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dspark_sim.errors import TraceError, shown
from dspark_sim.trace_import.rates import SHORT, Rates, from_counts, from_histograms, from_survival
from dspark_sim.trace_import.read import LARGEST, json_values, number, text_of, whole

__all__ = ["from_bench", "from_log", "from_metrics", "from_requests", "speculative"]

_SAMPLE = re.compile(r"^vllm:(spec_decode_\w+?)(?:_total)?(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_COUNTERS = ("spec_decode_num_drafts", "spec_decode_num_draft_tokens", "spec_decode_num_accepted_tokens")
_PER_POSITION = "spec_decode_num_accepted_tokens_per_pos"
_LOG = re.compile(
    r"SpecDecoding metrics: .*?Accepted: (\d+) tokens, Drafted: (\d+) tokens, .*?"
    r"Per-position acceptance rate: ([0-9.]+(?:, [0-9.]+)*)"
)
_OLD = ("spec_decode_efficiency", "spec_decode_draft_acceptance_rate", "Draft acceptance rate:")
TRAFFIC = "averages over all requests that the counters saw: one domain, however mixed the traffic was"
Counters = dict[tuple[str, int | None], int]


def from_metrics(path: Path, since: Path | None = None, model: str | None = None) -> Rates:
    """Counters of one ``/metrics`` page, all engines summed; ``since``: an earlier page, whose counts are taken off.

    Raises:
        TraceError: no such counters (another engine, another version, speculation off), several models, or counters
            that fell in between (the server was restarted).
    """
    now = _counters(path, model)
    if since is not None:
        before = _counters(since, model)
        for key, value in before.items():
            if now.get(key, 0) < value:
                raise TraceError(f"{key[0]} fell from {value:,} to {now.get(key, 0):,}: the server was restarted in "
                                 "between", file=path, allowed="two pages of one server's life, the later one last")
        now = {key: value - before.get(key, 0) for key, value in now.items()}
    drafts, tokens, kept = (now[name, None] for name in _COUNTERS)
    positions = sorted(p for name, p in now if name == _PER_POSITION and p is not None)
    if positions != list(range(len(positions))):
        raise TraceError(f"positions {', '.join(map(str, positions))}", file=path, key=f"vllm:{_PER_POSITION}",
                         allowed="0, 1, 2, … without a gap")
    rates = from_counts(drafts, [now[_PER_POSITION, p] for p in positions], file=path, draft_tokens=tokens,
                        accepted_tokens=kept, key=f"vllm:{_PER_POSITION}_total")
    since_words = "since the server started" if since is None else f"since {since.name}"
    return _with(rates, TRAFFIC, f"counted {since_words}, {drafts:,} drafts")


def _with(rates: Rates, *assumptions: str, **facts: str | float) -> Rates:
    return Rates(rates.conditional, rates.rounds, (*rates.assumptions, *assumptions), {**rates.facts, **facts},
                 rates.warnings)


def _counters(path: Path, model: str | None) -> Counters:
    text, out, models = text_of(path), Counters(), set[str]()
    for line, row in enumerate(text.splitlines(), 1):
        found = _SAMPLE.match(row.strip())
        if found is None or found[1].endswith("_created") or found[1] not in (*_COUNTERS, _PER_POSITION):
            continue
        labels = dict(_LABEL.findall(found[2] or ""))
        name = labels.get("model_name", "")
        models.add(name)
        if model not in (None, name):
            continue
        try:
            value = float(found[3])
            place = int(labels["position"]) if found[1] == _PER_POSITION else None
            if value != int(value) or not 0 <= value <= LARGEST:
                raise ValueError
        except (KeyError, ValueError, OverflowError):
            raise TraceError(f"got {shown(row.strip())}", file=path, line=line,
                             allowed="a counter of whole numbers (by position: with the label position)") from None
        out[found[1], place] = out.get((found[1], place), 0) + int(value)
    if len(models) > 1 and model is None:
        raise TraceError(f"counts several models: {', '.join(sorted(models))}", file=path, key="--model",
                         allowed="one of them")
    if not out:
        raise TraceError(_why_not(text, models, model), file=path,
                         allowed=f"the text of vLLM's /metrics with vllm:{_PER_POSITION}_total (V1 engine, speculative "
                         "decoding on)")
    for name in _COUNTERS:
        if (name, None) not in out:
            raise TraceError("is missing", file=path, key=f"vllm:{name}_total")
    if not any(name == _PER_POSITION for name, _ in out):
        raise TraceError("is missing", file=path, key=f"vllm:{_PER_POSITION}_total",
                         allowed="a page of vLLM's V1 engine")
    return out


def _why_not(text: str, models: set[str], model: str | None) -> str:
    if models and model is not None:
        return f"counts no model {model!r}, but {', '.join(sorted(models))}"
    if "sglang:" in text:
        return ("is a page of SGLang, whose /metrics has the mean only (sglang:spec_accept_length): import responses "
                "with meta_info, or give --acceptance-length and --block-size")
    if any(word in text for word in _OLD):
        return "comes from vLLM's old V0 engine, which counted no positions"
    if "vllm:" in text:
        return "has vLLM's metrics, but none of speculative decoding: it was off"
    return "holds no metrics of vLLM"


def from_log(path: Path) -> Rates:
    """All lines ``SpecDecoding metrics: …`` of a server's log, weighted by their drafts.

    A line covers one logging interval and prints rates to three decimals; its number of drafts is not printed and
    follows from what is: drafted tokens / G where all drafts were whole, else accepted tokens / sum of the rates.
    """
    text, windows, G = text_of(path), list[tuple[float, list[float], int, int]](), None
    for line, row in enumerate(text.splitlines(), 1):
        if "SpecDecoding metrics:" not in row:
            continue
        found = _LOG.search(row)
        try:
            if found is None:
                raise ValueError
            kept, drafted = int(found[1]), int(found[2])
            rates = [float(v) for v in found[3].split(", ")]
            if not kept <= drafted <= LARGEST:
                raise ValueError
        except ValueError:
            raise TraceError(f"got {shown(row.strip(), 100)}", file=path, line=line,
                             allowed="SpecDecoding metrics: … Accepted: N tokens, Drafted: N tokens, Per-position "
                             "acceptance rate: …") from None
        if G not in (None, len(rates)):
            raise TraceError(f"has {len(rates)} positions after lines with {G}", file=path, line=line,
                             allowed="the log of one speculative configuration")
        G = len(rates)
        if drafted == 0:
            continue
        from_survival(rates, file=path, key=f"line {line}", slack=0.0015)
        drafts = drafted / G
        if abs(sum(rates) * drafts - kept) > 0.001 * G * drafts + 1:  # drafts were not whole
            drafts = kept / sum(rates) if sum(rates) else drafts
        if not drafts:
            raise TraceError(f"no token was accepted, but the rates sum to {sum(rates):.3f}", file=path, line=line)
        windows.append((drafts, rates, kept, drafted))
    if not windows or G is None:
        old = any(word in text for word in _OLD)
        raise TraceError("comes from vLLM's old V0 engine, which printed no positions" if old else
                         "holds no line of vLLM's about speculative decoding with drafts in it", file=path,
                         allowed="lines with SpecDecoding metrics: …")
    drafts = sum(w[0] for w in windows)
    survival = [sum(w[0] * w[1][k] for w in windows) / drafts for k in range(G)]
    rates_all = from_survival(survival, file=path, key="Per-position acceptance rate", slack=0.0015,
                              rounds=round(drafts))
    mean = sum(w[3] for w in windows) / drafts
    notes = [TRAFFIC, f"{len(windows)} log lines, weighted by their drafts, {drafts:,.0f} in all; rates printed to "
             "three decimals"]
    if mean < 0.99 * G:
        doubt = SHORT.format(mean, G)
        return Rates(rates_all.conditional, rates_all.rounds, (*rates_all.assumptions, *notes, doubt), {}, (doubt,))
    return _with(rates_all, *notes, f"all drafts had {G} tokens and all were verified")


def from_bench(path: Path) -> Rates:
    """Results of ``vllm bench serve --save-result``, one or several; several are weighted by their drafts."""
    total, sums, tokens = 0, list[float](), 0
    facts: dict[str, str | float] = {}
    for line, r in json_values(text_of(path), path):
        key = "spec_decode_per_position_acceptance_rates"
        if not isinstance(r, dict) or "spec_decode_acceptance_length" not in r:
            fields = isinstance(r, dict) and "output_throughput" in r
            raise TraceError("has no spec_decode_… fields: no speculation, a server that does not count it, or a vLLM "
                             "that did not save it yet" if fields else "is no result of vllm bench serve", file=path,
                             line=line, allowed=f"a result with {key}")
        rates = r.get(key)
        if not isinstance(rates, list) or not rates:
            mean = number(r, "spec_decode_acceptance_length", path, line)
            raise TraceError("is empty: the server did not count by position", file=path, line=line, key=key,
                             allowed=f"a list of rates; or import --acceptance-length {mean:.3f} --block-size G")
        drafts = whole(r, "spec_decode_num_drafts", path, line)
        kept = whole(r, "spec_decode_accepted_tokens", path, line)
        drafted = whole(r, "spec_decode_draft_tokens", path, line)
        from_survival(rates, file=path, key=key)
        if drafts == 0 or abs(sum(rates) - kept / drafts) > 0.01 + 1e-6 * kept:
            raise TraceError(f"the rates sum to {sum(rates):.3f}, but {kept:,} tokens were accepted in {drafts:,} "
                             "drafts", file=path, line=line, key=key, allowed="fields of one run")
        if sums and len(sums) != len(rates):
            raise TraceError(f"has {len(rates)} positions after a result with {len(sums)}", file=path, line=line,
                             key=key)
        sums = [a + drafts * b for a, b in zip(sums or [0.0] * len(rates), rates, strict=True)]
        total, tokens = total + drafts, tokens + drafted
        if isinstance(r.get("model_id"), str):
            facts["target"] = r["model_id"].rstrip("/").rsplit("/", 1)[-1]
    rates_all = from_counts(total, [round(v) for v in sums], file=path, draft_tokens=tokens)
    return _with(rates_all, "averages over all prompts of the benchmark: one domain", f"{total:,} drafts", **facts)


def speculative(value: Any) -> dict[str, Any] | None:
    """The object ``metrics.speculative_decoding`` of a response, or the value itself if it is one; None otherwise."""
    if not isinstance(value, dict):
        return None
    metrics = value.get("metrics")
    inner = (metrics if isinstance(metrics, dict) else value).get("speculative_decoding")
    inner = value if inner is None and not isinstance(metrics, dict) else inner
    return inner if isinstance(inner, dict) and "acceptance_histogram" in inner else None


def from_requests(path: Path, values: Sequence[tuple[int, Any]]) -> Rates:
    """Responses of a server with ``--per-request-spec-decode-metrics summary`` (or ``detailed``)."""
    by_length: dict[int, list[int]] = {}
    lacking = requests = 0
    for line, value in values:
        spec = speculative(value)
        if spec is None:
            lacking += 1
            continue
        requests += 1
        G = whole(spec, "num_spec_tokens", path, line)
        split = spec.get("acceptance_histogram_by_draft_length") or {str(G): spec["acceptance_histogram"]}
        if not isinstance(split, dict):
            raise TraceError(f"got {shown(split)}", file=path, line=line, key="acceptance_histogram_by_draft_length",
                             allowed="a mapping of draft length to counts")
        for length, counts in split.items():
            _add(by_length, length, counts, path, line)
    rates = from_histograms(by_length, file=path)
    notes = [f"{requests:,} requests, {rates.rounds:,} drafts; steps without draft tokens are not in vLLM's histogram"]
    if lacking:
        notes.append(f"{lacking:,} responses without speculative_decoding metrics were left out")
    return _with(rates, *notes)


def _add(by_length: dict[int, list[int]], length: Any, counts: Any, path: Path, line: int) -> None:
    ok = str(length).isdecimal() and len(str(length)) < 4 and isinstance(counts, list) and all(
        isinstance(n, int) and not isinstance(n, bool) and 0 <= n <= LARGEST for n in counts)
    if not ok or len(counts) > int(length) + 1:
        raise TraceError(f"draft length {shown(length)}: got {shown(counts)}", file=path, line=line,
                         key="acceptance_histogram", allowed="counts for 0, 1, … accepted tokens, up to those drafted")
    L = int(length)
    row = by_length.setdefault(L, [0] * (L + 1))
    for j, n in enumerate(counts):
        row[j] += n
