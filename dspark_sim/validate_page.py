"""docs/validation.md: how to read it, a summary, every case, and how users check the simulator on their own system."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dspark_sim.validate import CaseResult
from dspark_sim.validate_docs import AIM, case_markdown

__all__ = ["page"]

INTRODUCTION = """# Validation: predictions laid beside published measurements

*Written by `dspark-sim validate --write-docs docs/validation.md`; every number below comes from that run. Change the
cases (`scenarios/validation/*.yaml`), not this page.*

Each case states the system, what was fitted on what, and what is then *predicted*: numbers that had no part in any
fit. `predicted / published, error` stands in every cell. A row or column marked *fitted* was used to make the profile
or the trace and proves nothing; *shown* numbers are not judged; `*` marks single fitted points. A case passes when the
median and the worst error of each predicted quantity are inside its tolerance: 3 % and 6 % unless the case says
another; the table below says which cases miss that aim.

**What these numbers are not.** No predicted number enters a fit, but this is no blind test. The published numbers
lay open while the models were developed, several forms were tried with the predicted errors in sight, and the wider
tolerances of the cases that miss the aim were set after the result was known: they guard against getting worse and
say nothing about how good the result is. Each case tells under *What was tried* what else was looked at and how it
came out. A benchmark of your own, which nobody had seen, is the better judge; the end of this page says how."""

OWN = """## Check the simulator on your own system before you believe it

**From vLLM's benchmark.** Serve your model, measure it at several loads, and compare:

```
vllm bench serve ... --max-concurrency 16 --save-result --save-detailed     # again at 1, 4, 64, ...
dspark-sim validate --from-vllm-bench result-*.json --base my-system.yaml --arm dspark
```

`my-system.yaml` is a scenario with your hardware profile, your traces and the arm that you served. Arrival,
the number of requests and the lengths come from the result files (from `input_lens` and `output_lens` where
`--save-detailed` wrote them, else their means). A file may hold several results, as `--append-result` leaves them.
Compared are output throughput, mean and median TPOT, with prefill in
the scenario median TTFT and end-to-end time, and with speculation the acceptance length.

**From any table.** Write a case; this is a whole one:

```yaml
title: My model on my GPUs
system: eight GPUs, vLLM, the drafter that we trained
source: [our benchmark of last Tuesday]
fitted: {parameters: 0, on: [nothing; the step times were measured]}
predicted: throughput and TPOT of the drafter at four loads
tolerance: {median_pct: 3, worst_pct: 6}
axis: workload.arrival.concurrency        # or workload.arrival.rate_per_s; any dotted key of the scenario
axis_name: concurrency
scenario: ./my-system.yaml                # a path from this file, a name on the shelf, or written out here
published:
  - arm: dspark                           # an arm of the scenario
    role: predicted                       # fitted: used to make profile or trace; shown: not judged
    columns: [at, throughput_tok_s, tpot_ms_mean]
    rows:
      - [1, 257, 3.9]
      - [64, 4931, 11.9]
```

and `dspark-sim validate ./my-case.yaml`. Instead of `columns` and `rows` a table may name a CSV, `file: table.csv`,
with the columns `at`, the quantities, and if it holds several, `arm` and `role`. Quantities are `throughput_tok_s`
(whole engine), `throughput_tok_s_gpu`, and the names that `dspark-sim run --format json` prints. `readings` are
numbers read off two curves (throughput at equal speed, speed at equal throughput), `acceptance` compares traces
without a run, `show` prints loads at which nothing was published, `at` sets further keys at one load, `limits` and
`findings` are your words. Exit code 0: inside every tolerance; 1: not; 2: the case is wrong."""


def page(results: Sequence[CaseResult], pictures: Mapping[str, str]) -> str:
    """The whole page, ending in a newline."""
    parts = [INTRODUCTION, _overview(results)]
    parts += [case_markdown(r, pictures.get(r.case.name)) for r in results]
    return "\n\n".join([*parts, OWN]) + "\n"


def _overview(results: Sequence[CaseResult]) -> str:
    lines = ["| case | fitted numbers | predicted points | median error | worst error | verdict |",
             "|---|---|---|---|---|---|"]
    for r in results:
        judged = [p for p in r.points if p.role == "predicted" and p.published is not None and not p.absolute]
        errors = sorted(abs(p.error) for p in judged if p.error is not None)
        half = len(errors) // 2
        median = "–" if not errors else f"{(errors[half] + errors[~half]) / 2:.1f} %"
        worst = "–" if not errors else f"{errors[-1]:.1f} %"
        verdict = _verdict(r) if judged else "demonstration"
        name = f"[{r.case.name}](#{_anchor(f'{r.case.name}: {r.case.title}')})"
        lines.append(f"| {name} | {r.case.fitted.parameters} | {len(judged)} | {median} | {worst} | {verdict} |")
    return "\n".join(lines)


def _verdict(result: CaseResult) -> str:
    """Inside or outside, and whether the case allows itself more than the aim."""
    if not result.passed:
        return "**outside**"
    wide = [s.allowed for s in result.summaries if s.allowed and (s.allowed[0] > AIM[0] or s.allowed[1] > AIM[1])]
    if not wide:
        return "inside"
    missed = any(s.median > AIM[0] or s.worst > AIM[1] for s in result.summaries if s.allowed)
    return "inside a wider tolerance; misses the aim" if missed else "inside"


def _anchor(title: str) -> str:
    kept = (c for c in title.lower() if c.isalnum() or c in " -_")
    return "".join(kept).replace(" ", "-")
