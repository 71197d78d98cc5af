"""The signals of a run that was spooled: its messages pass the service's pipeline, without a database or alerts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from trmon.domain.batches.assembly import ClosedBatch, Completeness
from trmon.domain.batches.batch import BatchRow
from trmon.domain.batches.trainer_scalars import scalar_numbers
from trmon.domain.context.pass_context import PassContext
from trmon.domain.model.errors import Damaged
from trmon.domain.model.identity import BatchKey, ReportKey, RunKey
from trmon.domain.model.messages import StoredReport
from trmon.domain.pipeline.stages.draft import draft_row
from trmon.domain.pipeline.stages.fold import fold_row
from trmon.domain.pipeline.stages.measure import measure_batch
from trmon.domain.pipeline.stages.merge import ClosingBatch, merge_reports
from trmon.domain.pipeline.stages.replay import replay_decisions
from trmon.domain.policies.policy_registry import PolicyRegistry
from trmon.domain.policies.policy_version import default_version
from trmon.domain.rules.rule_set import RuleSet
from trmon.domain.runs.run import Run, RunState
from trmon.domain.state.pipeline_state import PipelineState
from trmon_client.core import wire
from trmon_client.core.wire.segments import SUFFIX, scan_segment

RUN_ID, ATTEMPT_ID = 1, 1


@dataclass(frozen=True, slots=True)
class StepRows:
    """The rows that the service would store of one step: of its rollout, and of its last update."""

    rollout: BatchRow
    last_update: BatchRow

    def value(self, name: str) -> float:
        """Return a signal or scalar of the rollout's row; of `staleness_` and clipping, of the last update's row."""
        is_of_updates = name.startswith("staleness_") or name in ("clip_fraction", "leak_fraction")
        return (self.last_update if is_of_updates else self.rollout).numbers.get(name, float("nan"))


def spooled_steps(folder: Path, *, config: Mapping[str, object]) -> Iterator[StepRows]:
    """Yield the rows of each step of the one run that was spooled to a folder.

    Args: config: what the trainer declared of the run. Errors: Damaged if messages were lost.
    """
    messages = [wire.decode(message, media_type=wire.MSGPACK) for message in _spooled_messages(folder)]
    finishes = [message for message in messages if isinstance(message, wire.Finish)]
    if not finishes or any(finish.losses.dropped for finish in finishes):
        raise Damaged(f"{folder}: the client lost messages of the run; run it again on a less busy machine")
    scalars: dict[int, dict[str, float]] = defaultdict(dict)
    for message in messages:
        if isinstance(message, wire.Scalars):
            scalars[message.step] |= scalar_numbers(message.values)
    reports = [message for message in messages if isinstance(message, wire.Report)]
    reports.sort(key=lambda report: (report.step, report.update is not None, report.update or 0))
    rows = _rows(reports, scalars, context=_context(dict(config)))
    steps: dict[int, list[BatchRow]] = defaultdict(list)
    for row in rows:
        steps[row.key.step].append(row)
    for step in sorted(steps):
        yield StepRows(rollout=steps[step][0], last_update=steps[step][-1])


def _spooled_messages(folder: Path) -> Iterator[bytes]:
    for segment in sorted(folder.rglob(f"*{SUFFIX}")):
        yield from scan_segment(segment.read_bytes()).messages


def _rows(
    reports: list[wire.Report], scalars: Mapping[int, dict[str, float]], *, context: PassContext
) -> Iterator[BatchRow]:
    """Pass the reports, one a batch, through the stages up to the historical signals."""
    pipeline_state = PipelineState()
    for id_, report in enumerate(reports, start=1):
        key = BatchKey(ATTEMPT_ID, report.step, report.update)
        batch = ClosedBatch(
            key=key, reports=(_stored(report, id_, key),), completeness=Completeness.COMPLETE, missing_ranks=()
        )
        closing = ClosingBatch(
            context=context, pipeline_state=pipeline_state, batch=batch, scalars=scalars.get(report.step, {})
        )
        folded = fold_row(draft_row(replay_decisions(measure_batch(merge_reports(closing)))))
        pipeline_state = folded.pipeline_state
        yield folded.row


def _stored(report: wire.Report, id_: int, key: BatchKey) -> StoredReport:
    columns = wire.unpack_columns(report)
    accepted = report.accepted or wire.pack_bits(np.ones(columns.n_sequences, bool))
    return StoredReport(
        id=id_,
        run_id=RUN_ID,
        key=ReportKey(key, report.rank, report.chunk),
        received_at=report.sent_at,
        accepted=accepted,
        n_sequences=columns.n_sequences,
        n_tokens=int(columns["n_tokens"].sum()),
        report=report,
        columns=lambda: columns,
    )


def _context(config: dict[str, object]) -> PassContext:
    run = Run(
        id=RUN_ID,
        key=RunKey("lab", "sweep"),
        state=RunState.RUNNING,
        owner=None,
        tags=(),
        config=config,
        mode="observe",
        created_at=0.0,
        last_report_at=None,
        last_step=None,
        attempt_id=ATTEMPT_ID,
    )
    return PassContext(
        run=run,
        policies=PolicyRegistry.of(default_version(now=0.0)),
        rules=RuleSet(()),
        receivers=(),
        public_url=None,
        now=0.0,
    )
