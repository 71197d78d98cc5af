"""The shared report: a run as one HTML file that needs no service: verdict, course, episodes, policies and notes."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timezone
from itertools import groupby
from pathlib import Path
from typing import Any, TypeAlias
from xml.etree.ElementTree import Element, tostring

from fastapi import APIRouter, Response

from trmon.api.comparison import of_first_pair
from trmon.api.diagnosis import run_diagnosis
from trmon.api.http.auth import Reader
from trmon.api.http.components import Components, Service
from trmon.api.http.parameters import Named
from trmon.domain.access import Access
from trmon.domain.alerts.alert import ListedAlert
from trmon.domain.collapse_risk.risk_reading import RISK, RiskLevel, risk_sentence
from trmon.domain.findings.story import spans_decades
from trmon.domain.findings.verdict import Word
from trmon.domain.health.problems import title_of_alert
from trmon.domain.policies import PolicyVersion
from trmon.domain.runs.run import Run
from trmon_client.api.diagnosis import DiagnosisInfo
from trmon_client.api.runs import NoteInfo
from trmon_client.config.version import __version__

Child: TypeAlias = "Element | str | None"


def element(tag: str, *children: Child, **attributes: object) -> Element:
    """Return an element; None leaves a child or an attribute out, `class_` and `for_` are attributes of that name."""
    made = Element(tag, {_attribute(name): str(value) for name, value in attributes.items() if value is not None})
    for child in children:
        if isinstance(child, str):
            _append_text(made, child)
        elif child is not None:
            made.append(child)
    return made


def time_element(at: float) -> Element:
    """Return a time in UTC, with its zone."""
    moment = datetime.fromtimestamp(at, tz=timezone.utc)
    return element("time", f"{moment:%Y-%m-%d %H:%M:%S} UTC", datetime=moment.isoformat(timespec="seconds"))


def table(head: Iterable[str], rows: Iterable[Iterable[Child]]) -> Element:
    """Return a table."""
    cells = element("tr", *(element("th", name, scope="col") for name in head))
    body = element("tbody", *(element("tr", *(element("td", cell) for cell in row)) for row in rows))
    return element("div", element("table", element("thead", cells), body), class_="scroll")


def document(title: str, *children: Child, style: str) -> bytes:
    """Return a complete page, which loads nothing and runs nothing."""
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", **{"http-equiv": "Content-Security-Policy", "content": policy}),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", title),
        element("style", style),
    )
    page = element("html", head, element("body", element("main", *children)), lang="en")
    markup: str = tostring(page, encoding="unicode", method="html")
    return f"<!doctype html>\n{markup}\n".encode()


def _append_text(made: Element, text: str) -> None:
    if len(made):
        made[-1].tail = (made[-1].tail or "") + text
    else:
        made.text = (made.text or "") + text


def _attribute(name: str) -> str:
    return name.rstrip("_").replace("_", "-") if name != "viewBox" else name


WIDTH, HEIGHT = 520, 150
LEFT, RIGHT, TOP, BOTTOM = 64, 8, 8, 20


def chart(
    title: str, unit: str, *, steps: Sequence[int], values: Sequence[float], marks: Sequence[tuple[int, str]]
) -> Element | None:
    """Return a figure with the chart of a signal and its caption; None without a known value.

    Args: values: by step, NaN if unknown; marks: steps with what began there.
    """
    known = [value for value in values if math.isfinite(value)]
    if not known or len(steps) < 2:
        return None
    newest = f"newest {number(known[-1])}"
    caption = element("figcaption", element("strong", title), (f", {unit}" if unit else "") + f": {newest}")
    # For those who do not see the chart.
    ends = f"from {number(min(known))} to {number(max(known))}, {newest}" + (f" {unit}" if unit else "")
    began = "".join(f"; {what} at step {step}" for step, what in marks)
    label = f"{title} over steps {steps[0]} to {steps[-1]}: {ends}{began}"
    return element("figure", caption, _drawing(steps, values, known, marks=marks, label=label))


def number(value: float) -> str:
    """Return a number in four digits."""
    return f"{value:.4g}"


def _drawing(
    steps: Sequence[int],
    values: Sequence[float],
    known: Sequence[float],
    *,
    marks: Sequence[tuple[int, str]],
    label: str,
) -> Element:
    least, most = min(known), max(known)
    is_log = spans_decades(least, most)
    scale = math.log10 if is_log else float
    low, high = scale(least), scale(most)
    first, last = steps[0], steps[-1]

    def x(step: float) -> float:
        return round(LEFT + (step - first) / (last - first) * (WIDTH - LEFT - RIGHT), 1)

    def y(value: float) -> float:
        share = 0.5 if high == low else (scale(value) - low) / (high - low)
        return round(TOP + (1 - share) * (HEIGHT - TOP - BOTTOM), 1)

    lines = [_path(points) for points in _runs(steps, values, x, y)]
    ends = [least] if least == most else [least, most]
    labels = [_text(LEFT - 6, y(value) + 4, number(value), anchor="end") for value in ends]
    axis = [
        element("line", class_="axis", x1=LEFT, x2=WIDTH - RIGHT, y1=HEIGHT - BOTTOM, y2=HEIGHT - BOTTOM),
        _text(LEFT, HEIGHT - 5, f"step {first}{', logarithmic' if is_log else ''}"),
        _text(WIDTH - RIGHT, HEIGHT - 5, str(last), anchor="end"),
    ]
    drawn = [part for step, what in marks if first <= step <= last for part in _mark(x(step), f"{what} {step}")]
    return element("svg", *axis, *labels, *lines, *drawn, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=label)


def _runs(steps: Sequence[int], values: Sequence[float], x: Any, y: Any) -> Iterator[list[tuple[float, float]]]:
    """Yield the points of each stretch of known values."""
    for is_known, group in groupby(zip(steps, values, strict=True), key=lambda point: math.isfinite(point[1])):
        if is_known:
            yield [(x(step), y(value)) for step, value in group]


def _path(points: Sequence[tuple[float, float]]) -> Element:
    if len(points) == 1:
        [(at, height)] = points
        return element("circle", cx=at, cy=height, r=2, class_="dot")
    return element("polyline", class_="course", points=" ".join(f"{at},{height}" for at, height in points))


def _mark(at: float, what: str) -> list[Element]:
    is_late = at > WIDTH * 0.7
    label = _text(at - 4 if is_late else at + 4, TOP + 8, what, anchor="end" if is_late else "start")
    return [element("line", class_="mark", x1=at, x2=at, y1=TOP, y2=HEIGHT - BOTTOM), label]


def _text(at: float, height: float, text: str, *, anchor: str = "start") -> Element:
    return element("text", text, x=at, y=height, text_anchor=anchor)


router = APIRouter(prefix="/api/v1/runs/{project}/{run}", tags=["runs"])

STYLE = Path(__file__).with_suffix(".css").read_text(encoding="utf-8")
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
