"""Chunk numbers within an update, and counts that stay unreported until a message carries them."""

from __future__ import annotations

from trmon_client.core.wire import ChunkCount
from trmon_client.sending.messages import REMEMBERED, REPORTED_AT_ONCE, ChunkCounter


def test_a_count_stays_unreported_until_a_message_reports_it() -> None:
    chunks = ChunkCounter()
    chunks.next(0, None, chunks=None)
    chunks.next(1, None, chunks=None)
    assert chunks.unreported() == chunks.unreported() == [ChunkCount(0, None, 1)]
    chunks.mark_reported(chunks.unreported())
    assert chunks.unreported() == []


def test_returning_to_an_update_continues_its_count_and_reports_it_again() -> None:
    chunks = ChunkCounter()
    numbers = [chunks.next(0, update, chunks=None).index for update in (None, 0, None)]
    assert numbers == [0, 0, 1]
    chunks.finish()
    assert set(map(tuple_of, chunks.unreported())) == {(0, None, 2), (0, 0, 1)}


def test_more_calls_than_announced_report_the_larger_count() -> None:
    chunks = ChunkCounter()
    chunks.next(0, None, chunks=1)
    chunks.mark_reported(chunks.unreported())
    chunks.next(0, None, chunks=1)
    chunks.finish()
    assert chunks.unreported() == [ChunkCount(0, None, 2)]


def test_the_number_of_remembered_updates_is_bounded() -> None:
    chunks = ChunkCounter()
    for step in range(3 * REMEMBERED):
        chunks.next(step, None, chunks=None)
    assert len(chunks.unreported()) < REMEMBERED


def tuple_of(count: ChunkCount) -> tuple[int, int | None, int]:
    return count.step, count.update, count.chunks


def test_counts_that_pile_up_are_reported_in_parts_oldest_first() -> None:
    counter = ChunkCounter()
    places = [counter.next(step, None, chunks=1) for step in range(3 * REPORTED_AT_ONCE)]
    assert [count.step for count in places[-1].finished] == list(range(REPORTED_AT_ONCE))
    counter.mark_reported(places[-1].finished)
    assert [count.step for count in counter.unreported()] == list(range(REPORTED_AT_ONCE, 3 * REPORTED_AT_ONCE))
