"""The ASGI app and the server that runs it: its components, opened in order, routes, middleware and socket."""

from __future__ import annotations

import asyncio
import shutil
import socket
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from importlib.metadata import version
from typing import Any, TypeAlias

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
from trmon.api.http.auth import Authenticator, check_bind
from trmon.api.http.body import BodyMiddleware
from trmon.api.http.components import Components, Readiness
from trmon.api.http.connections import LimitedProtocol, OpenConnections
from trmon.api.http.gateway import Gateway, GetCompression
from trmon.api.http.parameters import UNREAD_PARAMETERS, check_query
from trmon.api.http.rate_limit import RateLimit, limit_sync
from trmon.api.monitoring import probes
from trmon.api.monitoring import router as metrics
from trmon.api.policies import bounds_router as bounds
from trmon.api.policies import router as policies
from trmon.api.reports import ReportEndpoints, wire_schemas
from trmon.api.reports import router as reports
from trmon.api.rules import router as rules
from trmon.api.runs import router as runs
from trmon.api.shared_report import router as shared_report
from trmon.api.signals import router as signals
from trmon.api.silences import router as silences
from trmon.api.whatif import router as whatif
from trmon.bootstrap.background_services import (
    BackgroundServices,
    build_background_services,
    connect_peers,
    reevaluate_runs,
    rules_thread,
)
from trmon.config.rules import active_rules_of
from trmon.config.settings import Settings
from trmon.domain.errors import NotReady
from trmon.domain.pipeline.publish import EDIT
from trmon.fleet.changes import CommitSignal, EventFollower, PeriodicThread
from trmon.fleet.verdicts import POLL_SECONDS as JUDGING_POLL_SECONDS
from trmon.fleet.verdicts import JudgingWatch, RunVerdicts
from trmon.fleet.views import RunViewCache, ViewSync
from trmon.ingest.acknowledgement import CurrentPolicies
from trmon.ingest.body_cost import BodyCosts
from trmon.ingest.quotas import POLL_SECONDS as QUOTA_POLL_SECONDS
from trmon.ingest.quotas import QuotaGate
from trmon.ingest.service import IngestService
from trmon.metrics.counters import Counters
from trmon.metrics.exposition import Exposition
from trmon.notify.registry import DeliveryCheck, pictures_of
from trmon.store import ProcessRole, Store
from trmon.store.database.sqlite import exclusive_use, explaining_damage
from trmon.store.redis import SharedBuckets
from trmon.store.repositories.events import StoredEvent
from trmon.store.writing.group_commit import CommittedGroup
from trmon.web.routes import router as page
from trmon.web.routes import unknown_page

MAX_WHAT_IFS = 4
"""How many run at once."""
RECEIVER_CHECK_SECONDS = 60.0
VIEW_PAUSE_SECONDS = 0.5
"""Shortest time between two reads of the views that other processes store: one read covers several changes."""


Assembled: TypeAlias = tuple[Components, BackgroundServices | None]
"""The state that routes share, and the background services; None if other processes evaluate the runs."""


@asynccontextmanager
async def running_service(settings: Settings, *, limit: RateLimit) -> AsyncIterator[Assembled]:
    """Open the components in order and close them in reverse order. Errors: NotReady.

    Args: limit: the rate limit of requests; with Redis, replicas share it.
    """
    async with AsyncExitStack() as stack:
        file_lock = ExitStack()
        stack.push_async_callback(asyncio.to_thread, file_lock.close)
        components, services = _assemble(settings, await asyncio.to_thread(_open_store, settings, file_lock))
        stack.push_async_callback(asyncio.to_thread, components.store.close)
        threads = ExitStack()
        stack.push_async_callback(asyncio.to_thread, threads.close)
        await asyncio.to_thread(_start, components, services, limit=limit, stack=threads)
        stack.callback(components.commit_signal.close)
        stack.callback(components.readiness.close)
        yield components, services


def _open_store(settings: Settings, file_lock: ExitStack) -> Store:
    """Return the store; a SQLite file is locked for this service until the lock's stack closes."""
    role = ProcessRole.WRITER if settings.worker == "process" else ProcessRole.ALONE
    file_lock.enter_context(exclusive_use(settings.store_url))
    store = Store.open(settings.store_url, role=role, lake_url=settings.lake_url)
    try:
        with explaining_damage(settings.store_url):
            store.migrate()
            check_bind(settings, store.tokens)
    except NotReady:
        store.close()
        raise
    return store


def _assemble(settings: Settings, store: Store) -> Assembled:
    """Build the components; over a shared database other processes evaluate the runs."""
    counters, rules = Counters(), active_rules_of(settings)
    view_cache = RunViewCache(idle_after_seconds=settings.idle_after_seconds)
    policies = CurrentPolicies(store.policies, store.runs)
    quota_gate = QuotaGate(store.quotas, counters=counters, new_runs_per_hour=settings.new_runs_per_hour)
    services = None
    if not store.is_shared:
        services = build_background_services(settings, store, rules=rules, view_cache=view_cache, counters=counters)

    def check() -> None:
        store.check()
        if services is not None:
            services.check()

    components = Components(
        settings=settings,
        store=store,
        view_cache=view_cache,
        rules=rules,
        authenticator=Authenticator(store.tokens, is_exposed=settings.is_exposed),
        ingest_service=IngestService(
            store, policies=policies, view_cache=view_cache, counters=counters, quota_gate=quota_gate
        ),
        quota_gate=quota_gate,
        policies=policies,
        commit_signal=CommitSignal(asyncio.get_running_loop()),
        counters=counters,
        exposition=Exposition(
            rules=rules,
            extra_signals=settings.metrics_signals,
            max_runs=settings.metrics_max_runs,
            max_scalars=settings.metrics_max_scalars,
        ),
        verdicts=RunVerdicts(store, health_rules=rules.health_rules),
        readiness=Readiness(check),
        delivery_check=DeliveryCheck(settings),
        pictures=pictures_of(settings, store),
        judging=JudgingWatch(store.judging, worker=None if services is None else services.worker),
        what_ifs=asyncio.Semaphore(MAX_WHAT_IFS),
    )
    return components, services


def _start(components: Components, services: BackgroundServices | None, *, limit: RateLimit, stack: ExitStack) -> None:
    """Load the stored views, then start everything that has its own thread."""
    settings, store, counters = components.settings, components.store, components.counters
    view_sync = ViewSync(store.run_snapshots, components.view_cache, idle_after_seconds=settings.idle_after_seconds)
    view_poller = event_poller = peers = rate_limit_sync = None
    if services is None:
        view_poller = PeriodicThread("views", view_sync.poll, pause_seconds=VIEW_PAUSE_SECONDS)
        event_poller = PeriodicThread("events", _event_follower(components, view_sync, view_poller).poll)
        wake = event_poller.wake
        peers = connect_peers(settings, store, counters=counters, on_notice=lambda _: wake(), pollers=[event_poller])
    if settings.redis_url is not None:
        url = settings.redis_url.get_secret_value()
        buckets = SharedBuckets(url, per_second=settings.rate_per_second, burst=settings.rate_burst)
        stack.callback(buckets.close)
        rate_limit_sync = limit_sync(limit, buckets, on_failure=counters.redis_failures.labels("limits").inc)
    view_sync.load_active(now=time.time())
    _connect(components, services, event_poller=event_poller)
    components.quota_gate.poll()
    quotas = PeriodicThread("quotas", components.quota_gate.poll, every_seconds=QUOTA_POLL_SECONDS)
    stack.callback(components.delivery_check.close)
    receivers = PeriodicThread("receivers", components.delivery_check.check, every_seconds=RECEIVER_CHECK_SECONDS)
    judging = PeriodicThread("judging", components.judging.poll, every_seconds=JUDGING_POLL_SECONDS)
    pollers = (view_poller, event_poller, peers, rate_limit_sync)
    for part in (rules_thread(components.rules), quotas, receivers, judging, *pollers):
        if part is not None:
            part.start()
            stack.callback(part.close)
    if services is not None:
        services.start(stack)


def _event_follower(components: Components, view_sync: ViewSync, view_poller: PeriodicThread) -> EventFollower:
    def on_events(events: Sequence[StoredEvent]) -> None:
        """Reload the views of changed runs; after an edit or a new policy, also the policy that trainers get."""
        for stored in events:
            if stored.event.kind in ("policy", EDIT):
                components.policies.invalidate(stored.run_id)
        view_sync.mark_changed(stored.run_id for stored in events)
        view_poller.wake()
        components.commit_signal.wake()

    return EventFollower(components.store.events, on_events=on_events)


def _connect(
    components: Components, services: BackgroundServices | None, *, event_poller: PeriodicThread | None
) -> None:
    """Subscribe to commits and rule changes, and connect the service's gauges to their sources."""
    counters, store = components.counters, components.store

    def on_commit(commit: CommittedGroup) -> None:
        counters.commit_seconds.observe(commit.seconds)
        for run_id in commit.edited:
            components.policies.invalidate(run_id)
        if services is not None:
            services.worker.wake(commit.touched)
            if commit.receivers:
                services.dispatcher.wake()
            components.commit_signal.wake()
        elif event_poller is not None and commit.edited:
            event_poller.wake()

    components.rules.on_failure = counters.rules_reload_failures.inc
    if services is not None:
        worker = services.worker
        components.rules.on_change = lambda: reevaluate_runs(worker, components.view_cache)
    counters.set_info(version=version("trmon"), page_url=(components.settings.public_url or "").rstrip("/"))
    store.writer.on_commit(on_commit)
    counters.add_gauge("trmon_queue_depth", lambda: store.writer.depth)
    judging = components.judging
    counters.add_gauge("trmon_worker_beat_age_seconds", lambda: judging.delay().beat_age_seconds)
    counters.add_gauge("trmon_oldest_unprocessed_seconds", lambda: judging.delay().oldest_unprocessed_seconds)
    if (folder := store.folder) is not None:
        counters.add_gauge("trmon_disk_free_bytes", lambda: shutil.disk_usage(folder).free)


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
