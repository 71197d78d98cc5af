"""Route of the shared report of a run, and its page: verdict, course, episodes, policies and notes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.etree.ElementTree import Element

from fastapi import APIRouter, Response

from trmon.api.comparison import of_first_pair
from trmon.api.diagnosis import run_diagnosis
from trmon.api.http.auth import Reader
from trmon.api.http.components import Components, Service
from trmon.api.http.parameters import Named
from trmon.api.shared_report.html import Child, chart, document, element, table, time_element
from trmon.domain.access import Access
from trmon.domain.alerts.alert import ListedAlert
from trmon.domain.collapse_risk.risk_reading import RISK, RiskLevel, risk_sentence
from trmon.domain.findings.verdict import Word
from trmon.domain.health.problems import title_of_alert
from trmon.domain.policies import PolicyVersion
from trmon.domain.runs.run import Run
from trmon_client.api.diagnosis import DiagnosisInfo
from trmon_client.api.runs import NoteInfo
from trmon_client.config.version import __version__

router = APIRouter(prefix="/api/v1/runs/{project}/{run}", tags=["runs"])

STYLE = (Path(__file__).parent / "report.css").read_text(encoding="utf-8")
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
    page = _page(service, service.store.runs.get(key, access=access), access=access)
    name = f"{key.project}-{key.run}.html"
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"}
    return Response(page, media_type="text/html; charset=utf-8", headers=headers)


def _page(service: Components, run: Run, *, access: Access) -> bytes:
    now, store = time.time(), service.store
    judged = service.verdicts.of([run], access=access, now=now)[run.id]
    diagnosis = run_diagnosis(service, run, access=access)
    alerts = store.alerts.list(access=access, project=run.key.project, run=run.key.run, limit=LISTED).items
    drawn = _charts(service, run, since_step=judged.since_step, access=access)
    return document(
        f"{run.key}: {judged.verdict.kind.words}",
        element("header", element("h1", str(run.key)), _facts(run)),
        element("p", judged.verdict.sentence, class_="verdict"),
        *(() if diagnosis is None else _story(diagnosis, todo=judged.verdict.todo)),
        *_section("Course", [element("div", *drawn, class_="charts")] if drawn else []),
        *_section("Incidents and alerts", _alerts(alerts)),
        *_section("Policies", _policies(store.policies.list(run.id, access=access, limit=LISTED).items)),
        *_section("Notes", _notes(store.notes.list(run.key, access=access, limit=LISTED).items)),
        element("footer", element("p", f"trmon {__version__}, ", time_element(now), class_="quiet")),
        style=STYLE,
    )


def _charts(service: Components, run: Run, *, since_step: int | None, access: Access) -> list[Element]:
    """Return the charts of the signals that the run has and knows a value of."""
    known = set(service.store.signals.names(run.id, access=access))
    shown = {name: words for name, words in SIGNALS.items() if name in known}
    for stem, words in PAIR_SIGNALS.items():
        if found := of_first_pair(stem, known):
            shown[found] = words
    series = service.store.signals.series(run.id, names=[*shown], access=access, points=POINTS)
    steps, marks = series.step.tolist(), [] if since_step is None else [(since_step, "began")]
    charts = (
        chart(title, unit, steps=steps, values=series.bands[name].mean.tolist(), marks=marks)
        for name, (title, unit) in shown.items()
    )
    return [figure for figure in charts if figure is not None]


def _facts(run: Run) -> Element:
    step = "no step yet" if run.last_step is None else f"step {run.last_step}"
    owner = f"owner {run.owner}" if run.owner else None
    words = " · ".join(part for part in (run.state.value, step, run.mode, owner, *run.tags) if part)
    return element("p", words, " · started ", time_element(run.created_at), class_="quiet")


def _story(diagnosis: DiagnosisInfo, *, todo: str | None) -> Iterator[Element]:
    risk = diagnosis.collapse_risk
    if risk is not None and risk.level != RiskLevel.PAST.value:
        said = risk_sentence(risk.probability, risk.driven_by, calibration=risk.calibration)
        yield element("p", f"{said}: a prediction.")
    if diagnosis.word == Word.FINDING.value:
        yield element("p", diagnosis.findings[0].meaning)
    if todo:
        yield element("p", element("strong", "Do this: "), todo)
    for found in diagnosis.findings:
        yield element("h2", found.headline)
        yield element("ul", *(element("li", one.words) for one in found.evidence))
    if diagnosis.over:
        yield element("h2", "Findings that are over")
        yield element("ul", *(element("li", found.headline) for found in diagnosis.over))


def _section(title: str, content: Sequence[Child]) -> list[Child]:
    return [element("h2", title), *content] if content else []


def _alerts(listed: Sequence[ListedAlert]) -> list[Child]:
    rows: list[list[Child]] = []
    for one in listed:
        alert = one.alert
        title = title_of_alert(alert)
        who = f"{one.ack.author}: {one.ack.note}" if one.ack and one.ack.note else one.ack.author if one.ack else ""
        what = f"incident: {title}" if alert.is_incident else title
        state = f"{alert.severity.value}, {alert.state.value}"
        rows.append([what, state, str(alert.since_step), time_element(alert.since_at), who, alert.summary])
    return [table(["what", "severity", "since step", "at", "acknowledged by", "summary"], rows)] if rows else []


def _policies(versions: Sequence[PolicyVersion]) -> list[Child]:
    rows: list[list[Child]] = [
        [version.policy.name, str(version.from_step), time_element(version.created_at), version.author, version.reason]
        for version in versions
    ]
    return [table(["policy", "from step", "at", "by", "reason"], rows)] if rows else []


def _notes(notes: Sequence[NoteInfo]) -> list[Child]:
    rows: list[list[Child]] = [
        [
            "" if note.step is None else str(note.step),
            time_element(note.at),
            note.author,
            element("span", note.text, class_="text"),
        ]
        for note in notes
    ]
    return [table(["step", "at", "by", "note"], rows)] if rows else []
