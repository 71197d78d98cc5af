"""The address of a service and its token: arguments, else TRMON_* variables. Commands start with it: no numpy."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
TOKEN_FILE = "TRMON_TOKEN_FILE"  # noqa: S105  the name of a variable
MAX_TOKEN_BYTES = 4096

T = TypeVar("T")


@dataclass(frozen=True)
class Arguments:
    """The arguments of `init` and the environment; an argument that is not None takes precedence."""

    given: Mapping[str, Any]
    environment: Mapping[str, str]

    def get(self, name: str) -> Any:
        """Return the argument, else its TRMON_ variable if it is not empty, else None."""
        value = self.given.get(name)
        return value if value is not None else self.environment.get(variable_name(name)) or None

    def parsed(self, name: str, parse: Callable[[Any], T], *, expected: str) -> T | None:
        """Return the parsed value, or None without one.

        Errors: ValueError naming the argument and its variable, the expected and the given value.
        """
        value = self.get(name)
        try:
            return None if value is None else parse(value)
        except (TypeError, ValueError, AttributeError, OverflowError, KeyError, ImportError):
            # A URL or a token may hold a secret: show neither the value nor the error about it.
            shown = "is not" if name in ("url", "token") else f"is {value!r:.80}"
            raise ValueError(f"{name} ({variable_name(name)}) must be {expected}, and {shown}") from None


def resolve_service(*, url: str | None, token: str | None, environment: Mapping[str, str]) -> tuple[str, str | None]:
    """Return the URL of a service and the token to send. Errors: ValueError naming the argument and its variable."""
    arguments = Arguments({"url": url, "token": token}, environment)
    found = url_of(arguments)
    if found is None:
        raise ValueError("url is needed: pass Service(url=...) or set TRMON_URL")
    return found, token_of(arguments)


def variable_name(name: str) -> str:
    """Return the environment variable of an argument."""
    return f"TRMON_{name.upper()}"


def url_of(arguments: Arguments) -> str | None:
    """Return the URL of the service without a slash at its end. Errors: ValueError."""
    expected = "http(s)://host[:port][/path], without credentials"
    given = arguments.get("url")
    if given and "://" not in str(given):
        raise ValueError(f"url ({variable_name('url')}) must be {expected}, and has no http:// or https:// before it")
    return arguments.parsed("url", _url, expected=expected)


def _url(value: str) -> str:
    if not value.isprintable() or " " in value:
        raise ValueError
    parts = urlsplit(value)
    if (
        parts.scheme not in ("http", "https")
        or not parts.hostname
        or "@" in parts.netloc
        or "?" in value
        or "#" in value
    ):
        raise ValueError(value)
    parts.port  # noqa: B018  raises ValueError for an invalid port
    return value.rstrip("/")


def token_of(arguments: Arguments) -> str | None:
    """Return the token of TRMON_TOKEN, or of the file that TRMON_TOKEN_FILE names. Errors: ValueError."""
    path = arguments.environment.get(TOKEN_FILE)
    expected = "printable ASCII without spaces"
    if not path or arguments.given.get("token") is not None:
        return arguments.parsed("token", _token, expected=expected)
    if arguments.get("token") is not None:
        raise ValueError(f"token: TRMON_TOKEN and {TOKEN_FILE} are both set; unset one of them")
    try:
        with Path(path).open("rb") as file:
            return _token(file.read(MAX_TOKEN_BYTES).decode().rstrip("\r\n"))
    except OSError as error:
        raise ValueError(f"token: {TOKEN_FILE} cannot be read: {error}") from error
    except ValueError:
        raise ValueError(f"token: {TOKEN_FILE} names {path}, which must hold {expected}, and does not") from None


def _token(value: str) -> str:
    if not re.fullmatch(r"[!-~]+", value):
        raise ValueError
    return value
