"""Validation cases: what a system was measured to do, to be laid beside what the simulator predicts.

A case is one YAML file: the system and its source in words, the scenario that should reproduce it, what was fitted on
what, the published numbers as tables, a tolerance, and what nobody can know. Users write their own in the same way.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PrivateAttr, model_validator

from dspark_sim.errors import InputError, ScenarioError, nearest, shown
from dspark_sim.results import HEADLINE, MORE
from dspark_sim.scenario import Scenario, load_scenario, scenario_from_document
from dspark_sim.shelves import SCENARIOS, shelf
from dspark_sim.yamlio import Document, StrictModel, parse_scalar, read_yaml, validated

__all__ = [
    "QUANTITIES", "Acceptance", "Case", "Fitted", "Reading", "Role", "Show", "Table", "case_from_document",
    "list_cases", "load_case",
]

Role = Literal["fitted", "predicted", "shown"]
Text = Annotated[str, Field(min_length=1, max_length=4000)]
QUANTITIES = (
    "throughput_tok_s", "tps_user_harmonic", "steps_per_s",
    *(name for name in (*HEADLINE, *MORE) if name not in ("throughput_vs_first_pct", "sla_attainment")),
)
"""What a table may hold. ``throughput_tok_s`` is of the whole engine, ``throughput_tok_s_gpu`` per GPU,
``tps_user_harmonic`` 1 / mean TPOT; the others as in the results of a run."""


class Table(StrictModel):
    """Published numbers of one arm: ``rows`` (or a CSV ``file`` beside the case) under ``columns``.

    The first column is ``at``, the load (the value of the case's ``axis``); the others are :data:`QUANTITIES`. A CSV
    has its own header: ``at``, the quantities, and if it holds several arms or roles, ``arm`` and ``role``.
    """

    arm: Text | None = Field(default=None, description="arm of the scenario; in a CSV it may be a column instead")
    role: Role = Field(default="predicted", description="fitted: inputs were made from it; shown: not judged")
    note: Text | None = None
    set: dict[str, Any] = Field(default_factory=dict, description="scenario keys of these points only")
    columns: list[str] | None = None
    rows: list[list[float | int | None]] | None = None
    file: Text | None = Field(default=None, description="CSV, instead of columns and rows")

    @model_validator(mode="after")
    def _one_source(self) -> Table:
        if (self.file is None) == (self.rows is None) or (self.rows is None) != (self.columns is None):
            raise ScenarioError("needs columns and rows, or file", key="rows")
        for row in self.rows or []:
            if len(row) != len(self.columns or []) or row[0] is None:
                raise ScenarioError(f"got {shown(row)}", key="rows", allowed=f"one number for each of {self.columns}")
        return self


class Show(StrictModel):
    """Loads at which predictions are printed although nothing was published there."""

    arms: list[Text]
    at: Annotated[list[float | int], Field(min_length=1)]
    quantities: list[str]
    set: dict[str, Any] = Field(default_factory=dict)


class Reading(StrictModel):
    """A number read off two predicted curves, as a frontier is read.

    ``throughput_ratio``: of ``arm`` to ``base`` where both give a user ``at`` tokens per second; ``tps_ratio``: of the
    user's speeds where both have the throughput ``at`` (per GPU). Straight lines between the case's loads.
    ``ratio``: of one ``quantity`` at the same load ``at``.
    """

    kind: Literal["throughput_ratio", "tps_ratio", "ratio"]
    arm: Text
    base: Text
    at: float | int
    quantity: str | None = None
    value: float
    role: Role = "predicted"
    note: Text | None = None

    @property
    def words(self) -> str:
        """Its name in tables and tolerances."""
        return {"throughput_ratio": "throughput at equal speed",
                "tps_ratio": "speed at equal throughput"}.get(self.kind, f"ratio of {self.quantity}")


class Acceptance(StrictModel):
    """Published acceptance, compared with the traces directly, without a run: rounds walked with full verification.

    Columns: ``at`` (the position, or how many draft tokens are verified) and one quantity: ``acceptance_length``,
    ``conditional_acceptance``, ``ece_before_pct``, ``ece_after_pct``, ``auc``, or ``share_pct`` (of rounds that keep
    ``at`` draft tokens).
    """

    traces: Text
    drafter: Text
    domain: Text
    role: Role = "predicted"
    label: Text | None = Field(default=None, description="arm's name in tables; absent: drafter, domain")
    note: Text | None = None
    columns: Annotated[list[str], Field(min_length=2, max_length=2)]
    rows: list[list[float | int]]
    absolute: bool = Field(default=False, description="errors in the quantity's own units instead of per cent")


class Fitted(StrictModel):
    """What was adjusted to data, and how many numbers that was."""

    parameters: int = Field(ge=0, le=1000, description="how many numbers were fitted")
    on: list[Text] = Field(description="each in a sentence: what on what")


class Tolerance(StrictModel):
    """The case passes when predicted points stay inside both, in per cent of the published number."""

    median_pct: float = Field(default=3.0, gt=0, le=1000)
    worst_pct: float = Field(default=6.0, gt=0, le=1000)
    quantities: dict[str, list[float]] = Field(default_factory=dict, description="quantity -> its own [median, worst]")


class Case(StrictModel):
    """A whole case; see docs/validation.md for a worked one."""

    title: Text
    system: Text
    source: list[Text]
    fitted: Fitted
    predicted: Text = Field(description="what is predicted, in words")
    limits: list[Text] = Field(default_factory=list, description="what cannot be identified from public data")
    tried: list[Text] = Field(default_factory=list, description="what else was tried with the numbers in sight")
    findings: list[Text] = Field(default_factory=list, description="what the numbers say")
    tolerance: Tolerance = Tolerance()
    axis: Text = Field(default="workload.arrival.concurrency", description="dotted key of the scenario: the load")
    axis_name: Text = "concurrency"
    scenario: Any = Field(default=None, description="a scenario: written out, a name on the shelf, or a path")
    at: list[dict[str, Any]] = Field(default_factory=list, description="{load: N, set: {…}}: keys of one load only")
    published: list[Table] = Field(default_factory=list)
    show: list[Show] = Field(default_factory=list)
    readings: list[Reading] = Field(default_factory=list)
    acceptance: list[Acceptance] = Field(default_factory=list)

    _document: Document = PrivateAttr()
    _name: str = PrivateAttr(default="case")

    @property
    def name(self) -> str:
        """The file's name without its suffix."""
        return self._name

    @property
    def base(self) -> Path:
        """The folder that relative paths start from."""
        return Path.cwd() if self._document.file is None else self._document.file.resolve().parent

    def fault(self, problem: str, *path: str | int, allowed: str | None = None, hint: str | None = None) -> InputError:
        """An error at a key of the case's file."""
        return self._document.error(problem, path, error=ScenarioError, allowed=allowed, suggestion=hint)

    def build(self, overrides: dict[str, Any]) -> Scenario:
        """The scenario with some keys set."""
        if isinstance(self.scenario, dict):
            inner = Document(
                self.scenario, self._document.file,
                {k[1:]: v for k, v in self._document.lines.items() if k[:1] == ("scenario",)}, self._document.text,
            )
            return scenario_from_document(inner, self.base, overrides)
        path = self.base / str(self.scenario)
        return load_scenario(path if path.is_file() else str(self.scenario), overrides)


def list_cases() -> dict[str, Path]:
    """Name -> file of the shipped cases, in their order."""
    return {p.stem: p for p in sorted((shelf(SCENARIOS) / "validation").glob("*.yaml"))}


def load_case(reference: str | Path) -> Case:
    """Read one case by name or path.

    Raises:
        InputError: nothing there, or a mistake in it.
    """
    known, text = list_cases(), str(reference)
    if text in known and not isinstance(reference, Path):
        path = known[text]
    elif isinstance(reference, Path) or "/" in text or "\\" in text or text.endswith((".yaml", ".yml")):
        path = Path(text).expanduser()
    else:
        raise ScenarioError(f"no validation case {shown(text)}", allowed=", ".join(known),
                            suggestion=nearest(text, known))
    return case_from_document(read_yaml(path, ScenarioError), path.stem)


def case_from_document(document: Document, name: str) -> Case:
    """Validate a parsed case, read its CSV files, and check names that need no simulation."""
    case = validated(Case, document, ScenarioError)
    case._document, case._name = document, name
    tables: list[Table] = []
    for i, table in enumerate(case.published):
        tables += [table] if table.file is None else _read_csv(case, i, table)
    case = case.model_copy(update={"published": tables})
    case._document, case._name = document, name
    _check(case)
    return case


def _check(case: Case) -> None:
    if case.scenario is None and (case.published or case.show or case.readings):
        raise case.fault("is missing, but there are numbers to predict", "scenario", allowed="a scenario")
    if not (case.published or case.show or case.acceptance):
        raise case.fault("holds nothing to compare", allowed="published, show or acceptance")
    for i, table in enumerate(case.published):
        columns = table.columns or []
        if table.arm is None:
            raise case.fault("names no arm", "published", i, allowed="arm: NAME, or a column arm in the file")
        if not columns or columns[0] != "at":
            raise case.fault(f"got {shown(columns[:1])}", "published", i, "columns", allowed="at as the first column")
        _known(case, columns[1:], "published", i, "columns")
    for i, wanted in enumerate(case.show):
        _known(case, wanted.quantities, "show", i, "quantities")
    for i, reading in enumerate(case.readings):
        if reading.kind == "ratio":
            _known(case, [reading.quantity or ""], "readings", i, "quantity")
    for i, extra in enumerate(case.at):
        if set(extra) != {"load", "set"} or not isinstance(extra["set"], dict):
            raise case.fault(f"got {shown(extra)}", "at", i, allowed="{load: NUMBER, set: {dotted.key: value}}")
    _fits_together(case)


def _fits_together(case: Case) -> None:
    """Nothing that is written has no effect: a mistyped name would make a case that judges less than it says."""
    for i, table in enumerate(case.published):
        if table.role != "shown" and not any(v is not None for row in table.rows or [] for v in row[1:]):
            raise case.fault("holds no number to compare", "published", i, allowed="rows of at and quantities")
    arms = dict.fromkeys([*(t.arm or "" for t in case.published), *(arm for s in case.show for arm in s.arms)])
    loads = dict.fromkeys([float(row[0] or 0) for t in case.published for row in t.rows or []]
                          + [float(at) for s in case.show for at in s.at])
    for i, extra in enumerate(case.at):
        if extra["load"] not in loads:
            raise case.fault(f"got {shown(extra['load'])}, and no table has this load", "at", i, "load",
                             allowed=", ".join(f"{load:g}" for load in loads))
    for i, reading in enumerate(case.readings):
        for key, arm in (("arm", reading.arm), ("base", reading.base)):
            if arm not in arms:
                raise case.fault(f"no table has the arm {shown(arm)}", "readings", i, key, allowed=", ".join(arms),
                                 hint=nearest(arm, arms))
    judged = dict.fromkeys([*(q for t in case.published for q in (t.columns or [])[1:]),
                            *(reading.words for reading in case.readings), *(a.columns[1] for a in case.acceptance)])
    for name, numbers in case.tolerance.quantities.items():
        if name not in judged:
            raise case.fault("is judged nowhere in this case", "tolerance", "quantities", name,
                             allowed=", ".join(judged), hint=nearest(name, judged))
        if len(numbers) != 2 or min(numbers) <= 0:
            raise case.fault("needs two numbers above 0", "tolerance", "quantities", name, allowed="[median, worst]")


def _known(case: Case, names: list[str], *path: str | int) -> None:
    for name in names:
        if name not in QUANTITIES:
            raise case.fault(f"no quantity {shown(name)}", *path, allowed=", ".join(QUANTITIES),
                             hint=nearest(name, QUANTITIES))


def _read_csv(case: Case, index: int, table: Table) -> list[Table]:
    """The tables, one per arm and role, of a CSV file."""
    path = case.base / str(table.file)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError, ValueError) as problem:
        why = getattr(problem, "strerror", None) or "is no text"
        raise case.fault(f"{path}: {why}", "published", index, "file") from None
    reader = csv.DictReader(io.StringIO("".join(s for s in text.splitlines(True) if not s.startswith("#"))))
    header = [h.strip() for h in reader.fieldnames or []]
    reader.fieldnames = header
    if "at" not in header:
        raise ScenarioError(f"has the columns {', '.join(header) or 'none'}", file=path, allowed="a column at")
    quantities = [h for h in header if h not in ("at", "arm", "role")]
    found: dict[tuple[str | None, Any], list[list[float | int | None]]] = {}
    for n, row in enumerate(reader, 2):
        if None in row:
            raise ScenarioError(f"row {n} has more cells than the header", file=path, allowed=f"{len(header)} cells")
        values = [row["at"], *(row[q] for q in quantities)]
        numbers = [None if not (v or "").strip() else parse_scalar(v or "") for v in values]
        if numbers[0] is None or any(v is not None and type(v) not in (int, float) for v in numbers):
            raise ScenarioError(f"row {n}: got {shown(values)}", file=path, allowed="numbers, or empty cells")
        role = (row.get("role") or table.role).strip()
        if role not in ("fitted", "predicted", "shown"):
            raise ScenarioError(f"row {n}: role {shown(role)}", file=path, allowed="fitted, predicted, shown")
        found.setdefault(((row.get("arm") or table.arm or "").strip() or None, role), []).append(numbers)
    columns = ["at", *quantities]
    return [table.model_copy(update={"arm": arm, "role": role, "rows": rows, "columns": columns, "file": None})
            for (arm, role), rows in found.items()]
