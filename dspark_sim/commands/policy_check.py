"""dspark-sim policy check: the contract, anticipation, and exact output laws of one policy."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dspark_sim.commands.local import announce
from dspark_sim.commands.output import emit, emit_console, emit_rows

if TYPE_CHECKING:
    from rich.console import Console

    from dspark_sim.lossless.report import Report, WorldResult

__all__ = ["run_policy_check"]

GREEDY = ("Under greedy decoding the kept tokens are the target's own arg max whatever was verified, so looking ahead "
          "does no harm.")


def run_policy_check(
    reference: str, *, settings: Sequence[str] = (), greedy: bool = False, thorough: bool = False, seed: int = 1,
    form: str = "table", local_policies: bool = True, base: Path | None = None,
) -> int:
    """Check one policy and print what was found; returns the exit code.

    Args:
        reference: a name on the shelf, or ``./mine.py:Mine``.
        settings: parameters, each ``key=value``.
        greedy, thorough, seed: see :func:`dspark_sim.testing.check_policy`.
        form: table, json or csv (one row per check).
        local_policies: policies that are not on the shelf may be executed.
        base: folder that relative references start from.

    Returns:
        0 if the contract and the claim hold, 1 if not.

    Raises:
        InputError: the policy cannot be found, loaded or configured.
    """
    from dspark_sim.commands.run import overrides_of
    from dspark_sim.guard import supervised
    from dspark_sim.testing import check_policy

    announce([reference], allowed=local_policies, base=base)
    with supervised(reference):
        report = check_policy(reference, overrides_of(settings), base=base, greedy=greedy, thorough=thorough, seed=seed)
    if form == "json":
        emit(json.dumps(report.to_dict(), indent=2, ensure_ascii=False) + "\n")
    elif form == "csv":
        emit_rows(report.to_dict()["checks"], form)
    else:
        emit_console(lambda console: _draw(console, report))
    return 0 if report.ok else 1


def _draw(console: Console, report: Report) -> None:
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    claim = "claims to be lossless" if report.lossless else "does not claim to be lossless"
    console.print(Text.assemble((report.policy, "bold"), f"   {claim}, {report.timing}",
                                ", checked for greedy decoding" if report.greedy else ""))
    if report.greedy:
        console.print(Text(GREEDY, style="dim"))
    console.print()
    wrong = ("no", "yellow") if report.ok else ("FAILED", "bold red")
    marks = {True: ("ok", "green"), False: wrong, None: ("note", "cyan")}
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    for column in ("group", "title", "mark"):
        table.add_column(column, no_wrap=True)
    table.add_column("says")
    last = ""
    for check in report.checks:
        table.add_row(Text("" if check.group == last else check.group, style="dim"), check.title,
                      Text(*marks[check.passed]), Text(check.says))
        last = check.group
    console.print(table)
    for example in report.counterexamples:
        console.print()
        console.print(Text(f"Smallest counterexample found, {example.method}", style="bold"))
        for line in example.lines:
            console.print(Padding(Text(line), (0, 0, 0, 2)))
    for world in _shown(report):
        console.print()
        _law(console, world)
    console.print()
    console.print(Text(report.verdict, style="bold green" if report.ok else "bold red"))


def _shown(report: Report) -> list[WorldResult]:
    """Appendix A always, and the world with the largest deviation where that shows something else."""
    from dspark_sim.lossless.explain import law_rows

    if not report.worlds:
        return []
    first, worst = report.worlds[0], max(report.worlds, key=lambda w: w.total)
    same = worst.total == 0 or law_rows(worst.laws) == law_rows(first.laws)
    return [first] if same else [first, worst]


def _law(console: Console, result: WorldResult) -> None:
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    from dspark_sim.lossless.explain import law_rows

    laws = result.laws
    world, rows = laws.world, law_rows(laws)
    steps = "1 step" if world.steps == 1 else f"{world.steps} steps"
    console.print(Text.assemble(("Output law, ", "bold"), (world.name, "bold"),
                                f" (block size {result.block_size}, {steps}): {world.says}"))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold cyan")
    table.add_column("first tokens")
    for title in ("policy", "target", "difference"):
        table.add_column(title, justify="right")
    for name, p, q in rows:
        table.add_row(name, f"{p:.12g}", f"{q:.12g}", Text("0" if p == q else f"{p - q:+.6g}",
                                                          style="" if p == q else "red"))
    console.print(Padding(table, (0, 0, 0, 2)))
    more = len(laws.target.keys() | laws.policy.keys()) - len(rows)
    if more > 0:
        console.print(Text(f"  … and {more} more outcomes", style="dim"))
