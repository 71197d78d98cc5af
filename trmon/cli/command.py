"""What commands share: settings, the store, and plain error messages."""

from __future__ import annotations

import os
import pwd
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from pydantic_settings import SettingsError
from rich.console import Console

from trmon.config.settings import Settings
from trmon.domain.model.access import EVERYTHING, Access
from trmon.domain.model.errors import InvalidInput, TrmonError
from trmon.store import Store
from trmon.store.database.connect import is_shared
from trmon.store.database.sqlite import check_file_exists, sqlite_file_of
from trmon.store.maintenance.exclusive_lock import exclusive_use
from trmon.terminal.api_client import ApiClient
from trmon.terminal.printable import PrintableConsole, printable

DataDir = Annotated[Path | None, typer.Option("--data-dir", help="Folder of the embedded database.")]
"""The option of commands that open the database themselves."""
DURATION = re.compile(r"(\d{1,9})([smhd])")
UNIT_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def read_settings(**given: Any) -> Settings:
    """Return the settings of the environment, overridden by options. Errors: ValidationError."""
    return Settings(**{name: value for name, value in given.items() if value is not None})


def api_client_of(url: str | None, *, timeout_seconds: float = 60.0) -> ApiClient:
    """Return the client of the service at a URL. Errors: ValidationError."""
    settings = read_settings(url=url)
    token = settings.token.get_secret_value() if settings.token else None
    return ApiClient(url=settings.url, token=token, timeout_seconds=timeout_seconds)


def operator() -> Access:
    """Return the permissions of whoever runs a command with access to the database, by the name of the user."""
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = str(os.getuid())
    return Access(name=f"cli:{user}", scopes=EVERYTHING.scopes)


def console() -> Console:
    """Return the console; characters that its encoding lacks are printed as question marks."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    return PrintableConsole()


def echo_error(text: str) -> None:
    """Print text, which may quote others, to stderr."""
    typer.echo(printable(text), err=True)


def parse_duration(text: str, *, field: str) -> float:
    """Return a duration such as 90s, 30m, 24h or 7d in seconds. Errors: InvalidInput naming the field."""
    match = DURATION.fullmatch(text)
    if match is None:
        raise InvalidInput(field, f"{text!r} is not a duration such as 90s, 30m, 24h or 7d")
    return int(match[1]) * UNIT_SECONDS[match[2]]


@contextmanager
def open_store(data_dir: Path | None, *, making: bool = False) -> Iterator[Store]:
    """Open the database for one command: as it is or, with `making`, created and migrated to this version.

    Errors: NotReady if it does not exist or has another schema, or if it must be migrated while a service uses it.
    """
    url = read_settings(data_dir=data_dir).store_url
    if not making and not is_shared(url):
        check_file_exists(sqlite_file_of(url))
    store = Store.open(url)
    try:
        if making:
            with exclusive_use(url) if store.is_older else nullcontext():
                store.migrate()
        else:
            store.check()
        yield store
    finally:
        store.close()


@contextmanager
def plain_errors() -> Iterator[None]:
    """Turn expected errors into one line on stderr and exit status 1, without a traceback."""
    try:
        yield
    except SettingsError as error:
        # Its text names the setting; the cause says what is wrong with the JSON.
        echo_error(f"trmon: {error} (TRMON_*): {error.__cause__}")
        sys.exit(2)
    except ValidationError as error:
        for wrong in error.errors():
            echo_error(f"TRMON_{'_'.join(map(str, wrong['loc'])).upper()}: {wrong['msg']}")
        sys.exit(2)
    except TrmonError as error:
        echo_error(f"trmon: {error}")
        sys.exit(1)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        echo_error(f"trmon: {error}")
        sys.exit(1)
