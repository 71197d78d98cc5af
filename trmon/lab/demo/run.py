"""Runs the demo from start to end."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from trmon.lab.demo.board import Board
from trmon.lab.demo.processes import (
    COLLAPSING,
    ILL,
    DemoError,
    Pager,
    Training,
    run_service,
    run_trainer,
)
from trmon.lab.demo.readings import RunReading, read_run
from trmon.lab.demo.story import story_lines, tell_story
from trmon_client.api import Service

PROJECT = "demo"
READ_EVERY_SECONDS = 1.0
SETTLE_SECONDS = 900.0
"""Time limit for closing and notifying the last batches after the trainers have ended, for a busy machine."""


def run_demo(trainings: Sequence[Training], *, keep: bool, data_dir: Path | None, console: Console) -> bool:
    """Train the runs under a new service, and print their story; return True on success. Errors: DemoError."""
    with ExitStack() as stack:
        folder, pager = stack.enter_context(_folder(data_dir)), stack.enter_context(Pager())
        served = stack.enter_context(run_service(folder, webhook_url=pager.url))
        # The demo's service knows no token, and would refuse one that the environment has for another service.
        for name in ("TRMON_TOKEN", "TRMON_TOKEN_FILE"):
            os.environ.pop(name, None)
        service = stack.enter_context(Service(served.url))
        started = f"The service listens on {served.url}. {len(trainings)} trainers warm up, then train."
        console.print(started, highlight=False)
        readings = _watch(trainings, service, data_dir=folder, console=console)
        story = tell_story(trainings, readings, pager.alerts)
        console.print()
        for line in story_lines(story):
            console.print(line, highlight=False, soft_wrap=True)
        if keep:
            pages = (f"/runs/{PROJECT}/{ILL}", f"/runs/{PROJECT}/{COLLAPSING}", "/api/v1/alerts", "/metrics")
            for place, path in enumerate(pages):
                console.print(
                    f"{'' if place else 'Where to look:':<14} {served.url}{path}", highlight=False, soft_wrap=True
                )
            console.print("The service keeps running until you press Ctrl-C.", highlight=False)
            signal.signal(signal.SIGTERM, signal.default_int_handler)
            try:
                served.process.wait()
            except KeyboardInterrupt:
                console.print("Stopped.")
        else:
            console.print("Where to look: run it again with --keep, then open the page it names.", highlight=False)
    return story.went_well


def _watch(
    trainings: Sequence[Training], service: Service, *, data_dir: Path, console: Console
) -> dict[str, RunReading]:
    started = time.monotonic()
    with ExitStack() as stack:
        logs = {training.name: data_dir / f"{training.name}.log" for training in trainings}
        trainers = {
            training.name: stack.enter_context(
                run_trainer(training, url=service.url, project=PROJECT, log=logs[training.name])
            )
            for training in trainings
        }
        board = stack.enter_context(Board(console, n_steps=trainings[0].n_steps))
        while any(process.status is None for process in trainers.values()):
            board.show(_read(service, trainers), seconds=time.monotonic() - started)
            time.sleep(READ_EVERY_SECONDS)
        for name, process in trainers.items():
            if process.status != 0:
                raise DemoError(
                    f"the trainer of {name!r} ended with {process.status}:\n{logs[name].read_text()[-2000:]}"
                )
        readings = _settled(service, list(trainers))
        board.show(readings, seconds=time.monotonic() - started)
    return readings


def _settled(service: Service, runs: Sequence[str]) -> dict[str, RunReading]:
    """Return the readings of the runs once the service has finished with them."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while True:
        readings = _read(service, runs)
        if all(reading.state == "finished" for reading in readings.values()):
            return readings
        if time.monotonic() > deadline:
            states = ", ".join(f"{name} is {reading.state}" for name, reading in readings.items())
            raise DemoError(f"the service did not finish the runs within {SETTLE_SECONDS:.0f} s: {states}")
        time.sleep(READ_EVERY_SECONDS)


def _read(service: Service, runs: Iterable[str]) -> dict[str, RunReading]:
    return {name: read_run(service, f"{PROJECT}/{name}") for name in runs}


@contextmanager
def _folder(data_dir: Path | None) -> Iterator[Path]:
    """Yield the folder of the demo's database and logs; a temporary folder is removed at the end."""
    if data_dir is not None:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        yield data_dir
        return
    with TemporaryDirectory(prefix="trmon-demo-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)
