"""The queue: bounded by count and bytes, never waiting."""

from __future__ import annotations

import pytest

from trmon_client.config.settings import Limits
from trmon_client.sending.encoder import MessageQueue, PendingMessage


def message(size_bytes: int = 1) -> PendingMessage:
    return PendingMessage(lambda _identity, _losses: pytest.fail("nothing builds here"), size_bytes=size_bytes)


def test_it_is_full_by_count_and_accepts_more_after_a_get() -> None:
    queue = MessageQueue(Limits(queue_reports=2))
    assert [queue.put(message()) for _ in range(3)] == [True, True, False]
    queue.get()
    assert queue.put(message())


def test_it_is_full_by_bytes() -> None:
    queue = MessageQueue(Limits(queue_bytes=10))
    assert [queue.put(message(size)) for size in (6, 5, 4)] == [True, False, True]


def test_the_last_message_always_fits() -> None:
    queue = MessageQueue(Limits(queue_reports=1))
    first, last = message(), message()
    queue.put(first)
    queue.close(last)
    queue.close(message())
    assert [queue.get(), queue.get(), queue.get()] == [first, last, None]


def test_once_closed_it_returns_what_it_holds_and_then_none() -> None:
    queue = MessageQueue(Limits())
    last = message()
    queue.put(last)
    queue.close()
    assert not queue.put(message())
    assert queue.get() is last
    assert queue.get() is None
