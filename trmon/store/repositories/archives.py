"""Archives: whole projects out of the database and into one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.exc import IntegrityError

from trmon.domain.model.access import EVERYTHING
from trmon.domain.model.errors import Conflict, InvalidInput, NotFound, NotReady
from trmon.domain.model.identity import RunKey
from trmon.store import migrations
from trmon.store.archive import manifest
from trmon.store.archive.manifest import Manifest
from trmon.store.repositories.runs import Runs
from trmon.store.rows.name_dictionary import NameDictionary
from trmon.store.writing.group_commit import GroupCommit


class ImportOutcome(Enum):
    """What became of a run of an archive."""

    IMPORTED = "imported"
    STANDING = "there already"


@dataclass(frozen=True, slots=True)
class ImportedRun:
    """A run of an archive under its key here, and what became of it."""

    key: RunKey
    outcome: ImportOutcome


class Archives:
    """Writes projects as partitioned parquet, and takes them in again; see trmon.store.archive."""

    def __init__(self, reader: Engine, writer: GroupCommit, *, names: NameDictionary, runs: Runs) -> None:
        self._reader = reader
        self._writer = writer
        self._names = names
        self._runs = runs

    def export(self, project: str, root: Path, *, now: float) -> Manifest:
        """Write a project into an empty folder, as it was at one moment.

        Args: now: seconds on the server's clock.
        Errors: NotFound without a run; Conflict when the folder is not empty; NotReady without pyarrow.
        """
        written: Manifest = _part("export").export(self._reader, project, root, names=self._names, now=now)
        return written

    def take_in(self, root: Path, *, project: str | None = None) -> Iterator[ImportedRun]:
        """Take an archive's runs in, one after the other; one that is here already stays as it is.

        Args: project: another name for the project.
        Errors: InvalidInput for what is no archive, or a damaged one; Conflict when another run stands under a name,
        with those before it taken in; NotReady without pyarrow.
        """
        found = manifest.read_manifest(root)
        if found.revision is None or not migrations.knows_revision(found.revision):
            raise InvalidInput(
                "DIR", f"{root} has schema {found.revision}, which a newer trmon wrote; upgrade this one"
            )
        _part("parts").check_whole(root, found)
        for run in found.runs:
            key = RunKey(project or found.project, run)
            yield ImportedRun(key, self._take_in(root, run=run, key=key))

    def _take_in(self, root: Path, *, run: str, key: RunKey) -> ImportOutcome:
        admission, standing = _part("admission"), _part("standing")
        try:
            run_id = self._runs.get(key, access=EVERYTHING).id
        except NotFound:
            self._drop_half(admission.hidden(key))
            try:
                admission.Admission(self._writer, root=root, run=run, names=self._names).admit(key)
            except IntegrityError as error:
                raise Conflict(admission.at_once(key)) from error
            finally:
                self._drop_half(admission.hidden(key))
            return ImportOutcome.IMPORTED
        if not standing.holds(self._reader, run_id, root=root, run=run):
            raise Conflict(f"there is another run {str(key)!r}; import it under another project")
        return ImportOutcome.STANDING

    def _drop_half(self, key: RunKey) -> None:
        """Delete what an import left behind that did not come to its end."""
        try:
            self._runs.delete(key, access=EVERYTHING, now=0.0)
        except NotFound:
            return


def _part(name: str) -> Any:
    """Return a module of the archive, which needs pyarrow. Errors: NotReady where it is not installed."""
    try:
        return import_module(f"trmon.store.archive.{name}")
    except ModuleNotFoundError as error:
        raise NotReady(f"archives need {error.name}; pip install 'trmon[export]' brings it") from error
