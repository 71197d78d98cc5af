"""The words that a list of alerts is searched for, as conditions of a query."""

from __future__ import annotations

from sqlalchemy import ColumnElement, and_, func, literal, or_, type_coerce
from sqlalchemy.types import Text

from trmon.domain.alerts.alert import INCIDENT_RULE
from trmon.domain.incidents.incident import CAUSE_LABEL, FINDING_LABEL
from trmon.domain.model.finding import CAUSES
from trmon.store.database.json_text import json_text
from trmon.store.schema import tables

_alert, _run = tables.alert.c, tables.run.c


def matches(search: str) -> ColumnElement[bool]:
    """Return whether an alert has every word in the names of its project, run, owner, rule, title or cause.

    Letters match in both cases; on SQLite, those of ASCII do.
    """
    return and_(*(_has(word) for word in search.lower().split()))


def _has(word: str) -> ColumnElement[bool]:
    """Return whether an alert has a word; an incident is called by its finding, which is no text in the table."""
    findings = [finding.value for finding in CAUSES if word in finding.title.lower()]
    is_called = and_(_alert.rule == INCIDENT_RULE, _label(FINDING_LABEL).in_(findings))
    return or_(_names().contains(word, autoescape=True), is_called)


def _names() -> ColumnElement[str]:
    cause = func.coalesce(_label(CAUSE_LABEL), "")
    parts = [_run.project + "/" + _run.name, func.coalesce(_run.owner, ""), _alert.rule, cause]
    words = [func.replace(name, "_", " ") for name in (_alert.rule, cause)]
    text = parts[0]
    for part in (*parts[1:], *words):
        text = text + " " + part
    return func.lower(text)


def _label(name: str) -> ColumnElement[str]:
    return json_text(type_coerce(_alert.labels, Text), literal(name))
