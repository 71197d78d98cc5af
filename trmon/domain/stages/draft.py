"""Draft: what the batch alone tells is written down as a row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from trmon.domain.batches.assembly import ClosedBatch
from trmon.domain.batches.batch import BatchRow, DecisionRow
from trmon.domain.batches.quarantine import Quarantined, QuarantinePart, quarantined
from trmon.domain.context.pass_context import PassContext
from trmon.domain.model.messages import StoredReport
from trmon.domain.stages.merge import ClosingBatch
from trmon.domain.stages.replay import ReplayedBatch
from trmon.domain.state.pipeline_state import PipelineState


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftRow:
    """A row as far as the batch alone tells it, its decisions, and when the trainer made it, on its own clock.

    A row that is read back to rebuild a mind has no `made_at`; its signals hold what was made of it.
    """

    context: PassContext
    pipeline_state: PipelineState
    row: BatchRow
    former: BatchRow | None = None
    decisions: tuple[DecisionRow, ...] = ()
    made_at: float | None = None
    unreplayed: int = 0


def draft_row(replayed: ReplayedBatch) -> DraftRow:
    """Return the batch's row, with the next ordinal of the run, or its former one where it is revised."""
    merged = replayed.measured.merged
    closing, columns, reports = merged.closing, merged.columns, merged.closing.batch.reports
    former = closing.former
    row = BatchRow(
        run_id=closing.context.run.id,
        key=closing.batch.key,
        ordinal=former.ordinal if former else closing.pipeline_state.ordinal + 1,
        closed_at=former.closed_at if former else closing.context.now,
        n_sequences=columns.n_sequences,
        n_tokens=int(columns["n_tokens"].sum()),
        n_ranks=len({report.key.rank for report in reports}),
        missing_ranks=closing.batch.missing_ranks,
        complete=not closing.batch.standing.lacks_data,
        revised=former is not None or not closing.pipeline_state.follows(closing.batch.key),
        mode=reports[0].report.mode,
        primary_pair=columns.primary,
        kl_is=columns.kl_is,
        policy_hash=reports[0].report.policy,
        mismatches=replayed.mismatches,
        last_report_id=closing.batch.last_report_id,
        signals={**replayed.signals, **circumstances(closing.batch, mismatches=replayed.mismatches)},
        scalars=merged.scalars,
    )
    return DraftRow(
        context=closing.context,
        pipeline_state=closing.pipeline_state,
        row=row.without(set_aside(closing)),
        former=former,
        decisions=replayed.decisions,
        made_at=made_at(reports[0]),
        unreplayed=replayed.unreplayed,
    )


def set_aside(closing: ClosingBatch) -> Iterator[Quarantined]:
    """Yield what is missing from a batch because it is damaged, and what was damaged since the batch before."""
    for report in closing.batch.damaged:
        place = f"rank {report.key.rank}, chunk {report.key.chunk}"
        yield quarantined(QuarantinePart.REPORT, place, report.reason)
    yield from closing.beside


def circumstances(batch: ClosedBatch, *, mismatches: int) -> dict[str, float]:
    """Return what rules read of how a batch came, beside what is in it."""
    spooled: dict[int, int] = {}
    for report in batch.reports:
        spooled[report.key.rank] = max(spooled.get(report.key.rank, 0), report.report.losses.spooled_bytes)
    return {
        "missing_ranks": float(len(batch.missing_ranks)),
        "incomplete": float(batch.standing.lacks_data),
        "decision_mismatches": float(mismatches),
        "client_spooled_bytes": float(sum(spooled.values())),
    }


def made_at(report: StoredReport) -> float:
    """Return when the trainer made a report: on its own clock, which a spool does not delay, else on ours."""
    return report.report.sent_at or report.received_at
