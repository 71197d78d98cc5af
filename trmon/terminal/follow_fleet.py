"""Following the fleet: a frame every few seconds, over the whole terminal, until somebody has seen enough."""

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
    """The runs as they were answered, when, and what has kept them from being news since; empty if nothing has."""

    runs: list[FleetRunOut]
    at: float
    trouble: str = ""


def print_fleet(asked: ApiClient, *, project: str | None, console: Console) -> None:
    """Print the fleet as it is now. Errors: NotReady."""
    console.print(fleet_frame(fetch_fleet(asked, project=project), console=console, now=time.time()))


def follow_fleet(asked: ApiClient, *, project: str | None, console: Console, every_seconds: float) -> None:
    """Show the fleet until interrupted. Errors: NotReady if the service is away from the start."""
    seen = FleetSnapshot(fetch_fleet(asked, project=project), at=time.time())
    with suppress(KeyboardInterrupt), Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            live.update(_drawn(seen, console), refresh=True)
            time.sleep(every_seconds)
            seen = _looked_again(seen, asked, project=project)


def _looked_again(seen: FleetSnapshot, asked: ApiClient, *, project: str | None) -> FleetSnapshot:
    """A service that is away, as while it is upgraded, is no end: what it said last stays."""
    try:
        return FleetSnapshot(fetch_fleet(asked, project=project), at=time.time())
    except NotReady as error:
        return replace(seen, trouble=str(error))


def _drawn(seen: FleetSnapshot, console: Console) -> RenderableType:
    now = time.time()
    old = f"as of {duration(now - seen.at)} ago: {seen.trouble}" if seen.trouble else ""
    return fleet_frame(seen.runs, console=console, now=now, height=console.height, trouble=old)
