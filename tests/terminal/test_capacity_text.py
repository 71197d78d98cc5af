"""The text of a plan: numbers of bytes, what to deploy, and why nothing simpler."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from trmon.domain.capacity.capacity_plan import plan_capacity
from trmon.domain.capacity.demand_file import shipped_demands
from trmon.domain.capacity.fleet_workload import FleetWorkload
from trmon.domain.capacity.station_loads import MachineSize
from trmon.terminal.capacity_text import bytes_text, print_plan


@pytest.mark.parametrize(
    ("n_bytes", "text"),
    [(0, "0 B"), (999, "999 B"), (1234, "1.23 kB"), (5.5e9, "5.5 GB"), (2e14, "200 TB"), (4e18, "4,000 PB")],
)
def test_bytes_have_three_digits_and_a_unit(n_bytes: float, text: str) -> None:
    assert bytes_text(n_bytes) == text


USUAL = MachineSize()


def printed(machine: MachineSize = USUAL, **load: float) -> str:
    file, console = shipped_demands(), Console(file=StringIO(), width=80)
    plans = plan_capacity(FleetWorkload(**load), machine=machine, file=file)
    print_plan(plans, console, reference=file.machine, cpu_factor=1.0, is_measured=False)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_a_team_deploys_one_service_with_disk_for_its_reports() -> None:
    said = printed(runs=10, ranks=8)
    assert "2.7 reports, 0.3 batches and 2.7 heartbeats a second over 80 connections" in said
    assert "Deploy: embedded\n  - `trmon serve` on a machine with 2 free cores\n  - disk for " in said
    assert "TRMON_RETENTION_BYTES=" in said
    assert "requests a second: give each project" not in said


def test_a_lab_deploys_a_fleet_with_its_processes_and_is_told_why() -> None:
    said = printed(runs=1000, ranks=32, step_seconds=30)
    assert "Deploy: one PostgreSQL\n  - PostgreSQL with " in said
    assert "`trmon serve --replicas N`" in said
    assert "`trmon worker`" in said
    assert "a token may send 500 requests a second" in said
    assert "  - embedded: needs " in said
    assert "assumed: not built" in said


def test_what_nothing_carries_is_said_with_what_to_change() -> None:
    said = printed(MachineSize(cores=1, disk_bytes_per_second=1.0), runs=10_000, ranks=256)
    assert "Deploy: nothing that is built carries this load. Send less" in said
