"""The command `trmon`: one file per command, each a few lines over the package that does the work."""

from __future__ import annotations

import typer

from trmon.cli.commands import COMMANDS, LazyGroup

app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    add_completion=False,
    help="Watch LLM reinforcement-learning runs for off-policy drift.",
)


def _placeholder() -> None:
    """In place of a command that is not loaded yet."""


for name, command in COMMANDS.items():
    app.command(name, help=command.summary)(_placeholder)
