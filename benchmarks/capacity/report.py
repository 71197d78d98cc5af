"""The tables of docs/capacity.md, written from the stored samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks.capacity.comparison import ComparedLoad, compared_loads
from benchmarks.capacity.load_sample import SampleFile
from benchmarks.collapse.markdown import table
from trmon.domain.capacity.architecture import DeploymentKind
from trmon.domain.capacity.capacity_plan import ArchitecturePlan, plan_capacity
from trmon.domain.capacity.demand_file import DemandFile, MeasuredDemands, ReferenceMachine
from trmon.domain.capacity.fleet_workload import FleetWorkload
from trmon.domain.capacity.station import Activity, Station
from trmon.domain.capacity.station_loads import MachineSize
from trmon.terminal.capacity_text import bytes_text, limit_text

TEMPLATE = Path(__file__).with_name("report_template.md")
INTERNET_SCALE = FleetWorkload(runs=10_000, ranks=256)
LABS = (
    ("a team", FleetWorkload(runs=20, ranks=8)),
    ("a lab", FleetWorkload(runs=1000, ranks=8)),
    ("three clusters", FleetWorkload(runs=3000, ranks=32)),
)
MACHINE = MachineSize()
TIMED = (Station.API, Station.EVENT_LOOP, Station.WORKER, Station.DATABASE, Station.REDIS)


def capacity_page(file: SampleFile, demands: DemandFile) -> str:
    """Return the page as markdown."""
    rounds = sum(sample.is_held_out and sample.share == 1 and sample.n_api == 1 for sample in file.samples) // 2
    return TEMPLATE.read_text().format(
        machine=_machine(file.machine),
        load=f"{file.load_average:.1f}",
        rounds=rounds,
        compared="\n".join(_compared_table(list(compared_loads(file.samples, demands)))),
        embedded_demands="\n".join(_demand_table(demands, DeploymentKind.EMBEDDED)),
        fleet_demands="\n".join(_demand_table(demands, DeploymentKind.FLEET)),
        group_ms=_each(demands, lambda one: 1000 * one.group_seconds),
        sync_ms=_each(demands, lambda one: 1000 * one.sync_seconds),
        internet="\n".join(_plan_table(plan_capacity(INTERNET_SCALE, machine=MACHINE, file=demands))),
        labs="\n".join(_lab_table(demands)),
    )


def _compared_table(loads: Sequence[ComparedLoad]) -> list[str]:
    rows = [
        [
            f"{load.name}, {load.share:g}",
            _pair(load.reports_per_second, digits=0) if load.share == 1 else f"{load.reports_per_second[0]:.0f}",
            _pair(load.mean_ms, digits=1),
            *(
                _pair(load.used[station], digits=2) if station in load.used else "-"
                for station in (Station.API, Station.WORKER, Station.DATABASE)
            ),
        ]
        for load in loads
    ]
    return table(
        ["deployment, share of the top", "reports a second", "ack ms", "API cores", "worker cores", "database cores"],
        rows,
    )


def _pair(pair: tuple[float, float], *, digits: int) -> str:
    measured, predicted = pair
    return f"{measured:.{digits}f} / {predicted:.{digits}f} ({predicted / measured - 1:+.0%})"


def _demand_table(file: DemandFile, kind: DeploymentKind) -> list[str]:
    demands, measured = file.demands(kind), file.deployments[kind.value]
    timed = [station for station in TIMED if demands[station]]
    stored = [station for station in (Station.LOG, Station.TABLES, Station.NETWORK) if demands[station]]
    rows = [
        [
            activity.value.replace("_", " "),
            *(_number(1000 * demands[station].get(activity, 0.0)) for station in timed),
            *(_number(demands[station].get(activity, 0.0)) for station in stored),
        ]
        for activity in Activity
        if kind is DeploymentKind.FLEET or activity is not Activity.VIEW
    ]
    rows.append(
        ["error of the fit", *(f"{measured.relative_errors[station.value]:.0%}" for station in (*timed, *stored))]
    )
    header = [f"{station.value.replace('_', ' ')}, ms" for station in timed]
    return table(["", *header, *(f"{station.value}, bytes" for station in stored)], rows)


def _number(value: float) -> str:
    return f"{value:,.3g}" if value else "-"


def _plan_table(plans: Sequence[ArchitecturePlan]) -> list[str]:
    rows = [
        [
            plan.architecture.name + ("" if plan.architecture.is_built else " (not built)"),
            *(f"{n:,}" for n in (plan.n_databases, plan.api_processes, plan.workers)),
            f"{plan.cores:,.0f}",
            f"{plan.machines:,}",
            bytes_text(plan.stored_bytes_per_day),
            f"{1000 * plan.acknowledgement_seconds:.0f}" if plan.loads.carries else "-",
            f"{limit_text(plan, plan.loads.first_limit)}: {plan.loads.limited[plan.loads.first_limit]:,.2g}",
        ]
        for plan in plans
    ]
    header = [
        "architecture",
        "databases",
        "API processes",
        "workers",
        "busy cores",
        "machines",
        "stored a day",
        "ack ms",
    ]
    return table([*header, "stops first: share of what it can give"], rows)


def _lab_table(file: DemandFile) -> list[str]:
    rows = [[name, *_chosen(workload, file)] for name, workload in LABS]
    return table(
        [
            "",
            "runs x ranks",
            "reports a second",
            "deploy",
            "API processes",
            "workers",
            "machines",
            "stored a day",
            "up to",
        ],
        rows,
    )


def _chosen(workload: FleetWorkload, file: DemandFile) -> Iterator[str]:
    plans = plan_capacity(workload, machine=MACHINE, file=file)
    plan = next(plan for plan in plans if plan.architecture.is_built and plan.loads.carries)
    yield f"{workload.runs:,} x {workload.ranks}"
    yield f"{workload.reports_per_second:,.0f}"
    yield f"{plan.n_databases} x PostgreSQL" if plan.n_databases > 1 else plan.architecture.name
    yield from (f"{n:,}" for n in (plan.api_processes, plan.workers, plan.machines))
    yield bytes_text(plan.stored_bytes_per_day)
    yield f"{plan.growth:,.1f} times"


def _machine(machine: ReferenceMachine) -> str:
    return f"{machine.cores} cores of an {machine.cpu}, Python {machine.python}, {machine.database}"


def _each(file: DemandFile, value: Callable[[MeasuredDemands], float]) -> str:
    return " and ".join(f"{value(file.deployments[kind.value]):.3g}" for kind in DeploymentKind)
