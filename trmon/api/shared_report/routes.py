"""Route of the shared report of a run."""

from __future__ import annotations

import time
from collections.abc import Sequence

from fastapi import APIRouter, Response

from trmon.api.diagnosis import run_diagnosis
from trmon.api.http.auth import Reader
from trmon.api.http.components import Components, Service
from trmon.api.http.parameters import Named
from trmon.api.shared_report.html import ChartData
from trmon.api.shared_report.report_page import SharedRun, report_page
from trmon.domain.access import Access
from trmon.domain.collapse_risk.risk_reading import RISK
from trmon.domain.errors import NotFound
from trmon.domain.runs.run import Run
from trmon.fleet.verdicts import judged_run
from trmon_client.api.diagnosis import DiagnosisInfo
from trmon_client.config.version import __version__
from trmon_client.core.column_schema import PRIMARY_ORDER

router = APIRouter(prefix="/api/v1/runs/{project}/{run}", tags=["runs"])

POINTS = 400
LISTED = 200
"""The newest alerts, policies and notes; a report is of bounded size."""
SIGNALS = {
    "reward_mean": ("Reward", ""),
    "sampled_entropy": ("Entropy", "nats"),
    "response_length_mean": ("Response length", "tokens"),
    "grad_norm": ("Gradient norm", ""),
    "loss": ("Loss", ""),
    "mask_rate": ("Masked sequences", "share"),
    "version_lag_mean": ("Version lag", "updates"),
    RISK: ("Risk of collapse", "probability"),
}
PAIR_SIGNALS = {
    "kl_k3": ("KL per token", "nats"),
    "chi2_token": ("Spread of token weights, chi-squared", ""),
    "ess_token": ("Effective tokens", "share"),
    "prob_pearson": ("Agreement of token probabilities", ""),
}


@router.get("/report.html", response_class=Response, responses={200: {"content": {"text/html": {}}}})
def get_shared_report(key: Named, access: Reader, service: Service) -> Response:
    """Return a run as one self-contained HTML file: verdict, course, alerts, policies, notes; no configuration."""
    page = report_page(_shared(service, service.store.runs.get(key, access=access), access=access))
    name = f"{key.project}-{key.run}.html"
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"}
    return Response(page, media_type="text/html; charset=utf-8", headers=headers)


def _shared(service: Components, run: Run, *, access: Access) -> SharedRun:
    now = time.time()
    firing = service.store.alerts.firing([run.id], access=access)[run.id]
    newest = service.store.alerts.newest_incidents([run.id], access=access).get(run.id)
    judgement = service.store.run_snapshots.judgements([run.id]).get(run.id)
    judged = judged_run(run, firing, newest, judgement, health_rules=service.rules.health_rules(), now=now)
    alerts = service.store.alerts.list(access=access, project=run.key.project, run=run.key.run, limit=LISTED).items
    return SharedRun(
        run=run,
        verdict=judged.verdict,
        diagnosis=_diagnosis(service, run, access=access),
        charts=_charts(service, run, since_step=judged.since_step, access=access),
        alerts=alerts,
        policies=service.store.policies.list(run.id, access=access, limit=LISTED).items,
        notes=service.store.notes.list(run.key, access=access, limit=LISTED).items,
        made_at=now,
        version=__version__,
    )


def _diagnosis(service: Components, run: Run, *, access: Access) -> DiagnosisInfo | None:
    """Return the diagnosis; None before the run's first batch."""
    try:
        return run_diagnosis(service, run, access=access)
    except NotFound:
        return None


def _charts(service: Components, run: Run, *, since_step: int | None, access: Access) -> Sequence[ChartData]:
    known = set(service.store.signals.names(run.id, access=access))
    shown = {name: words for name, words in SIGNALS.items() if name in known}
    for stem, words in PAIR_SIGNALS.items():
        found = next((f"{pair}_{stem}" for pair in PRIMARY_ORDER if f"{pair}_{stem}" in known), None)
        if found is not None:
            shown[found] = words
    series = service.store.signals.series(run.id, names=[*shown], access=access, points=POINTS)
    marks = [] if since_step is None else [(since_step, "began")]
    return [
        ChartData(
            title=title,
            unit=unit,
            steps=series.step.tolist(),
            values=series.bands[name].mean.tolist(),
            marks=marks,
        )
        for name, (title, unit) in shown.items()
    ]
