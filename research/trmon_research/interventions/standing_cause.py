"""The cause that a run's judgement names: the finding that leads."""

from __future__ import annotations

from dataclasses import dataclass

from trmon.domain.findings.verdict import last_good_of, leader_of, onset_of_illness
from trmon.domain.pipeline.judging import judge_pending
from trmon.domain.pipeline.state import PassContext, PipelineState


@dataclass(frozen=True, slots=True)
class StandingCause:
    """The id of a finding and the last step before it began; None if nothing was found, or if it began with the run."""

    finding: str | None
    last_good_step: int | None


def standing_cause(state: PipelineState, *, context: PassContext) -> StandingCause:
    """Return the cause after the newest step, whose rows have all come."""
    _, closed = judge_pending(state, context=context)
    leader = leader_of(closed.judge, context.rules.catalogue)
    if leader is None:
        return StandingCause(None, None)
    illness = onset_of_illness(closed.judge, leader)
    last_good = last_good_of(closed.judge, illness, context.rules.catalogue).last_good
    return StandingCause(leader.finding, None if last_good is None else last_good.step)
