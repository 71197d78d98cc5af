"""The server: the app on a socket, from the line that says where it is to the last answer."""

from __future__ import annotations

import socket

import uvicorn
from fastapi import FastAPI

from trmon.api.http.write_coalescing import CoalescingProtocol
from trmon.config.settings import Settings
from trmon.domain.model.errors import NotReady

GRACE_SECONDS = 10
"""How long answers under way may take once the service is told to stop."""
BACKLOG = 2048


def bind_socket(settings: Settings) -> socket.socket:
    """Return a socket bound to the host and port. Errors: NotReady if they cannot be had."""
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
    """Return the URL of a bound socket; one that listens everywhere is named by this machine."""
    host, port = bound.getsockname()[:2]
    if host in ("0.0.0.0", "::"):  # noqa: S104 - compared with, not bound to
        host = socket.gethostname()
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class Server(uvicorn.Server):
    """Says where it listens when it does, and ends the streams when it is told to stop."""

    def __init__(self, app: FastAPI, *, url: str) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=CoalescingProtocol,
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
        """Start, and print where."""
        await super().startup(sockets)
        if self.started:
            print(f"trmon_url={self._url}", flush=True)

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until told to stop. Errors: NotReady with what kept the service from starting."""
        try:
            super().run(sockets)
        except SystemExit as error:
            failure = getattr(self._app.state, "failure", "the service did not start; its log says why")
            raise NotReady(failure) from error
        finally:
            for bound in sockets or ():
                bound.close()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer what is under way; streams, which never end by themselves, are ended first."""
        if self.started:
            self._app.state.components.commit_signal.close()
        await super().shutdown(sockets)
