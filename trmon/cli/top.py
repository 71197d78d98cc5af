"""`trmon top`: watch all runs."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from threading import Event, Thread
from typing import Annotated

import typer
from rich.console import Console, RenderableType
from rich.live import Live

from trmon.cli.command import console, plain_errors
from trmon.cli.running_service import service_of
from trmon.domain.health.judgement import duration
from trmon.domain.identity import checked_name
from trmon.terminal.fleet import FleetView, fetch_fleet, fleet_frame, rows_within
from trmon_client.api import RunStatus, Service, ServiceError

KEYS = {
    "\x1b[A": "up",
    "\x1bOA": "up",
    "\x1b[B": "down",
    "\x1bOB": "down",
    "\x1b[5~": "page up",
    "\x1b[6~": "page down",
    "\x1b[H": "home",
    "\x1bOH": "home",
    "\x1b[1~": "home",
    "\x1b[F": "end",
    "\x1bOF": "end",
    "\x1b[4~": "end",
    "\x1b": "escape",
    "\r": "enter",
    "\n": "enter",
    "\x7f": "backspace",
    "\b": "backspace",
}
"""The bytes that terminals send for keys that write nothing."""
LONGEST_SEQUENCE = 8


def _pressed(terminal: int | None, within_seconds: float) -> list[str]:
    """Return what was pressed, waiting for the first key so long: characters, or names such as `page down`.

    Args: terminal: to read from; None: only wait.
    """
    if terminal is None:
        time.sleep(within_seconds)
        return []
    if not select.select([terminal], [], [], within_seconds)[0]:
        return []
    data = os.read(terminal, 1024)
    if not data:  # the terminal is gone
        raise KeyboardInterrupt
    return list(split_keys(data.decode(errors="replace")))


@contextmanager
def terminal_keys() -> Iterator[Callable[[float], list[str]]]:
    """Read keys from the terminal of stdin without echo, and leave it as it was; yield `_pressed` of it."""
    try:
        import termios
        import tty
    except ImportError:  # Windows
        yield partial(_pressed, None)
        return
    if not sys.stdin.isatty():
        yield partial(_pressed, None)
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield partial(_pressed, descriptor)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def split_keys(text: str) -> Iterator[str]:
    """Yield the keys of what a terminal sent; sequences that are not known are left out."""
    while text:
        sequence = next((text[:n] for n in range(LONGEST_SEQUENCE, 0, -1) if text[:n] in KEYS), text[0])
        if sequence == "\x1b" and text[1:2] in ("[", "O"):
            text = _after_sequence(text)
            continue
        text = text[len(sequence) :]
        if sequence in KEYS:
            yield KEYS[sequence]
        elif sequence.isprintable():
            yield sequence


def _after_sequence(text: str) -> str:
    end = next((i for i, char in enumerate(text[2:], 2) if char.isalpha() or char == "~"), len(text) - 1)
    return text[end + 1 :]


LATE_SECONDS = 5.0
"""How old data may be, if it is not older than three refreshes, before it is said to be."""
DRAW_SECONDS = 1.0
"""The longest time between two updates of the ages, in seconds."""
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


def follow_fleet(service: Service, *, project: str | None, console: Console, every_seconds: float) -> None:
    """Show the fleet until `q` or Ctrl-C. Errors: ServiceError if the service is unreachable at the start."""
    feed = FleetFeed(service, project=project, every_seconds=every_seconds)
    feed.start()
    view: FleetView | None = FleetView()
    try:
        with (
            suppress(KeyboardInterrupt),
            terminal_keys() as pressed,
            Live(console=console, screen=True, auto_refresh=False) as live,
        ):
            while view is not None:
                now = time.time()
                seen = feed.seen(now=now)
                live.update(_drawn(seen, console, now=now, view=view), refresh=True)
                for key in pressed(min(every_seconds, DRAW_SECONDS)):
                    if view is not None:
                        n_runs = len(view.of(seen.runs))
                        view = view.after(key, n_rows=rows_within(console.height, view), n_runs=n_runs)
    finally:
        feed.stop()


def _drawn(seen: FleetSnapshot, console: Console, *, now: float, view: FleetView) -> RenderableType:
    old = f"as of {duration(now - seen.at)} ago: {seen.trouble}" if seen.trouble else ""
    return fleet_frame(seen.runs, console=console, now=now, height=console.height, trouble=old, view=view)


def top(
    project: Annotated[str | None, typer.Option(help="Only runs of this project.")] = None,
    every: Annotated[float, typer.Option(min=0.2, help="Seconds between refreshes.")] = 2.0,
    once: Annotated[
        bool, typer.Option("--once", help="Print one frame and exit; the default if the output is not a terminal.")
    ] = False,
    url: Annotated[str | None, typer.Option(help="URL of the service.")] = None,
) -> None:
    """Show every run with its verdict, the most urgent first, until interrupted."""
    with plain_errors(), service_of(url) as service:
        terminal = console()
        project = None if project is None else checked_name(project, field="--project")
        if once or not terminal.is_terminal:
            terminal.print(fleet_frame(fetch_fleet(service, project=project), console=terminal, now=time.time()))
        else:
            follow_fleet(service, project=project, console=terminal, every_seconds=every)
