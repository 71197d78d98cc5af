"""Tells the other processes over the same database of each commit, through Redis, and receives their notices."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from trmon.background.poller import Poller
from trmon.config.settings import Settings
from trmon.metrics.counters import Counters
from trmon.store import Store
from trmon.store.redis.commit_notice import CommitNotice
from trmon.store.redis.pubsub import PubSub
from trmon.store.writing.group_commit import CommittedGroup


def connect_peers(
    settings: Settings,
    store: Store,
    *,
    counters: Counters,
    on_notice: Callable[[CommitNotice], None],
    pollers: Iterable[Poller] = (),
) -> PubSub | None:
    """Return a connection, not started, that publishes each commit of the store; None without Redis or with SQLite.

    A lost notice loses no data: every receiver also polls the database.

    Args: on_notice: called with each notice of another process, on a thread of its own; it must be quick; pollers:
    those that notices wake: they poll less often while the connection is up. Errors: NotReady for an invalid URL.
    """
    if settings.redis_url is None or not store.is_shared:
        return None
    peers = PubSub(
        settings.redis_url.get_secret_value(),
        on_notice=on_notice,
        on_failure=lambda operation: counters.redis_failures.labels(operation).inc(),
    )
    counters.redis_up.set_function(lambda: peers.is_connected)
    store.writer.on_commit(lambda commit: peers.publish(_notice_of(commit)))
    for poller in pollers:
        poller.slow_down_while(lambda: peers.is_connected)
    return peers


def _notice_of(commit: CommittedGroup) -> CommitNotice:
    """Return the notice of a commit; one that changes no run may still have written events."""
    return CommitNotice(touched=commit.touched, edited=commit.edited, has_deliveries=bool(commit.receivers))
