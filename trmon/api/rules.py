"""The active alert rules."""

from __future__ import annotations

from fastapi import APIRouter, Depends

from trmon.api.http.answers import AnswerRoute
from trmon.api.http.auth import require_reader
from trmon.api.http.components import Service
from trmon.domain.errors import NotFound
from trmon.domain.rules.condition_yaml import condition_to_yaml
from trmon.domain.rules.rule import Rule, condition_in_words, terms_in_words
from trmon_client.api.alerts import ConditionLineInfo, RuleInfo, RulesFileInfo

router = APIRouter(
    prefix="/api/v1/rules", tags=["rules"], dependencies=[Depends(require_reader)], route_class=AnswerRoute
)


@router.get("")
async def list_rules(service: Service) -> list[RuleInfo]:
    """List the active rules: the built-in ones, as overridden by the service's rules file."""
    return [_rule_info(rule) for rule in service.rules()]


@router.get("/file")
async def rules_file(service: Service) -> RulesFileInfo:
    """Return the path of the service's rules file and its error, if any."""
    path = service.rules.path
    return RulesFileInfo.from_fields(path=None if path is None else str(path), error=service.rules.error)


@router.get("/{name}")
async def get_rule(name: str, service: Service) -> RuleInfo:
    """Return an active rule, with what its alert means and what to do."""
    rule = next((rule for rule in service.rules() if rule.name == name), None)
    if rule is None:
        raise NotFound("rule", name)
    return _rule_info(rule)


def _rule_info(rule: Rule) -> RuleInfo:
    return RuleInfo.from_fields(
        rule,
        when=condition_to_yaml(rule.when),
        reads=rule.reads.value,
        fires_when=[
            ConditionLineInfo.from_fields(depth=depth, words=words) for depth, words in condition_in_words(rule.when)
        ],
        terms=list(terms_in_words(rule)),
    )
