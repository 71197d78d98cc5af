"""Commit notices and rate limits that processes share through Redis; losing Redis loses no data.

Separate threads use the connection, so that nothing else waits for it: every process also polls the database.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import closing
from threading import Condition, Thread
from typing import Any

import msgspec
import redis
import structlog
from redis.backoff import NoBackoff
from redis.retry import Retry

from trmon.domain.errors import NotReady

MAX_RUNS = 10_000
"""Above this number of runs, a notice does not name them."""


class CommitNotice(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The runs with new messages and the edited runs of a commit, and whether it added deliveries.

    `missed` means that there may be more changes, so that the receiver must poll everything.
    """

    touched: frozenset[int] = frozenset()
    edited: frozenset[int] = frozenset()
    has_deliveries: bool = False
    missed: bool = False

    def merge(self, later: CommitNotice) -> CommitNotice:
        """Return one notice for both; with too many runs it is `missed`."""
        has_deliveries = self.has_deliveries or later.has_deliveries
        if self.missed or later.missed or len(self.touched) + len(later.touched) > MAX_RUNS:
            return CommitNotice(has_deliveries=has_deliveries, missed=True)
        return CommitNotice(
            touched=self.touched | later.touched,
            edited=self.edited | later.edited,
            has_deliveries=has_deliveries,
        )


_MESSAGE = msgspec.msgpack.Decoder(tuple[str, CommitNotice])
"""The process that sent a notice, and the notice."""
TIMEOUT_SECONDS = 0.5


def connect_redis(url: str) -> redis.Redis:
    """Return a client that fails within half a second; it connects on first use.

    Args: url: redis://, rediss:// or unix://.
    Errors: NotReady for an invalid URL.
    """
    try:
        # Callers retry themselves, with what has changed since.
        return redis.Redis.from_url(
            url,
            socket_timeout=TIMEOUT_SECONDS,
            socket_connect_timeout=TIMEOUT_SECONDS,
            retry=Retry(NoBackoff(), 0),
        )
    except ValueError as error:
        raise NotReady(f"TRMON_REDIS_URL: {error}") from error


def key_prefix(client: redis.Redis) -> str:
    """Return the prefix of a deployment's keys and channels: channels are not separated by database number."""
    return f"trmon:{client.connection_pool.connection_kwargs.get('db', 0)}"


RETRY_SECONDS = 0.5
PUBLISH_INTERVAL_SECONDS = 0.05
"""Shortest time between two notices: commits in between are merged into one."""
RECEIVE_SECONDS = 0.5
SILENCE_SECONDS = 3.0
"""After this long without an answer to a ping, Redis counts as hung, even if the connection is open."""

_log = structlog.get_logger(__name__)


class PubSub:
    """Publishes notices on one thread and receives those of other processes on another.

    While Redis is unavailable, pending notices are merged into one, which is published when it returns. When the
    subscription is lost or established, the process gets a notice that it may have missed some.
    """

    def __init__(
        self, url: str, *, on_notice: Callable[[CommitNotice], None], on_failure: Callable[[str], None]
    ) -> None:
        """Args: on_notice: called with each notice of another process, must be quick; on_failure: with what failed."""
        self._client = connect_redis(url)
        self._channel = f"{key_prefix(self._client)}:news"
        self._process_id = uuid.uuid4().hex
        self._on_notice = on_notice
        self._on_failure = on_failure
        self._changed = Condition()
        self._pending: CommitNotice | None = None
        self._closing = False
        self.is_connected = False
        """Whether notices of other processes arrive."""
        self._is_away = False
        self._threads = [
            Thread(target=self._publish_pending, name="trmon-redis-publish", daemon=True),
            Thread(target=self._receive, name="trmon-redis-receive", daemon=True),
        ]

    def start(self) -> None:
        """Start to publish and to receive."""
        for thread in self._threads:
            thread.start()

    def publish(self, notice: CommitNotice) -> None:
        """Publish a notice soon, without waiting."""
        with self._changed:
            self._pending = notice if self._pending is None else self._pending.merge(notice)
            self._changed.notify_all()

    def close(self) -> None:
        """Publish the pending notice, then stop."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()
        self._client.close()

    def _publish_pending(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._pending is not None or self._closing)
                notice, self._pending = self._pending, None
            if notice is None:
                return
            try:
                self._client.publish(self._channel, msgspec.msgpack.encode((self._process_id, notice)))
                time.sleep(PUBLISH_INTERVAL_SECONDS)
            except Exception:  # noqa: BLE001 - the edge of the thread: processes that get no notice poll
                self._on_failure("publish")
                with self._changed:
                    self._pending = notice if self._pending is None else notice.merge(self._pending)
                    if self._changed.wait_for(lambda: self._closing, timeout=RETRY_SECONDS):
                        return

    def _receive(self) -> None:
        while not self._closing:
            try:
                with closing(self._client.pubsub()) as subscription:  # type: ignore[no-untyped-call]
                    subscription.subscribe(self._channel)
                    self._receive_from(subscription)
            except Exception as error:  # noqa: BLE001 - the edge of the thread: it subscribes again
                self._on_failure("listen")
                if not self._is_away:
                    self._is_away = True
                    _log.warning("redis_away", error=str(error))
                if self.is_connected:
                    # The process polls everything: its polls were slowed down.
                    self.is_connected = False
                    self._notify(CommitNotice(missed=True))
            with self._changed:
                self._changed.wait_for(lambda: self._closing, timeout=RETRY_SECONDS)

    def _receive_from(self, subscription: Any) -> None:
        answered_at = time.monotonic()
        while not self._closing:
            message = subscription.get_message(timeout=RECEIVE_SECONDS)
            if message is not None:
                answered_at = time.monotonic()
                self._handle(message)
            elif time.monotonic() - answered_at > SILENCE_SECONDS:
                raise TimeoutError(f"no answer for {SILENCE_SECONDS} s")
            else:
                subscription.ping()

    def _handle(self, message: dict[str, Any]) -> None:
        if message["type"] == "subscribe":
            self.is_connected = True
            if self._is_away:
                self._is_away = False
                _log.info("redis_back")
            self._notify(CommitNotice(missed=True))
        elif message["type"] == "message":
            try:
                process_id, notice = _MESSAGE.decode(message["data"])
            except msgspec.MsgspecError:
                self._on_failure("read")
                return
            if process_id != self._process_id:
                self._notify(notice)

    def _notify(self, notice: CommitNotice) -> None:
        try:
            self._on_notice(notice)
        except Exception as error:  # noqa: BLE001 - the edge of the thread: the process polls
            self._on_failure("handle")
            _log.warning("commit_notice_failed", error=str(error))


# The clock is that of Redis, since those of replicas differ. Replicas may allow too much before they synchronize, so a
# bucket can be negative, by at most one burst; it expires once it would be full.
_SPEND = """
local now = redis.call('TIME')
now = now[1] + now[2] / 1e6
local rate, burst, spent = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local bucket = redis.call('HMGET', KEYS[1], 'left', 'at')
local left = tonumber(bucket[1]) or burst
local since = math.max(0, now - (tonumber(bucket[2]) or now))
left = math.max(-burst, math.min(burst, left + since * rate) - spent)
redis.call('HSET', KEYS[1], 'left', left, 'at', now)
redis.call('PEXPIRE', KEYS[1], math.ceil((burst - left) / rate * 1000) + 1000)
return tostring(left)
"""


class SharedBuckets:
    """The buckets of callers, refilled at the same rate up to the same burst."""

    def __init__(self, url: str, *, per_second: float, burst: int) -> None:
        self._client = connect_redis(url)
        self._prefix = f"{key_prefix(self._client)}:limit"
        self._spend = self._client.register_script(_SPEND)
        self._per_second = per_second
        self._burst = burst

    def spend(self, spent: Mapping[str, int]) -> dict[str, float]:
        """Subtract requests from the buckets of callers; return what is left, negative if too many were allowed.

        Errors: NotReady while Redis is unavailable.
        """
        pipeline = self._client.pipeline(transaction=False)
        try:
            for caller, n in spent.items():
                arguments = [self._per_second, self._burst, n]
                self._spend(keys=[f"{self._prefix}:{caller}"], args=arguments, client=pipeline)
            return {caller: float(left) for caller, left in zip(spent, pipeline.execute(), strict=True)}
        except (redis.RedisError, OSError) as error:
            raise NotReady(f"redis: {error}") from error

    def close(self) -> None:
        """Close the connection."""
        self._client.close()
