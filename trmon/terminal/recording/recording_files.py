"""Reads recordings that trainers wrote."""

from __future__ import annotations

from pathlib import Path

import msgspec

from trmon.domain.errors import InvalidInput
from trmon.domain.recording import RecordedTokens
from trmon.terminal.array_files import read_arrays
from trmon_client.core.recording_format import ARRAYS, FORMAT_VERSION, INDEX_FILE, RecordedCall, Recording


def read_recordings(directory: Path, *, step: int | None = None) -> list[RecordedTokens]:
    """Return the calls of all recordings in a folder and below, each once; of two recordings the newer one has it.

    Args: step: only the calls of this step.
    Errors: InvalidInput if there is no recording, or one cannot be read.
    """
    indexes = [path for path in sorted(directory.rglob(INDEX_FILE)) if not path.parent.name.endswith(".partial")]
    if not indexes:
        raise InvalidInput(str(directory), f"has no recording ({INDEX_FILE})")
    recordings = sorted(((_read_index(path), path.parent) for path in indexes), key=lambda pair: pair[0].written_at)
    _check_one_run(directory, [recording for recording, _ in recordings])
    found: dict[tuple[int, int, int | None, int], tuple[Recording, RecordedCall, Path]] = {}
    for recording, folder in recordings:
        for call in recording.calls:
            if step is None or call.step == step:
                found[recording.rank, call.step, call.update, call.chunk] = recording, call, folder
    return [
        RecordedTokens(
            rank=recording.rank,
            call=call,
            arrays=read_arrays(folder / call.file, names=ARRAYS),
            semantics=recording.semantics,
        )
        for recording, call, folder in found.values()
    ]


def _read_index(path: Path) -> Recording:
    try:
        recording = msgspec.json.decode(path.read_bytes(), type=Recording)
    except (OSError, msgspec.MsgspecError) as error:
        raise InvalidInput(str(path), f"cannot be read: {error}") from error
    if recording.format != FORMAT_VERSION:
        raise InvalidInput(str(path), f"has format {recording.format}; this version reads {FORMAT_VERSION}")
    if any(Path(call.file).name != call.file for call in recording.calls):
        raise InvalidInput(str(path), "names a file outside its folder")
    return recording


def _check_one_run(directory: Path, recordings: list[Recording]) -> None:
    runs = sorted({f"{recording.project}/{recording.run}" for recording in recordings})
    if len(runs) > 1:
        raise InvalidInput(str(directory), f"has recordings of {', '.join(runs)}; name the folder of one run")
