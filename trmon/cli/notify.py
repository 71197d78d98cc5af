"""`trmon notify`: test the receivers of alerts."""

from __future__ import annotations

import time

import typer

from trmon.cli.command import plain_errors, read_settings
from trmon.notify.configured_receivers import send_test_notification
from trmon.notify.receiver import DeliveryOutcome
from trmon.terminal.printable import printable

notify = typer.Typer(no_args_is_help=True, help="Test the receivers of alerts.")


@notify.command("test")
def try_receivers() -> None:
    """Send a test alert, firing and then resolved, to every configured receiver; exit status 1 unless all arrive."""
    with plain_errors():
        heard = True
        for name, state, result in send_test_notification(read_settings(), now=time.time()):
            heard &= result.outcome is DeliveryOutcome.DELIVERED and not result.reason
            reason = f" ({printable(result.reason)})" if result.reason else ""
            typer.echo(f"{name}: {state.value} {result.outcome.value}{reason}")
        if not heard:
            raise typer.Exit(1)
