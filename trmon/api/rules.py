"""The active alert rules, and the messages of one at another limit over stored runs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

from fastapi import APIRouter, Depends
from fastapi.concurrency import run_in_threadpool
from pydantic import Field

from trmon.api.http.answers import AnswerRoute
from trmon.api.http.auth import Reader, require_reader
from trmon.api.http.components import Components, Service
from trmon.api.http.parameters import RequestBody
from trmon.domain.access import Access
from trmon.domain.backtest.evaluation import PolicyMaskRate, StoredHistory
from trmon.domain.backtest.limit_trial import NOW, TRIED, LimitTrial, tunable_limits, with_limit
from trmon.domain.batches.batch import BatchRow
from trmon.domain.errors import NotFound, nearest_names
from trmon.domain.findings.catalogue import Catalogue
from trmon.domain.findings.remedies import remedy
from trmon.domain.findings.sentences import clause_words, seen_words, severity_words
from trmon.domain.health.problems import title_of_rule
from trmon.domain.health.runbook import runbook_of
from trmon.domain.incidents.alarm_budget import DAY_SECONDS
from trmon.domain.rules.condition import FindingStands
from trmon.domain.rules.condition_yaml import condition_to_yaml
from trmon.domain.rules.rule import Rule, RuleSet, condition_in_words, terms_in_words
from trmon_client.api.alerts import (
    ClauseInfo,
    ConditionLineInfo,
    LimitTrialInfo,
    RuleInfo,
    RulesFileInfo,
    TrialCountsInfo,
)

router = APIRouter(
    prefix="/api/v1/rules", tags=["rules"], dependencies=[Depends(require_reader)], route_class=AnswerRoute
)


@router.get("")
async def list_rules(service: Service) -> list[RuleInfo]:
    """List the findings and the other active rules, as the service's rules file changes them."""
    rules = service.rules()
    return [_rule_info(rule, rules.catalogue) for rule in rules.rules]


@router.get("/file")
async def rules_file(service: Service) -> RulesFileInfo:
    """Return the path of the service's rules file and its error, if any."""
    path = service.rules.path
    return RulesFileInfo.from_fields(path=None if path is None else str(path), error=service.rules.error)


@router.get("/{name}")
async def get_rule(name: str, service: Service) -> RuleInfo:
    """Return an active rule, with what its alert means and what to do."""
    rules = service.rules()
    return _rule_info(_named(rules, name), rules.catalogue)


def _named(rules: RuleSet, name: str) -> Rule:
    if (rule := rules.by_name.get(name)) is None:
        raise NotFound("rule", name, nearest=nearest_names(name, rules.by_name))
    return rule


def _rule_info(rule: Rule, catalogue: Catalogue) -> RuleInfo:
    clauses = rule.when.finding.clauses if isinstance(rule.when, FindingStands) else ()
    return RuleInfo.from_fields(
        rule,
        title=title_of_rule(rule.name),
        runbook=remedy(rule.name, framework=None, config={}, last_good_step=None, has_ended=False).first
        if rule.is_finding
        else rule.runbook,
        stages=runbook_of(rule.name, catalogue=catalogue, rule=rule),
        when={} if rule.is_finding else condition_to_yaml(rule.when),
        reads=rule.reads.value,
        clauses=[
            ClauseInfo.from_fields(
                clause,
                words=clause_words(clause),
                severity=severity_words(clause),
                limit=clause.decisive.limit,
                seen=seen_words(clause),
            )
            for clause in clauses
        ],
        fires_when=[
            ConditionLineInfo.from_fields(depth=depth, words=words) for depth, words in condition_in_words(rule.when)
        ],
        terms=list(terms_in_words(rule)),
        limits=tuple(tunable_limits(rule)),
    )


TRIAL_DAYS = 30
TRIAL_SECONDS = 2.0
"""A request reads runs for so long, then answers with what it has; the next one continues."""
PAGE_ROWS = 1000


class Limit(RequestBody):
    """A limit of a rule to try over the runs of the last 30 days."""

    limit_id: str = Field(max_length=64, description="One of the rule's `limits`.")
    limit: float = Field(allow_inf_nan=False)
    before: int | None = Field(None, ge=0, lt=1 << 62, description="`next` of the answer before this one.")


@router.post("/{name}/whatif")
async def try_limit(name: str, given: Limit, access: Reader, service: Service) -> LimitTrialInfo:
    """Return how many messages the rules send with another limit over stored runs, newest first, a few per request."""
    rule = _named(service.rules(), name)
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
    return StoredHistory(
        run=service.store.runs.by_id(run_id),
        rows=partial(_rows, service, run_id, access=access),
        apply_policy=lambda policy: PolicyMaskRate(policy=policy.name, skipped="rules alone are tried"),
    )


def _rows(service: Components, run_id: int, *, access: Access) -> Iterator[BatchRow]:
    after = None
    while True:
        page = service.store.batches.list(run_id, access=access, after=after, limit=PAGE_ROWS, oldest_first=True)
        yield from page.items
        if (after := page.next) is None:
            return
