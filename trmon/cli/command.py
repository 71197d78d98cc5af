"""Common parts of all commands: settings, the console, and plain error messages."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from trmon.domain.errors import InvalidInput, TrmonError
from trmon.terminal.text import PIPE_WIDTH, PrintableConsole, printable, printable_json

if TYPE_CHECKING:
    from trmon.config.settings import Settings

DataDir = Annotated[Path | None, typer.Option("--data-dir", help="Folder of the embedded database.")]
"""The option of commands that open the database themselves."""
NameMapping = Annotated[
    list[str] | None,
    typer.Option(
        "--map", metavar="NAME=SIGNAL|FILE", help="A name of the log that means a signal, or a file of such lines."
    ),
]
"""The option of commands that read logs."""
AllNames = Annotated[
    bool, typer.Option("--verbose", help="All names of a log: what each means, or why it is left out.")
]
"""The option of commands that say what was read of a log."""


def given_mapping(given: Sequence[str] | None) -> dict[str, str]:
    """Return the signals of names that --map maps. Errors: InvalidInput."""
    from trmon.domain.framework_names.user_names import parse_mapped

    lines: list[str] = []
    for text in given or ():
        try:
            lines += [text] if "=" in text else Path(text).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeError) as error:
            raise InvalidInput("--map", f"{text!r} is neither NAME=SIGNAL nor a file of such lines") from error
    return parse_mapped(lines, source="--map")


DURATION = re.compile(r"(\d{1,9})([smhd])")
UNUSABLE = 2
UNIT_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def read_settings(**given: Any) -> Settings:
    """Return the settings of the environment, overridden by options. Errors: ValidationError."""
    from trmon.config.settings import Settings  # with pydantic, which commands that query a service need not load

    return Settings(**{name: value for name, value in given.items() if value is not None})


def console() -> Console:
    """Return the console, of unlimited width without a terminal; what its encoding lacks becomes question marks."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    opened = PrintableConsole()
    if not opened.is_terminal:
        opened.width = PIPE_WIDTH
    return opened


def echo_error(text: str) -> None:
    """Print text, which may quote others, to stderr."""
    typer.echo(printable(text), err=True)


def echo_json(document: str | bytes) -> None:
    """Print JSON, which may quote others, to stdout."""
    typer.echo(printable_json(document if isinstance(document, str) else document.decode()))


def parse_duration(text: str, *, field: str) -> float:
    """Return a duration such as 90s, 30m, 24h or 7d in seconds. Errors: InvalidInput naming the field."""
    match = DURATION.fullmatch(text)
    if match is None:
        raise InvalidInput(field, f"{text!r} is not a duration such as 90s, 30m, 24h or 7d")
    return int(match[1]) * UNIT_SECONDS[match[2]]


@contextmanager
def plain_errors() -> Iterator[None]:
    """Turn expected errors into one line on stderr and exit status 1, without a traceback."""
    try:
        yield
    except TrmonError as error:
        echo_error(f"trmon: {error}")
        sys.exit(1)
    except ValueError as error:
        if not _echo_wrong_settings(error):
            raise
        sys.exit(2)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        echo_error(f"trmon: {error}")
        sys.exit(1)


def _echo_wrong_settings(error: ValueError) -> bool:
    """Print what is wrong with the settings, and return True, if an error is about settings."""
    from pydantic import ValidationError
    from pydantic_settings import SettingsError

    if isinstance(error, SettingsError):
        # Its text names the setting; the cause says what is wrong with the JSON.
        name = re.sub(r'.*field "(\w+)".*', r"TRMON_\1", str(error)).upper()
        echo_error(f"{name}: is not JSON: {error.__cause__}")
    elif isinstance(error, ValidationError):
        for wrong in error.errors():
            echo_error(
                f"TRMON_{'_'.join(map(str, wrong['loc'])).upper()}: {wrong['msg'].removeprefix('Value error, ')}"
            )
    else:
        return False
    return True


@contextmanager
def unusable_input() -> Iterator[None]:
    """Exit with 2 instead of 1 where the input itself is at fault; inside `plain_errors`."""
    try:
        yield
    except InvalidInput as error:
        echo_error(f"trmon: {error}")
        sys.exit(UNUSABLE)
