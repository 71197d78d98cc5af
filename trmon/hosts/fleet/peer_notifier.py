"""Neighbours: the other processes over the same database, told at once what this one commits, by way of Redis."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from trmon.background.poller import Poller
from trmon.config.settings import Settings
from trmon.metrics.counters import Counters
from trmon.store import Store
from trmon.store.redis.commit_notice import CommitNotice
from trmon.store.redis.pubsub import PubSub
from trmon.store.writing.group_commit import CommittedGroup


class PeerNotifier:
    """Whoever hears of news looks into the database, as it also does by itself; so losing some loses nothing."""

    def __init__(self, url: str, *, heard: Callable[[CommitNotice], None], counters: Counters) -> None:
        """Errors: NotReady for a URL that is none."""
        self._bell = PubSub(url, heard=heard, failed=lambda what: counters.redis_failures.labels(what).inc())
        counters.redis_up.set_function(lambda: self._bell.up)

    @property
    def up(self) -> bool:
        """Whether others are heard; once they no longer are, that is told as news."""
        return self._bell.up

    def start(self) -> None:
        """Begin to listen."""
        self._bell.start()

    def close(self) -> None:
        """Say what is left to say, then stop."""
        self._bell.close()

    def tell(self, commit: CommittedGroup) -> None:
        """Tell the others of a commit, soon; never waits. One that touches no run has still written events."""
        self._bell.ring(CommitNotice(touched=commit.touched, edited=commit.edited, addressed=bool(commit.addressed)))


def peer_notifier_of(
    settings: Settings,
    store: Store,
    *,
    counters: Counters,
    heard: Callable[[CommitNotice], None],
    pollers: Iterable[Poller] = (),
) -> PeerNotifier | None:
    """Return a process's neighbours, told of each of its commits; None without a Redis, or with a database of its own.

    Args: heard: called with what they commit, on a thread of its own: it must be quick; pollers: those that it wakes,
    which look less often by themselves while others are heard.
    """
    if settings.redis_url is None or not store.is_shared:
        return None
    peer_notifier = PeerNotifier(settings.redis_url.get_secret_value(), heard=heard, counters=counters)
    store.writer.on_commit(peer_notifier.tell)
    for poller in pollers:
        poller.rely_on(lambda: peer_notifier.up)
    return peer_notifier
