"""`trmon rules` and `trmon notify`: check and test alert rules, and test the receivers of alerts."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.markup import escape
from rich.table import Table

from trmon.cli.command import console, echo_json, plain_errors, read_settings
from trmon.config import rules as rulefiles
from trmon.terminal.text import printable

rules = typer.Typer(no_args_is_help=True, help="Check and test alert rules, and count their messages.")


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


@rules.command("budget")
def alarm_budget(
    url: Annotated[str | None, typer.Option(help="URL of the service.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the budget as JSON.")] = False,
) -> None:
    """Print how many messages each rule sent per day of training over 7 and 30 days, and what came of its alerts."""
    from trmon.cli.running_service import service_of  # with urllib3, which checking a file need not load
    from trmon_client.api.answers import encode_answer

    with plain_errors(), service_of(url) as service:
        found = service.alarm_budget()
        if as_json:
            echo_json(encode_answer(found))
            return
        terminal = console()
        for window in found.windows:
            table = Table(f"{window.days} days, {window.run_days:,.3g} run-days", box=box.SIMPLE_HEAD, pad_edge=False)
            for name in BUDGET_COLUMNS:
                table.add_column(name, justify="right")
            for rule in window.rules:
                counts = (rule.alerts, rule.acknowledged, rule.silenced, rule.harmed, rule.unanswered)
                rate = "-" if rule.per_run_day is None else f"{rule.per_run_day:,.2g}"
                table.add_row(escape(rule.rule), f"{rule.messages:,}", rate, *(f"{count:,}" for count in counts))
            terminal.print(table)


BUDGET_COLUMNS = ("messages", "per run-day", "alerts", "acknowledged", "silenced", "then harm", "none of these")

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
