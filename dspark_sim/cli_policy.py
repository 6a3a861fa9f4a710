"""``dspark-sim policy list | show | new | check``: their options; :mod:`dspark_sim.cli` registers the group."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from dspark_sim.cli_options import DecisionTimeout, Form, Format, NoLocal
from dspark_sim.commands.output import guarded

__all__ = ["policies"]

policies = typer.Typer(
    help="Verification policies: which draft tokens the target verifies.", no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Kind(StrEnum):
    """What a new policy decides."""

    budget = "budget"
    full = "full"


@policies.command("list")
@guarded
def policy_list(form: Form = Format.table, no_local_policies: NoLocal = False) -> None:
    """Policies that a name finds: in ./policies, installed, on the shelf."""
    from dspark_sim.commands.policy import list_command

    list_command(form.value, local_policies=not no_local_policies)


@policies.command("new")
@guarded
def policy_new(
    name: Annotated[str, typer.Argument(help="What scenarios will call it, e.g. load_aware.")],
    kind: Annotated[
        Kind, typer.Option("--kind", help="budget: decide how many tokens the batch verifies, lossless by "
                           "construction; full: decide every request's length.")
    ] = Kind.budget,
    folder: Annotated[
        Path, typer.Option("--dir", help="Where to write it; names are looked up in ./policies.")
    ] = Path("policies"),
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that exist.")] = False,
) -> None:
    """Write a working policy and its test, to be changed."""
    from dspark_sim.commands.policy_new import new_command

    new_command(name, kind=kind.value, folder=folder, force=force)


@policies.command("show")
@guarded
def policy_show(
    policy: Annotated[str, typer.Argument(metavar="POLICY", help="A name on the shelf, or ./mine.py:Mine.")],
    form: Form = Format.table, no_local_policies: NoLocal = False,
) -> None:
    """What a policy does, claims and takes."""
    from dspark_sim.commands.policy import show_command

    show_command(policy, form.value, local_policies=not no_local_policies)


@policies.command("check")
@guarded
def policy_check(
    policy: Annotated[str, typer.Argument(metavar="POLICY", help="A name on the shelf, or ./mine.py:Mine.")],
    settings: Annotated[
        list[str], typer.Option("--set", metavar="KEY=VALUE", help="Set a parameter of the policy; may be repeated.")
    ] = [],  # noqa: B006
    greedy: Annotated[bool, typer.Option("--greedy", help="Check for greedy decoding, which allows more.")] = False,
    thorough: Annotated[bool, typer.Option("--thorough", help="Search much longer.")] = False,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the search.")] = 1,
    form: Form = Format.table, no_local_policies: NoLocal = False, decision_timeout: DecisionTimeout = None,
) -> None:
    """Is a policy what it claims: contract, anticipation, exact output laws? Exit code 1 if not."""
    from dspark_sim.commands.policy_check import run_policy_check
    from dspark_sim.guard import limited

    with limited(decision_timeout):
        raise typer.Exit(run_policy_check(policy, settings=settings, greedy=greedy, thorough=thorough, seed=seed,
                                          form=form.value, local_policies=not no_local_policies))
