"""Options that several commands of the command line share."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

__all__ = ["DecisionTimeout", "Form", "Format", "NoLocal", "Quiet", "ScenarioName", "Seed", "Settings"]


class Format(StrEnum):
    """How results are printed."""

    table = "table"
    json = "json"
    csv = "csv"


Form = Annotated[Format, typer.Option("--format", help="How to print; json and csv put nothing else on stdout.")]
ScenarioName = Annotated[str, typer.Argument(metavar="SCENARIO", help="A name on the shelf, or a path.")]
Settings = Annotated[
    list[str], typer.Option("--set", metavar="KEY=VALUE", help="Set a dotted key of the scenario; may be repeated.")
]
Seed = Annotated[int | None, typer.Option("--seed", min=0, help="Instead of the scenario's seed.")]
NoLocal = Annotated[
    bool, typer.Option("--no-local-policies", help="Refuse policies and routers that are neither on the shelf nor "
                       "installed (they execute code).")
]
DecisionTimeout = Annotated[
    float | None, typer.Option("--decision-timeout", min=0, metavar="SECONDS", help="A policy that takes longer for "
                               "one answer is given up; 0: never. Default: 30.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no remarks on stderr.")]
