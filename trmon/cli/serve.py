"""`trmon serve`: run the service in one or several processes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import Event
from typing import Annotated, Any

import typer
from prometheus_client import start_http_server

from trmon.bootstrap import background_services
from trmon.bootstrap.app import Server, beginning, bind_socket, create_app, socket_url
from trmon.bootstrap.doctor import check_installation
from trmon.bootstrap.workers import running_worker
from trmon.cli.command import DataDir, plain_errors, read_settings
from trmon.config import logs
from trmon.config.settings import Settings
from trmon.domain.errors import NotReady
from trmon.domain.health_check import HealthLevel
from trmon.fleet.supervisor import ChildProcess, Supervisor
from trmon.metrics.counters import Counters
from trmon.store.database.engines import is_shared

BeatFd = Annotated[int | None, typer.Option(hidden=True, help="A pipe of the supervisor, on which to beat.")]


def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0 chooses a free one.")] = None,
    data_dir: DataDir = None,
    replicas: Annotated[
        int, typer.Option(min=1, max=64, help="Number of API processes on one port; needs PostgreSQL.")
    ] = 1,
    workers: Annotated[int, typer.Option(min=0, max=64, help="Number of workers; needs PostgreSQL.")] = 0,
    fd: Annotated[int | None, typer.Option(hidden=True, help="A socket that the supervisor has bound.")] = None,
    heartbeat_fd: BeatFd = None,
) -> None:
    """Run the service: all of it over SQLite; over PostgreSQL the API and, with --workers, workers."""
    with plain_errors():
        settings = read_settings(host=host, port=port, data_dir=data_dir)
        logs.configure_logging(settings)
        if fd is None:
            logs.warn_of_unknown_variables(os.environ)
        if not is_shared(settings.store_url) and (replicas > 1 or workers):
            raise NotReady("a SQLite file has one service; for several set TRMON_DATABASE_URL=postgresql://...")
        bound = bind_socket(settings) if fd is None else socket.socket(fileno=fd)
        url = socket_url(bound)
        if replicas > 1 or workers:
            _supervise(settings, bound, replicas=replicas, workers=workers)
            return
        if settings.public_url is None:
            settings = settings.model_copy(update={"public_url": url})
        app = create_app(settings)
        background_services.tune_memory()
        beat = _beat_sender(heartbeat_fd)
        Server(app, url=url, send_beat=beat, on_start=lambda: typer.echo(beginning(app))).run([bound])


def _supervise(settings: Settings, bound: socket.socket, *, replicas: int, workers: int) -> None:
    """Run replicas and workers; they inherit the environment with the options applied, replicas also the socket."""
    url = socket_url(bound)
    os.environ |= {"TRMON_HOST": settings.host, "TRMON_DATA_DIR": str(settings.data_dir)}
    if settings.public_url is None:
        os.environ["TRMON_PUBLIC_URL"] = url
    trmon = [sys.executable, "-m", "trmon"]
    replica = [*trmon, "serve", "--fd", str(bound.fileno())]
    # Orphans would keep the port and the leases from the next supervisor.
    child = partial(ChildProcess, stdout=subprocess.PIPE, ends_with_parent=True, beats=True)
    children = [
        *(child(replica, pass_fds=[bound.fileno()]) for _ in range(replicas)),
        *(child([*trmon, "worker"]) for _ in range(workers)),
    ]
    Supervisor(children).run(ready=f"trmon_url={url}")


def worker(
    metrics_port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="Port for this worker's /metrics; default: none."),
    ] = None,
    heartbeat_fd: BeatFd = None,
) -> None:
    """Process a share of the runs: close batches, evaluate rules, send notifications."""
    with plain_errors():
        settings = read_settings()
        logs.configure_logging(settings)
        ending = Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: ending.set())
        background_services.tune_memory()
        counters = Counters()
        show_health = serve_metrics(counters, host=settings.host, port=metrics_port)
        send_beat = _beat_sender(heartbeat_fd)
        with running_worker(settings, counters=counters, ending=ending, send_beat=send_beat) as services:
            show_health(services.check)
            typer.echo("trmon_worker=watching")
            ending.wait()


def serve_metrics(counters: Counters, *, host: str, port: int | None) -> Callable[[Callable[[], None]], None]:
    """Serve /metrics, if on a port; return a function that has /healthz answer 503 once a check raises NotReady."""
    if port is None:
        return lambda _: None
    try:
        server, _ = start_http_server(port, addr=host, registry=counters.registry)
    except OSError as error:
        reason = error.strerror or error
        raise NotReady(f"cannot listen on {host} port {port}: {reason}; --metrics-port chooses another") from error
    metrics: Any = server.get_app()

    def show_health(check: Callable[[], None]) -> None:
        def answer(environ: Any, start: Any) -> Any:
            if environ["PATH_INFO"] != "/healthz":
                return metrics(environ, start)
            try:
                check()
            except NotReady as error:
                start("503 Service Unavailable", [("Content-Type", "text/plain; charset=utf-8")])
                return [f"{error}\n".encode()]
            start("200 OK", [("Content-Type", "text/plain; charset=utf-8")])
            return [b"ok\n"]

        server.set_app(answer)

    return show_health


def _beat_sender(heartbeat_fd: int | None) -> Callable[[], None]:
    """Return what writes a beat to the supervisor's pipe; a supervisor that has ended reads none."""

    def send() -> None:
        if heartbeat_fd is not None:
            with suppress(OSError):
                os.write(heartbeat_fd, b".")

    return send


def doctor(data_dir: DataDir = None) -> None:
    """Check settings, database, indexes, clocks, disk and leases; exit with 1 if something is wrong."""
    with plain_errors():
        found = []
        for one in check_installation(read_settings(data_dir=data_dir), variables=os.environ):
            found.append(one.level)
            typer.echo(
                f"{one.level.value:<4}  {one.name}: {one.detail}" + (f"\n      -> {one.advice}" if one.advice else "")
            )
        sys.exit(1 if HealthLevel.FAIL in found else 0)
