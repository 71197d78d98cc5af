"""Runs for tests of rules: rows with given signals, through the stages of the pipeline that judge them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache

from tests.domain.pipeline.closings import pass_context
from tests.store.builders import batch
from trmon.domain.alerts.alert import INCIDENT_RULE
from trmon.domain.alerts.notification import Notification
from trmon.domain.batches.batch import BatchRow
from trmon.domain.identity import BatchKey
from trmon.domain.incidents.incident import Incident
from trmon.domain.pipeline.close_batch import evaluate_row
from trmon.domain.pipeline.draft import ClosingRow
from trmon.domain.pipeline.fold import HISTORICAL, fold_row, with_signals
from trmon.domain.pipeline.publish import BatchChanges, publish_batch, publish_transitions
from trmon.domain.pipeline.state import PassContext, PipelineState
from trmon.domain.pipeline.transition import apply_run_end
from trmon.domain.rules.rule_yaml import builtin_rules, overlay_rules
from trmon.domain.runs.run import RunState

Numbers = Mapping[str, float]
"""Signals and trainer scalars by name."""

QUIET_STEPS = 130
"""Enough steps to fill all windows and baselines."""
WITHOUT_PREDICTIONS = pass_context(rules=overlay_rules(builtin_rules(), "[{name: collapse_risk, disabled: true}]"))
HEALTHY: Numbers = {
    **dict.fromkeys(("mismatch_prob_pearson", "mismatch_ppl_ratio", "mismatch_ratio_mean"), 1.0),
    **{f"mismatch_{stem}": 0.0 for stem in ("kl_k1", "kl_k3", "chi2_token", "k3_excess", "ln_e_value")},
    **dict.fromkeys(("staleness_kl_k3", "staleness_lag", "engine_lag"), 0.0),
    **dict.fromkeys(("invalid_fraction", "length_limit_share", "version_span_max"), 0.0),
    "mismatch_ess_token": 1.0,
    **dict.fromkeys(("mask_rate", "mask_rate_long", "mask_rate_short", "bound_vacuous"), 0.0),
    **dict.fromkeys(("missing_ranks", "incomplete", "decision_mismatches", "client_spooled_bytes"), 0.0),
    **dict.fromkeys(("reward_min", "reward_q01", "reward_q05", "reward_q25", "reward_median"), 0.0),
    "reward_mean": 0.4,
    "zero_variance_groups": 0.2,
    "effective_signal": 0.4,
    "clip_fraction": 0.1,
    "response_length_mean": 50.0,
}
HEALTHY_SCALARS: Numbers = {"grad_norm": 1.0, "grad_variance": 1.0, "router_flip_rate": 0.001, "lr": 1e-6}
OTHER_SCALARS = {"entropy", "loss"}

AlertStep = tuple[str, str, int]
"""A rule, a state and a step."""


@cache
def healthy_state(usual: tuple[tuple[str, float], ...] = ()) -> PipelineState:
    """Return the pipeline state after enough steps with the usual numbers, by default healthy ones."""
    return RuleRun().make_steps(dict(usual), steps=QUIET_STEPS).pipeline_state


@dataclass
class RuleRun:
    """One run; `make_steps` adds steps.

    `events` are those of its rules' alerts, `incidents` those of its incidents, `notifications` what they told.
    """

    context: PassContext = WITHOUT_PREDICTIONS
    pipeline_state: PipelineState = field(default_factory=PipelineState)
    events: list[AlertStep] = field(default_factory=list)
    incidents: list[AlertStep] = field(default_factory=list)
    notifications: list[Notification] = field(default_factory=list)
    step: int = 0

    def make_steps(self, numbers: Numbers, *, steps: int = 1) -> RuleRun:
        """Add steps with these numbers; all others are healthy."""
        for _ in range(steps):
            row = _row(self.step, numbers)
            context = replace(self.context, now=row.closed_at)
            folded = fold_row(ClosingRow(context=context, pipeline_state=self.pipeline_state, row=row))
            given = {name: numbers[name] for name in numbers.keys() & HISTORICAL}
            self._add(publish_batch(evaluate_row(with_signals(folded, given))))
            self.step += 1
        return self

    def finish(self) -> RuleRun:
        context = replace(self.context, run=replace(self.context.run, state=RunState.FINISHED))
        told, after = apply_run_end(context=context, pipeline_state=self.pipeline_state, now=2000.0)
        self._add(publish_transitions(told, context=context, pipeline_state=after))
        return self

    def _add(self, changes: BatchChanges) -> None:
        self.pipeline_state = changes.pipeline_state
        rules = {alert.identity: alert.rule for alert in changes.alerts}
        for event in changes.alert_events:
            of_kind = self.incidents if rules[event.identity] == INCIDENT_RULE else self.events
            of_kind.append((rules[event.identity], event.state.value, event.step))
        self.notifications += [delivery.notification for delivery in changes.deliveries]

    @property
    def incident(self) -> Incident:
        """Its newest incident."""
        return self.pipeline_state.incident

    @property
    def firing(self) -> set[str]:
        return {alert.rule for alert in self.pipeline_state.open_alerts() if alert.state.value == "firing"}

    @property
    def causes(self) -> list[tuple[str, str]]:
        """The status and the cause of each notification of its incidents."""
        return [(told.status.value, told.cause.rule) for told in self.notifications if told.cause is not None]


def _row(step: int, numbers: Numbers) -> BatchRow:
    scalars = HEALTHY_SCALARS | {name: numbers[name] for name in numbers.keys() & {*HEALTHY_SCALARS, *OTHER_SCALARS}}
    signals = {**HEALTHY, **{name: numbers[name] for name in numbers.keys() - scalars.keys()}}
    place = {"run_id": 1, "ordinal": step + 1, "closed_at": 1000.0 + step}
    return batch(BatchKey(1, step, None), **place, primary_pair="mismatch", signals=signals, scalars=scalars)


def run(numbers: Numbers, *, steps: int, after: int = 0, usual: Numbers | None = None) -> RuleRun:
    """Return a run with these numbers for some steps, and with the usual ones afterwards."""
    known = usual or {}
    made = RuleRun(pipeline_state=healthy_state(tuple(sorted(known.items()))), step=QUIET_STEPS)
    return made.make_steps(numbers, steps=steps).make_steps(known, steps=after)


def of(found: Iterable[AlertStep], rule: str) -> list[AlertStep]:
    return [one for one in found if one[0] == rule]
