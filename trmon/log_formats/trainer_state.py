"""trainer_state.json of Hugging Face's Trainer, with the log history of a run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from trmon.domain.model.errors import InvalidInput
from trmon.log_formats.json_document import load_json, rows_of_objects
from trmon.log_formats.log_format import LogFormat, LogItem, LogSample

FILE_NAME = "trainer_state.json"


def _matches(sample: LogSample) -> bool:
    if sample.path.is_dir():
        return next(_state_files(sample.path), None) is not None
    return sample.head.lstrip().startswith("{") and '"log_history"' in _compact(sample)


def _compact(sample: LogSample) -> str:
    """Return what tells the format: the head, or the name where the history begins after the head."""
    return sample.head + ('"log_history"' if sample.path.name == FILE_NAME else "")


def _read(path: Path) -> Iterator[LogItem]:
    document = load_json(_state_file(path))
    history = document.get("log_history") if isinstance(document, dict) else None
    if not isinstance(history, list):
        raise InvalidInput(str(path), "must have a list named log_history")
    yield from rows_of_objects(history)


def _state_file(path: Path) -> Path:
    """Return the state in a folder of a run: its own, else that of its newest checkpoint. Errors: InvalidInput."""
    found = next(_state_files(path), None) if path.is_dir() else path
    if found is None:
        raise InvalidInput(str(path), f"has no {FILE_NAME} any more")
    return found


def _state_files(folder: Path) -> Iterator[Path]:
    """Yield the state in a folder of a run, then those of its checkpoints, the newest first."""
    checkpoints = sorted(folder.glob(f"checkpoint-*/{FILE_NAME}"), key=_checkpoint_step, reverse=True)
    return (file for file in (folder / FILE_NAME, *checkpoints) if file.is_file())


def _checkpoint_step(file: Path) -> int:
    step = file.parent.name.removeprefix("checkpoint-")
    return int(step) if step.isdigit() else -1


TRAINER_STATE = LogFormat(
    name="trainer_state",
    description="trainer_state.json of Hugging Face's Trainer, or a folder with one or with checkpoints",
    matches=_matches,
    read=_read,
    files=lambda path: [_state_file(path)],
    has_lines=False,
)
