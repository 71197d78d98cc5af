"""The outbox: bounded by count and bytes, never waiting."""

from __future__ import annotations

import pytest

from trmon_client.config.limits import Limits
from trmon_client.sending.queue import MessageQueue, PendingMessage


def draft(size_bytes: int = 1) -> PendingMessage:
    return PendingMessage(lambda _identity, _lost: pytest.fail("nothing builds here"), size_bytes=size_bytes)


def test_it_is_full_by_count_and_takes_more_after_a_take() -> None:
    outbox = MessageQueue(Limits(queue_reports=2))
    assert [outbox.put(draft()) for _ in range(3)] == [True, True, False]
    outbox.take()
    assert outbox.put(draft())


def test_it_is_full_by_bytes() -> None:
    outbox = MessageQueue(Limits(queue_bytes=10))
    assert [outbox.put(draft(size)) for size in (6, 5, 4)] == [True, False, True]


def test_the_last_word_always_fits() -> None:
    outbox = MessageQueue(Limits(queue_reports=1))
    first, last = draft(), draft()
    outbox.put(first)
    outbox.close(last)
    outbox.close(draft())
    assert [outbox.take(), outbox.take(), outbox.take()] == [first, last, None]


def test_once_closed_it_gives_what_it_has_and_then_nothing() -> None:
    outbox = MessageQueue(Limits())
    last = draft()
    outbox.put(last)
    outbox.close()
    assert not outbox.put(draft())
    assert outbox.take() is last
    assert outbox.take() is None
