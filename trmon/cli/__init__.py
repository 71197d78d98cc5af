"""The command `trmon`: one file a noun, with what the command prints."""

from __future__ import annotations

from typing import Annotated

import typer

from trmon.cli.commands import COMMANDS, LazyGroup

app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["--help", "-h"]},
    help="Watch LLM reinforcement-learning runs for off-policy drift.",
)


def _show_versions(wanted: bool) -> None:
    if not wanted:
        return
    from importlib.metadata import version as version_of

    from trmon_client.core import wire  # with numpy, which no other option needs

    versions = {name: version_of(name) for name in ("trmon", "trmon-client")}
    typer.echo(", ".join(f"{name} {number}" for name, number in versions.items()))
    typer.echo(f"wire {wire.WIRE_MAJOR}.{wire.WIRE_MINOR}, semantics {wire.SEMANTICS_VERSION}")
    raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_versions, help="Print the versions and exit.")
    ] = False,
) -> None:
    """Commands and their options follow."""


def _placeholder() -> None:
    """In place of a command that is not loaded yet."""


for name, command in COMMANDS.items():
    app.command(name, help=command.summary)(_placeholder)
