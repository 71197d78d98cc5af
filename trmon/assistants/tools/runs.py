"""Tools on runs: list them by urgency, and describe one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from trmon.assistants.answer import ToolAnswer
from trmon.assistants.arguments import RunName, checked_run
from trmon.assistants.bounded import bounded_name, bounded_text, rounded, written_time
from trmon.domain.finding import JsonNumber
from trmon.terminal.fleet import FleetView, fetch_fleet
from trmon_client.api import RunStatus, Service
from trmon_client.api.runs import RunEndInfo

MAX_TAGS, MAX_OPTIONS, MAX_WARNINGS = 6, 40, 5


class RunLineAnswer(ToolAnswer):
    """A run: `need` says how soon to investigate, `why` the verdict in words."""

    run: str
    need: str
    verdict: str
    why: str
    since_step: int | None
    newest_step: int | None
    state: str
    owner: str | None
    tags: list[str] | None
    last_report: str | None
    rejected_fraction: JsonNumber
    collapse_probability: JsonNumber


class RunsAnswer(ToolAnswer):
    """Runs by urgency; `by_need` counts all that match, listed or not."""

    runs: list[RunLineAnswer]
    by_need: dict[str, int]
    left_out: int | None


class RunEndAnswer(ToolAnswer):
    """How a run ended, as its trainer reported it."""

    phrase: str | None
    at: str | None
    reason: str
    error: str | None
    signal: str | None
    exit_code: int | None


class RunDescriptionAnswer(ToolAnswer):
    """A run's setting: `config` has dotted names; `policy` decides which sequences stay in the loss."""

    run: str
    state: str
    mode: str
    owner: str | None
    tags: list[str] | None
    started: str | None
    last_report: str | None
    newest_step: int | None
    policy: str
    policy_set_by: str
    policy_reason: str
    shadow_policies: list[str]
    config: dict[str, str]
    config_left_out: int | None
    warnings: list[str] | None
    end: RunEndAnswer | None


def list_runs_tool(
    service: Service,
    project: Annotated[str | None, Field(description="Only runs of this project.", max_length=128)] = None,
    need: Annotated[
        Literal["now", "soon", "none"] | None, Field(description="Only runs that need somebody this soon.")
    ] = None,
    words: Annotated[
        str, Field(description="Words that a run's name, owner, tags, state or verdict must hold.", max_length=200)
    ] = "",
    limit: Annotated[int, Field(ge=1, le=30, description="The most runs to return.")] = 20,
) -> RunsAnswer:
    """List training runs with their verdict, the most urgent first; need says how soon somebody should look (now, soon
    or none). Start here if you do not know the run's name."""
    found = FleetView(words=words).of(fetch_fleet(service, project=project))
    matching = [run for run in found if need is None or run.verdict.need == need]
    return RunsAnswer(
        runs=[_line(run) for run in matching[:limit]],
        by_need=dict(Counter(run.verdict.need for run in found)),
        left_out=max(len(matching) - limit, 0) or None,
    )


def describe_run_tool(
    service: Service,
    run: RunName,
    options: Annotated[
        str,
        Field(description="Only options of the configuration whose name holds one of these words.", max_length=200),
    ] = "",
) -> RunDescriptionAnswer:
    """Describe a run: its configuration, its policy, its owner, mistakes in its trainer's calls and how it ended."""
    name = checked_run(run)
    found, policy = service.run(name), service.policy(name)
    words = options.casefold().split()
    config = {
        option: value
        for option, value in _dotted(found.config)
        if not words or any(word in option.casefold() for word in words)
    }
    return RunDescriptionAnswer(
        run=name,
        state=found.state,
        mode=found.mode,
        owner=found.owner and bounded_name(found.owner),
        tags=_tags(found.tags),
        started=written_time(found.created_at),
        last_report=written_time(found.last_report_at),
        newest_step=found.last_step,
        policy=bounded_name(policy.name),
        policy_set_by=bounded_name(policy.author),
        policy_reason=bounded_text(policy.reason),
        shadow_policies=[bounded_name(shadow["name"]) for shadow in policy.shadows[:MAX_TAGS]],
        config={bounded_name(option): bounded_name(str(config[option])) for option in sorted(config)[:MAX_OPTIONS]},
        config_left_out=max(len(config) - MAX_OPTIONS, 0) or None,
        warnings=[bounded_text(one.text) for one in found.warnings[:MAX_WARNINGS]] or None,
        end=None if found.end is None else _end(found.end, phrase=found.end_phrase),
    )


def _line(run: RunStatus) -> RunLineAnswer:
    return RunLineAnswer(
        run=run.name,
        need=run.verdict.need,
        verdict=run.verdict.kind,
        why=bounded_text(run.verdict.why, 240),
        since_step=run.verdict.since_step,
        newest_step=run.step,
        state=run.state,
        owner=run.owner and bounded_text(run.owner, 80),
        tags=_tags(run.tags),
        last_report=written_time(run.last_report_at),
        rejected_fraction=rounded(run.mask_rate),
        collapse_probability=rounded(run.collapse_risk.probability) if run.collapse_risk else None,
    )


def _tags(tags: tuple[str, ...]) -> list[str] | None:
    return [bounded_text(tag, 40) for tag in tags[:MAX_TAGS]] or None


def _end(end: RunEndInfo, *, phrase: str | None) -> RunEndAnswer:
    return RunEndAnswer(
        phrase=phrase and bounded_text(phrase),
        at=written_time(end.at),
        reason=end.reason,
        error=bounded_text(end.error) or None,
        signal=end.signal or None,
        exit_code=end.exit_code,
    )


def _dotted(config: Mapping[str, Any], under: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the options of a nested configuration with dotted names."""
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from _dotted(value, f"{under}{name}.")
        else:
            yield f"{under}{name}", value
