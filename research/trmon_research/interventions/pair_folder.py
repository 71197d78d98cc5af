"""The folder of an experiment: one JSON line in a file for each pair that has finished."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from trmon.domain.errors import InvalidInput
from trmon_research.interventions.pair_record import PairPlan, PairRecord


@dataclass(frozen=True, slots=True)
class PairFolder:
    """Reads and writes a folder; a file appears whole or not at all."""

    path: Path

    def missing(self, plans: Sequence[PairPlan]) -> list[PairPlan]:
        """Return the plans that have no file. Errors: InvalidInput for a file of another plan of the same run."""
        self.path.mkdir(parents=True, exist_ok=True)
        found = {record.plan.run_name: record.plan for record in self.records()}
        for plan in plans:
            if found.get(plan.run_name, plan) != plan:
                raise InvalidInput(
                    "FOLDER", f"{self._file_of(plan)} was run with other choices; give this experiment another folder"
                )
        return [plan for plan in plans if plan.run_name not in found]

    def store(self, record: PairRecord) -> None:
        """Write the file of a pair."""
        target = self._file_of(record.plan)
        partial = target.with_suffix(".partial")
        partial.write_bytes(msgspec.json.encode(record) + b"\n")
        partial.replace(target)

    def records(self) -> Iterator[PairRecord]:
        """Yield all finished pairs, by name. Errors: InvalidInput naming a file that cannot be read."""
        for path in sorted(self.path.glob("*.json")):
            try:
                yield msgspec.json.decode(path.read_bytes(), type=PairRecord)
            except msgspec.MsgspecError as error:
                raise InvalidInput("FOLDER", f"{path}: {error}") from error

    def _file_of(self, plan: PairPlan) -> Path:
        return self.path / f"{plan.run_name}.json"
