"""Archives: export a project to parquet files, and import it from them, with every row checked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from sqlalchemy import Engine
from sqlalchemy.exc import IntegrityError, StatementError

from trmon.domain.access import EVERYTHING
from trmon.domain.errors import Conflict, InvalidInput, NotFound, needs_package
from trmon.domain.identity import RunKey
from trmon.store import migrations
from trmon.store.archive import manifest
from trmon.store.archive.manifest import Manifest
from trmon.store.repositories.runs import Runs
from trmon.store.rows.batches import NameDictionary
from trmon.store.schema.column_types import UNREADABLE
from trmon.store.writing.group_commit import GroupCommit
from trmon.store.writing.repository import Repository

# The modules that need pyarrow are imported where they are used: the service runs without it.


INVALID_VALUES = (*UNREADABLE, StatementError)
"""Exceptions of the decoders of rows, or of the database, for a value of another kind than trmon writes."""


class ImportOutcome(Enum):
    """Whether an import wrote a run."""

    IMPORTED = "imported"
    ALREADY_PRESENT = "already present"


@dataclass(frozen=True, slots=True)
class ImportedRun:
    """A run of an archive under its key in this database."""

    key: RunKey
    outcome: ImportOutcome


class Archives(Repository):
    """Exports projects as partitioned parquet and imports them; see trmon.store.archive for the layout."""

    def __init__(self, reader: Engine, writer: GroupCommit, *, names: NameDictionary, runs: Runs) -> None:
        super().__init__(reader, writer)
        self._names = names
        self._runs = runs

    def export_project(self, project: str, root: Path, *, now: float) -> Manifest:
        """Write a consistent snapshot of a project into an empty folder.

        Args: now: seconds on the server's clock.
        Errors: NotFound if the project has no run; Conflict if the folder is not empty, or if runs were moved to the
        lake; NotReady without pyarrow.
        """
        with needs_package("export", said="archives need"):
            from trmon.store.archive.export import export_project
        return export_project(self._reader, project, root, names=self._names, now=now)

    def import_project(self, root: Path, *, project: str | None = None) -> Iterator[ImportedRun]:
        """Import an archive run by run; a run that is already present stays unchanged.

        Args: project: another name for the project.
        Errors: InvalidInput for a folder that is not an archive, or a damaged one; Conflict if another run has the
        same name, after the runs before it are imported; NotReady without pyarrow.
        """
        archived = manifest.read_manifest(root)
        if archived.revision is None or not migrations.knows_revision(archived.revision):
            raise InvalidInput(
                "DIR", f"{root} has schema {archived.revision}, which a newer trmon wrote; upgrade this one"
            )
        with needs_package("export", said="archives need"):
            from trmon.store.archive.table_files import check_row_counts
        check_row_counts(root, archived)
        for run in archived.runs:
            key = RunKey(project or archived.project, run)
            yield ImportedRun(key, self._import_run(root, run=run, key=key))

    def _import_run(self, root: Path, *, run: str, key: RunKey) -> ImportOutcome:
        from trmon.store.archive.run_import import RunImport, concurrent_import_message, hidden_name, holds_archived_run

        try:
            run_id = self._runs.get(key, access=EVERYTHING).id
        except NotFound:
            self._delete_partial(hidden_name(key))
            importing = RunImport(self._writer, root=root, run=run, names=self._names)
            try:
                importing.write_as(key)
            except IntegrityError as error:
                if not self._holds_partial(key, importing.run_id):
                    raise Conflict(concurrent_import_message(key)) from error
                problem = str(error.orig).splitlines()[0]
                raise InvalidInput("DIR", f"{run} holds rows that the database refuses: {problem}") from error
            except INVALID_VALUES as error:
                problem = f"{type(error).__name__}: {error}".splitlines()[0]
                raise InvalidInput("DIR", f"{run} holds a value that trmon cannot read: {problem}") from error
            finally:
                self._delete_partial(hidden_name(key))
            return ImportOutcome.IMPORTED
        if not holds_archived_run(self._reader, run_id, root=root, run=run):
            raise Conflict(f"another run has the name {str(key)!r}; import into another project")
        return ImportOutcome.ALREADY_PRESENT

    def _holds_partial(self, key: RunKey, run_id: int) -> bool:
        """Return whether an import's hidden run still exists: if not, another import began after it."""
        from trmon.store.archive.run_import import hidden_name

        try:
            return self._runs.get(hidden_name(key), access=EVERYTHING).id == run_id
        except NotFound:
            return False

    def _delete_partial(self, key: RunKey) -> None:
        try:
            self._runs.delete(key, access=EVERYTHING, now=0.0, is_audited=False)
        except NotFound:
            return
