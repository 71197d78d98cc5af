"""The spool: order, size limits, damage, full disks, and spools of dead processes."""

from __future__ import annotations

import resource
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import pytest

from trmon_client.config.settings import Limits
from trmon_client.core.wire.segments import HEADER, encode_record
from trmon_client.error_guard import LossCounter
from trmon_client.sending.spool import DirectoryLock, Spool

MESSAGE = b"x" * 92
RECORD_BYTES = len(encode_record(MESSAGE))


MakeSpool: TypeAlias = Callable[..., Spool]


@pytest.fixture
def losses() -> LossCounter:
    """What the spools of a test lose."""
    return LossCounter()


@pytest.fixture
def spool(tmp_path: Path, losses: LossCounter) -> Iterator[MakeSpool]:
    """Makes spools below the test's folder and closes them with the test."""
    made: list[Spool] = []

    def make(name: str = "a", *, holds: int = 0, **limits: int) -> Spool:
        made.append(Spool(tmp_path / name, limits=Limits(**limits), losses=losses))
        for message in numbered(holds):
            made[-1].append(message)
        return made[-1]

    yield make
    for queue in made:
        queue.close()


def drained(queue: Spool, *, n_messages: int = 2) -> list[bytes]:
    """Return all messages, read bundle by bundle."""
    found: list[bytes] = []
    while bundle := queue.peek(n_messages=n_messages, size_bytes=1 << 20):
        found += bundle
        queue.advance(len(bundle))
    return found


def numbered(n: int) -> list[bytes]:
    return [b"%0*d" % (len(MESSAGE), i) for i in range(n)]


def test_only_the_owner_may_read(tmp_path: Path, spool: MakeSpool) -> None:
    queue = spool("math/grpo/1")
    queue.append(MESSAGE)
    assert drained(queue) == [MESSAGE]
    queue.append(MESSAGE)
    queue.prepend([MESSAGE])
    folder = tmp_path / "math" / "grpo" / "1"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    assert len(list(folder.iterdir())) == 3


def test_messages_are_read_in_order_over_many_segments_and_the_files_deleted(tmp_path: Path, spool: MakeSpool) -> None:
    queue = spool(holds=10, segment_bytes=3 * RECORD_BYTES)
    assert len(list(tmp_path.rglob("*.seg"))) == 5
    assert drained(queue) == numbered(10)
    assert queue.is_empty
    assert queue.size_bytes == 0
    queue.close()
    assert list(tmp_path.iterdir()) == []


def test_messages_appended_while_it_is_read_come_after(spool: MakeSpool) -> None:
    queue = spool()
    first, second, third, fourth = numbered(4)
    queue.append(first)
    queue.append(second)
    assert queue.peek(n_messages=1, size_bytes=1 << 20) == [first]
    queue.append(third)
    queue.advance(1)
    queue.append(fourth)
    assert drained(queue) == [second, third, fourth]


def test_a_bundle_keeps_within_its_bytes_but_has_one_message_at_least(spool: MakeSpool) -> None:
    queue = spool(holds=3)
    assert len(queue.peek(n_messages=8, size_bytes=2 * len(MESSAGE))) == 2
    assert len(queue.peek(n_messages=8, size_bytes=1)) == 1


def test_beyond_the_cap_the_oldest_segment_is_dropped_and_counted(spool: MakeSpool, losses: LossCounter) -> None:
    segment_bytes = len(HEADER) + 2 * RECORD_BYTES
    queue = spool(holds=9, segment_bytes=segment_bytes, spool_bytes=3 * segment_bytes)
    assert losses.snapshot() == {"spool_full": 4}
    assert drained(queue) == numbered(9)[4:]


def test_a_segment_that_is_being_read_is_never_deleted(spool: MakeSpool, losses: LossCounter) -> None:
    segment_bytes = len(HEADER) + RECORD_BYTES
    queue = spool(segment_bytes=segment_bytes, spool_bytes=2 * segment_bytes)
    queue.append(numbered(1)[0])
    queue.peek(n_messages=1, size_bytes=1 << 20)
    for message in numbered(5)[1:]:
        queue.append(message)
    assert drained(queue) == [numbered(5)[0], numbered(5)[4]]
    assert losses.snapshot() == {"spool_full": 3}


@contextmanager
def largest_file(size_bytes: int) -> Iterator[None]:
    """Make the kernel cut every write at this size, as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_partial_write_raises_and_keeps_complete_records(spool: MakeSpool, losses: LossCounter) -> None:
    queue = spool()
    first, second, third = numbered(3)
    queue.append(first)
    with largest_file(len(HEADER) + RECORD_BYTES + 10), pytest.raises(OSError, match=r"File too large|only a part"):
        queue.append(second)
    with largest_file(3), pytest.raises(OSError, match=r"File too large|only a part"):
        queue.append(second)
    queue.append(third)
    assert drained(queue) == [first, third]
    assert losses.snapshot() == {}


def test_a_disk_that_stays_full_is_not_filled_with_empty_files(tmp_path: Path, spool: MakeSpool) -> None:
    queue = spool()
    with largest_file(len(HEADER) + 10):
        for _ in range(3):
            with pytest.raises(OSError, match=r"File too large|only a part"):
                queue.append(MESSAGE)
    assert list(tmp_path.rglob("*.seg")) == []
    queue.append(MESSAGE)
    assert drained(queue) == [MESSAGE]


def test_a_segment_that_cannot_be_opened_now_is_read_later(spool: MakeSpool, losses: LossCounter) -> None:
    queue = spool(holds=3, segment_bytes=RECORD_BYTES)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            queue.peek(n_messages=1, size_bytes=1)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert drained(queue) == numbered(3)
    assert losses.snapshot() == {}


def test_a_segment_of_another_version_stays_on_disk(tmp_path: Path, spool: MakeSpool, losses: LossCounter) -> None:
    path = tmp_path / "newer" / "00000000.seg"
    path.parent.mkdir()
    path.write_bytes(HEADER[:-1] + b"\x02 whatever")
    adopter = spool("adopter")
    adopter.adopt()
    adopter.append(MESSAGE)
    assert drained(adopter) == [MESSAGE]
    assert losses.snapshot() == {"unread": 1}
    adopter.close()
    assert path.exists()


def test_an_unreadable_segment_stays_and_stops_no_other(tmp_path: Path, spool: MakeSpool, losses: LossCounter) -> None:
    for name in ("first", "second"):
        spool(name, holds=1).close()
    unreadable = tmp_path / "first" / "00000001.seg"
    unreadable.unlink()
    unreadable.mkdir()  # root may read every file, but no one may read a folder
    adopter = spool("adopter")
    adopter.adopt()
    assert drained(adopter) == numbered(1)
    assert losses.snapshot() == {"unread": 1}
    adopter.close()
    assert unreadable.exists()


def test_only_damaged_records_are_lost_and_counted(tmp_path: Path, spool: MakeSpool, losses: LossCounter) -> None:
    queue = spool(holds=3)
    queue.close()
    (path,) = tmp_path.rglob("*.seg")
    data = bytearray(path.read_bytes())
    data[len(HEADER) + RECORD_BYTES + 20] ^= 1
    path.write_bytes(bytes(data) + encode_record(b"torn")[:-1])
    (tmp_path / "a" / "00000002.seg").write_bytes(b"no segment at all")
    adopter = spool("b")
    adopter.adopt()
    assert drained(adopter) == [numbered(3)[0], numbered(3)[2]]
    assert losses.snapshot() == {"damaged": 3}


@pytest.mark.parametrize("kept_bytes", [0, len(HEADER) + RECORD_BYTES + 5])
def test_every_message_of_a_segment_that_lost_its_end_is_counted_by_the_process_that_wrote_it(
    tmp_path: Path, spool: MakeSpool, losses: LossCounter, kept_bytes: int
) -> None:
    queue = spool(holds=5)
    (path,) = tmp_path.rglob("*.seg")
    path.write_bytes(path.read_bytes()[:kept_bytes])
    found = drained(queue)
    assert found == numbered(len(found))
    assert losses.snapshot() == {"damaged": 5 - len(found)}


def test_an_empty_segment_of_a_dead_process_is_counted(tmp_path: Path, spool: MakeSpool, losses: LossCounter) -> None:
    spool("dead", holds=5).close()
    (path,) = tmp_path.rglob("*.seg")
    path.write_bytes(b"")
    adopter = spool("adopter")
    adopter.adopt()
    assert drained(adopter) == []
    assert losses.snapshot() == {"damaged": 1}


def test_the_spool_of_a_dead_process_is_adopted_by_one_process_and_read_first(tmp_path: Path, spool: MakeSpool) -> None:
    dead = spool("dead", holds=2)
    dead.close()
    adopter, other = spool("adopter"), spool("other")
    adopter.adopt()
    other.adopt()
    adopter.append(b"own")
    assert other.is_empty
    assert drained(adopter) == [*numbered(2), b"own"]
    adopter.close()
    assert list(tmp_path.iterdir()) == []


def test_an_adopting_process_that_dies_leaves_the_rest_to_the_next(spool: MakeSpool) -> None:
    dead = spool("dead", holds=3, segment_bytes=RECORD_BYTES)
    dead.close()
    adopter = spool("adopter")
    adopter.adopt()
    adopter.peek(n_messages=1, size_bytes=1)
    adopter.advance(1)
    adopter.close()
    last = spool("last")
    last.adopt()
    assert drained(last) == numbered(3)[1:]


def test_the_spool_of_a_living_process_is_not_adopted(tmp_path: Path, spool: MakeSpool) -> None:
    living = spool("living")
    living.append(MESSAGE)
    (tmp_path / "about to lock").mkdir()
    other = spool("other")
    other.adopt()
    assert other.is_empty
    assert (tmp_path / "about to lock").is_dir()
    assert drained(living) == [MESSAGE]


def test_a_lock_is_held_once_and_released(tmp_path: Path) -> None:
    held = DirectoryLock.acquire(tmp_path)
    assert DirectoryLock.acquire(tmp_path) is None
    held.release()
    again = DirectoryLock.acquire(tmp_path)
    again.release()
    assert DirectoryLock.acquire(tmp_path / "absent") is None
