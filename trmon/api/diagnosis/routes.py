"""Route of the diagnosis of a run."""

from __future__ import annotations

from fastapi import APIRouter

from trmon.api.diagnosis.schemas import DiagnosisOut
from trmon.api.http.components import Service
from trmon.api.http.dependencies import Reader
from trmon.api.runs.routes import Named
from trmon.domain.diagnosis import diagnose
from trmon.views.recent_history import recent_rows

router = APIRouter(prefix="/api/v1/runs/{project}/{run}", tags=["diagnosis"])


@router.get("/diagnosis")
def get_diagnosis(key: Named, access: Reader, service: Service) -> DiagnosisOut:
    """Return what is wrong at a run's newest step, since when, and what to change; 404 before its first batch."""
    run = service.store.runs.get(key, access=access)
    found = diagnose(recent_rows(service.store, run, access=access))
    over_signals = {rule.name for rule in service.rules() if rule.reads_batches}
    firing = [listed.alert for listed in service.store.alerts.firing([run.id], access=access)[run.id]]
    circumstances = [alert for alert in firing if alert.rule not in over_signals]
    return DiagnosisOut.of(found, circumstances=circumstances, config=run.config)
