"""A scenario: read from YAML, overridden, validated, cross-checked; everything that needs no other file.

What the profile, the traces and the policies have to say about it is checked by :func:`dspark_sim.arms.load_arms`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import PrivateAttr

from dspark_sim.errors import ScenarioError, nearest, shown
from dspark_sim.lengths import LognormalLengths, read_lengths
from dspark_sim.scenario_schema import MAX_INTERVALS, Replay, RequestClass, ScenarioModel, Sessions, Steady, Workload
from dspark_sim.shelves import SCENARIOS, shelf
from dspark_sim.traffic_checks import check_shares, check_traffic, traffic_warnings
from dspark_sim.yamlio import Document, KeyPath, apply_overrides, parse_yaml, read_yaml, validated

__all__ = [
    "Scenario", "json_schema", "list_scenarios", "load_scenario", "read_scenario", "scenario_from_document",
    "scenario_from_text",
]

_DEFAULTS = ("prompt_tokens", "output_tokens", "sla")  # keys of the workload that a class may leave to it
_CLIPPED = 0.05  # a mean that clipping moves by more than this is worth a warning


class Scenario(ScenarioModel):
    """A validated scenario, frozen; its keys are those of the file (see :class:`ScenarioModel`).

    Every class has its lengths and SLA here, those of the workload filled in where it stated none.
    """

    _source: Document = PrivateAttr()
    _base: Path = PrivateAttr()

    @property
    def source(self) -> Document:
        """The parsed file with its lines, for messages; ``source.text`` is the text as written."""
        return self._source

    @property
    def base(self) -> Path:
        """The folder that relative references start from."""
        return self._base

    def resolved(self) -> dict[str, Any]:
        """Plain data with every default filled in, for the manifest; loading it again gives the same scenario."""
        data = self.model_dump(mode="json")
        for key in _DEFAULTS:  # they stand in the classes now
            del data["workload"][key]
        return data

    def warnings(self) -> list[str]:
        """What is legal but may not be what was meant."""
        found = []
        for i, group in enumerate(self.workload.classes):
            for key, lengths in (("prompt_tokens", group.prompt_tokens), ("output_tokens", group.output_tokens)):
                if isinstance(lengths, LognormalLengths) and abs(lengths.mean_tokens / lengths.mean - 1) > _CLIPPED:
                    found.append(f"workload.classes[{i}].{key}: clipping to {lengths.min}..{lengths.max} moves the "
                                 f"mean from {lengths.mean:g} to {lengths.mean_tokens:.1f} tokens")
        found += traffic_warnings(self)
        if self.replications == 1:
            found.append("replications: 1 gives no confidence intervals")
        return found


def load_scenario(
    reference: str | Path, overrides: Mapping[str, Any] | None = None, *, seed: int | None = None
) -> Scenario:
    """Read a scenario.

    Args:
        reference: a name on the shelf (``quickstart``), or a path to a YAML file.
        overrides: dotted keys to set, as ``--set`` does; values as :func:`~dspark_sim.yamlio.parse_scalar` gives them.
        seed: replaces the scenario's.

    Raises:
        ScenarioError: no such scenario, or a mistake in it; names file, line, key, value and what is allowed.
    """
    path = _find(reference)
    document = apply_overrides(read_yaml(path, ScenarioError), overrides or {}, ScenarioError)
    if seed is not None and isinstance(document.data, dict):
        document.data["seed"] = seed
        document.overridden[("seed",)] = "--seed"
    return _build(document, path.resolve().parent)


def read_scenario(reference: str | Path) -> Document:
    """The parsed file of a scenario, nothing checked but its YAML; ``document.file`` says where it stood.

    Raises:
        ScenarioError: no such scenario, or a file that is not YAML.
    """
    return read_yaml(_find(reference), ScenarioError)


def scenario_from_text(text: str, base: Path | None = None, overrides: Mapping[str, Any] | None = None) -> Scenario:
    """A scenario from YAML text, for tests and programs.

    Args:
        text: the YAML.
        base: the folder that relative references start from; None: the working directory.
        overrides: as for :func:`load_scenario`.
    """
    document = apply_overrides(parse_yaml(text, None, ScenarioError), overrides or {}, ScenarioError)
    return _build(document, Path.cwd() if base is None else base)


def scenario_from_document(document: Document, base: Path, overrides: Mapping[str, Any] | None = None) -> Scenario:
    """A scenario from YAML that is parsed already (part of another file); see :func:`scenario_from_text`."""
    return _build(apply_overrides(document, overrides or {}, ScenarioError), base)


def list_scenarios() -> list[tuple[str, str]]:
    """(name, first sentence of the description) of every scenario on the shelf, sorted by name."""
    found = []
    for name, path in sorted(_shelf().items()):
        try:
            data = read_yaml(path, ScenarioError).data
            text = str(data.get("description", "")) if isinstance(data, dict) else ""
        except ScenarioError as problem:
            text = f"cannot be read: {problem.problem}"
        found.append((name, " ".join(text.split()).split(". ")[0].rstrip(".")))
    return found


def json_schema() -> dict[str, Any]:
    """The JSON schema of a scenario, for editors."""
    schema = ScenarioModel.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "dspark-sim scenario"} | {
        k: v for k, v in schema.items() if k != "title"
    }


def _shelf() -> dict[str, Path]:
    return {path.stem: path for path in shelf(SCENARIOS).glob("*.yaml")}


def _find(reference: str | Path) -> Path:
    text, on_shelf = str(reference), _shelf()
    if text in on_shelf and not isinstance(reference, Path):
        return on_shelf[text]
    path = Path(text).expanduser() if text.startswith("~") else Path(text)
    try:
        exists = path.exists()
    except (OSError, ValueError):  # a name too long, a null byte
        raise ScenarioError(f"{shown(text)} is no file name") from None
    if exists or path.suffix in (".yaml", ".yml") or isinstance(reference, Path) or "/" in text or "\\" in text:
        return path
    raise ScenarioError(f"no scenario {shown(text)} on the shelf and no such file", allowed=", ".join(sorted(on_shelf)),
                        suggestion=nearest(text, on_shelf))


def _build(document: Document, base: Path) -> Scenario:
    scenario = validated(Scenario, document, ScenarioError)
    _read_files(scenario, document, base)
    _check_classes(scenario.workload, document)
    check_traffic(scenario, document, base)
    _check_names(document, "arms", [arm.name for arm in scenario.arms])
    _check_windows(scenario, document)
    scenario = scenario.model_copy(update={"workload": _filled(scenario.workload)})
    scenario._source, scenario._base = document, base
    return scenario


def _filled(workload: Workload) -> Workload:
    """The workload with its defaults written into every class."""

    def fill(group: RequestClass) -> RequestClass:
        return group.model_copy(update={k: getattr(workload, k) for k in _DEFAULTS if getattr(group, k) is None})

    return workload.model_copy(update={"classes": tuple(fill(group) for group in workload.classes)})


def _read_files(scenario: Scenario, document: Document, base: Path) -> None:
    workload = scenario.workload
    places: list[tuple[KeyPath, Any]] = [((), workload)]
    places += [(("classes", i), group) for i, group in enumerate(workload.classes)]
    if isinstance(workload.arrival, Sessions):
        places.append((("arrival",), workload.arrival))
    for path, holder in places:
        for key in ("turns",) if path == ("arrival",) else ("prompt_tokens", "output_tokens"):
            try:
                read_lengths(getattr(holder, key), base)
            except ScenarioError as problem:
                if problem.file is not None:
                    raise
                raise document.error(problem.problem, ("workload", *path, key, "file"), error=ScenarioError) from None


def _check_names(document: Document, key: str, names: list[str]) -> None:
    path: KeyPath = tuple(key.split("."))
    for i, name in enumerate(names):
        if not name.strip() or not name.isprintable():
            raise document.error(f"got {shown(name)}", (*path, i, "name"), error=ScenarioError,
                                 allowed="printable characters, not only blanks")
        if name in names[:i]:
            raise document.error(f"the name {shown(name)} stands twice", (*path, i, "name"), error=ScenarioError)


def _check_classes(workload: Workload, document: Document) -> None:
    _check_names(document, "workload.classes", [group.name for group in workload.classes])
    if isinstance(workload.arrival, Replay):
        return  # lengths, and perhaps classes, come out of the log
    for i, group in enumerate(workload.classes):
        for key in ("prompt_tokens", "output_tokens"):
            if getattr(group, key) is None and getattr(workload, key) is None:
                raise document.error(f"class {shown(group.name)} has no {key}, and neither has the workload",
                                     ("workload", "classes", i), error=ScenarioError,
                                     allowed=f"{key} in the class, or in workload for all")
    check_shares(workload, document)


def _check_windows(scenario: Scenario, document: Document) -> None:
    """Warm-up and duration end on the border of a bin, so that sums over bins are exactly the window's."""
    if not isinstance(scenario.measure, Steady):
        return
    step, total = scenario.interval_s, scenario.measure.warmup_s + (scenario.measure.duration_s or 0.0)
    if total / step > MAX_INTERVALS:
        raise document.error(f"got {step:g}, which cuts {total:g} s into {total / step:,.0f} intervals",
                             ("interval_s",), error=ScenarioError,
                             allowed=f"{1.01 * total / MAX_INTERVALS:.3g} or more: at most {MAX_INTERVALS:,} intervals")
    for key in ("warmup_s", "duration_s"):
        value = getattr(scenario.measure, key)
        if value is None:
            continue
        bins = round(value / step)
        if abs(bins * step - value) > 1e-9 * max(1.0, value) or (key == "duration_s" and bins < 1):
            near = max(bins, 1 if key == "duration_s" else 0) * step
            raise document.error(f"got {value:g}", ("measure", key), error=ScenarioError,
                                 allowed=f"a multiple of interval_s ({step:g}), e.g. {near:g}")
