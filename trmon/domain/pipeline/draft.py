"""Draft: builds the row of a batch or of a step of scalars, without the history of its run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from msgspec import structs

from trmon.domain.alerts.alert import Transition
from trmon.domain.batches import scalar_steps
from trmon.domain.batches.assembly import Completeness
from trmon.domain.batches.batch import BatchRow, DecisionRow, Quarantined, QuarantinePart, quarantined
from trmon.domain.batches.scalar_steps import ScalarStep
from trmon.domain.framework_names.translation import signals_of_scalars
from trmon.domain.messages import StoredReport
from trmon.domain.pipeline.merge import ClosingBatch, MergedBatch
from trmon.domain.pipeline.replay import ReplayedDecisions
from trmon.domain.pipeline.state import PassContext, PipelineState
from trmon.domain.rules.rule import Rule, RuleFinding


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosingRow:
    """A row on its way through the pipeline, and the pipeline state after it; each stage fills in its fields.

    Draft: the row without historical signals, its `decisions`, and `made_at`, when the trainer made it, on its own
    clock. A row that `is_stored` is read again to rebuild a state; its signals include the historical ones.
    Fold: `folded` is false for a row that arrived out of order; `began_step`: the row is the first of its step;
    `is_gauge`: it is the row that gauges show. Detect: the `findings` that became final, oldest first, each with its
    rule. Transition: the `transitions` of the run's alerts.
    """

    context: PassContext
    pipeline_state: PipelineState
    row: BatchRow
    former: BatchRow | None = None
    decisions: tuple[DecisionRow, ...] = ()
    made_at: float | None = None
    unreplayed: int = 0
    folded: bool = False
    began_step: bool = False
    is_gauge: bool = False
    is_stored: bool = False
    findings: tuple[tuple[Rule, RuleFinding], ...] = ()
    transitions: tuple[Transition, ...] = ()


def draft_row(
    closing: ClosingBatch, merged: MergedBatch, signals: Mapping[str, float], replayed: ReplayedDecisions
) -> ClosingRow:
    """Return the row of the batch, with the next ordinal of the run, or the former ordinal if it is revised."""
    columns, withheld = merged.columns, withhold_row(closing)
    row = structs.replace(
        withheld.row,
        n_sequences=columns.n_sequences,
        n_tokens=int(columns["n_tokens"].sum()),
        complete=not closing.batch.completeness.lacks_data,
        unconfirmed=closing.batch.completeness is Completeness.UNCONFIRMED,
        primary_pair=columns.primary,
        kl_is=columns.kl_is,
        mismatches=replayed.mismatches,
        signals={
            **signals,
            **replayed.signals,
            **withheld.row.signals,
            "decision_mismatches": float(replayed.mismatches),
        },
    )
    return replace(withheld, row=row, decisions=replayed.decisions, unreplayed=replayed.unreplayed)


def _quarantined_parts(closing: ClosingBatch) -> Iterator[Quarantined]:
    """Yield the damaged reports of a batch, and the parts quarantined since the previous batch."""
    for report in closing.batch.damaged:
        place = f"rank {report.key.rank}, chunk {report.key.chunk}"
        yield quarantined(QuarantinePart.REPORT, place, report.reason)
    yield from closing.other_quarantined


def made_at(report: StoredReport) -> float:
    """Return when the trainer made a report, on its own clock; without it, when the report arrived."""
    return report.report.sent_at or report.received_at


def withhold_row(closing: ClosingBatch, error: Exception | str | None = None) -> ClosingRow:
    """Return the row of a batch without signals of its sequences and without decisions, but with the error, if any."""
    reports = closing.batch.reports
    reasons = [] if error is None else [quarantined(QuarantinePart.BATCH, "the whole batch", error)]
    return ClosingRow(
        context=closing.context,
        pipeline_state=closing.pipeline_state,
        row=_withheld(closing).with_quarantined([*reasons, *_quarantined_parts(closing)]),
        former=closing.former,
        made_at=made_at(reports[0]) if reports else None,
    )


def _withheld(closing: ClosingBatch) -> BatchRow:
    """Return the row of a batch by what is known without its sequences: its place and how it arrived."""
    batch, former, reports = closing.batch, closing.former, closing.batch.reports
    spooled: dict[int, int] = {}
    for report in reports:
        spooled[report.key.rank] = max(spooled.get(report.key.rank, 0), report.report.losses.spooled_bytes)
    return BatchRow(
        run_id=closing.context.run.id,
        key=batch.key,
        ordinal=former.ordinal if former else closing.pipeline_state.ordinal + 1,
        closed_at=former.closed_at if former else closing.context.now,
        n_sequences=sum(report.n_sequences for report in reports),
        n_tokens=sum(report.n_tokens for report in reports),
        n_ranks=len({report.key.rank for report in reports}),
        missing_ranks=batch.missing_ranks,
        complete=False,
        revised=former is not None or not closing.pipeline_state.follows(batch.key),
        mode=reports[0].report.mode if reports else closing.context.run.mode,
        policy_hash=reports[0].report.policy if reports else None,
        last_report_id=batch.last_report_id,
        signals={
            "missing_ranks": float(len(batch.missing_ranks)),
            "incomplete": float(batch.completeness.lacks_data),
            "decision_mismatches": 0.0,
            "client_spooled_bytes": float(sum(spooled.values())),
        },
        scalars={**scalar_steps.scalars_of_reports(reports), **closing.scalars},
    )


def draft_scalar_row(step: ScalarStep, *, context: PassContext, pipeline_state: PipelineState) -> ClosingRow:
    """Return the row of a step of which only scalars came; those that trmon has a name for are signals."""
    row = BatchRow(
        run_id=context.run.id,
        key=step.key,
        ordinal=pipeline_state.ordinal + 1,
        closed_at=context.now,
        n_ranks=len(step.ranks),
        mode=context.run.mode,
        signals=signals_of_scalars(step.values),
        scalars=step.values,
    )
    return ClosingRow(context=context, pipeline_state=pipeline_state, row=row, made_at=step.made_at)
