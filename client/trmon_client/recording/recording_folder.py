"""Write recordings into a folder that only its owner may read, within a limit of the disk."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from trmon_client.core.recording_format import INDEX_FILE, Recording
from trmon_client.recording.held_call import HeldCall
from trmon_client.safety.private_files import FOLDER_MODE, make_private_folder, open_private

UNFINISHED = ".partial"
OVERHEAD_BYTES = 4096
"""What a call takes on disk beside its arrays: the headers of its file, and its policy in the index."""


@dataclass(frozen=True, slots=True)
class RecordingFolder:
    """The recordings of one rank of a run: `directory` is of the run, `disk_bytes` their limit."""

    directory: Path
    rank: int
    disk_bytes: int

    def write(self, name: str, recording: Recording, calls: Sequence[HeldCall]) -> Path:
        """Write a recording and return its folder; the oldest recordings are deleted beyond the limit.

        A recording that is larger than the limit alone keeps its newest calls. Errors: OSError.
        """
        kept = self._fitting(calls)
        self._make_room(sum(map(_size_on_disk, kept)))
        target = self.directory / f"{self._prefix}{name}"
        unfinished = target.with_name(target.name + UNFINISHED)
        make_private_folder(self.directory)
        unfinished.mkdir(mode=FOLDER_MODE)
        try:
            for call in kept:
                with open_private(unfinished / call.entry.file, "xb") as file:
                    np.savez(file, **call.arrays())
            index = msgspec.structs.replace(recording, calls=tuple(call.entry for call in kept))
            with open_private(unfinished / INDEX_FILE, "xb") as file:
                file.write(msgspec.json.format(msgspec.json.encode(index), indent=1))
            unfinished.rename(target)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
        return target

    @property
    def _prefix(self) -> str:
        return f"rank{self.rank}-"

    def _fitting(self, calls: Sequence[HeldCall]) -> list[HeldCall]:
        kept: list[HeldCall] = []
        left = self.disk_bytes
        for call in reversed(calls):
            left -= _size_on_disk(call)
            if left < 0:
                break
            kept.append(call)
        return kept[::-1]

    def _make_room(self, size_bytes: int) -> None:
        """Delete the oldest recordings of this rank, and those that a dead process has not finished."""
        existing = sorted(self.directory.glob(f"{self._prefix}*")) if self.directory.is_dir() else []
        sizes = {path: _size_bytes(path) for path in existing}
        for path in existing:
            if path.suffix == UNFINISHED or sum(sizes.values()) + size_bytes > self.disk_bytes:
                shutil.rmtree(path, ignore_errors=True)
                sizes.pop(path)


def _size_on_disk(call: HeldCall) -> int:
    return call.size_bytes + OVERHEAD_BYTES


def _size_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
