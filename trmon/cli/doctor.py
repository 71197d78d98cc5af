"""`trmon doctor`: check an installation."""

from __future__ import annotations

import os
import sys

import typer

from trmon.bootstrap.doctor import check_installation
from trmon.cli.command import DataDir, plain_errors, read_settings
from trmon.domain.health_check import HealthLevel


def doctor(data_dir: DataDir = None) -> None:
    """Check settings, database, indexes, clocks, disk and leases; exit with 1 if something is wrong."""
    with plain_errors():
        found = []
        for one in check_installation(read_settings(data_dir=data_dir), variables=os.environ):
            found.append(one.level)
            typer.echo(
                f"{one.level.value:<4}  {one.name}: {one.detail}" + (f"\n      -> {one.advice}" if one.advice else "")
            )
        sys.exit(1 if HealthLevel.FAIL in found else 0)
