"""The lake of a service as its repositories know it; needs the extra `lake` once something is read from it."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from typing import TYPE_CHECKING

from trmon.domain.model.errors import LakeUnavailable
from trmon.store.lake.lake_location import LakeLocation

if TYPE_CHECKING:
    from trmon.store.lake.lake_history import DeltaHistory
    from trmon.store.lake.lake_reader import LakeReader


class ConfiguredLake:
    """Implements ReadableLake; may be used from any thread."""

    def __init__(self, location: LakeLocation) -> None:
        self._location = location
        self._lock = Lock()
        self._reader: LakeReader | None = None

    def history(self, database_id: str, *, moved_in: Mapping[int, int], lake_batch: int) -> DeltaHistory:
        """Return what the lake has of attempts of a database. Errors: LakeUnavailable without the extra `lake`."""
        try:
            from trmon.store.lake.lake_history import DeltaHistory
            from trmon.store.lake.lake_reader import LakeReader
        except ModuleNotFoundError as error:
            raise LakeUnavailable(
                f"the run was moved to the lake, and reading it needs {(error.name or '').partition('.')[0]}; "
                "install it with pip install 'trmon[lake]'"
            ) from error
        with self._lock:
            if self._reader is None:
                self._reader = LakeReader(self._location)
        return DeltaHistory(self._reader, database_id=database_id, moved_in=moved_in, lake_batch=lake_batch)
