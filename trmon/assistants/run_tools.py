"""Tools on runs: what is wrong with them, how they compare, their alerts and notes, and what a name means."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec.structs import asdict
from pydantic import Field

from trmon.assistants.answers import (
    NAME_CHARACTERS,
    Answer,
    RunName,
    as_text,
    bounded_text,
    checked_run,
    shortened,
    taken,
)
from trmon.domain.comparison import config_entries
from trmon.domain.errors import InvalidInput, did_you_mean
from trmon.domain.findings import remedies
from trmon.domain.findings.catalogue import builtin_catalogue
from trmon.terminal.fleet import FleetView, fetch_fleet, run_counts
from trmon_client.api import Service
from trmon_client.core.signals.catalogue import SIGNALS

NOT_OF_VERDICT = ("todo", "cause", "counts_as")
NOT_OF_STATUS = (
    *(
        "project",
        "run",
        "verdict",
        "archived",
        "expected_step_seconds",
        "warnings",
        "judged_step",
        "judged_at",
        "behind",
    ),
    *("end_phrase", "incident", "alerts", "reward", "kl", "driven_by", "calibration"),
)


def list_runs(
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
                "verdict": shortened(run.verdict, *NOT_OF_VERDICT, text=240),
                **shortened(run, *NOT_OF_STATUS, text=60, items=4),
            }
            for run in matching[:limit]
        ],
        "counts": run_counts(found),
        "left_out": max(len(matching) - limit, 0) or None,
    }


NOT_OF_FINDING = ("clause", "headline", "chart", "beyond_step", "from_start", "measure", "side", "limit", "is_on_scale")
NOT_OF_DIAGNOSIS = (
    *("attempt", "since_attempt", "last_good_attempt", "word", "interval", "incident", "answers", "reward"),
    *("changed", "outside.words", "evidence.then", "evidence.now", "release", "to_paste"),
    *("checkpoint_step", "checkpoint_path", "calibration"),
)


def diagnose_run(service: Service, run: RunName) -> Answer:
    """Say why a run is ill, or what is known of one that is not: the verdict, the findings that stand (the one that
    leads first, then its consequences) with their evidence, the step since which it holds, the last good step to resume
    from, the remedy in words and in the options of the run's own framework, signals outside their healthy ranges, and
    what is not measured."""
    name = checked_run(run)
    found, status = service.diagnosis(name), service.status(name)
    ended = [one.headline for one in reversed(found.over)]
    answer = {"run": name, "verdict": status.verdict, **asdict(found), "over": ended}
    return shortened(
        answer | {"collapse_risk": status.collapse_risk}, *NOT_OF_VERDICT, *NOT_OF_FINDING, *NOT_OF_DIAGNOSIS
    )


def collapse_risk(service: Service, run: RunName) -> Answer:
    """Return the probability that a collapse begins within horizon_steps: a prediction, not a finding. A driver's
    log_odds above 0 raises it. level is low, warn, page, past (a collapse has begun) or unknown (not estimated).
    calibration says what the number is worth."""
    name = checked_run(run)
    found = service.diagnosis(name)
    risk = {"level": "unknown"} if found.collapse_risk is None else asdict(found.collapse_risk)
    return shortened({"run": name, "judged_step": found.step, **risk}, "driven_by", "model", "page_at", items=40)


def describe_run(
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
    config = dict(config_entries(found.config))
    chosen = [one for one in sorted(config) if not words or any(word in one.casefold() for word in words)]
    return {
        **shortened(
            asdict(found)
            | {"run": name, "policy": asdict(policy) | {"shadows": [one["name"] for one in policy.shadows]}},
            *("project", "config", "archived", "firing", "incident", "checkpoints", "end.phrase", "traceback", "rank"),
            *("policy.policy", "hash", "evidence"),
        ),
        **shortened({"config": {option: as_text(config[option]) for option in chosen}}, text=NAME_CHARACTERS),
    }


def list_alerts(
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
    do. An incident is one illness of a run; members names its alerts."""
    asked = service.incidents if incidents_only else service.alerts
    alerts, more = taken(asked(run=None if run is None else checked_run(run), state=state), limit)
    left_out = ("project", "owner", "identity", "attempt_id", "update", "updated_at", "labels", "silenced.id")
    shown = [
        asdict(one) | {"run": f"{one.project}/{one.run}", "members": [member.rule for member in one.members]}
        for one in alerts
    ]
    return {"alerts": [shortened(one, *left_out, text=300) for one in shown], "more": more}


def list_notes(
    service: Service,
    run: RunName,
    limit: Annotated[int, Field(ge=1, le=25, description="The most notes to return.")] = 15,
) -> Answer:
    """List what people wrote on a run and its steps, newest first."""
    name = checked_run(run)
    notes, more = taken(service.notes(name), limit)
    return {"run": name, "notes": [shortened(note, "id") for note in notes], "more": more}


def compare_runs(
    service: Service,
    runs: Annotated[
        list[str],
        Field(
            min_length=1,
            max_length=4,
            description="Runs as PROJECT/RUN; of a single one, the service finds a sound run with the closest "
            "configuration to compare it with.",
        ),
    ],
) -> Answer:
    """Compare runs: in which signals and at which step (place) each parts from the first, in words too (sentence), and
    which options of their configurations differ (config); values are in the order of the runs, given says which runs
    have the option."""
    found = service.diff([checked_run(run) for run in runs])
    compared = [
        {"run": one.fleet.name, "verdict": one.fleet.verdict, "step": one.fleet.step, "policy": one.policy.name}
        | {"sentence": one.sentence, "partings": one.partings}
        for one in found.runs
    ]
    config = [asdict(one) | {"values": [as_text(value) for value in one.values]} for one in found.config]
    return {
        **shortened(asdict(found) | {"runs": compared}, "config", "by", "verdict.need", *NOT_OF_VERDICT),
        **shortened({"config": config}, text=NAME_CHARACTERS, items=20),
    }


def run_budget(service: Service, run: RunName) -> Answer:
    """Return the mismatch and lag that a run tolerates (conjectures), where its drift comes from (total variation of
    engine mismatch, alpha_1, and of stale weights, alpha_0, 0 to 1), and advice for its kind of pipeline."""
    name = checked_run(run)
    found = service.budget(name)
    shown = [one for one in found.pipeline.anti_patterns if one.presence != "absent"]
    answer = {"run": name, **asdict(found), "pipeline": asdict(found.pipeline) | {"anti_patterns": shown}}
    return shortened(
        answer | {"trainer_advice": None if found.advice is None else found.advice.reasons},
        *("steps", "advice", "kinds", "minorizer", "minorizer_vacuous", "methods.kind", "number"),
        *("correction_shown_by", "anti_patterns.shown_by"),
    )


NOT_OF_RULE = (
    *("when", "reads", "for_steps", "for_seconds", "clear_for_steps", "immune_steps", "summary", "labels", "commands"),
    *("stages.options", "is_finding", "is_symptom", "limits", "clauses"),
)


def explain(
    service: Service,
    name: Annotated[
        str,
        Field(
            description="A finding such as stale_rollouts, a rule such as mask_rate, or a signal such as "
            "mismatch_kl_k3.",
            max_length=128,
        ),
    ],
) -> Answer:
    """Explain a finding, a rule (its runbook) or a signal: what it means, when it is raised, and what to do."""
    findings = builtin_catalogue().findings
    finding = next((one for one in findings if name in (one.id, one.title)), None)
    rules = {one.name: one for one in service.rules()}
    if rule := rules.get(finding.id if finding else name):
        fires_when = [f"{'  ' * line.depth}{line.words}" for line in rule.fires_when]
        answer = {"kind": "finding" if finding else "rule", **asdict(rule), "fires_when": fires_when}
        return shortened(answer, *NOT_OF_RULE, text=1500, items=40)
    if finding:
        found = remedies.remedy(finding.id, framework=None, config={}, last_good_step=None, has_ended=False)
        answer = {"kind": "finding", "name": finding.id, "title": finding.title, "severity": finding.severity}
        return shortened(answer | {"runbook": found.first, "then": found.then, "meaning": finding.meaning})
    if specs := [one for one in SIGNALS.values() if name in (one.name, one.stem)]:
        answer = {"kind": "signal", "names": [one.name for one in specs], **msgspec.to_builtins(specs[0])}
        return shortened(answer, "name", "stem", "pair", "words", "core")
    known = [*rules, *(one.id for one in findings), *SIGNALS]
    near = did_you_mean(name, known) or f"; findings: {', '.join(one.id for one in findings)}"
    raise InvalidInput("name", f"no finding, rule or signal {bounded_text(name, NAME_CHARACTERS)!r}{near}")
