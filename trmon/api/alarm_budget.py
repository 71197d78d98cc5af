"""The alarm budget, and the messages of a rule at another limit over stored runs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

from fastapi import APIRouter
from fastapi.concurrency import run_in_threadpool
from pydantic import Field

from trmon.api.http.answers import AnswerRoute
from trmon.api.http.auth import Reader
from trmon.api.http.components import Components, Service
from trmon.api.http.parameters import RequestBody
from trmon.domain.access import Access
from trmon.domain.backtest.limit_trial import NOW, TRIED, LimitTrial, tunable_limits, with_limit
from trmon.domain.backtest.stored_history import PolicyMaskRate, StoredHistory
from trmon.domain.batches.batch import BatchRow
from trmon.domain.errors import NotFound, nearest_names
from trmon.domain.health.problems import title_of_rule
from trmon.domain.incidents.alarm_budget import DAY_SECONDS, WINDOW_DAYS, AlarmBudget, alarm_budgets
from trmon.domain.rules.rule import Rule, RuleSet
from trmon_client.api.alerts import (
    AlarmBudgetInfo,
    BudgetWindowInfo,
    LimitTrialInfo,
    RuleBudgetInfo,
    TrialCountsInfo,
)
from trmon_client.core.policies.policy import Policy

TRIAL_DAYS = 30
TRIAL_SECONDS = 2.0
"""A request reads runs for so long, then answers with what it has; the next one continues."""
PAGE_ROWS = 1000

router = APIRouter(prefix="/api/v1/alerts", tags=["alerts"], route_class=AnswerRoute)
trials_router = APIRouter(prefix="/api/v1/rules", tags=["rules"], route_class=AnswerRoute)


@router.get("/budget")
def get_alarm_budget(access: Reader, service: Service) -> AlarmBudgetInfo:
    """Return the messages of each rule per day of training over 7 and 30 days, and what came of its alerts."""
    now = time.time()
    record = service.store.budget_records.read(
        access=access, health_rules=service.rules.health_rules(), since=now - max(WINDOW_DAYS) * DAY_SECONDS
    )
    return AlarmBudgetInfo(windows=tuple(_window(one, rules=service.rules()) for one in alarm_budgets(record, now=now)))


def _window(budget: AlarmBudget, *, rules: RuleSet) -> BudgetWindowInfo:
    infos = [
        RuleBudgetInfo.from_fields(
            one,
            title=title_of_rule(one.rule),
            per_run_day=budget.per_run_day(one.messages),
            is_tunable=one.rule in rules.by_name and any(tunable_limits(rules.by_name[one.rule])),
        )
        for one in budget.rules
    ]
    return BudgetWindowInfo.from_fields(budget, per_run_day=budget.per_run_day(budget.messages), rules=infos)


class Limit(RequestBody):
    """A limit of a rule to try over the runs of the last 30 days."""

    limit_id: str = Field(max_length=64, description="One of the rule's `limits`.")
    limit: float = Field(allow_inf_nan=False)
    before: int | None = Field(None, ge=0, lt=1 << 62, description="`next` of the answer before this one.")


@trials_router.post("/{name}/whatif")
async def try_limit(name: str, given: Limit, access: Reader, service: Service) -> LimitTrialInfo:
    """Return how many messages the rules send with another limit over stored runs, newest first, a few per request."""
    rule = service.rules().by_name.get(name)
    if rule is None:
        raise NotFound("rule", name, nearest=nearest_names(name, service.rules().by_name))
    async with service.what_ifs:
        return await run_in_threadpool(_try, service, rule, given, access=access)


def _try(service: Components, rule: Rule, given: Limit, *, access: Access) -> LimitTrialInfo:
    rules, until = service.rules(), time.monotonic() + TRIAL_SECONDS
    since = time.time() - TRIAL_DAYS * DAY_SECONDS
    tried = with_limit(rules, rule, limit_id=given.limit_id, limit=given.limit)
    trial = LimitTrial(rules, tried, rule=rule.name, since=since)
    left = service.store.budget_records.recent_run_ids(access=access, since=since, before=given.before)
    last = None
    while left and (last is None or time.monotonic() < until):
        last = left.pop(0)
        trial.add(_history(service, last, access=access))
    return LimitTrialInfo.from_fields(
        trial,
        now=TrialCountsInfo.from_fields(trial.counts[NOW]),
        tried=TrialCountsInfo.from_fields(trial.counts[TRIED]),
        n_left=len(left),
        next=last if left else None,
    )


def _history(service: Components, run_id: int, *, access: Access) -> StoredHistory:
    run = service.store.runs.by_id(run_id)
    return StoredHistory(run=run, rows=partial(_rows, service, run_id, access=access), apply_policy=_not_applied)


def _rows(service: Components, run_id: int, *, access: Access) -> Iterator[BatchRow]:
    after = None
    while True:
        page = service.store.batches.list(run_id, access=access, after=after, limit=PAGE_ROWS, oldest_first=True)
        yield from page.items
        if (after := page.next) is None:
            return


def _not_applied(policy: Policy) -> PolicyMaskRate:
    return PolicyMaskRate(policy=policy.name, skipped="rules alone are tried")
