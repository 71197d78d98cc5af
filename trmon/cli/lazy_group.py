"""A group of commands that imports a command's module only to run it, so that each starts fast."""

from __future__ import annotations

from pkgutil import resolve_name
from typing import Any

import typer
from typer.core import TyperGroup

from trmon.cli.commands import COMMANDS


class LazyGroup(TyperGroup):
    """Lists placeholders with the summaries of `COMMANDS`, and loads the command that runs."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """See TyperGroup."""
        name, _, rest = super().resolve_command(ctx, args)
        return name, None if name is None else load_command(name), rest


def load_command(name: str) -> Any:
    """Import the command, or the group of commands, of a name and return it as Typer builds it."""
    loaded = resolve_name(COMMANDS[name].target)
    if isinstance(loaded, typer.Typer):
        return typer.main.get_group(loaded)
    alone = typer.Typer(add_completion=False)
    alone.command(name)(loaded)
    return typer.main.get_command(alone)
