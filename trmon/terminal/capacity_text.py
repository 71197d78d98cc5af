"""Print a plan of capacity: the load, what each architecture needs for it, and what to deploy and why."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table

from trmon.domain.capacity.architecture import DeploymentKind
from trmon.domain.capacity.capacity_plan import ArchitecturePlan
from trmon.domain.capacity.demand_file import ReferenceMachine
from trmon.domain.capacity.fleet_workload import FleetWorkload
from trmon.domain.capacity.station import Activity, Station

CONNECTIONS_PER_PROCESS = 52
"""Of a process to PostgreSQL, at the most."""
GIBIBYTE = 1 << 30
DEFAULT_RETENTION_BYTES = 50 * GIBIBYTE
DEFAULT_RATE_PER_SECOND = 500.0
HEADER = ("fits", "DBs", "API", "workers", "cores", "machines", "ack ms", "a day")
BYTE_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
LIMITS = {
    Station.API: "one API process, each of which reads every closed batch",
    Station.WORKER: "128 workers, one a slot",
    Station.DATABASE: "PostgreSQL's cores",
    Station.REDIS: "Redis' core",
    Station.LOG: "PostgreSQL's log to disk",
    Station.NETWORK: "PostgreSQL's network",
}
EMBEDDED_LIMITS = {
    Station.API: "the service's core",
    Station.WORKER: "the worker's core",
    Station.LOG: "the disk",
    Station.NETWORK: "the network",
}


def print_plan(
    plans: Sequence[ArchitecturePlan],
    console: Console,
    *,
    reference: ReferenceMachine,
    cpu_factor: float,
    is_measured: bool,
) -> None:
    """Print plans of one workload; `is_measured` says that the factor of CPU time was measured on this machine."""
    workload = plans[0].workload
    for line in _load_lines(workload):
        console.print(line, highlight=False, soft_wrap=True)
    console.print(_machine_line(reference, cpu_factor, is_measured=is_measured), highlight=False, soft_wrap=True)
    console.print(_table(plans))
    console.print("* not built", highlight=False)
    for line in (*_deploy_lines(plans), *_why_lines(plans)):
        console.print(line, highlight=False, soft_wrap=True)


def bytes_text(n_bytes: float) -> str:
    """Return a number of bytes with three digits and its unit, such as 1.23 TB."""
    for unit in BYTE_UNITS:
        if n_bytes < 1000 or unit == BYTE_UNITS[-1]:
            return f"{n_bytes:.3g} {unit}" if n_bytes < 1000 else f"{n_bytes:,.0f} {unit}"
        n_bytes /= 1000
    raise AssertionError("unreachable")


def limit_text(plan: ArchitecturePlan, station: Station) -> str:
    """Return what stops when a station of a plan does."""
    is_embedded = plan.architecture.kind is DeploymentKind.EMBEDDED
    return (EMBEDDED_LIMITS if is_embedded else LIMITS)[station]


def _load_lines(workload: FleetWorkload) -> Iterator[str]:
    rates = workload.rates()
    yield (
        f"{workload.runs:,} runs of {workload.ranks:,} ranks, a step every {workload.step_seconds:g} s, "
        f"reports of {workload.sequences:,} sequences:"
    )
    yield (
        f"  {workload.reports_per_second:,.1f} reports, {workload.batches_per_second:,.1f} batches and "
        f"{rates[Activity.HEARTBEAT]:,.1f} heartbeats a second over {workload.connections:,} connections"
    )


def _machine_line(reference: ReferenceMachine, cpu_factor: float, *, is_measured: bool) -> str:
    source = "measured just now on this machine" if is_measured else "as given"
    return (
        f"CPU time: {cpu_factor:.2f} times that of the reference ({reference.cpu}, Python {reference.python}, "
        f"{reference.database}), {source}"
    )


def _table(plans: Sequence[ArchitecturePlan]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("architecture", no_wrap=True)
    for name in HEADER:
        table.add_column(name, justify="right")
    for plan in plans:
        table.add_row(
            plan.architecture.name + ("" if plan.architecture.is_built else " *"),
            "yes" if plan.loads.carries else "no",
            f"{plan.n_databases:,}",
            f"{plan.api_processes:,}",
            f"{plan.workers:,}",
            f"{plan.cores:,.1f}",
            f"{plan.machines:,}",
            f"{1000 * plan.acknowledgement_seconds:,.1f}" if plan.loads.carries else "-",
            bytes_text(plan.stored_bytes_per_day),
        )
    return table


def _deploy_lines(plans: Sequence[ArchitecturePlan]) -> Iterator[str]:
    chosen = next((plan for plan in plans if plan.architecture.is_built and plan.loads.carries), None)
    if chosen is None:
        yield "Deploy: nothing that is built carries this load. Send less: fewer ranks that report, or larger steps."
        return
    yield f"Deploy: {chosen.architecture.name}"
    if chosen.architecture.kind is DeploymentKind.EMBEDDED:
        yield "  - `trmon serve` on a machine with 2 free cores"
    else:
        yield from _fleet_lines(chosen)
    yield from _storage_lines(chosen)
    requests = chosen.workload.reports_per_second + chosen.workload.rates()[Activity.HEARTBEAT]
    if requests > DEFAULT_RATE_PER_SECOND:
        yield (
            f"  - a token may send {DEFAULT_RATE_PER_SECOND:,.0f} requests a second: give each project a token of its "
            "own, or raise TRMON_RATE_PER_SECOND"
        )


def _fleet_lines(plan: ArchitecturePlan) -> Iterator[str]:
    loads, each = plan.loads, "each with " if plan.n_databases > 1 else ""
    if plan.n_databases > 1:
        yield f"  - {plan.n_databases:,} installations, each for a share of the projects, {each}the following"
    yield (
        f"  - PostgreSQL with {loads.used[Station.DATABASE]:,.1f} busy cores, {bytes_text(loads.used[Station.LOG])} a "
        f"second of its log, and max_connections of {CONNECTIONS_PER_PROCESS * (loads.n_api + loads.n_workers):,}"
    )
    connections = plan.workload.connections // plan.api_processes + 1
    yield (
        f"  - {loads.n_api:,} API processes with {loads.used[Station.API]:,.1f} busy cores: `trmon serve --replicas N` "
        f"on each machine; {connections:,} connections each need as many open files (`ulimit -n`)"
    )
    yield f"  - {loads.n_workers:,} workers, with {loads.used[Station.WORKER]:,.1f} busy cores: `trmon worker`"
    yield "  - one Redis (TRMON_REDIS_URL), without which processes notice each other's writes a second later"


def _storage_lines(plan: ArchitecturePlan) -> Iterator[str]:
    days = plan.workload.retention_days
    a_day = plan.stored_bytes_per_day
    kept = a_day * days
    yield f"  - disk for {bytes_text(2 * kept)}: {days:g} days of {bytes_text(a_day)}, and room for a copy"
    each = kept / plan.n_databases
    if each > DEFAULT_RETENTION_BYTES:
        yield (
            f"  - TRMON_RETENTION_BYTES={math.ceil(each / GIBIBYTE) * GIBIBYTE}: the default, 50 GiB, holds "
            f"{days * DEFAULT_RETENTION_BYTES / each:.2g} days"
        )


def _why_lines(plans: Sequence[ArchitecturePlan]) -> Iterator[str]:
    yield "Why:"
    for plan in plans:
        if plan.loads.carries:
            limit = limit_text(plan, plan.next_limit)
            found = f"carries up to {_multiple(plan.growth)} times these runs; the limit is {limit}"
        else:
            station = plan.loads.first_limit
            found = f"needs {plan.loads.limited[station]:,.1f} times what {limit_text(plan, station)} can give"
        moved = (
            f"; {bytes_text(plan.moved_bytes_per_day)} a day go to a {plan.architecture.moved_to}"
            if plan.moved_bytes_per_day
            else ""
        )
        yield f"  - {plan.architecture.name}: {found}{moved}"
        if plan.architecture.assumption:
            yield f"    assumed: {plan.architecture.assumption}"


def _multiple(growth: float) -> str:
    return f"{growth:,.0f}" if growth >= 10 else f"{growth:.1f}"
