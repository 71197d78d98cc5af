"""What the service would store of a run that was spooled: its messages pass the service's pipeline."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from trmon.domain.batches.batch import BatchRow
from trmon.domain.batches.scalar_steps import scalar_numbers
from trmon.domain.errors import Damaged
from trmon_client.core import wire
from trmon_research.detection.recorded_run import messages_in
from trmon_research.sweep.service_pipeline import RaisedAlert, ServicePipeline


@dataclass(frozen=True, slots=True)
class StepRows:
    """What the service would store of one step: rows of its rollout and its last update, and the alerts it raises."""

    rollout: BatchRow
    last_update: BatchRow
    alerts: tuple[RaisedAlert, ...]

    def value(self, name: str) -> float:
        """Return a signal or scalar of the rollout's row; of `staleness_` and clipping, of the last update's row."""
        is_of_updates = name.startswith("staleness_") or name in ("clip_fraction", "leak_fraction")
        return (self.last_update if is_of_updates else self.rollout).numbers.get(name, float("nan"))


def spooled_steps(folder: Path, *, config: Mapping[str, object]) -> Iterator[StepRows]:
    """Yield each step of the one run that was spooled to a folder.

    Args: config: what the trainer declared of the run. Errors: Damaged if messages were lost.
    """
    messages = [wire.decode(message, media_type=wire.MSGPACK) for message in messages_in(folder)]
    finishes = [message for message in messages if isinstance(message, wire.Finish)]
    if not finishes or any(finish.losses.dropped for finish in finishes):
        raise Damaged(f"{folder}: the client lost messages of the run; run it again on a less busy machine")
    scalars: dict[int, dict[str, float]] = defaultdict(dict)
    for message in messages:
        if isinstance(message, wire.Scalars):
            scalars[message.step] |= scalar_numbers(message.values)
    reports = [message for message in messages if isinstance(message, wire.Report)]
    reports.sort(key=lambda report: (report.step, report.update is not None, report.update or 0))
    pipeline = ServicePipeline(config)
    for step, of_step in groupby(reports, key=lambda report: report.step):
        passed = [pipeline.close(report, scalars=scalars.get(step, {})) for report in of_step]
        rows, alerts = [row for row, _ in passed], [alert for _, raised in passed for alert in raised]
        yield StepRows(rollout=rows[0], last_update=rows[-1], alerts=tuple(alerts))
