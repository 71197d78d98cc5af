"""`trmon rules` and `trmon notify`: check and test alert rules, and test the receivers of alerts."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from trmon.cli.command import plain_errors, read_settings
from trmon.config import rules as rulefiles
from trmon.terminal.text import printable

rules = typer.Typer(no_args_is_help=True, help="Check and test alert rules.")


@rules.command("check")
def check_rules(file: Annotated[Path, typer.Argument(metavar="FILE", help="Rules, as YAML.")]) -> None:
    """Check a rules file and name the place of an error."""
    with plain_errors():
        n_rules = len(rulefiles.read_rules_file(file).rules)
        typer.echo(f"{file}: ok; with the built-in ones {n_rules} rules and findings")


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


notify = typer.Typer(no_args_is_help=True, help="Test the receivers of alerts.")


@notify.command("test")
def try_receivers() -> None:
    """Send a test alert, firing and then resolved, to every configured receiver; exit status 1 unless all arrive."""
    from trmon.notify.receiver import DeliveryOutcome
    from trmon.notify.registry import send_test_notification  # with httpx, which rules need not load

    with plain_errors():
        heard = True
        for name, state, result in send_test_notification(read_settings(), now=time.time()):
            heard &= result.outcome is DeliveryOutcome.DELIVERED and not result.reason
            reason = f" ({printable(result.reason)})" if result.reason else ""
            typer.echo(f"{name}: {state.value} {result.outcome.value}{reason}")
        if not heard:
            raise typer.Exit(1)
