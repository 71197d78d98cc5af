"""Routes of a run's diagnosis and of its budget of mismatch and lag."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from statistics import median

from fastapi import APIRouter, Request
from msgspec import structs

from trmon.api.diagnosis_answer import diagnosis_info
from trmon.api.http.answers import AnswerRoute
from trmon.api.http.auth import Reader
from trmon.api.http.components import Components, Service
from trmon.api.http.parameters import Named
from trmon.config.settings import DEFAULT_SERVICE_URL
from trmon.domain.access import Access
from trmon.domain.alerts.alert import Alert
from trmon.domain.budget.run_budget import BUDGET_SIGNALS, run_budget
from trmon.domain.errors import NotFound
from trmon.domain.findings.verdict import Judgement
from trmon.domain.health.problems import title_of_rule
from trmon.domain.health.runbook import RunbookFacts, answers_of, runbook_of
from trmon.domain.health.verdict import known_judgement
from trmon.domain.runs.run import Run
from trmon.domain.signals.history import History
from trmon.store import Store
from trmon_client.api.budget import BudgetInfo
from trmon_client.api.diagnosis import DiagnosisInfo, RunbookInfo
from trmon_client.api.signals import SignalSeries

BUDGET_STEPS = 256
"""How many of the newest steps a budget is made of."""

router = APIRouter(prefix="/api/v1/runs/{project}/{run}", tags=["diagnosis"], route_class=AnswerRoute)


@router.get("/diagnosis")
def get_diagnosis(key: Named, access: Reader, service: Service) -> DiagnosisInfo:
    """Return what the judge says of a run, since when, and what to change; 404 before its first batch."""
    found = run_diagnosis(service, service.store.runs.get(key, access=access), access=access)
    if found is None:
        raise NotFound("closed step yet of", str(key))
    return found


def run_diagnosis(service: Components, run: Run, *, access: Access) -> DiagnosisInfo | None:
    """Return the diagnosis of a run; None before its first batch."""
    outlook = service.store.run_snapshots.outlooks([run.id])[run.id]
    judgement, summary = known_judgement(run, outlook.judgement), outlook.summary
    if judgement is None:
        return None
    firing = _firing(service, run, access=access)
    of_signals = {rule.name for rule in service.rules().rules if rule.is_finding or rule.reads_batches}
    return diagnosis_info(
        run,
        judgement,
        circumstances=[alert for alert in firing if not alert.is_incident and alert.rule not in of_signals],
        incident=service.store.alerts.newest_incidents([run.id], access=access).get(run.id),
        risk=summary.collapse_risk,
        sends_tokens=_sends_tokens(summary.mask_rate, judgement),
    )


@router.get("/runbook")
def get_runbook(key: Named, access: Reader, service: Service, request: Request) -> RunbookInfo:
    """Return what to do about a run's problem: confirm, rule out, mitigate, verify; 404 where it has none."""
    run = service.store.runs.get(key, access=access)
    judged = service.verdicts.of([run], access=access, now=time.time())[run.id]
    judgement = known_judgement(run, judged.outlook.judgement)
    verdict, rules = judged.verdict, service.rules()
    cause = run.state.value if run.state.value in rules.by_name else verdict.cause
    if not cause:
        raise NotFound("problem to act on in", str(run.key))
    summaries = (alert.summary for alert in _firing(service, run, access=access) if alert.rule == cause)
    facts = RunbookFacts(
        run=run,
        judgement=judgement,
        names=frozenset(service.store.signals.names(run.id, access=access)),
        since_step=verdict.since_step,
        todo=verdict.todo or "",
        summary=next(summaries, ""),
        url=_url_of_commands(service, request),
    )
    answers = answers_of(run, cause=cause, sends_tokens=_sends_tokens(judged.outlook.summary.mask_rate, judgement))
    stages = runbook_of(cause, catalogue=rules.catalogue, rule=rules.by_name.get(cause), facts=facts)
    return RunbookInfo(
        cause=cause,
        title=next((one.title for one in [facts.found(cause)] if one is not None), title_of_rule(cause)),
        headline=verdict.sentence,
        stages=stages,
        answers=answers,
    )


def _url_of_commands(service: Components, request: Request) -> str:
    """Return the URL that commands must name: that of the service, unless it is the one that they take by default."""
    url = (service.settings.public_url or str(request.base_url)).rstrip("/")
    return "" if url == DEFAULT_SERVICE_URL else url


def _sends_tokens(mask_rate: float | None, judgement: Judgement | None) -> bool:
    """Whether a run calls log_batch: rows of scalars alone have no mask rate, and empty masks none either."""
    counts_none = judgement is not None and judgement.counts_no_token
    return counts_none or mask_rate is not None


def _firing(service: Components, run: Run, *, access: Access) -> list[Alert]:
    return [listed.alert for listed in service.store.alerts.firing([run.id], access=access)[run.id]]


@router.get("/budget")
def get_budget(key: Named, access: Reader, service: Service) -> BudgetInfo:
    """Return what a run's mismatch and lag leave room for, and the advice for it; 404 before a batch."""
    run = service.store.runs.get(key, access=access)
    rows = _newest_steps(service.store, run, access=access, names=BUDGET_SIGNALS)
    last = {name: band.last for name, band in rows.bands.items()}
    policy = service.store.policies.current(run.id, access=access).policy
    found = run_budget(
        History.of_rows(step=rows.step, update=rows.update, values=last),
        config=run.config,
        policy=policy,
        updates_per_step=_updates_per_step(rows),
        judgement=service.store.run_snapshots.outlooks([run.id])[run.id].judgement,
    )
    view = service.view_cache.get(run.id)
    return found if view is None else structs.replace(found, advice=view.advice)


def _newest_steps(store: Store, run: Run, *, access: Access, names: Sequence[str]) -> SignalSeries:
    """Return signals in every update of a run's newest steps. Errors: NotFound before its first batch."""
    steps = store.signals.newest_steps(run.id, access=access, limit=BUDGET_STEPS)
    if not steps:
        raise NotFound("batch of", str(run.key))
    return store.signals.series(
        run.id, names=names, access=access, from_step=steps[-1], points=sys.maxsize, updates="all"
    )


def _updates_per_step(rows: SignalSeries) -> float:
    """Return the median number of optimizer steps on a rollout; 1 where no batch names its update."""
    counts: dict[int, int] = {}
    for step, update in zip(rows.step.tolist(), rows.update.tolist(), strict=True):
        counts[step] = max(counts.get(step, 0), update + 1)
    return max(1.0, median(counts.values()))
