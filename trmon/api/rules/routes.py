"""Routes of the active alert rules."""

from __future__ import annotations

from fastapi import APIRouter, Depends

from trmon.api.http.components import Service
from trmon.api.http.dependencies import require_reader
from trmon.api.rules.schemas import RuleOut, RulesFileOut
from trmon.domain.model.errors import NotFound

router = APIRouter(prefix="/api/v1/rules", tags=["rules"], dependencies=[Depends(require_reader)])


@router.get("")
async def list_rules(service: Service) -> list[RuleOut]:
    """List the active rules: the built-in ones, as overridden by the service's rules file."""
    return [RuleOut.of(rule) for rule in service.rules()]


@router.get("/file")
async def rules_file(service: Service) -> RulesFileOut:
    """Return the path of the service's rules file and its error, if any."""
    path = service.rules.path
    return RulesFileOut(path=None if path is None else str(path), error=service.rules.error)


@router.get("/{name}")
async def get_rule(name: str, service: Service) -> RuleOut:
    """Return an active rule, with what its alert means and what to do."""
    rule = next((rule for rule in service.rules() if rule.name == name), None)
    if rule is None:
        raise NotFound("rule", name)
    return RuleOut.of(rule)
