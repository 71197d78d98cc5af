"""`trmon doctor`: what is wrong with an installation, and what to do."""

from __future__ import annotations

import os
import sys

import typer

from trmon.bootstrap.doctor import examine
from trmon.cli.command import DataDir, configured, failing_plainly
from trmon.domain.model.health_check import Health


def doctor(data_dir: DataDir = None) -> None:
    """Look at settings, database, indexes, clocks, disk and leases; exit with 1 where something is wrong."""
    with failing_plainly():
        found = []
        for one in examine(configured(data_dir=data_dir), variables=os.environ):
            found.append(one.health)
            typer.echo(
                f"{one.health.value:<4}  {one.what}: {one.found}" + (f"\n      -> {one.advice}" if one.advice else "")
            )
        sys.exit(1 if Health.ILL in found else 0)
