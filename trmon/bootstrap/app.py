"""The ASGI app and the server that runs it: routes, middleware, lifespan, socket."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

import structlog
import uvicorn
from fastapi import Depends, FastAPI
from starlette.middleware import Middleware

from trmon.api.administration import audit, quotas, tokens
from trmon.api.alerts import deliveries_router as deliveries
from trmon.api.alerts import pictures_router as pictures
from trmon.api.alerts import router as alerts
from trmon.api.batches import router as batches
from trmon.api.comparison import router as comparison
from trmon.api.diagnosis import router as diagnosis
from trmon.api.distribution import router as distribution
from trmon.api.events import router as events
from trmon.api.fleet import router as fleet
from trmon.api.http import problems
from trmon.api.http.answers import answer_schemas
from trmon.api.http.body import BodyMiddleware
from trmon.api.http.components import Components
from trmon.api.http.connections import LimitedProtocol, OpenConnections
from trmon.api.http.gateway import Gateway, GetCompression
from trmon.api.http.parameters import UNREAD_PARAMETERS, check_query
from trmon.api.http.rate_limit import RateLimit
from trmon.api.monitoring import probes
from trmon.api.monitoring import router as metrics
from trmon.api.policies import bounds_router as bounds
from trmon.api.policies import router as policies
from trmon.api.reports import ReportEndpoints, wire_schemas
from trmon.api.reports import router as reports
from trmon.api.rules import router as rules
from trmon.api.runs import router as runs
from trmon.api.shared_report.routes import router as shared_report
from trmon.api.signals import router as signals
from trmon.api.silences import router as silences
from trmon.api.whatif import router as whatif
from trmon.bootstrap.lifespan import running_service
from trmon.config.settings import Settings
from trmon.domain.errors import NotReady
from trmon.ingest.body_cost import BodyCosts
from trmon.web.routes import router as page
from trmon.web.routes import unknown_page

ROUTERS = (
    *(reports, runs, signals, batches, policies, alerts, silences, deliveries, rules, bounds, events, tokens),
    *(diagnosis, metrics, probes, page, pictures),
    *(whatif, comparison, shared_report, fleet, distribution, audit, quotas),
)
GRACE_SECONDS = 10
"""How long requests in flight may take after SIGTERM."""
BACKLOG = 2048
TICKS_PER_BEAT = 10
"""Uvicorn ticks each 0.1 s on the event loop."""

log = structlog.get_logger(__name__)


def create_app(settings: Settings) -> FastAPI:
    """Return the service as an ASGI app; its lifespan opens the database."""
    is_shared = settings.redis_url is not None
    limit = RateLimit(per_second=settings.rate_per_second, burst=settings.rate_burst, is_shared=is_shared)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        try:
            async with running_service(settings, limit=limit) as (app.state.components, app.state.services):
                yield
        except NotReady as error:
            app.state.failure = str(error)
            raise
        except Exception:
            log.exception("service_failed")
            raise

    app = FastAPI(
        title="trmon",
        description=UNREAD_PARAMETERS,
        version=version("trmon"),
        lifespan=lifespan,
        middleware=_middleware(settings, limit),
        openapi_url="/api/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    problems.install_problem_handlers(app, page_at=unknown_page)
    for router in ROUTERS:
        # The page reads the query of its own addresses in the browser.
        checks = [] if router is page else [Depends(check_query)]
        app.include_router(router, responses=problems.RESPONSES, dependencies=checks)
    _add_struct_schemas(app)
    return app


def _middleware(settings: Settings, limit: RateLimit) -> list[Middleware]:
    """Return the middleware, outermost first."""
    costs = BodyCosts(max_held_bytes=settings.max_held_bytes, charge=limit.charge)
    bodies = BodyMiddleware(max_bytes=settings.max_body_bytes, costs=costs)
    return [
        Middleware(Gateway, hosts=settings.answered_hosts, limit=limit, bodies=bodies),
        Middleware(ReportEndpoints),
        Middleware(GetCompression),
    ]


def _add_struct_schemas(app: FastAPI) -> None:
    """Add the structs of answers and of the wire format to OpenAPI, to which routes refer."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        document = generate()
        document["components"]["schemas"].update(answer_schemas() | wire_schemas())
        return document

    app.openapi = openapi  # type: ignore[method-assign]


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


def beginning(app: FastAPI) -> str:
    """Return how to begin with a service that listens: where it is, its data, its tokens, and the two lines."""
    components: Components = app.state.components
    url, folder = components.settings.public_url, components.store.folder
    tokens = "none: this machine alone reaches the service; `trmon token create NAME --scope admin` makes one"
    if components.store.tokens.ever_created():
        tokens = "needed; `trmon token create NAME` makes one, TRMON_TOKEN tells the trainer"
    return f"""  page     {url}
  data     {"PostgreSQL" if folder is None else folder.absolute()}
  tokens   {tokens}
  trainer  import trmon_client as trmon
           monitor = trmon.init(project="math", url="{url}")
           decision = monitor.log_batch(step=step, mask=mask, rollout_logprobs=mu, logprobs=pi)"""


class Server(uvicorn.Server):
    """Prints its URL once it listens; beats on its loop; ends event streams when asked to stop."""

    def __init__(
        self,
        app: FastAPI,
        *,
        url: str,
        protocol: type[LimitedProtocol] = LimitedProtocol,
        send_beat: Callable[[], None] = lambda: None,
        max_connections: int | None = None,
        on_start: Callable[[], None] = lambda: None,
    ) -> None:
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
        self.server_state = OpenConnections(max_connections)
        self._app = app
        self._url = url
        self._send_beat = send_beat
        self._on_start = on_start

    async def on_tick(self, counter: int) -> bool:
        """Beat each second of the ten ticks that it has; return whether to stop."""
        if counter % TICKS_PER_BEAT == 0:
            self._send_beat()
        return await super().on_tick(counter)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and print the URL."""
        await super().startup(sockets)
        if self.started:
            print(f"trmon_url={self._url}", flush=True)
            self._on_start()

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
