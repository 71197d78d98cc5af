"""The tool on what a run's mismatch and lag leave room for."""

from __future__ import annotations

from collections.abc import Iterable

from trmon.assistants.answer import ToolAnswer
from trmon.assistants.arguments import RunName, checked_run
from trmon.assistants.bounded import bounded_name, rounded
from trmon.domain.finding import JsonNumber
from trmon_client.api import BudgetInfo, Service
from trmon_client.api.budget import ShownByInfo

ABSENT = "absent"
MAX_SHOWN = 4


class BudgetItemAnswer(ToolAnswer):
    """One limit of the mismatch budget; `state` is within, exceeded, undecided or not_measured."""

    name: str
    limit: JsonNumber
    signal: str
    value: JsonNumber
    state: str
    note: str


class DriftSplitAnswer(ToolAnswer):
    """Where the drift comes from: total variations of mismatch and staleness, between 0 and 1.

    `worst_*` are lower bounds of the worst token's; `mismatch_share` is the share of mismatch in their sum.
    """

    worst_mismatch: JsonNumber
    worst_staleness: JsonNumber
    mismatch_share: JsonNumber
    mean_mismatch: JsonNumber
    mean_staleness: JsonNumber
    routing_is_replayed: bool | None


class PipelineAnswer(ToolAnswer):
    """A kind of the run's pipeline, what shows it, and the method that suits it."""

    kind: str
    shown_by: str
    method: str


class AntiPatternAnswer(ToolAnswer):
    """An anti-pattern that the run shows, or that cannot be told."""

    name: str
    presence: str
    why: str


class BudgetAnswer(ToolAnswer):
    """What a run can bear at its newest step; mismatch budget and lag law are conjectures, the advice is defaults."""

    run: str
    step: int
    mismatch: list[BudgetItemAnswer]
    lag_steps: JsonNumber
    lag_ceiling_steps: JsonNumber
    lag_law: list[str]
    drift: DriftSplitAnswer
    pipeline: list[PipelineAnswer]
    correction: str | None
    anti_patterns: list[AntiPatternAnswer]


def run_budget_tool(service: Service, run: RunName) -> BudgetAnswer:
    """Return which mismatch and lag a run can bear (conjectures), where its drift comes from (drift: total variation
    of engine mismatch and of stale weights, 0 to 1), and advice for its kind of pipeline."""
    name = checked_run(run)
    found = service.budget(name)
    return BudgetAnswer(
        run=name,
        step=found.step,
        mismatch=[
            BudgetItemAnswer(
                name=one.name,
                limit=rounded(one.limit),
                signal=one.signal,
                value=rounded(one.value),
                state=one.state,
                note=one.note,
            )
            for one in found.mismatch
        ],
        lag_steps=rounded(found.lag.lag),
        lag_ceiling_steps=rounded(found.lag.ess_ceiling),
        lag_law=list(found.lag_words),
        drift=_drift(found),
        pipeline=[
            PipelineAnswer(kind=one.title, shown_by=_shown(one.shown_by), method=one.method)
            for one in found.pipeline.methods
        ],
        correction=found.pipeline.correction,
        anti_patterns=[
            AntiPatternAnswer(name=one.name, presence=one.presence, why=one.why)
            for one in found.pipeline.anti_patterns
            if one.presence != ABSENT
        ],
    )


def _drift(found: BudgetInfo) -> DriftSplitAnswer:
    split = found.split
    return DriftSplitAnswer(
        worst_mismatch=rounded(split.alpha_1),
        worst_staleness=rounded(split.alpha_0),
        mismatch_share=rounded(split.mismatch_share),
        mean_mismatch=rounded(split.mean_mismatch),
        mean_staleness=rounded(split.mean_staleness),
        routing_is_replayed=split.is_replayed or None,
    )


def _shown(shown_by: Iterable[ShownByInfo]) -> str:
    return ", ".join(f"{bounded_name(one.name)} {bounded_name(one.value)}" for one in list(shown_by)[:MAX_SHOWN])
