"""The manifest of an archive, which is written last: a folder without it is an incomplete archive."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from trmon.domain.errors import Conflict, InvalidInput
from trmon.domain.identity import checked_name
from trmon_client.core.wire.messages import decodable

FILE_MODE = 0o600
FOLDER_MODE = 0o700


def private_file(path: Path) -> Path:
    """Create a file that only its owner may read, and return its path. Errors: OSError."""
    path.touch(mode=FILE_MODE)
    return path


FORMAT = 1
FILE = "manifest.json"
TABLE = "table="
"""The prefix of the folder of each table."""
_PART = f".{FILE}.part"


@decodable
class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The runs of an archive and the row counts of its tables; `revision` is the schema revision of the exporter."""

    format: int = FORMAT
    revision: str | None
    project: str
    runs: tuple[str, ...]
    rows: dict[str, int]
    exported_at: float


def write_manifest(root: Path, manifest: Manifest) -> None:
    """Write the manifest atomically and sync it to disk."""
    part = root / _PART
    with private_file(part).open("wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(manifest)) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    part.replace(root / FILE)


def read_manifest(root: Path) -> Manifest:
    """Return the manifest of an archive. Errors: InvalidInput if it is missing, damaged or from a newer trmon."""
    try:
        manifest = msgspec.json.decode((root / FILE).read_bytes(), type=Manifest)
    except FileNotFoundError as error:
        raise InvalidInput(
            "DIR", f"{root} is not a complete archive: {FILE} is missing; export it again with `trmon export`"
        ) from error
    except (OSError, msgspec.MsgspecError) as error:
        raise InvalidInput("DIR", f"cannot read {root / FILE}: {error}") from error
    if manifest.format != FORMAT:
        raise InvalidInput("DIR", f"{root} has format {manifest.format}, this trmon reads {FORMAT}; upgrade it")
    for name in (manifest.project, *manifest.runs):
        checked_name(name, field=str(root / FILE))
    return manifest


def make_archive_folder(root: Path) -> None:
    """Create the folder of a new archive. Errors: Conflict if it is not empty; InvalidInput if it cannot be created."""
    try:
        root.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        names = {path.name for path in root.iterdir()}
        if names and all(name.startswith(TABLE) or name == _PART for name in names):
            raise Conflict(
                f"{root} holds an unfinished export; if no export is running, remove the folder and export again"
            )
        if names:
            raise Conflict(f"{root} is not empty; choose another folder")
    except OSError as error:
        raise InvalidInput("DIR", f"cannot create the folder {root}: {error.strerror}") from error
