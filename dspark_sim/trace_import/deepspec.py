"""``metrics.json`` of DeepSpec's evaluation (deepseek-ai/DeepSpec): acceptance by position of one data set.

``eval.py --tensorboard-dir DIR --step N`` writes one under ``DIR/artifacts/step_N/<dataset>/`` for a DSpark drafter:
keys ``config`` (its arguments), ``spec`` (the row of results) and ``confidence``. Entry k - 1 of
``spec.accept_rates_by_position`` is the share of the proposals of at least k tokens that kept token k: unconditional,
except that a proposal which ends at an accepted end-of-text token is not counted beyond it. Rounds themselves are not
written (see :mod:`rounds`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dspark_sim.errors import TraceError, shown
from dspark_sim.trace_import.rates import Rates, from_survival
from dspark_sim.trace_import.read import number

__all__ = ["domain_of", "from_metrics_json", "is_metrics_json"]

ENDED = 0.01  # by how much proposals cut at the end of a text may lift a later rate above an earlier one


def is_metrics_json(value: Any) -> bool:
    """Whether a parsed file looks like it."""
    spec = value.get("spec") if isinstance(value, dict) else None
    return isinstance(spec, dict) and "accept_rates_by_position" in spec


def domain_of(value: dict[str, Any]) -> str | None:
    """The data set's name."""
    name = value["spec"].get("dataset")
    return name if isinstance(name, str) else None


def from_metrics_json(value: dict[str, Any], path: Path) -> Rates:
    """Rates of one data set.

    Raises:
        TraceError: a field is missing, or drafts were cut by a confidence threshold.
    """
    spec = value["spec"]
    config = value.get("config")
    args = config.get("args") if isinstance(config, dict) else None
    args = args if isinstance(args, dict) else {}
    if args.get("confidence_threshold"):
        raise TraceError(f"proposals were cut at confidence {shown(args['confidence_threshold'])}", file=path,
                         key="config.args.confidence_threshold", allowed="0: an evaluation that verifies whole blocks")
    listed = spec["accept_rates_by_position"]
    if not isinstance(listed, list):
        raise TraceError(f"got {shown(listed)}", file=path, key="spec.accept_rates_by_position", allowed="a list")
    while listed and listed[-1] is None:
        listed = listed[:-1]
    rates = from_survival(listed, file=path, key="spec.accept_rates_by_position", slack=ENDED)
    length = number(spec, "acceptance_length", path)
    if not 1 <= length <= 1 + len(listed):
        raise TraceError(f"got {length:g}", file=path, key="spec.acceptance_length", allowed=f"1 to {1 + len(listed)}")
    facts: dict[str, str | float] = {}
    for key, ours in (("target_name_or_path", "target"), ("draft_name_or_path", "drafter")):
        if isinstance(args.get(key), str):
            facts[ours] = args[key].rstrip("/").rsplit("/", 1)[-1]
    if args.get("temperature") is not None:
        facts["temperature"] = number(args, "temperature", path)
    return Rates(rates.conditional, None, (
        *rates.assumptions, "proposals that ended at an accepted end-of-text token count only up to it",
        f"the evaluation's own acceptance length is {length:.3f}; its confidence histograms are not imported",
    ), facts)
