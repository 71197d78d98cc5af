"""The tool that compares runs."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from pydantic import Field

from trmon.assistants.answer import ToolAnswer
from trmon.assistants.arguments import checked_run
from trmon.assistants.bounded import bounded_name, bounded_text, rounded
from trmon.domain.finding import JsonNumber
from trmon_client.api import ComparedRun, Service

MAX_RUNS, MAX_PARTINGS, MAX_DIFFERENCES = 4, 6, 20
NOT_GIVEN = "(not given)"


class PartingAnswer(ToolAnswer):
    """A signal in which a run leaves the first one, and where: a step, or from the start."""

    signal: str
    step: JsonNumber
    from_start: bool | None


class ComparedRunAnswer(ToolAnswer):
    """A run beside the first one."""

    run: str
    verdict: str
    why: str
    newest_step: int | None
    policy: str
    sentence: str
    partings: list[PartingAnswer]


class DifferenceAnswer(ToolAnswer):
    """An option that is not the same in all configurations; `values` are in the order of the runs."""

    option: str
    values: list[str]


class ComparisonAnswer(ToolAnswer):
    """Runs side by side; with `chosen_by_service` the second is a sound run with the closest configuration."""

    runs: list[ComparedRunAnswer]
    chosen_by_service: bool | None
    same_policy: bool
    differences: list[DifferenceAnswer]
    differences_left_out: int | None


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
) -> ComparisonAnswer:
    """Compare runs: in which signals and at which step each parts from the first, in words too (sentence), and which
    options of their configurations differ; values are in the order of the runs."""
    found = service.diff([checked_run(run) for run in runs])
    return ComparisonAnswer(
        runs=[_compared(run) for run in found.runs],
        chosen_by_service=found.proposed or None,
        same_policy=found.same_policy,
        differences=[
            DifferenceAnswer(
                option=bounded_name(one.name),
                values=[
                    _value(value) if given else NOT_GIVEN for value, given in zip(one.values, one.given, strict=True)
                ],
            )
            for one in found.config[:MAX_DIFFERENCES]
        ],
        differences_left_out=max(len(found.config) - MAX_DIFFERENCES, 0) or None,
    )


def _compared(run: ComparedRun) -> ComparedRunAnswer:
    status = run.fleet
    return ComparedRunAnswer(
        run=status.name,
        verdict=status.verdict.kind,
        why=bounded_text(status.verdict.why),
        newest_step=status.step,
        policy=bounded_name(run.policy.name),
        sentence=bounded_text(run.sentence),
        partings=[
            PartingAnswer(signal=one.signal, step=rounded(one.place), from_start=one.from_start or None)
            for one in run.partings[:MAX_PARTINGS]
        ],
    )


def _value(value: Any) -> str:
    return bounded_name(value if isinstance(value, str) else msgspec.json.encode(value).decode())
