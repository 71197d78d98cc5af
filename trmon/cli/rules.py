"""`trmon rules`: check and test alert rules."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trmon.cli.command import plain_errors
from trmon.config import rules as rulefiles

rules = typer.Typer(no_args_is_help=True, help="Check and test alert rules.")


@rules.command("check")
def check_rules(file: Annotated[Path, typer.Argument(metavar="FILE", help="Rules, as YAML.")]) -> None:
    """Check a rules file and name the place of an error."""
    with plain_errors():
        n_rules = len(rulefiles.read_rules_file(file))
        typer.echo(f"{file}: ok; with the built-in ones {n_rules} rules")


@rules.command("test")
def test_rules(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Series and expected alerts, as YAML.")],
) -> None:
    """Run series of signals through rules and compare the alerts with the expected ones."""
    with plain_errors():
        verdicts = rulefiles.run_rules_file_tests(file)
        for verdict in verdicts:
            typer.echo(str(verdict))
        if not all(verdict.passed for verdict in verdicts):
            raise typer.Exit(1)
