"""Tools on runs: list, describe and compare them, and read their alerts, incidents and notes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

import msgspec
from pydantic import Field

from trmon.assistants.answers import (
    NAME_CHARACTERS,
    Answer,
    RunName,
    bounded_name,
    bounded_text,
    checked_run,
    picked,
    rounded,
    taken,
    written_time,
)
from trmon.terminal.fleet import FleetView, fetch_fleet, run_counts
from trmon_client.api import AlertInfo, ComparedRun, Service
from trmon_client.api.runs import RunEndInfo

MAX_TAGS, MAX_OPTIONS, MAX_WARNINGS = 6, 40, 5


def list_runs_tool(
    service: Service,
    project: Annotated[str | None, Field(description="Only runs of this project.", max_length=128)] = None,
    need: Annotated[Literal["now", "soon", "none"] | None, Field(description="Only runs of this urgency.")] = None,
    words: Annotated[
        str, Field(description="Words that a run's name, owner, tags, state or verdict must hold.", max_length=200)
    ] = "",
    limit: Annotated[int, Field(ge=1, le=30, description="The most runs to return.")] = 20,
) -> Answer:
    """List training runs with their verdict, the most urgent first; need says how soon somebody should look (now, soon
    or none). Start here if you do not know the run's name."""
    found = FleetView(words=words).of(fetch_fleet(service, project=project))
    matching = [run for run in found if need is None or run.verdict.need == need]
    return {
        "runs": [
            {
                "run": run.name,
                **picked(run.verdict, need="need", verdict="kind", why="why", since_step="since_step", limit=240),
                **picked(run, newest_step="step", state="state", owner="owner", limit=80),
                "tags": _tags(run.tags),
                "last_report": written_time(run.last_report_at),
                "rejected_fraction": rounded(run.mask_rate),
                "collapse_probability": rounded(run.collapse_risk.probability) if run.collapse_risk else None,
            }
            for run in matching[:limit]
        ],
        "counts": run_counts(found),
        "left_out": max(len(matching) - limit, 0) or None,
    }


def describe_run_tool(
    service: Service,
    run: RunName,
    options: Annotated[
        str,
        Field(description="Only options of the configuration whose name holds one of these words.", max_length=200),
    ] = "",
) -> Answer:
    """Describe a run: its configuration, its policy, its owner, mistakes in its trainer's calls and how it ended."""
    name = checked_run(run)
    found, policy = service.run(name), service.policy(name)
    words = options.casefold().split()
    config = {
        option: value
        for option, value in _dotted(found.config)
        if not words or any(word in option.casefold() for word in words)
    }
    return {
        "run": name,
        **picked(found, "state", "mode", "owner", limit=NAME_CHARACTERS),
        "tags": _tags(found.tags),
        "started": written_time(found.created_at),
        "last_report": written_time(found.last_report_at),
        "newest_step": found.last_step,
        **picked(policy, policy="name", policy_set_by="author", limit=NAME_CHARACTERS),
        **picked(policy, policy_reason="reason"),
        "shadow_policies": [bounded_name(shadow["name"]) for shadow in policy.shadows[:MAX_TAGS]],
        "config": {bounded_name(option): bounded_name(str(config[option])) for option in sorted(config)[:MAX_OPTIONS]},
        "config_left_out": max(len(config) - MAX_OPTIONS, 0) or None,
        "warnings": [bounded_text(one.text) for one in found.warnings[:MAX_WARNINGS]] or None,
        "end": None if found.end is None else _end(found.end, phrase=found.end_phrase),
    }


def _tags(tags: tuple[str, ...]) -> list[str] | None:
    return [bounded_text(tag, 40) for tag in tags[:MAX_TAGS]] or None


def _end(end: RunEndInfo, *, phrase: str | None) -> Answer:
    return {
        "phrase": phrase and bounded_text(phrase),
        "at": written_time(end.at),
        "reason": end.reason,
        "error": bounded_text(end.error) or None,
        "signal": end.signal or None,
        "exit_code": end.exit_code,
    }


def _dotted(config: Mapping[str, Any], under: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from _dotted(value, f"{under}{name}.")
        else:
            yield f"{under}{name}", value


MAX_MEMBERS = 12


def list_alerts_tool(
    service: Service,
    run: Annotated[
        str | None, Field(description="Only alerts of this run, PROJECT/RUN; all runs by default.", max_length=300)
    ] = None,
    state: Annotated[
        Literal["pending", "firing", "resolved"] | None, Field(description="Only alerts in this state.")
    ] = None,
    incidents_only: Annotated[bool, Field(description="One line for each illness of a run.")] = False,
    limit: Annotated[int, Field(ge=1, le=25, description="The most alerts to return.")] = 15,
) -> Answer:
    """List alerts and incidents, newest first: which rule, since which step, its value against its limit, and what to
    do. An incident is one illness of a run; rules names its alerts."""
    name = None if run is None else checked_run(run)
    found = service.incidents(run=name, state=state) if incidents_only else service.alerts(run=name, state=state)
    alerts, more = taken(found, limit)
    return {"alerts": [_alert(alert) for alert in alerts], "more": more or None}


def list_notes_tool(
    service: Service,
    run: RunName,
    limit: Annotated[int, Field(ge=1, le=25, description="The most notes to return.")] = 15,
) -> Answer:
    """List what people wrote on a run and its steps, newest first."""
    name = checked_run(run)
    notes, more = taken(service.notes(name), limit)
    written = [
        {
            "step": note.step,
            "author": bounded_text(note.author, 80),
            "at": written_time(note.at),
            "text": bounded_text(note.text),
        }
        for note in notes
    ]
    return {"run": name, "notes": written, "more": more or None}


def _alert(alert: AlertInfo) -> Answer:
    return {
        "run": f"{alert.project}/{alert.run}",
        **picked(alert, "rule", "title", "severity", "state", "step", limit=NAME_CHARACTERS),
        "since": written_time(alert.since_at),
        **picked(alert, value="value", threshold="threshold", summary="summary", limit=300),
        "what_to_do": bounded_text(alert.runbook, 300) or None,
        "rules": [bounded_name(member.rule) for member in alert.members[:MAX_MEMBERS]] or None,
        "acknowledged_by": None if alert.ack is None else bounded_text(alert.ack.author, 80),
        "silenced_until": None if alert.silenced is None else written_time(alert.silenced.ends_at),
    }


MAX_RUNS, MAX_PARTINGS, MAX_DIFFERENCES = 4, 6, 20
NOT_GIVEN = "(not given)"


def compare_runs_tool(
    service: Service,
    runs: Annotated[
        list[str],
        Field(
            min_length=1,
            max_length=MAX_RUNS,
            description="Runs as PROJECT/RUN; of a single one, the service finds a sound run with the closest "
            "configuration to compare it with.",
        ),
    ],
) -> Answer:
    """Compare runs: in which signals and at which step each parts from the first, in words too (sentence), and which
    options of their configurations differ; values are in the order of the runs."""
    found = service.diff([checked_run(run) for run in runs])
    return {
        "runs": [_compared(run) for run in found.runs],
        "chosen_by_service": found.proposed or None,
        "same_policy": found.same_policy,
        "differences": [
            {
                "option": bounded_name(one.name),
                "values": [
                    bounded_name(value if isinstance(value, str) else msgspec.json.encode(value).decode())
                    if given
                    else NOT_GIVEN
                    for value, given in zip(one.values, one.given, strict=True)
                ],
            }
            for one in found.config[:MAX_DIFFERENCES]
        ],
        "differences_left_out": max(len(found.config) - MAX_DIFFERENCES, 0) or None,
    }


def _compared(run: ComparedRun) -> Answer:
    status = run.fleet
    return {
        "run": status.name,
        **picked(status.verdict, verdict="kind", why="why"),
        "newest_step": status.step,
        "policy": bounded_name(run.policy.name),
        "sentence": bounded_text(run.sentence),
        "partings": [
            {"signal": one.signal, "step": rounded(one.place), "from_start": one.from_start or None}
            for one in run.partings[:MAX_PARTINGS]
        ],
    }
