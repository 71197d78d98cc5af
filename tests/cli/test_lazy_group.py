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


NEEDED_LATER = (
    (("--help", "top --help"), DATABASE_AND_SERVER | HTTP | {"pydantic_settings", "numpy"}),
    (("--version",), DATABASE_AND_SERVER | HTTP | {"pydantic_settings"}),
    (
        ("show --help", "diagnose --example", "whatif --help", "ingest --help", "rules check --help"),
        DATABASE_AND_SERVER | HTTP,
    ),
    (("mcp --help",), DATABASE_AND_SERVER | HTTP | {"mcp", "starlette"}),
    (("preflight --help", "replay --help"), DATABASE_AND_SERVER | {"urllib3"}),
    (("notify test --help",), DATABASE_AND_SERVER - {"prometheus_client"} | {"urllib3"}),
    (("migrate --help",), set()),
)
"""Commands in the order in which one process runs them, each with what it and those before it must not import."""
RUN = """
import sys
from trmon.cli import app
for command in sys.argv[1:]:
    try:
        app(command.split())
    except SystemExit:
        pass
    print("modules:", *sys.modules, file=sys.stderr)
"""


def test_commands_import_only_what_they_need_and_those_of_the_database_the_store() -> None:
    commands = [(command, unneeded) for some, unneeded in NEEDED_LATER for command in some]
    run = [sys.executable, "-c", RUN, *(command for command, _ in commands)]
    done = subprocess.run(run, capture_output=True, text=True, timeout=100, check=True)
    imported = [{*line.split()} for line in done.stderr.splitlines() if line.startswith("modules:")]
    for (command, unneeded), modules in zip(commands, imported, strict=True):
        assert modules & unneeded == set(), command
    assert {"sqlalchemy", "trmon.store"} <= imported[-1]
