"""`trmon token`, `trmon quota` and `trmon audit`: what commands change is listed, recorded by the user and exported."""

from __future__ import annotations

import csv
import json
import os
import pwd
from pathlib import Path

from tests.fixtures.command import run_here

USER = f"cli:{pwd.getpwuid(os.getuid()).pw_name}"


def run(*arguments: object) -> str:
    """Run a command and return what it printed."""
    done = run_here(*arguments)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_commands_are_recorded_and_exported(tmp_path: Path) -> None:
    data, file = ("--data-dir", tmp_path / "data"), tmp_path / "backup.sqlite"
    secret = run("token", "create", "ci", "--scope", "read", "--project", "math", *data).strip()
    run("token", "revoke", "ci", *data)
    run("backup", file, *data)
    run("restore", file, *data)
    entries = [json.loads(line) for line in run("audit", "--json", *data).splitlines()]
    assert [(entry["action"], entry["target"], entry["project"]) for entry in entries] == [
        ("database.restore", "trmon.sqlite", None),
        ("token.revoke", "ci", "math"),
        ("token.create", "ci", "math"),
    ]
    assert {(entry["actor"], entry["token_id"]) for entry in entries} == {(USER, None)}
    assert entries[0]["after"] == {"from": str(file)}
    rows = list(csv.DictReader(run("audit", "--csv", *data).splitlines()))
    assert [row["action"] for row in rows] == [entry["action"] for entry in entries]
    assert json.loads(rows[-1]["after"]) == entries[-1]["after"]
    assert secret not in run("audit", *data) + run("audit", "--json", *data)


def test_entries_are_selected(tmp_path: Path) -> None:
    data = ("--data-dir", tmp_path)
    for name in ("a", "b", "c"):
        run("token", "create", name, "--scope", "read", "--project", name, *data)

    def targets(*options: object) -> list[str]:
        return [json.loads(line)["target"] for line in run("audit", "--json", *options, *data).splitlines()]

    assert targets("--limit", 2) == ["c", "b"]
    assert targets("--project", "b") == ["b"]
    assert targets("--actor", "nobody") == []
    assert targets("--action", "token.create", "--since", "1h") == ["c", "b", "a"]
    table = run("audit", *data)
    assert "token.create" in table


def test_limits_are_set_listed_and_removed(tmp_path: Path) -> None:
    data = ("--data-dir", tmp_path)
    run("migrate", *data)
    shown = run("quota", "set", "math", "--runs", 3, "--bytes", 1 << 40, "--rate", 2.5, *data)
    assert shown == "math: runs 3, bytes 1099511627776, rate 2.5\n"
    assert "runs 3" in run("quota", "list", *data)
    assert run("quota", "set", "math", *data) == "math: no limit\n"
    assert "math" not in run("quota", "list", *data)
