"""What an archive says of itself; written when all else is there, so that half an archive is never taken for one."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from trmon.domain.model.errors import Conflict, InvalidInput
from trmon.domain.model.identity import checked_name
from trmon_client.core.wire.decodable_types import decodable

FORMAT = 1
FILE = "manifest.json"
TABLE = "table="
"""How the names of the folders of tables begin."""
_PART = f".{FILE}.part"


@decodable
class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The runs of an archive and how many rows its tables have; `revision` is the schema's they were written under."""

    format: int = FORMAT
    revision: str | None
    project: str
    runs: tuple[str, ...]
    rows: dict[str, int]
    exported_at: float


def write_manifest(root: Path, manifest: Manifest) -> None:
    """Write the manifest, durably."""
    part = root / _PART
    with part.open("wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(manifest)) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    part.replace(root / FILE)


def read_manifest(root: Path) -> Manifest:
    """Return the manifest of an archive. Errors: InvalidInput when there is none, or a newer trmon wrote it."""
    try:
        found = msgspec.json.decode((root / FILE).read_bytes(), type=Manifest)
    except FileNotFoundError as error:
        raise InvalidInput("DIR", f"{root} is no whole archive: it has no {FILE}; `trmon export` writes one") from error
    except (OSError, msgspec.MsgspecError) as error:
        raise InvalidInput("DIR", f"{root / FILE} cannot be read: {error}") from error
    if found.format != FORMAT:
        raise InvalidInput("DIR", f"{root} has format {found.format}, this trmon reads {FORMAT}; upgrade it")
    for name in (found.project, *found.runs):
        checked_name(name, field=str(root / FILE))
    return found


def make_archive_folder(root: Path) -> None:
    """Make the folder of a new archive. Errors: Conflict when there is something in it; InvalidInput."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        names = {path.name for path in root.iterdir()}
        if names and all(name.startswith(TABLE) or name == _PART for name in names):
            raise Conflict(f"{root} is of an export that has not come to its end; if none runs, remove it and go on")
        if names:
            raise Conflict(f"{root} is not empty; choose another folder")
    except OSError as error:
        raise InvalidInput("DIR", f"{root} cannot be made a folder: {error.strerror}") from error
