"""The systemd unit: valid for the real systemd-analyze, and consistent with the installer."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.deploy.image import ROOT, VENV
from tests.fixtures.prometheus import binary
from trmon.config.settings import Settings

UNIT = (ROOT / "deploy" / "trmon.service").read_text()
COMMAND = f"{VENV}/bin/trmon serve"


@pytest.mark.server("systemd-analyze")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "trmon.service"
    unit.write_text(UNIT.replace(COMMAND, "/bin/true"))
    done = subprocess.run(
        [binary("systemd-analyze"), "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_unit_starts_the_installed_command_with_existing_settings() -> None:
    assert f"ExecStart={COMMAND}\n" in UNIT
    named = set(re.findall(r"(TRMON_[A-Z_]+)=", UNIT))
    assert named
    assert named <= {f"TRMON_{field.upper()}" for field in Settings.model_fields}
