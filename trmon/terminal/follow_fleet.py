"""Follow the fleet: redraw the whole terminal every few seconds, and at each key, until one quits."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, replace
from threading import Event, Thread

from rich.console import Console, RenderableType
from rich.live import Live

from trmon.domain.health.verdict import duration
from trmon.terminal.fleet_table import fetch_fleet, fleet_frame, rows_within
from trmon.terminal.fleet_view import FleetView
from trmon.terminal.keys import terminal_keys
from trmon_client.api import RunStatus, Service, ServiceError

LATE_SECONDS = 5.0
"""How old data may be, if it is not older than three refreshes, before it is said to be."""
DRAW_SECONDS = 1.0
"""How often ages are drawn anew, at least."""
NO_ANSWER_YET = "the service has not answered since"


@dataclass(frozen=True, slots=True)
class FleetSnapshot:
    """The runs, when they were read, and why they could not be read again since; empty if they could."""

    runs: list[RunStatus]
    at: float
    trouble: str = ""


class FleetFeed(Thread):
    """Reads the fleet again and again, so that a service that hangs does not hold up keys or hide that it hangs."""

    def __init__(self, service: Service, *, project: str | None, every_seconds: float) -> None:
        super().__init__(name="fleet-feed", daemon=True)
        self._service, self._project, self._every_seconds = service, project, every_seconds
        self._stopped = Event()
        self._seen = FleetSnapshot(fetch_fleet(service, project=project), at=time.time())

    def run(self) -> None:
        """Read until stopped; keep the last data while the service is unreachable, as during an upgrade."""
        while not self._stopped.wait(self._every_seconds):
            try:
                self._seen = FleetSnapshot(fetch_fleet(self._service, project=self._project), at=time.time())
            except ServiceError as error:
                self._seen = replace(self._seen, trouble=str(error))

    def stop(self) -> None:
        """Read no more."""
        self._stopped.set()

    def seen(self, *, now: float) -> FleetSnapshot:
        """Return the newest data; if it is late, with that as the trouble."""
        seen = self._seen
        is_late = now - seen.at > max(LATE_SECONDS, 3 * self._every_seconds)
        return replace(seen, trouble=NO_ANSWER_YET) if is_late and not seen.trouble else seen


def print_fleet(service: Service, *, project: str | None, console: Console) -> None:
    """Print the fleet as it is now. Errors: ServiceError."""
    console.print(fleet_frame(fetch_fleet(service, project=project), console=console, now=time.time()))


def follow_fleet(service: Service, *, project: str | None, console: Console, every_seconds: float) -> None:
    """Show the fleet until `q` or Ctrl-C. Errors: ServiceError if the service is unreachable at the start."""
    feed = FleetFeed(service, project=project, every_seconds=every_seconds)
    feed.start()
    view: FleetView | None = FleetView()
    try:
        with (
            suppress(KeyboardInterrupt),
            terminal_keys() as keys,
            Live(console=console, screen=True, auto_refresh=False) as live,
        ):
            while view is not None:
                now = time.time()
                seen = feed.seen(now=now)
                live.update(_drawn(seen, console, now=now, view=view), refresh=True)
                for key in keys.pressed(within_seconds=min(every_seconds, DRAW_SECONDS)):
                    if view is not None:
                        n_runs = len(view.of(seen.runs))
                        view = view.after(key, n_rows=rows_within(console.height, view), n_runs=n_runs)
    finally:
        feed.stop()


def _drawn(seen: FleetSnapshot, console: Console, *, now: float, view: FleetView) -> RenderableType:
    old = f"as of {duration(now - seen.at)} ago: {seen.trouble}" if seen.trouble else ""
    return fleet_frame(seen.runs, console=console, now=now, height=console.height, trouble=old, view=view)
