"""Chunks: numbers within an update, and counts that are owed until they are handed over."""

from __future__ import annotations

from trmon_client.core.wire import ChunkCount
from trmon_client.sending.chunk_counter import REMEMBERED, ChunkCounter


def test_a_count_is_owed_until_it_is_stated() -> None:
    chunks = ChunkCounter()
    chunks.next(0, None, chunks=None)
    chunks.next(1, None, chunks=None)
    assert chunks.unreported() == chunks.unreported() == [ChunkCount(0, None, 1)]
    chunks.mark_reported(chunks.unreported())
    assert chunks.unreported() == []


def test_coming_back_to_an_update_goes_on_counting_and_states_it_anew() -> None:
    chunks = ChunkCounter()
    numbers = [chunks.next(0, update, chunks=None).index for update in (None, 0, None)]
    assert numbers == [0, 0, 1]
    chunks.finish()
    assert set(map(tuple_of, chunks.unreported())) == {(0, None, 2), (0, 0, 1)}


def test_more_calls_than_announced_state_the_larger_count() -> None:
    chunks = ChunkCounter()
    chunks.next(0, None, chunks=1)
    chunks.mark_reported(chunks.unreported())
    chunks.next(0, None, chunks=1)
    chunks.finish()
    assert chunks.unreported() == [ChunkCount(0, None, 2)]


def test_what_is_remembered_is_bounded() -> None:
    chunks = ChunkCounter()
    for step in range(3 * REMEMBERED):
        chunks.next(step, None, chunks=None)
    assert len(chunks.unreported()) < REMEMBERED


def tuple_of(count: ChunkCount) -> tuple[int, int | None, int]:
    return count.step, count.update, count.chunks
