"""Commands of a user who may not write to the data folder: one line that names it, no traceback, nothing changed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.databases import prepare_database

pytestmark = pytest.mark.server("setpriv")

WITHOUT_PRIVILEGE = ("setpriv", "--bounding-set=-all", "--inh-caps=-all")
"""Takes root's right to write where permissions forbid it."""


@pytest.mark.parametrize(
    ("command", "is_new"),
    [
        pytest.param(("serve", "--port", "0"), True, id="serve, empty"),
        pytest.param(("serve", "--port", "0"), False, id="serve"),
        pytest.param(("doctor",), False, id="doctor"),
        pytest.param(("token", "list"), False, id="token list"),
    ],
)
def test_a_data_folder_that_cannot_be_written_is_named(tmp_path: Path, command: tuple[str, ...], is_new: bool) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    file = folder / "trmon.sqlite"
    if not is_new:
        prepare_database(f"sqlite:///{file}")
        file.chmod(0o444)
    folder.chmod(0o555)
    before = sorted(path.name for path in folder.iterdir())
    prefix = () if os.geteuid() else WITHOUT_PRIVILEGE
    done = subprocess.run(
        [*prefix, sys.executable, "-m", "trmon", *command, "--data-dir", str(folder)],
        capture_output=True,
        text=True,
        timeout=200,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 1, said
    assert "Traceback" not in said
    assert str(file) in said
    assert "writable for this user" in said
    assert sorted(path.name for path in folder.iterdir()) == before
