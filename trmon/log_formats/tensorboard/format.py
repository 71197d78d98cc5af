"""Event files of TensorBoard: one, or a folder with those of a run, each of which a process wrote after the other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from trmon.domain.model.errors import InvalidInput
from trmon.log_formats.log_format import LogFormat, LogItem, LogSample, in_file
from trmon.log_formats.optional_packages import packages_required

NAME_PART = "tfevents"
FIRST_EVENT = b"brain.Event:"
"""In the first record of a file, before the version of the format."""
SHOWN_FOLDERS = 5


def _matches(sample: LogSample) -> bool:
    if sample.path.is_dir():
        return any(_event_files(sample.path))
    return NAME_PART in sample.path.name or FIRST_EVENT in sample.data[:64]


def _event_files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob(f"*{NAME_PART}*") if path.is_file())


def _files_of_run(path: Path) -> list[Path]:
    """Return the event files of a run, oldest first. Errors: InvalidInput for a folder with several runs."""
    if not path.is_dir():
        return [path]
    files = sorted(_event_files(path))
    folders = {file.parent for file in files}
    if path not in folders and len(folders) > 1:
        shown = ", ".join(map(str, sorted(folders)[:SHOWN_FOLDERS]))
        raise InvalidInput(str(path), f"has event files of {len(folders)} runs; name one: {shown}")
    return [file for file in files if file.parent == path or path not in folders]


def _read(path: Path) -> Iterator[LogItem]:
    with packages_required("event files of TensorBoard"):
        from trmon.log_formats.step_rows import rows_of_values
        from trmon.log_formats.tensorboard.events import scalars_of
        from trmon.log_formats.tensorboard.records import read_records
    for name in _files_of_run(path):
        with name.open("rb") as file:
            rows = rows_of_values(scalars_of(read_records(file)), writer=name.name)
            yield from in_file(name, rows, log=path)


TENSORBOARD = LogFormat(
    name="tensorboard",
    description="an event file of TensorBoard, or a folder with those of a run",
    matches=_matches,
    read=_read,
    files=_files_of_run,
    has_lines=False,
)
