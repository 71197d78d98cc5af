"""Route of the diagnosis of a run."""

from __future__ import annotations

from fastapi import APIRouter

from trmon.api.diagnosis_schemas import diagnosis_info, newest_incident_info
from trmon.api.http.answers import AnswerRoute
from trmon.api.http.auth import Reader
from trmon.api.http.components import Service
from trmon.api.http.parameters import Named
from trmon.domain.diagnosis.diagnosis import diagnose
from trmon.domain.diagnosis.framework_options import with_sent_options
from trmon.domain.health.verdict import standing_incident
from trmon.domain.incidents.incident import Incident, led_diagnosis
from trmon.domain.rules.rule import Rule
from trmon.domain.runs.run import RunState
from trmon.fleet.summaries import recent_rows
from trmon_client.api.diagnosis import DiagnosisInfo

router = APIRouter(prefix="/api/v1/runs/{project}/{run}", tags=["diagnosis"], route_class=AnswerRoute)


@router.get("/diagnosis")
def get_diagnosis(key: Named, access: Reader, service: Service) -> DiagnosisInfo:
    """Return what is wrong at a run's newest step, since when, and what to change; 404 before its first batch."""
    run = service.store.runs.get(key, access=access)
    history = recent_rows(service.store, run, access=access)
    found = diagnose(history)
    rules = {rule.name: rule for rule in service.rules()}
    firing = [listed.alert for listed in service.store.alerts.firing([run.id], access=access)[run.id]]
    newest = service.store.alerts.newest_incidents([run.id], access=access).get(run.id)
    standing = standing_incident(run, None if newest is None else Incident(alert=newest.alert))
    if standing is not None:
        found = led_diagnosis(found, standing, firing=firing, rules=rules)
    is_of_run = [alert for alert in firing if not alert.is_incident and not _reads_batches(rules.get(alert.rule))]
    return diagnosis_info(
        found,
        circumstances=is_of_run,
        config=with_sent_options(run.config, history),
        last_good_step=None if standing is None or standing.is_prediction else standing.last_good_step,
        standing=standing,
        incident=newest_incident_info(newest),
        is_finished=run.state is RunState.FINISHED,
        has_ended=run.state.ended,
    )


def _reads_batches(rule: Rule | None) -> bool:
    return rule is not None and rule.reads_batches
