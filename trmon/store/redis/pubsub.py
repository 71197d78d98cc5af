"""The bell: news of commits, heard by every process at once; best effort, since all of them also look by themselves."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from contextlib import closing
from threading import Condition, Thread
from typing import Any

import msgspec
import structlog

from trmon.store.redis import commit_notice as letters
from trmon.store.redis.commit_notice import CommitNotice, Envelope
from trmon.store.redis.connection import connect_redis, key_prefix

RETRY_SECONDS = 0.5
PAUSE_SECONDS = 0.05
"""Shortest time between two rings: commits in between ring together."""
LISTEN_SECONDS = 0.5
SILENCE_SECONDS = 3.0
"""A Redis that answers no ping for so long hangs, whatever the connection says."""

_log = structlog.get_logger(__name__)


class PubSub:
    """Rings on a thread of its own and hears the others on another.

    What rings while Redis is away is kept, as one, and rings when it is back. Whoever is away himself hears, when it
    begins and when it ends, that he may have missed something.
    """

    def __init__(self, url: str, *, heard: Callable[[CommitNotice], None], failed: Callable[[str], None]) -> None:
        """Args: heard: called with others' news, must be quick; failed: counts failures, by what failed."""
        self._client = connect_redis(url)
        self._channel = f"{key_prefix(self._client)}:news"
        self._name = uuid.uuid4().hex
        self._heard = heard
        self._failed = failed
        self._changed = Condition()
        self._waiting: CommitNotice | None = None
        self._closing = False
        self._hears = False
        self._is_away = False
        self._threads = [
            Thread(target=self._ring_out, name="trmon-bell", daemon=True),
            Thread(target=self._listen, name="trmon-ear", daemon=True),
        ]

    @property
    def up(self) -> bool:
        """Whether others are heard."""
        return self._hears

    def start(self) -> None:
        """Begin to ring and to hear."""
        for thread in self._threads:
            thread.start()

    def ring(self, news: CommitNotice) -> None:
        """Tell the others, soon; never waits."""
        with self._changed:
            self._waiting = news if self._waiting is None else self._waiting.and_then(news)
            self._changed.notify_all()

    def close(self) -> None:
        """Ring for the last time, then stop."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()
        self._client.close()

    def _ring_out(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting is not None or self._closing)
                news, self._waiting = self._waiting, None
            if news is None:
                return
            if self._published(news):
                time.sleep(PAUSE_SECONDS)
            elif not self._pause(news):
                return

    def _published(self, news: CommitNotice) -> bool:
        try:
            self._client.publish(self._channel, letters.encode_envelope(Envelope(self._name, news)))
        except Exception:  # noqa: BLE001 - the edge of the thread: whoever is not told looks by himself
            self._failed("publish")
            return False
        return True

    def _pause(self, unheard: CommitNotice) -> bool:
        """Keep what nobody heard and rest; false when there is no more time for it."""
        with self._changed:
            self._waiting = unheard if self._waiting is None else unheard.and_then(self._waiting)
            return not self._changed.wait_for(lambda: self._closing, timeout=RETRY_SECONDS)

    def _listen(self) -> None:
        while not self._closing:
            try:
                with closing(self._client.pubsub()) as subscription:  # type: ignore[no-untyped-call]
                    subscription.subscribe(self._channel)
                    self._follow(subscription)
            except Exception as error:  # noqa: BLE001 - the edge of the thread: it listens again
                self._failed("listen")
                self._deafen(error)
            with self._changed:
                self._changed.wait_for(lambda: self._closing, timeout=RETRY_SECONDS)

    def _follow(self, subscription: Any) -> None:
        answered_at = time.monotonic()
        while not self._closing:
            message = subscription.get_message(timeout=LISTEN_SECONDS)
            if message is not None:
                answered_at = time.monotonic()
                self._take(message)
            elif time.monotonic() - answered_at > SILENCE_SECONDS:
                raise TimeoutError(f"no answer for {SILENCE_SECONDS} s")
            else:
                subscription.ping()

    def _deafen(self, error: Exception) -> None:
        """Say once that Redis is away; whoever looked less often, since he was told, looks now and more often."""
        if not self._is_away:
            self._is_away = True
            _log.warning("redis_away", error=str(error))
        if self._hears:
            self._hears = False
            self._say(CommitNotice(missed=True))

    def _take(self, message: dict[str, Any]) -> None:
        if message["type"] == "subscribe":
            self._hears = True
            if self._is_away:
                self._is_away = False
                _log.info("redis_back")
            self._say(CommitNotice(missed=True))
        elif message["type"] == "message":
            try:
                letter = letters.decode_envelope(message["data"])
            except msgspec.MsgspecError:
                self._failed("read")
                return
            if letter.sender != self._name:
                self._say(letter.news)

    def _say(self, news: CommitNotice) -> None:
        try:
            self._heard(news)
        except Exception as error:  # noqa: BLE001 - the edge of the thread: whoever cannot take it looks by himself
            self._failed("heard")
            _log.warning("news_not_taken", error=str(error))
