"""Alarm budget: how many messages each rule sends per day of training, and what came of its alerts."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from trmon.domain.alerts.alert import Alert, AlertState, ListedAlert
from trmon.domain.alerts.silences import Silence, labels_of
from trmon.domain.incidents.incident import ENDED_ILL
from trmon.domain.runs.run import Run, RunState
from trmon_client.core.wire import EndReason

WINDOW_DAYS = (7, 30)
DAY_SECONDS = 86_400.0
HARM_SECONDS = DAY_SECONDS
"""Harm counts while an alert fires and this long after it."""

Interval = tuple[float, float]
"""From a time to another, or to infinity, in seconds since the epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetRecord:
    """What is stored of the alerts of some runs.

    `alerts`: those that are sent, oldest first; `collapses`: those of the finding `reward_collapse`, which may have
    joined an incident; `fired_at`: when alerts began or changed, in order, by identity; `runs`: those that stall
    or have reported an end; `trained`: from the first to the last message of each attempt.
    """

    alerts: Sequence[ListedAlert]
    collapses: Sequence[Alert]
    fired_at: Mapping[str, Sequence[float]]
    silences: Sequence[Silence]
    runs: Sequence[Run]
    trained: Sequence[Interval]


@dataclass(slots=True)
class RuleBudget:
    """The messages of a rule, its alerts, and how many of those were acknowledged, silenced or followed by harm."""

    rule: str
    messages: int = 0
    alerts: int = 0
    acknowledged: int = 0
    silenced: int = 0
    harmed: int = 0
    unanswered: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmBudget:
    """The budget of the newest days: days of training, messages, and the rules, those with most messages first."""

    days: int
    run_days: float
    rules: tuple[RuleBudget, ...]

    @property
    def messages(self) -> int:
        """The messages of all rules."""
        return sum(rule.messages for rule in self.rules)

    def per_run_day(self, messages: int) -> float | None:
        """Return so many messages per day of training; None below one day, in which a rate says nothing."""
        return messages / self.run_days if self.run_days >= 1 else None


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What came of an alert: when it was sent, when it began or changed, and whether and how that was answered."""

    rule: str
    sent_at: Sequence[float]
    fired_at: Sequence[float]
    is_acknowledged: bool
    is_silenced: bool
    is_harmed: bool


def alarm_budgets(record: BudgetRecord, *, now: float) -> tuple[AlarmBudget, ...]:
    """Return the budgets of the newest 7 and 30 days.

    A message is an alert or incident that begins or changes, counted once for all receivers, without reminders and
    resolutions, unless a silence covers it then. An incident counts for the rule that leads it.
    """
    harms = _harms(record)
    outcomes = [_outcome(listed, times, record, harms, now=now) for listed, times in _fired(record)]
    return tuple(_budget(outcomes, record.trained, days=days, now=now) for days in WINDOW_DAYS)


def _outcome(
    listed: ListedAlert,
    times: Sequence[float],
    record: BudgetRecord,
    harms: Mapping[int, Sequence[Interval]],
    *,
    now: float,
) -> _Outcome:
    alert, end = listed.alert, _end(listed.alert, now)
    labels = labels_of(alert, run=listed.run, owner=listed.owner)
    recent = (one for one in record.silences if one.starts_at <= end and one.ends_at > alert.since_at)
    silences = [silence for silence in recent if silence.matches(labels)]
    return _Outcome(
        rule=labels["rule"],
        sent_at=[at for at in times if not any(one.starts_at <= at < one.ends_at for one in silences)],
        fired_at=times,
        is_acknowledged=listed.ack is not None,
        is_silenced=bool(silences),
        is_harmed=_overlaps((alert.since_at, _end(alert) + HARM_SECONDS), harms.get(alert.run_id, ())),
    )


def _budget(outcomes: Sequence[_Outcome], trained: Sequence[Interval], *, days: int, now: float) -> AlarmBudget:
    since, found = now - days * DAY_SECONDS, dict[str, RuleBudget]()
    for one in outcomes:
        if not any(since <= at <= now for at in one.fired_at):
            continue
        budget = found.setdefault(one.rule, RuleBudget(one.rule))
        budget.messages += sum(since <= at <= now for at in one.sent_at)
        budget.alerts += 1
        budget.acknowledged += one.is_acknowledged
        budget.silenced += one.is_silenced
        budget.harmed += one.is_harmed
        budget.unanswered += not (one.is_acknowledged or one.is_silenced or one.is_harmed)
    seconds = sum(max(0.0, min(end, now) - max(start, since)) for start, end in trained)
    rules = sorted(found.values(), key=lambda rule: (-rule.messages, -rule.alerts, rule.rule))
    return AlarmBudget(days=days, run_days=seconds / DAY_SECONDS, rules=tuple(rules))


def _fired(record: BudgetRecord) -> Iterable[tuple[ListedAlert, list[float]]]:
    """Yield each alert with the times at which it began or changed: those up to the next episode of its identity."""
    episodes: defaultdict[str, list[ListedAlert]] = defaultdict(list)
    for listed in record.alerts:
        episodes[listed.alert.identity].append(listed)
    for identity, of_identity in episodes.items():
        starts = [listed.alert.since_at for listed in of_identity]
        times: list[list[float]] = [[] for _ in of_identity]
        for at in record.fired_at.get(identity, ()):
            times[max(bisect_right(starts, at) - 1, 0)].append(at)
        yield from zip(of_identity, times, strict=True)


def _end(alert: Alert, now: float = math.inf) -> float:
    return now if alert.state is AlertState.FIRING else alert.updated_at


def _harms(record: BudgetRecord) -> dict[int, list[Interval]]:
    """Return by run when its reward had collapsed, it had finished ill, or it had stopped in another way."""
    harms: defaultdict[int, list[Interval]] = defaultdict(list)
    for alert in record.collapses:
        harms[alert.run_id].append((alert.since_at, _end(alert)))
    for listed in record.alerts:
        if listed.alert.run_ended == ENDED_ILL:
            harms[listed.alert.run_id].append((listed.alert.updated_at, listed.alert.updated_at))
    for run in record.runs:
        if (stop := _stop(run)) is not None:
            harms[run.id].append(stop)
    return harms


NOT_BY_ITSELF = frozenset({EndReason.EXCEPTION.value, EndReason.EXIT_CODE.value, EndReason.SIGNAL.value})


def _stop(run: Run) -> Interval | None:
    """Return since when a run stands still other than by its own end, or when it did and was continued."""
    if run.state is RunState.STALLED and run.last_report_at is not None:
        return run.last_report_at, math.inf
    if run.ending is None or not (run.state is RunState.CRASHED or run.ending.reason in NOT_BY_ITSELF):
        return None
    return run.ending.at, math.inf if run.state.ended else run.ending.at


def _overlaps(one: Interval, others: Iterable[Interval]) -> bool:
    return any(start <= one[1] and end >= one[0] for start, end in others)
