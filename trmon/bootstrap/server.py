"""Runs the app on a socket: prints its URL when it is ready, and ends streams before it stops."""

from __future__ import annotations

import socket

import uvicorn
from fastapi import FastAPI

from trmon.api.http.connections import LimitedProtocol
from trmon.config.settings import Settings
from trmon.domain.model.errors import NotReady

GRACE_SECONDS = 10
"""How long requests in flight may take after SIGTERM."""
BACKLOG = 2048


def bind_socket(settings: Settings) -> socket.socket:
    """Return a socket bound to the host and port. Errors: NotReady if they cannot be bound."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        reason = error.strerror or error
        raise NotReady(
            f"cannot listen on {settings.host} port {settings.port}: {reason}; --host and --port choose others"
        ) from error
    return bound


def socket_url(bound: socket.socket) -> str:
    """Return the URL of a bound socket, with this machine's name if it listens on every address."""
    host, port = bound.getsockname()[:2]
    if host in ("0.0.0.0", "::"):  # noqa: S104 - compared with, not bound to
        host = socket.gethostname()
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class Server(uvicorn.Server):
    """Prints its URL once it listens, and ends event streams when it is asked to stop."""

    def __init__(self, app: FastAPI, *, url: str, protocol: type[LimitedProtocol] = LimitedProtocol) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=protocol,
                lifespan="on",
                ws="none",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                backlog=BACKLOG,
                timeout_graceful_shutdown=GRACE_SECONDS,
            )
        )
        self._app = app
        self._url = url

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and print the URL."""
        await super().startup(sockets)
        if self.started:
            print(f"trmon_url={self._url}", flush=True)

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until SIGTERM or SIGINT. Errors: NotReady with the reason if the service cannot start."""
        try:
            super().run(sockets)
        except SystemExit as error:
            failure = getattr(self._app.state, "failure", "the service did not start; see its log")
            raise NotReady(failure) from error
        finally:
            for bound in sockets or ():
                bound.close()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the streams, which never end by themselves, then finish the requests in flight."""
        if self.started:
            self._app.state.components.commit_signal.close()
        await super().shutdown(sockets)
