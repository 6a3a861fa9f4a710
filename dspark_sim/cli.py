"""The command line: parses, calls :mod:`dspark_sim.commands`, prints nothing itself.

Only typer is imported here, so that ``--help`` is quick. Exit codes: 0 done, 1 a run failed, 2 the input is wrong,
130 stopped by Ctrl-C, 143 by SIGTERM.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from dspark_sim.cli_live import CasesOrLive
from dspark_sim.cli_options import DecisionTimeout, Form, Format, NoLocal, ScenarioName, Seed, Settings
from dspark_sim.cli_plan import plan
from dspark_sim.cli_policy import policies
from dspark_sim.cli_profile import profiles
from dspark_sim.cli_rank import rank
from dspark_sim.cli_sweep import sweep
from dspark_sim.cli_trace import traces
from dspark_sim.commands.output import emit, ended, guarded

__all__ = ["app", "main"]

_HELP = {"help_option_names": ["-h", "--help"]}
app = typer.Typer(
    help="Compare ways to serve an LLM with speculative decoding on measured hardware, without the hardware.",
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, context_settings=_HELP,
)


def _group(name: str, text: str) -> typer.Typer:
    group = typer.Typer(help=text, no_args_is_help=True, context_settings=_HELP)
    app.add_typer(group, name=name)
    return group


scenarios = _group("scenario", "Scenarios: what is compared, on what hardware, under what traffic.")
app.add_typer(policies, name="policy")
app.add_typer(profiles, name="profile")
app.add_typer(traces, name="trace")


def _version(asked: bool) -> None:
    if asked:
        from dspark_sim import __version__

        emit(f"dspark-sim {__version__}\n")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Compare ways to serve an LLM with speculative decoding on measured hardware, without the hardware."""


@app.command()
@guarded
def run(
    scenario: ScenarioName,
    seed: Seed = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Run folder to make; must be new or empty. Default: runs/NAME-TIME.")
    ] = None,
    settings: Settings = [],  # noqa: B006 - typer reads it, nobody writes it
    form: Form = Format.table,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no remarks on stderr.")] = False,
    no_plots: Annotated[bool, typer.Option("--no-plots", help="Draw no pictures, write no report.html.")] = False,
    perfetto: Annotated[
        Path | None, typer.Option("--perfetto", metavar="FILE", help="Also write steps and requests as a trace for "
                                  "ui.perfetto.dev (first replication); .gz compresses.")
    ] = None,
    no_local_policies: NoLocal = False,
    decision_timeout: DecisionTimeout = None,
) -> None:
    """Compare the arms of a scenario: a table here, everything else in a run folder."""
    from dspark_sim.commands.run import run_command
    from dspark_sim.guard import limited

    with limited(decision_timeout):
        run_command(scenario, seed=seed, out=out, settings=settings, form=form.value, quiet=quiet, plots=not no_plots,
                    local_policies=not no_local_policies, perfetto=perfetto)


app.command()(sweep)
app.command()(plan)
app.command()(rank)


class Open(StrEnum):
    """Whether a report is opened in the browser."""

    auto = "auto"
    yes = "yes"
    no = "no"


@app.command()
@guarded
def report(
    folder: Annotated[Path, typer.Argument(metavar="RUN-OR-SWEEP", help="The folder that run or sweep has written.")],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="The HTML file. Default: report.html in the folder.")
    ] = None,
    show: Annotated[
        Open, typer.Option("--open", help="Open it in the browser; auto: when a person sits at a screen.")
    ] = Open.auto,
    csv: Annotated[bool, typer.Option("--csv", help="Also write each table as CSV beside it.")] = False,
    png: Annotated[bool, typer.Option("--png", help="Also write each picture as PNG beside it.")] = False,
    baseline: Annotated[
        str | None, typer.Option("--baseline", metavar="ARM", help="What a sweep's frontier is read against. Default: "
                                 "the first arm.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No remarks on stderr.")] = False,
) -> None:
    """One self-contained HTML file from a finished run or sweep; prints its path."""
    from dspark_sim.commands.report import report_command

    report_command(folder, out=out, show=show.value, csv=csv, png=png, quiet=quiet, baseline=baseline)


@app.command(cls=CasesOrLive)
@guarded
def validate(
    case: Annotated[
        list[str], typer.Argument(metavar="[CASE]...", help="Cases on the shelf, or paths of your own. Default: "
                                  "all. First word live: a real engine here; validate live --help.")
    ] = [],  # noqa: B006
    bench: Annotated[
        list[Path], typer.Option("--from-vllm-bench", metavar="FILE", help="A result of vllm bench serve, as a case; "
                                 "may be repeated, and further files may follow it.")
    ] = [],  # noqa: B006
    base: Annotated[
        str | None, typer.Option("--base", metavar="SCENARIO", help="With --from-vllm-bench: what was served on what.")
    ] = None,
    arm: Annotated[str | None, typer.Option("--arm", help="With --from-vllm-bench: the arm that was served.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Two loads per arm, one replication.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder to make; must be new or empty. Default: runs/validate-TIME.")
    ] = None,
    write_docs: Annotated[Path | None, typer.Option("--write-docs", help="Also write the page of all results.")] = None,
    form: Form = Format.table,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no remarks on stderr.")] = False,
    no_plots: Annotated[bool, typer.Option("--no-plots", help="Draw no pictures.")] = False,
) -> None:
    """Lay predictions beside published measurements; exit code 1 when a case is out of its tolerance."""
    from dspark_sim.commands.validate import validate_command

    validate_command(case, bench=bench, base=base, arm=arm, quick=quick, form=form.value, out=out, docs=write_docs,
                     quiet=quiet, plots=not no_plots)


@app.command()
@guarded
def schema() -> None:
    """Print the JSON schema of scenarios, for editors."""
    from dspark_sim.commands.scenario import print_schema

    print_schema()


@scenarios.command("list")
@guarded
def scenario_list(form: Form = Format.table) -> None:
    """Scenarios on the shelf."""
    from dspark_sim.commands.scenario import list_command

    list_command(form.value)


@scenarios.command("show")
@guarded
def scenario_show(
    scenario: ScenarioName, form: Form = Format.table, settings: Settings = [], seed: Seed = None,  # noqa: B006
) -> None:
    """Print a scenario as written; with --format json as validated, defaults filled in."""
    from dspark_sim.commands.scenario import show_command

    show_command(scenario, form.value, settings, seed)


@scenarios.command("check")
@guarded
def scenario_check(
    scenario: Annotated[list[str], typer.Argument(metavar="SCENARIO...", help="Names on the shelf, or paths.")],
    settings: Settings = [], no_local_policies: NoLocal = False,  # noqa: B006
) -> None:
    """Check scenarios and everything that they name, without running them."""
    from dspark_sim.commands.scenario import check_command

    check_command(scenario, settings, local_policies=not no_local_policies)


def main() -> None:
    """Entry point of ``dspark-sim``."""
    import sys

    from dspark_sim.lean import arrow_without_pandas

    with ended():
        arrow_without_pandas(next((word for word in sys.argv[1:] if not word.startswith("-")), ""))
        app(prog_name="dspark-sim")
