"""The active alert rules."""

from __future__ import annotations

from fastapi import APIRouter, Depends

from trmon.api.http.answers import AnswerRoute
from trmon.api.http.auth import require_reader
from trmon.api.http.components import Service
from trmon.domain.backtest.limit_trial import tunable_limits
from trmon.domain.errors import NotFound, nearest_names
from trmon.domain.findings.catalogue import Catalogue
from trmon.domain.findings.clause_words import clause_words, seen_words, severity_words
from trmon.domain.findings.remedies import remedy
from trmon.domain.health.problems import title_of_rule
from trmon.domain.health.runbook import runbook_of
from trmon.domain.rules.condition import FindingStands
from trmon.domain.rules.condition_yaml import condition_to_yaml
from trmon.domain.rules.rule import Rule, condition_in_words, terms_in_words
from trmon_client.api.alerts import ClauseInfo, ConditionLineInfo, RuleInfo, RulesFileInfo, TunableLimitInfo
from trmon_client.api.diagnosis import RunbookStageInfo

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
    rule = rules.by_name.get(name)
    if rule is None:
        raise NotFound("rule", name, nearest=nearest_names(name, rules.by_name))
    return _rule_info(rule, rules.catalogue)


def _rule_info(rule: Rule, catalogue: Catalogue) -> RuleInfo:
    clauses = rule.when.finding.clauses if isinstance(rule.when, FindingStands) else ()
    return RuleInfo.from_fields(
        rule,
        title=title_of_rule(rule.name),
        runbook=remedy(rule.name, framework=None, config={}, last_good_step=None, has_ended=False).first
        if rule.is_finding
        else rule.runbook,
        stages=[
            RunbookStageInfo.from_fields(one, stage=one.stage.value)
            for one in runbook_of(rule.name, catalogue=catalogue, rule=rule)
        ],
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
        limits=[TunableLimitInfo.from_fields(one) for one in tunable_limits(rule)],
    )
