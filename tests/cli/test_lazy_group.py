"""Commands load lazily: each imports what it needs, and the list of commands imports none of them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from trmon.cli.commands import COMMANDS, load_command

DATABASE_AND_SERVER = {
    "sqlalchemy",
    "psycopg",
    "redis",
    "fastapi",
    "uvicorn",
    "prometheus_client",
    "torch",
    "trmon.store",
}
HTTP = {"httpx", "urllib3"}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_listed_summary_is_the_first_line_of_the_help(name: str) -> None:
    text = load_command(name).help or ""
    assert COMMANDS[name].summary == " ".join(text.partition("\n\n")[0].split())


@pytest.mark.parametrize(
    ("arguments", "unneeded"),
    [
        (["--help"], DATABASE_AND_SERVER | HTTP | {"pydantic_settings"} | {"numpy"}),
        (["version"], DATABASE_AND_SERVER | HTTP | {"pydantic_settings"}),
        (["top", "--help"], DATABASE_AND_SERVER | HTTP | {"pydantic_settings", "numpy"}),
        (["show", "--help"], DATABASE_AND_SERVER | HTTP),
        (["diagnose", "--example"], DATABASE_AND_SERVER | HTTP),
        (["whatif", "--help"], DATABASE_AND_SERVER | HTTP),
        (["mcp", "--help"], DATABASE_AND_SERVER | HTTP | {"mcp", "starlette"}),
        (["preflight", "--help"], DATABASE_AND_SERVER | {"urllib3"}),
        (["replay", "--help"], DATABASE_AND_SERVER | {"urllib3"}),
        (["ingest", "--help"], DATABASE_AND_SERVER | HTTP),
        (["rules", "check", "--help"], DATABASE_AND_SERVER | HTTP),
        (["notify", "test", "--help"], DATABASE_AND_SERVER - {"prometheus_client"} | {"urllib3"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_command_imports_only_what_it_needs(arguments: list[str], unneeded: set[str]) -> None:
    assert imported(arguments) & unneeded == set()


def test_a_command_of_the_database_imports_the_store() -> None:
    assert {"sqlalchemy", "trmon.store"} <= imported(["migrate", "--help"])


def imported(arguments: list[str]) -> set[str]:
    """Return the names of the modules that a command imports."""
    code = (
        "import sys\nfrom trmon.cli import app\n"
        "try:\n    app(sys.argv[1:])\nfinally:\n    print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=100, check=True
    )
    return {*done.stderr.split()}
