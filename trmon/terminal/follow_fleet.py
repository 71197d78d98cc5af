"""Follow the fleet: redraw the whole terminal every few seconds until interrupted."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, replace

from rich.console import Console, RenderableType
from rich.live import Live

from trmon.domain.health.run_verdict import duration
from trmon.terminal.fleet_table import fetch_fleet, fleet_frame
from trmon_client.api import RunStatus, Service, ServiceError


@dataclass(frozen=True, slots=True)
class FleetSnapshot:
    """The runs, when they were read, and why they could not be read again since; empty if they could."""

    runs: list[RunStatus]
    at: float
    trouble: str = ""


def print_fleet(service: Service, *, project: str | None, console: Console) -> None:
    """Print the fleet as it is now. Errors: ServiceError."""
    console.print(fleet_frame(fetch_fleet(service, project=project), console=console, now=time.time()))


def follow_fleet(service: Service, *, project: str | None, console: Console, every_seconds: float) -> None:
    """Show the fleet until interrupted. Errors: ServiceError if the service is unreachable at the start."""
    seen = FleetSnapshot(fetch_fleet(service, project=project), at=time.time())
    with suppress(KeyboardInterrupt), Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            live.update(_drawn(seen, console), refresh=True)
            time.sleep(every_seconds)
            seen = _refresh(seen, service, project=project)


def _refresh(seen: FleetSnapshot, service: Service, *, project: str | None) -> FleetSnapshot:
    """Keep the last data while the service is unreachable, as during an upgrade."""
    try:
        return FleetSnapshot(fetch_fleet(service, project=project), at=time.time())
    except ServiceError as error:
        return replace(seen, trouble=str(error))


def _drawn(seen: FleetSnapshot, console: Console) -> RenderableType:
    now = time.time()
    old = f"as of {duration(now - seen.at)} ago: {seen.trouble}" if seen.trouble else ""
    return fleet_frame(seen.runs, console=console, now=now, height=console.height, trouble=old)
