"""The folder of a sweep: a manifest of all configurations, and one parquet file for each run that has finished."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from trmon.domain.errors import InvalidInput
from trmon.lab.grpo.experiment_config import ExperimentConfig
from trmon_client.core.wire.messages import decodable
from trmon_research.sweep.run_file import RunOutcome, RunRecord, read_record
from trmon_research.sweep.swept_run import SweptRun

MANIFEST = "manifest.jsonl"


@decodable
class ManifestLine(msgspec.Struct, frozen=True, kw_only=True):
    """One configuration of a sweep, and its outcome once its run has finished."""

    run: str
    config: ExperimentConfig
    outcome: RunOutcome | None = None


@dataclass(frozen=True, slots=True)
class SweepFolder:
    """Reads and writes a folder; a file appears whole or not at all."""

    path: Path

    def extend(self, plan: Sequence[ExperimentConfig]) -> None:
        """Add the configurations of a plan to the manifest, and the outcomes of the files that are there."""
        self.path.mkdir(parents=True, exist_ok=True)
        configs = {line.run: line.config for line in self.lines()} | {config.run_name: config for config in plan}
        self._write_manifest(configs)

    def lines(self) -> Iterator[ManifestLine]:
        """Yield the lines of the manifest. Errors: InvalidInput naming a line that cannot be read."""
        path = self.path / MANIFEST
        if not path.exists():
            return
        for number, line in enumerate(path.read_bytes().splitlines(), start=1):
            try:
                yield msgspec.json.decode(line, type=ManifestLine)
            except msgspec.MsgspecError as error:
                raise InvalidInput("--folder", f"{path}, line {number}: {error}") from error

    def missing(self, plan: Sequence[ExperimentConfig]) -> list[ExperimentConfig]:
        """Return the configurations of a plan that have no file."""
        return [config for config in plan if not self.file_of(config.run_name).exists()]

    def file_of(self, run: str) -> Path:
        """Return the path of a run's file."""
        return self.path / f"{run}.parquet"

    def store(self, run: SweptRun) -> None:
        """Write the file of a run."""
        target = self.file_of(run.record.config.run_name)
        partial = target.with_suffix(".partial")
        partial.write_bytes(run.file)
        partial.replace(target)

    def finish(self) -> list[ManifestLine]:
        """Write the outcomes of all finished runs to the manifest, and return its lines."""
        self._write_manifest({line.run: line.config for line in self.lines()})
        return list(self.lines())

    def records(self) -> Iterator[RunRecord]:
        """Yield the records of all finished runs, by name."""
        for path in sorted(self.path.glob("*.parquet")):
            yield read_record(path)

    def _write_manifest(self, configs: dict[str, ExperimentConfig]) -> None:
        outcomes = {record.config.run_name: record.outcome for record in self.records()}
        lines = (
            msgspec.json.encode(ManifestLine(run=run, config=config, outcome=outcomes.get(run)))
            for run, config in sorted(configs.items())
        )
        partial = self.path / f"{MANIFEST}.partial"
        partial.write_bytes(b"".join(line + b"\n" for line in lines))
        partial.replace(self.path / MANIFEST)
