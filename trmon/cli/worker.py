"""`trmon worker`: run a worker of a fleet, over PostgreSQL."""

from __future__ import annotations

import signal
from threading import Event
from typing import Annotated

import typer
from prometheus_client import start_http_server

from trmon.bootstrap import background_services
from trmon.bootstrap.workers import running_worker
from trmon.cli.command import plain_errors, read_settings
from trmon.config import logs
from trmon.domain.errors import NotReady
from trmon.metrics.counters import Counters


def worker(
    metrics_port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="Port for this worker's /metrics; default: none."),
    ] = None,
) -> None:
    """Process a share of the runs: close batches, evaluate rules, send notifications."""
    with plain_errors():
        settings = read_settings()
        logs.configure_logging(settings)
        ending = Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: ending.set())
        background_services.tune_garbage_collector()
        counters = Counters()
        if metrics_port is not None:
            _show(counters, host=settings.host, port=metrics_port)
        with running_worker(settings, counters=counters):
            typer.echo("trmon_worker=watching")
            ending.wait()


def _show(counters: Counters, *, host: str, port: int) -> None:
    try:
        start_http_server(port, addr=host, registry=counters.registry)
    except OSError as error:
        reason = error.strerror or error
        raise NotReady(f"cannot listen on {host} port {port}: {reason}; --metrics-port chooses another") from error
