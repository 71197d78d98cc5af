"""The retry buffer: the order of messages, and where they wait; chunk numbers, and counts that wait for a message."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from trmon_client.config.settings import Limits
from trmon_client.core.wire import ChunkCount
from trmon_client.core.wire.segments import scan_segment
from trmon_client.error_guard import ErrorGuard
from trmon_client.sending.messages import REMEMBERED, REPORTED_AT_ONCE, ChunkCounter
from trmon_client.sending.spool import Spool
from trmon_client.sending.uploader import RetryBuffer


def numbered(n: int) -> list[bytes]:
    return [b"%d" % i for i in range(n)]


MakeRetryBuffer: TypeAlias = Callable[..., RetryBuffer]


@pytest.fixture
def error_guard() -> ErrorGuard:
    """Counts what the buffers of a test lose."""
    return ErrorGuard()


@pytest.fixture
def retry_buffer(error_guard: ErrorGuard) -> Iterator[MakeRetryBuffer]:
    """Makes buffers that spool below a folder and closes them with the test."""
    made: list[RetryBuffer] = []

    def make(folder: Path, *, holds: int = 0, **limits: int) -> RetryBuffer:
        chosen = Limits(**limits)
        spool = Spool(folder / "run" / "process", limits=chosen, losses=error_guard.losses)
        made.append(RetryBuffer(spool, limits=chosen, error_guard=error_guard))
        for message in numbered(holds):
            made[-1].add(message)
        return made[-1]

    yield make
    for queue in made:
        queue.close()


def on_disk(tmp_path: Path) -> list[bytes]:
    return [message for path in sorted(tmp_path.rglob("*.seg")) for message in scan_segment(path.read_bytes()).messages]


def test_below_half_full_nothing_touches_the_disk(tmp_path: Path, retry_buffer: MakeRetryBuffer) -> None:
    queue = retry_buffer(tmp_path, holds=4, queue_reports=8)
    assert (queue.queued, on_disk(tmp_path)) == (4, [])


def test_beyond_half_full_memory_moves_to_the_spool(tmp_path: Path, retry_buffer: MakeRetryBuffer) -> None:
    for limits in ({"queue_reports": 8}, {"queue_bytes": 8}):
        folder = tmp_path / next(iter(limits))
        queue = retry_buffer(folder, holds=5, **limits)
        assert (queue.queued, on_disk(folder)) == (0, numbered(5))


def test_messages_in_flight_return_until_acknowledged(tmp_path: Path, retry_buffer: MakeRetryBuffer) -> None:
    queue = retry_buffer(tmp_path, holds=6)
    assert queue.next_bundle(4) == numbered(4)
    assert queue.next_bundle(2) == numbered(2)
    queue.acknowledge(2)
    assert queue.next_bundle(4) == numbered(4)[2:]
    queue.acknowledge(2)
    assert queue.next_bundle(4) == numbered(6)[4:]
    queue.acknowledge(2)
    assert queue.is_empty


def test_spooling_during_a_flight_sends_nothing_twice(tmp_path: Path, retry_buffer: MakeRetryBuffer) -> None:
    queue = retry_buffer(tmp_path, queue_reports=4)
    queue.add(b"0")
    assert queue.next_bundle(4) == [b"0"]
    for message in numbered(5)[1:]:
        queue.add(message)
    assert on_disk(tmp_path) == numbered(4)[1:]
    queue.acknowledge(1)
    assert queue.next_bundle(4) == numbered(4)[1:]
    queue.acknowledge(3)
    assert queue.next_bundle(4) == [b"4"]


@pytest.mark.parametrize("ends", ["the service is given up", "the process ends"])
def test_messages_in_flight_are_spooled_before_later_ones(
    tmp_path: Path, retry_buffer: MakeRetryBuffer, ends: str
) -> None:
    queue = retry_buffer(tmp_path, holds=2, queue_reports=4)
    assert queue.next_bundle(4) == numbered(2)
    for message in numbered(5)[2:]:
        queue.add(message)
    assert on_disk(tmp_path) == numbered(5)[2:]
    if ends == "the process ends":
        queue.close()
    else:
        queue.write_through(True)
        assert queue.next_bundle(8) == numbered(2)
    assert on_disk(tmp_path) == numbered(5)


def test_with_write_through_all_messages_are_on_disk_in_order(tmp_path: Path, retry_buffer: MakeRetryBuffer) -> None:
    queue = retry_buffer(tmp_path)
    queue.add(b"0")
    queue.add(b"1")
    queue.next_bundle(1)
    queue.write_through(True)
    queue.add(b"2")
    assert on_disk(tmp_path) == numbered(3)
    queue.write_through(False)
    queue.add(b"3")
    assert on_disk(tmp_path) == numbered(3)
    assert queue.next_bundle(4) == numbered(3)
    queue.acknowledge(3)
    assert queue.next_bundle(4) == [b"3"]


def test_close_writes_all_to_disk_despite_a_late_acknowledgement(tmp_path: Path, retry_buffer: MakeRetryBuffer) -> None:
    queue = retry_buffer(tmp_path, holds=3)
    queue.next_bundle(2)
    queue.close()
    queue.acknowledge(2)
    assert queue.is_empty
    assert queue.next_bundle(2) == []
    assert on_disk(tmp_path) == numbered(3)


def test_without_room_the_newest_is_lost(
    tmp_path: Path, retry_buffer: MakeRetryBuffer, error_guard: ErrorGuard
) -> None:
    (tmp_path / "run").write_text("no folder")
    queue = retry_buffer(tmp_path, holds=7, queue_reports=4)
    assert error_guard.losses.snapshot() == {"queue_full": 3}
    assert queue.next_bundle(4) == numbered(4)
    queue.close()
    assert error_guard.losses.snapshot() == {"queue_full": 3, "spool_error": 4}


def test_without_room_the_last_message_is_kept_and_the_end_says_what_is_lost(
    tmp_path: Path, retry_buffer: MakeRetryBuffer, error_guard: ErrorGuard, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run").write_text("no folder")
    queue = retry_buffer(tmp_path, holds=5, queue_reports=4)
    queue.add(b"last", is_last=True)
    assert error_guard.losses.snapshot() == {"queue_full": 1}
    assert queue.next_bundle(8) == [*numbered(4), b"last"]
    queue.acknowledge(2)
    queue.close()
    assert error_guard.losses.snapshot() == {"queue_full": 1, "spool_error": 3}
    assert "3 messages are lost" in capsys.readouterr().err


def test_waiting_ends_at_once_after_an_earlier_message(tmp_path: Path, retry_buffer: MakeRetryBuffer) -> None:
    queue = retry_buffer(tmp_path)
    queue.add(b"0")
    queue.wait(3600.0)
    queue.wake()
    queue.wait(3600.0)


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
