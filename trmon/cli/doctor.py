"""`trmon doctor`: check an installation, or plan one."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trmon.cli.command import DataDir, console, plain_errors, read_settings, unusable_input
from trmon.domain.model.health_check import HealthLevel

if TYPE_CHECKING:
    from trmon.domain.capacity.fleet_workload import FleetWorkload
    from trmon.domain.capacity.station_loads import MachineSize

PLAN = "With --plan"


def doctor(
    data_dir: DataDir = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Print what to deploy for a load, by a model of measured demands.")
    ] = False,
    runs: Annotated[int, typer.Option(help="Active runs.", rich_help_panel=PLAN)] = 100,
    ranks: Annotated[int, typer.Option(help="Ranks of a run that report.", rich_help_panel=PLAN)] = 8,
    step_seconds: Annotated[float, typer.Option(help="Seconds a step.", rich_help_panel=PLAN)] = 30.0,
    sequences: Annotated[int, typer.Option(help="Sequences a report.", rich_help_panel=PLAN)] = 64,
    chunks: Annotated[int, typer.Option(help="Reports of a rank for each update.", rich_help_panel=PLAN)] = 1,
    updates: Annotated[int, typer.Option(help="Updates a step.", rich_help_panel=PLAN)] = 1,
    retention_days: Annotated[float, typer.Option(help="Days that reports are kept.", rich_help_panel=PLAN)] = 30.0,
    scrape_seconds: Annotated[
        float, typer.Option(help="Seconds between scrapes of /metrics.", rich_help_panel=PLAN)
    ] = 15.0,
    cores: Annotated[int, typer.Option(min=1, help="Cores of a machine.", rich_help_panel=PLAN)] = 16,
    disk_mb: Annotated[
        float, typer.Option(min=1, help="MB a second that a machine's disk writes.", rich_help_panel=PLAN)
    ] = 500.0,
    network_gbit: Annotated[
        float, typer.Option(min=0.01, help="Gbit a second of a machine's network.", rich_help_panel=PLAN)
    ] = 10.0,
    target: Annotated[
        float, typer.Option(min=0.05, max=0.95, help="Share of cores, disk and network to use.", rich_help_panel=PLAN)
    ] = 0.6,
    cpu_factor: Annotated[
        float | None,
        typer.Option(
            min=0.01,
            help="CPU time of the machines to plan for, in multiples of the reference; default: measured here.",
            rich_help_panel=PLAN,
        ),
    ] = None,
) -> None:
    """Check settings, database, indexes, clocks, disk and leases; exit with 1 if something is wrong.

    With --plan: print what to deploy for a load instead; nothing needs to be installed or running.
    """
    with plain_errors():
        if not plan:
            _check(data_dir)
            return
        from trmon.domain.capacity.fleet_workload import FleetWorkload
        from trmon.domain.capacity.station_loads import MachineSize

        with unusable_input():
            workload = FleetWorkload(
                runs=runs,
                ranks=ranks,
                step_seconds=step_seconds,
                sequences=sequences,
                chunks=chunks,
                updates=updates,
                retention_days=retention_days,
                scrape_seconds=scrape_seconds,
            )
        machine = MachineSize(
            cores=cores,
            disk_bytes_per_second=disk_mb * 1e6,
            network_bytes_per_second=network_gbit * 1e9 / 8,
            target=target,
        )
        _plan(workload, machine=machine, cpu_factor=cpu_factor)


def _check(data_dir: Path | None) -> None:
    from trmon.bootstrap.doctor import check_installation  # with the database, which a plan does not need

    found = []
    for one in check_installation(read_settings(data_dir=data_dir), variables=os.environ):
        found.append(one.level)
        typer.echo(
            f"{one.level.value:<4}  {one.name}: {one.detail}" + (f"\n      -> {one.advice}" if one.advice else "")
        )
    sys.exit(1 if HealthLevel.FAIL in found else 0)


def _plan(workload: FleetWorkload, *, machine: MachineSize, cpu_factor: float | None) -> None:
    from trmon.cli.machine_speed import calibration_ms
    from trmon.domain.capacity.capacity_plan import plan_capacity
    from trmon.domain.capacity.demand_file import shipped_demands
    from trmon.terminal.capacity_text import print_plan

    file = shipped_demands()
    factor = cpu_factor or calibration_ms() / file.machine.calibration_ms
    plans = plan_capacity(workload, machine=machine, file=file, cpu_factor=factor)
    print_plan(plans, console(), reference=file.machine, cpu_factor=factor, is_measured=cpu_factor is None)
