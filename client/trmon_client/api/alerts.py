"""Alerts and incidents, their deliveries, silences and rules, as a service describes them."""

from __future__ import annotations

from typing import Annotated, Any

from trmon_client.api.answers import (
    AlertState,
    AnswerInfo,
    ApiNumber,
    DeliveryState,
    MatchOperator,
    Severity,
    says,
)
from trmon_client.api.diagnosis import BehindInfo, RunbookStageInfo

INCIDENT = "incident"
"""The rule of the alert that carries a run's incident."""


class AckRefusalInfo(AnswerInfo, frozen=True, kw_only=True):
    """Why an alert was not acknowledged."""

    identity: str
    detail: str


class AcksInfo(AnswerInfo, frozen=True, kw_only=True):
    """The identities of the alerts that were acknowledged, and of those that were not."""

    acknowledged: tuple[str, ...]
    refused: tuple[AckRefusalInfo, ...]


class AckInfo(AnswerInfo, frozen=True, kw_only=True):
    """Who acknowledged an alert, and when."""

    author: str
    note: str
    at: float


class AlertEventInfo(AnswerInfo, frozen=True, kw_only=True):
    """A state transition of an alert."""

    state: AlertState
    at: float
    attempt_id: int
    step: int
    update: int | None
    value: ApiNumber
    threshold: ApiNumber
    summary: str


class MemberInfo(AnswerInfo, frozen=True, kw_only=True):
    """An alert that joined an incident."""

    identity: str
    rule: str
    title: Annotated[str, says("The rule in words.")]
    severity: Severity
    state: AlertState
    attempt_id: int
    step: int
    summary: str


class SilencedInfo(AnswerInfo, frozen=True, kw_only=True):
    """The silence that mutes an alert; of several, the one that ends last."""

    id: int
    author: str
    note: Annotated[str, says("Empty if the caller may not list the silence, which is of all projects.")]
    ends_at: float


class AlertInfo(AnswerInfo, frozen=True, kw_only=True):
    """One episode of an alert; `step` and `update` are where it began."""

    project: str
    run: str
    owner: Annotated[str | None, says("The owner of the run.")]
    identity: Annotated[str, says("The same for every episode of a rule, run and labels.")]
    rule: Annotated[str, says("The rule; `incident` for the alert that carries a run's incident.")]
    title: Annotated[str, says("The rule in words; of an incident, its cause.")]
    members: Annotated[tuple[MemberInfo, ...], says("The alerts that joined an incident; empty for other alerts.")]
    severity: Severity
    state: AlertState
    attempt_id: int
    step: int
    update: int | None
    since_at: float
    updated_at: float
    value: ApiNumber
    threshold: ApiNumber
    summary: str
    labels: dict[str, str]
    runbook: str
    ack: Annotated[AckInfo | None, says("The acknowledgement of this episode; null if there is none.")]
    silenced: Annotated[SilencedInfo | None, says("The silence that mutes it now; null if none does.")]
    behind: Annotated[
        BehindInfo | None, says("While it fires, how far the judging of its run is behind; null up to 5 seconds.")
    ] = None

    @property
    def is_incident(self) -> bool:
        """Whether it carries a run's incident."""
        return self.rule == INCIDENT


class DeliveryInfo(AnswerInfo, frozen=True, kw_only=True):
    """The delivery of an alert to one receiver."""

    id: int
    project: str
    run: str
    receiver: str
    state: DeliveryState
    told_state: Annotated[AlertState, says("Whether the notification says that the alert fires or is resolved.")]
    attempts: int
    rounds: Annotated[int, says("How many notifications were sent, reminders and updates included.")]
    made_at: float
    due_at: float
    tried_at: float | None
    last_error: str | None
    muted: Annotated[str | None, says("Why no notification was sent.")]
    body: dict[str, Any]


class ReceiversInfo(AnswerInfo, frozen=True, kw_only=True):
    """The receivers of alerts that the service's settings configure."""

    names: tuple[str, ...]
    problem: Annotated[str | None, says("What is known to keep alerts from people; null: nothing.")]


class RuleBudgetInfo(AnswerInfo, frozen=True, kw_only=True):
    """What a rule sent in some days, and what came of its alerts; an incident counts for the rule that leads it."""

    rule: str
    title: Annotated[str, says("The rule in words.")]
    messages: Annotated[int, says("Alerts that began or changed and were not silenced, each once for all receivers.")]
    per_run_day: Annotated[float | None, says("Messages per day of training; null where that was under one day.")]
    alerts: Annotated[int, says("The alerts and incidents of which these messages are, and silenced ones.")]
    acknowledged: int
    silenced: Annotated[int, says("How many of the alerts a silence covered at any time while they fired.")]
    harmed: Annotated[int, says("How many of the alerts were followed by harm: the run collapsed or was stopped.")]
    is_tunable: Annotated[bool, says("Whether another limit of the rule can be tried over stored runs.")]
    unanswered: Annotated[
        int, says("How many of the alerts were neither acknowledged nor silenced, nor followed by harm.")
    ]


class BudgetWindowInfo(AnswerInfo, frozen=True, kw_only=True):
    """The alarm budget of the newest days."""

    days: int
    run_days: Annotated[float, says("Days of training, added up over the runs.")]
    messages: int
    per_run_day: float | None
    rules: Annotated[tuple[RuleBudgetInfo, ...], says("The rules that sent messages, most messages first.")]


class AlarmBudgetInfo(AnswerInfo, frozen=True, kw_only=True):
    """The alarm budget of the newest 7 and 30 days, of the runs that the caller may see."""

    windows: tuple[BudgetWindowInfo, ...]


class ConditionLineInfo(AnswerInfo, frozen=True, kw_only=True):
    """A line of a condition in words; lines of greater depth are its parts."""

    depth: int
    words: str


class ClauseInfo(AnswerInfo, frozen=True, kw_only=True):
    """One way in which a finding shows."""

    id: Annotated[str, says("The name by which a rules file changes its limit.")]
    words: Annotated[str, says("What it compares, and in how many rows.")]
    title: str
    meaning: str
    severity: Annotated[str, says("In words: a warning may become a page.")]
    limit: Annotated[float, says("Of its first comparison.")]
    seen: Annotated[str, says("On how many real runs it was seen, right and wrong.")]


class TunableLimitInfo(AnswerInfo, frozen=True, kw_only=True):
    """A limit of a rule that can be tried on stored runs."""

    id: Annotated[str, says("The clause of a finding; `limit` for a rule over signals.")]
    words: Annotated[str, says("What is compared with it.")]
    limit: float


class TrialCountsInfo(AnswerInfo, frozen=True, kw_only=True):
    """What the rules send over the runs that were read."""

    of_rule: Annotated[int, says("Messages of the rule, those of incidents that it leads among them.")]
    messages: Annotated[int, says("Messages of all rules.")]
    pages: int
    warned: Annotated[int, says("Of the runs that collapse, those with a message before the collapse.")]


class LimitTrialInfo(AnswerInfo, frozen=True, kw_only=True):
    """The messages over some stored runs with the limit of now and with another one; the answers of pages add up."""

    n_runs: Annotated[int, says("Runs that were read.")]
    n_skipped: Annotated[int, says("Runs of too many steps to be read.")]
    n_left: Annotated[int, says("Runs that are still to be read.")]
    n_collapsed: Annotated[int, says("Of the runs that were read, those whose reward collapses.")]
    now: TrialCountsInfo
    tried: TrialCountsInfo
    next: Annotated[int | None, says("Pass it as `before` to read further runs; null after the last one.")]


class RuleInfo(AnswerInfo, frozen=True, kw_only=True):
    """An alert rule, or a finding of the judge; `when` is a rule's condition with thresholds and clear thresholds."""

    name: str
    title: str
    severity: Severity
    severity_when_enforcing: Severity | None
    when: Annotated[dict[str, Any], says("As a rules file writes it; empty for a finding.")]
    reads: str
    for_steps: int
    for_seconds: float
    clear_for_steps: int
    immune_steps: int
    summary: str
    labels: dict[str, str]
    runbook: Annotated[str, says("What to do first; empty if the rule names nothing.")]
    stages: Annotated[tuple[RunbookStageInfo, ...], says("Its runbook, without a run's values.")] = ()
    meaning: str
    is_finding: Annotated[bool, says("Whether it is a finding of the judge; its alerts join the run's incident.")]
    is_symptom: bool
    clauses: Annotated[tuple[ClauseInfo, ...], says("The clauses of a finding, one of which must hold.")]
    fires_when: Annotated[tuple[ConditionLineInfo, ...], says("Its condition in words.")]
    terms: Annotated[tuple[str, ...], says("What the rule reads, and for how many steps its condition must hold.")]
    limits: Annotated[tuple[TunableLimitInfo, ...], says("The limits that can be tried.")] = ()


class RulesFileInfo(AnswerInfo, frozen=True, kw_only=True):
    """The rules file of the service; `error` says why its latest version is not active."""

    path: str | None
    error: str | None


class MatcherInfo(AnswerInfo, frozen=True, kw_only=True):
    """A condition on a label: project, run, owner, rule, severity, or a label of the rule."""

    label: str
    operator: Annotated[MatchOperator, says("`~` and `!~` take shell patterns, e.g. `qwen*`.")]
    value: str


class SilenceInfo(AnswerInfo, frozen=True, kw_only=True):
    """A silence, active, future or ended."""

    id: int
    project: str | None
    matchers: tuple[MatcherInfo, ...]
    author: str
    note: str
    starts_at: float
    ends_at: float
    alerts: Annotated[int, says("How many firing incidents, and alerts without one, it mutes now.")]


class CoveredAlertInfo(AnswerInfo, frozen=True, kw_only=True):
    """A firing alert that a silence would mute."""

    identity: str
    project: str
    run: str
    rule: str
    title: str = ""
    severity: Severity


class SilencePreviewInfo(AnswerInfo, frozen=True, kw_only=True):
    """The firing incidents, and alerts without one, that a silence would mute."""

    total: int
    items: Annotated[tuple[CoveredAlertInfo, ...], says("The newest of them, at most 100.")]
