"""Follow the fleet: redraw the whole terminal every few seconds until interrupted."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, replace

from rich.console import Console, RenderableType
from rich.live import Live

from trmon.api.fleet.schemas import FleetRunOut
from trmon.domain.health.run_verdict import duration
from trmon.domain.model.errors import NotReady
from trmon.terminal.api_client import ApiClient
from trmon.terminal.fleet_table import fetch_fleet, fleet_frame


@dataclass(frozen=True, slots=True)
class FleetSnapshot:
    """The runs, when they were read, and why they could not be read again since; empty if they could."""

    runs: list[FleetRunOut]
    at: float
    trouble: str = ""


def print_fleet(client: ApiClient, *, project: str | None, console: Console) -> None:
    """Print the fleet as it is now. Errors: NotReady."""
    console.print(fleet_frame(fetch_fleet(client, project=project), console=console, now=time.time()))


def follow_fleet(client: ApiClient, *, project: str | None, console: Console, every_seconds: float) -> None:
    """Show the fleet until interrupted. Errors: NotReady if the service is unreachable at the start."""
    seen = FleetSnapshot(fetch_fleet(client, project=project), at=time.time())
    with suppress(KeyboardInterrupt), Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            live.update(_drawn(seen, console), refresh=True)
            time.sleep(every_seconds)
            seen = _refresh(seen, client, project=project)


def _refresh(seen: FleetSnapshot, client: ApiClient, *, project: str | None) -> FleetSnapshot:
    """Keep the last data while the service is unreachable, as during an upgrade."""
    try:
        return FleetSnapshot(fetch_fleet(client, project=project), at=time.time())
    except NotReady as error:
        return replace(seen, trouble=str(error))


def _drawn(seen: FleetSnapshot, console: Console) -> RenderableType:
    now = time.time()
    old = f"as of {duration(now - seen.at)} ago: {seen.trouble}" if seen.trouble else ""
    return fleet_frame(seen.runs, console=console, now=now, height=console.height, trouble=old)
