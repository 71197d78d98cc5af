"""A run of wandb on disk: its .wandb file, or a folder with one or, after a restart, with several of the run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from trmon.domain.model.errors import InvalidInput
from trmon.log_formats.log_format import LogFormat, LogItem, LogSample, in_file
from trmon.log_formats.optional_packages import packages_required

FILE_START = b":W&B"
PATTERNS = ("run-*.wandb", "*run-*/run-*.wandb", "wandb/*run-*/run-*.wandb")
"""Of the files in the folder of a run, in the folder `wandb`, and in the folder that it is in."""
SHOWN_RUNS = 5


def _matches(sample: LogSample) -> bool:
    return sample.data.startswith(FILE_START) or (sample.path.is_dir() and bool(_wandb_files(sample.path)))


def _wandb_files(folder: Path) -> list[Path]:
    return next((files for pattern in PATTERNS if (files := list(folder.glob(pattern)))), [])


def _files_of_run(path: Path) -> list[Path]:
    """Return the files of a run, oldest first. Errors: InvalidInput for a folder with several runs."""
    if not path.is_dir():
        return [path]
    files = sorted(_wandb_files(path), key=lambda file: file.parent.name.removeprefix("offline-"))
    if len({file.name for file in files}) > 1:
        shown = ", ".join(str(file.parent) for file in files[:SHOWN_RUNS])
        raise InvalidInput(str(path), f"has {len(files)} runs of wandb; name one: {shown}")
    return files


def _read(path: Path) -> Iterator[LogItem]:
    with packages_required("files of wandb"):
        from trmon.log_formats.wandb.history import history_rows
        from trmon.log_formats.wandb.records import read_chunked_records
    for name in _files_of_run(path):
        with name.open("rb") as file:
            yield from in_file(name, history_rows(read_chunked_records(file), writer=name.stem), log=path)


WANDB = LogFormat(
    name="wandb",
    description="a .wandb file, or a folder with that of a run (wandb/offline-run-*)",
    matches=_matches,
    read=_read,
    files=_files_of_run,
    has_lines=False,
)
