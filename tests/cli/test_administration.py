"""Commands that administer: what they change is recorded with the user who ran them."""

from __future__ import annotations

import os
import pwd
from contextlib import closing
from pathlib import Path

from tests.fixtures.command import run_here
from trmon.domain.access import EVERYTHING, AuditAction
from trmon.store import Store


def run(*arguments: object) -> str:
    """Run a command and return what it printed."""
    done = run_here(*arguments)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_commands_are_recorded_without_secrets(tmp_path: Path) -> None:
    data, file = ("--data-dir", tmp_path / "data"), tmp_path / "backup.sqlite"
    secret = run("token", "create", "ci", "--scope", "read", "--project", "math", *data).strip()
    run("token", "revoke", "ci", *data)
    run("backup", file, *data)
    run("restore", file, *data)
    with closing(Store.open(f"sqlite:///{tmp_path}/data/trmon.sqlite")) as store:
        entries = store.audit.list(access=EVERYTHING, after=None, limit=10).items
    assert [(entry.action, entry.target, entry.project) for entry in entries] == [
        (AuditAction.DATABASE_RESTORE.value, "trmon.sqlite", None),
        (AuditAction.TOKEN_REVOKE.value, "ci", "math"),
        (AuditAction.TOKEN_CREATE.value, "ci", "math"),
    ]
    assert {(entry.actor, entry.token_id) for entry in entries} == {(f"cli:{pwd.getpwuid(os.getuid()).pw_name}", None)}
    assert entries[0].after == {"from": str(file)}
    assert secret not in repr(entries)
