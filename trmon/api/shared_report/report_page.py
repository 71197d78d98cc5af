"""The page of a shared report: verdict, course, episodes, policies and notes of a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree.ElementTree import Element

from trmon.api.shared_report.html import ChartData, Child, chart, document, element, table, time_element
from trmon.domain.alerts.alert import ListedAlert
from trmon.domain.collapse_risk.risk_reading import RiskLevel, risk_sentence
from trmon.domain.findings.verdict import Word
from trmon.domain.health.judgement import RunVerdict
from trmon.domain.health.problems import title_of_alert
from trmon.domain.policies import PolicyVersion
from trmon.domain.runs.run import Run, RunNote
from trmon_client.api.diagnosis import DiagnosisInfo

STYLE = (Path(__file__).parent / "report.css").read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedRun:
    """The content of a shared report: no configuration, no traceback, no token.

    `alerts`, `policies` and `notes` are the newest ones, newest first.
    """

    run: Run
    verdict: RunVerdict
    diagnosis: DiagnosisInfo | None
    charts: Sequence[ChartData]
    alerts: Sequence[ListedAlert]
    policies: Sequence[PolicyVersion]
    notes: Sequence[RunNote]
    made_at: float
    version: str


def report_page(shared: SharedRun) -> bytes:
    """Return the report as one HTML file."""
    run = shared.run
    drawn = [figure for data in shared.charts if (figure := chart(data)) is not None]
    return document(
        f"{run.key}: {shared.verdict.kind.words}",
        element("header", element("h1", str(run.key)), _facts(run)),
        element("p", shared.verdict.sentence, class_="verdict"),
        *_story(shared),
        *_section("Course", [element("div", *drawn, class_="charts")] if drawn else []),
        *_section("Incidents and alerts", _alerts(shared.alerts)),
        *_section("Policies", _policies(shared.policies)),
        *_section("Notes", _notes(shared.notes)),
        element("footer", element("p", f"trmon {shared.version}, ", time_element(shared.made_at), class_="quiet")),
        style=STYLE,
    )


def _facts(run: Run) -> Element:
    step = "no step yet" if run.last_step is None else f"step {run.last_step}"
    owner = f"owner {run.owner}" if run.owner else None
    words = " · ".join(part for part in (run.state.value, step, run.mode, owner, *run.tags) if part)
    return element("p", words, " · started ", time_element(run.created_at), class_="quiet")


def _story(shared: SharedRun) -> Iterator[Element]:
    diagnosis = shared.diagnosis
    if diagnosis is None:
        return
    risk = diagnosis.collapse_risk
    if risk is not None and risk.level != RiskLevel.PAST.value:
        said = risk_sentence(risk.probability, risk.driven_by, calibration=risk.calibration)
        yield element("p", f"{said}: a prediction.")
    if diagnosis.word == Word.FINDING.value:
        yield element("p", diagnosis.findings[0].meaning)
    if shared.verdict.todo:
        yield element("p", element("strong", "Do this: "), shared.verdict.todo)
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


def _notes(notes: Sequence[RunNote]) -> list[Child]:
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
