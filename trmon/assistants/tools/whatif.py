"""The tool that evaluates another policy over stored sequences."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from trmon.assistants.answer import ToolAnswer
from trmon.assistants.arguments import FromStep, RunName, ToStep, checked_run
from trmon.assistants.bounded import bounded_name, rounded
from trmon.domain.finding import JsonNumber
from trmon.terminal.arguments import parse_policy_argument
from trmon_client.api import Service

MAX_UNDECIDED = 5


class LengthQuarterAnswer(ToolAnswer):
    """A quartile of the sequences by length in tokens, and the fraction of it that the policy would reject."""

    shortest_tokens: int
    longest_tokens: int
    rejected_fraction: JsonNumber


class WhatIfAnswer(ToolAnswer):
    """What a policy would have rejected, beside what was rejected then; nothing was changed.

    `undecided` counts sequences by what the policy lacks to decide on them.
    """

    run: str
    policy: str
    first_step: int | None
    last_step: int | None
    steps: int
    steps_without_reports: int | None
    sequences: int
    would_reject_fraction: JsonNumber
    rejected_then_fraction: JsonNumber
    of_positive_advantage_fraction: JsonNumber
    of_negative_advantage_fraction: JsonNumber
    rejected_by_reason: dict[str, int]
    by_length: list[LengthQuarterAnswer]
    mean_weight: JsonNumber
    undecided: dict[str, int] | None


def what_if_policy_tool(
    service: Service,
    run: RunName,
    policy: Annotated[
        str,
        Field(
            max_length=4000,
            description="A preset such as geo_mask, a preset with bounds such as trm_max(delta=0.02), or a policy as "
            "JSON. A wrong name is answered with those that exist.",
        ),
    ],
    from_step: FromStep = None,
    to_step: ToStep = None,
    max_steps: Annotated[int, Field(ge=1, le=1000, description="The newest so many steps of the range.")] = 200,
) -> WhatIfAnswer:
    """Evaluate what another policy would have rejected of a run's stored sequences, beside what was rejected then.
    undecided counts sequences by the input that the policy lacks. It changes nothing."""
    name = checked_run(run)
    found = service.what_if(name, parse_policy_argument(policy).spec(), (from_step, to_step), max_steps=max_steps)
    return WhatIfAnswer(
        run=name,
        policy=bounded_name(found.policy),
        first_step=found.range.first_step,
        last_step=found.range.last_step,
        steps=found.range.n_steps,
        steps_without_reports=found.range.n_steps_without_reports or None,
        sequences=found.total.n_sequences,
        would_reject_fraction=rounded(found.total.mask_rate),
        rejected_then_fraction=rounded(found.then.mask_rate),
        of_positive_advantage_fraction=rounded(found.positive_advantage.mask_rate),
        of_negative_advantage_fraction=rounded(found.negative_advantage.mask_rate),
        rejected_by_reason=found.reasons,
        by_length=[
            LengthQuarterAnswer(
                shortest_tokens=one.shortest,
                longest_tokens=one.longest,
                rejected_fraction=rounded(one.mask_rate),
            )
            for one in found.by_length
        ],
        mean_weight=rounded(found.weights.mean) if found.weights else None,
        undecided=dict(list(found.undecided.items())[:MAX_UNDECIDED]) or None,
    )
