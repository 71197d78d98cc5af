"""`trmon notify`: try the receivers of alerts."""

from __future__ import annotations

import time

import typer

from trmon.cli.command import configured, failing_plainly
from trmon.notifications.configured_receivers import try_out
from trmon.notifications.receivers.receiver import Outcome

notify = typer.Typer(no_args_is_help=True, help="Try the receivers of alerts.")


@notify.command("test")
def try_receivers() -> None:
    """Send a test alert, firing and then resolved, through every configured receiver, and print the outcome."""
    with failing_plainly():
        heard = True
        for name, state, result in try_out(configured(), now=time.time()):
            heard &= result.outcome is Outcome.DELIVERED
            typer.echo(f"{name}: {state.value} {result.outcome.value}{f' ({result.reason})' if result.reason else ''}")
        if not heard:
            raise typer.Exit(1)
