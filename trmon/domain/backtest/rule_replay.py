"""Rule replay: evaluates a rule set over the stored rows of a run, by the stages of the pipeline."""

from __future__ import annotations

from dataclasses import dataclass, replace

from msgspec import structs

from trmon.domain.alerts.alert import AlertState
from trmon.domain.alerts.transitions import Transition
from trmon.domain.batches.batch import BatchRow
from trmon.domain.collapse_risk.risk_model import RiskModel
from trmon.domain.collapse_risk.risk_signals import risk_signals
from trmon.domain.context.pass_context import PassContext
from trmon.domain.pipeline.stages.detect import detect_findings
from trmon.domain.pipeline.stages.draft import DraftRow
from trmon.domain.pipeline.stages.fold import FoldedRow, fold_row
from trmon.domain.pipeline.stages.publish import publish_transitions
from trmon.domain.pipeline.stages.transition import apply_transitions
from trmon.domain.pipeline.state_rules import apply_run_end
from trmon.domain.policies.policy_registry import PolicyRegistry
from trmon.domain.policies.policy_version import default_version
from trmon.domain.rules.rule import Rule, RuleFinding
from trmon.domain.rules.rule_set import RuleSet
from trmon.domain.runs.run import Run, RunState
from trmon.domain.state.pipeline_state import PipelineState

RECEIVER = "backtest"


@dataclass(frozen=True, slots=True)
class RaisedTransition:
    """A transition of an alert or an incident, and whether it would be sent as a notification that something fires."""

    transition: Transition
    is_sent: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedRow:
    """A row with its historical signals, the findings that it makes final, and the transitions that follow."""

    folded: FoldedRow
    findings: tuple[tuple[Rule, RuleFinding], ...]
    transitions: tuple[RaisedTransition, ...]


class RuleReplay:
    """Evaluates a rule set over one run, row by row, in the order of the rows' ordinals.

    While rows come the run is a running one, as it was when they were written.
    """

    def __init__(self, rules: RuleSet, run: Run, *, model: RiskModel | None = None) -> None:
        """Args: model: predicts the risk of a collapse in place of the shipped model."""
        self._run = run
        self._context = PassContext(
            run=replace(run, state=RunState.RUNNING),
            policies=PolicyRegistry.of(default_version(now=0.0)),
            rules=rules,
            receivers=(RECEIVER,),
            public_url=None,
            now=0.0,
        )
        self._model = model
        self.pipeline_state = PipelineState()

    def add(self, row: BatchRow) -> ReplayedRow:
        """Return what a row raises."""
        folded = fold_row(DraftRow(context=self._context, pipeline_state=self.pipeline_state, row=row))
        if self._model is not None and folded.is_gauge:
            risk = risk_signals(folded.pipeline_state.features.after.risk_inputs, self._model)
            folded = replace(folded, row=structs.replace(folded.row, signals={**folded.row.signals, **risk}))
        detected = detect_findings(folded)
        transitioned = apply_transitions(detected)
        self.pipeline_state = transitioned.pipeline_state
        return ReplayedRow(
            folded=detected.folded, findings=detected.findings, transitions=self._raised(transitioned.transitions)
        )

    def finish(self, *, now: float) -> tuple[RaisedTransition, ...]:
        """Return what the end of the run raises; nothing while it goes on, as its last step may have more rows.

        Args: now: the time of the end.
        """
        if not self._run.state.ended:
            return ()
        self._context = replace(self._context, run=self._run)
        last, self.pipeline_state = apply_run_end(context=self._context, pipeline_state=self.pipeline_state, now=now)
        return self._raised(last)

    def _raised(self, transitions: tuple[Transition, ...]) -> tuple[RaisedTransition, ...]:
        return tuple(RaisedTransition(transition, self._is_sent(transition)) for transition in transitions)

    def _is_sent(self, transition: Transition) -> bool:
        changes = publish_transitions((transition,), context=self._context, pipeline_state=self.pipeline_state)
        return any(delivery.told_state is AlertState.FIRING for delivery in changes.deliveries)
