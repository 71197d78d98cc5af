"""The spool: messages on disk, in segment files of one process, until the service acknowledges them.

Only their owner may read them, whatever the umask says. A spool is locked by `flock` itself, not the package filelock,
because trainers fork: filelock 3 keeps the lock open in a forked child. Spools that dead processes of the same run left
are drained by the first process that locks them.
"""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from weakref import WeakSet

from trmon_client.config.settings import Limits
from trmon_client.core.wire.segments import HEADER, SUFFIX, SegmentError, encode_record, scan_segment
from trmon_client.error_guard import LossCounter, LossReason

FILE_MODE = 0o600
FOLDER_MODE = 0o700


def open_private(path: Path, mode: str, *, buffering: int = -1) -> IO[bytes]:
    """Open a binary file; if it is created, only its owner may read it. Errors: OSError."""
    return open(path, mode, buffering, opener=_open)


def make_private_folder(path: Path) -> None:
    """Create a folder that only its owner may enter; parents take the umask, and one that exists stays as it is."""
    path.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)


def _open(name: str, flags: int) -> int:
    return os.open(name, flags, FILE_MODE)


fcntl: Any
try:
    import fcntl
except ImportError:  # Windows: a process cannot tell whether another one is alive, so it does not take over spools
    fcntl = None

FILE_NAME = "lock"

_HELD: WeakSet[DirectoryLock] = WeakSet()


class DirectoryLock:
    """Holds the lock file of a directory until `release`, or until the process ends."""

    def __init__(self, directory: Path, file: IO[bytes]) -> None:
        self._directory = directory
        self._file = file
        _HELD.add(self)

    @classmethod
    def acquire(cls, directory: Path) -> DirectoryLock | None:
        """Return the lock; None if another process holds it, the file cannot be opened, or the system has no locks."""
        if fcntl is None:
            return None
        try:
            file = open_private(directory / FILE_NAME, "ab", buffering=0)
        except OSError:
            return None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            return None
        return cls(directory, file)

    def release(self) -> None:
        """Release the lock; the file stays."""
        self._file.close()

    def remove(self) -> None:
        """Delete the directory, which is empty but for the lock file, and release the lock."""
        delete_file(self._directory / FILE_NAME)
        with suppress(OSError):  # not empty, or already gone
            self._directory.rmdir()
        self.release()


def _release_in_child() -> None:
    """Close the files in a forked child: a lock lasts while any process has its file open."""
    for lock in list(_HELD):
        lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_release_in_child)


@dataclass(slots=True)
class Segment:
    """One file of the spool.

    `orphan` is the lock of a dead process' spool, whose messages are counted when they are read.
    """

    path: Path
    n_messages: int = 0
    size_bytes: int = 0
    orphan: DirectoryLock | None = None


def orphaned_segments(run_directory: Path) -> Iterator[Segment]:
    """Lock the spools under a run's directory that no living process has locked; yield their segments, oldest first.

    A spool without segments is left alone: its process may be about to lock it.
    Errors: OSError if a directory cannot be read.
    """
    if not run_directory.is_dir():
        return
    for directory in sorted(path for path in run_directory.iterdir() if path.is_dir()):
        if not any(directory.glob(f"*{SUFFIX}")):
            continue
        lock = DirectoryLock.acquire(directory)
        if lock is None:
            continue
        segments = sorted(directory.glob(f"*{SUFFIX}"))
        if not segments:  # another process drained it before it was locked
            lock.release()
        for path in segments:
            yield Segment(path, orphan=lock)


def delete_file(path: Path) -> None:
    """Delete a file; on a read-only disk it stays, and the service will recognise what it gets again."""
    with suppress(OSError):
        path.unlink()


EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Temporary errors: the file that could not be read may be intact."""


class Spool:
    """A queue of messages in files: `append` at the end, `peek` and `advance` at the front.

    The disk is not touched before the first `append` or `adopt`. It is not thread-safe: the caller has a lock.
    """

    def __init__(self, directory: Path, *, limits: Limits, losses: LossCounter) -> None:
        self.directory = directory
        self._limits = limits
        self._losses = losses
        self._segments: deque[Segment] = deque()
        self._reading: deque[bytes] = deque()
        self._is_loaded = False
        self._file: IO[bytes] | None = None
        self._lock: DirectoryLock | None = None
        self._n_opened = 0
        """The file of number 0 is the one of `prepend`."""

    @property
    def is_empty(self) -> bool:
        """Whether the spool has no segments."""
        return not self._segments

    @property
    def size_bytes(self) -> int:
        """The size of the segments, without those of orphaned spools that are not read yet."""
        return sum(segment.size_bytes for segment in self._segments)

    def adopt(self) -> None:
        """Put the segments that dead processes of this run left before our own. Errors: OSError."""
        self._segments.extendleft(reversed([*orphaned_segments(self.directory.parent)]))

    def append(self, message: bytes) -> None:
        """Write one message at the end, and delete the oldest segments beyond the size limit.

        Errors: OSError if it could not be written; the spool is unchanged.
        """
        record = encode_record(message)
        if self._file is None or self._segments[-1].size_bytes + len(record) > self._limits.segment_bytes:
            self._open_segment()
        segment = self._segments[-1]
        try:
            self._write(record, after=segment.size_bytes)
        except OSError:
            # The next attempt opens another file: a full disk would collect empty ones.
            if segment.n_messages == 0:
                self._segments.pop()
                delete_file(segment.path)
            raise
        segment.size_bytes += len(record)
        segment.n_messages += 1
        self._drop_beyond_cap()

    def prepend(self, messages: Sequence[bytes]) -> None:
        """Write messages before all others, none of which is being read, in a segment of their own.

        Errors: OSError if they could not be written; the spool is unchanged.
        """
        path = self.directory / _file_name(0)
        data = HEADER + b"".join(map(encode_record, messages))
        with open_private(path, "xb", buffering=0) as file:
            try:
                _write_all(file, data)
            except OSError:
                delete_file(path)
                raise
        self._segments.appendleft(Segment(path, n_messages=len(messages), size_bytes=len(data)))

    def peek(self, *, n_messages: int, size_bytes: int) -> list[bytes]:
        """Return the oldest messages within both limits, at least one if there is any; they stay in the spool.

        Errors: OSError if the process cannot open another file now; nothing is lost, and a later call can read it.
        """
        while not self._reading and self._segments:
            if self._is_loaded:
                self._finish_segment()
            else:
                self._load_segment()
        return fitting_prefix(self._reading, n_messages=n_messages, size_bytes=size_bytes)

    def advance(self, n: int) -> None:
        """Remove the n oldest messages; a segment's file is deleted with its last one."""
        for _ in range(n):
            self._reading.popleft()
        if not self._reading and self._is_loaded:
            self._finish_segment()

    def close(self) -> None:
        """Close the files; messages stay on disk for the next process, and an empty spool is deleted."""
        self._close_file()
        for segment in self._segments:
            if segment.orphan is not None:
                segment.orphan.release()
        if self._lock is not None:
            if any(segment.orphan is None for segment in self._segments):
                self._lock.release()
            else:
                self._lock.remove()
            self._lock = None

    def _open_segment(self) -> None:
        self._close_file()
        make_private_folder(self.directory)
        if self._lock is None:
            self._lock = DirectoryLock.acquire(self.directory)
        path = self.directory / _file_name(self._n_opened + 1)
        self._file = open_private(path, "xb", buffering=0)
        self._n_opened += 1
        try:
            self._write(HEADER, after=0)
        except OSError:
            delete_file(path)
            raise
        self._segments.append(Segment(path, size_bytes=len(HEADER)))

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, data: bytes, *, after: int) -> None:
        assert self._file is not None
        try:
            _write_all(self._file, data)
        except OSError:
            # A torn record would hide records after it: cut it off, and write the next message to a new file.
            with suppress(OSError):
                os.truncate(self._file.fileno(), after)
            self._close_file()
            raise

    def _drop_beyond_cap(self) -> None:
        while self.size_bytes > self._limits.spool_bytes:
            ours = [segment for segment in self._segments if segment.orphan is None]
            droppable = [s for s in ours[:-1] if not (self._is_loaded and s is self._segments[0])]
            if not droppable:
                return
            self._segments.remove(droppable[0])
            delete_file(droppable[0].path)
            self._losses.count(LossReason.SPOOL_FULL, droppable[0].n_messages)

    def _load_segment(self) -> None:
        segment = self._segments[0]
        if len(self._segments) == 1:
            self._close_file()
        try:
            data = segment.path.read_bytes()
            found = scan_segment(data)
        except (OSError, SegmentError) as error:
            if isinstance(error, OSError) and error.errno in EXHAUSTED:
                raise
            # What this process may not read, or a disk does not give, another one may: it is not deleted.
            is_foreign = isinstance(error, SegmentError) and data.startswith(HEADER[:-1])
            keep = is_foreign or (isinstance(error, OSError) and not isinstance(error, FileNotFoundError))
            self._losses.count(LossReason.UNREAD if keep else LossReason.DAMAGED, max(1, segment.n_messages))
            self._drop_segment(keep=keep)
            return
        self._is_loaded = True
        self._reading.extend(found.messages)
        # Of an orphan it is not known how many messages it had: a torn tail counts as one.
        seen = found.n_damaged + bool(found.torn_bytes)
        if n_lost := max(seen, segment.n_messages - len(found.messages)):
            self._losses.count(LossReason.DAMAGED, n_lost)

    def _finish_segment(self) -> None:
        self._is_loaded = False
        self._drop_segment(keep=False)

    def _drop_segment(self, *, keep: bool) -> None:
        segment = self._segments.popleft()
        if not keep:
            delete_file(segment.path)
        orphan = segment.orphan
        if orphan is not None and not any(other.orphan is orphan for other in self._segments):
            orphan.remove()


def _file_name(number: int) -> str:
    return f"{number:08d}{SUFFIX}"


def _write_all(file: IO[bytes], data: bytes) -> None:
    if file.write(data) != len(data):
        raise OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)} (only a part was written)")


def fitting_prefix(messages: Iterable[bytes], *, n_messages: int, size_bytes: int) -> list[bytes]:
    """Return the first messages that fit both limits, and always the first one."""
    taken: list[bytes] = []
    for message in messages:
        size_bytes -= len(message)
        if taken and (size_bytes < 0 or len(taken) >= n_messages):
            break
        taken.append(message)
    return taken
