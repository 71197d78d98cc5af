"""A judgement as the service answers it, for a run of the service and for a log alike; without FastAPI."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trmon.domain.findings.judge import Evidence, Place
from trmon.domain.findings.remedies import how_to_measure, remedy
from trmon.domain.findings.sentences import evidence_words, headline, illness_words, words_of_signal
from trmon.domain.findings.verdict import Course, Found, Judgement, words_of
from trmon.domain.runs.run import SavedCheckpoint
from trmon_client.api.diagnosis import (
    CourseInfo,
    DiagnosisInfo,
    EvidenceInfo,
    FindingInfo,
    OutOfRangeInfo,
    RemedyInfo,
    UnmeasuredInfo,
)


def judgement_info(
    judgement: Judgement,
    *,
    framework: str | None,
    config: Mapping[str, Any],
    has_ended: bool = False,
    is_log: bool = False,
    checkpoints: Sequence[SavedCheckpoint] | None = None,
    **fields: object,
) -> DiagnosisInfo:
    """Return the answer for a judgement.

    Args: framework: of the run's options or of the log's names; config: of the run, for the values of the remedy's
    options; checkpoints: that its trainer has reported, None of a log; is_log: whether it is of a trainer's log,
    imported or not; fields: what the answer has besides the judgement.
    """
    attempt = judgement.place.attempt
    since, last_good = judgement.since, judgement.last_good
    return DiagnosisInfo.from_fields(
        judgement,
        step=judgement.place.step,
        attempt=attempt,
        sentence=words_of(judgement),
        since_step=_step(since),
        since_attempt=_attempt(since),
        last_good_step=_step(last_good),
        last_good_attempt=_attempt(last_good),
        findings=[_finding_info(found, steps=_headline(found, judgement)) for found in judgement.findings],
        over=[_finding_info(found, steps=headline(found)) for found in judgement.over],
        outside=[OutOfRangeInfo.from_fields(out, words=words_of_signal(out.signal)) for out in judgement.outside],
        reward=None if judgement.reward is None else _course_info(judgement.reward),
        changed=[_course_info(course) for course in judgement.changed],
        unmeasured=list(_unmeasured(judgement, framework=framework, is_log=is_log)),
        remedy=_remedy_info(
            judgement, framework=framework, config=config, has_ended=has_ended, checkpoints=checkpoints
        ),
        has_ended=has_ended,
        framework=framework,
        **fields,
    )


def _headline(found: Found, judgement: Judgement) -> str:
    """Return a finding with its steps; the one that leads with those of the whole illness, as the verdict has them."""
    return illness_words(judgement) if found is judgement.lead else headline(found)


def _finding_info(found: Found, *, steps: str) -> FindingInfo:
    return FindingInfo.from_fields(
        found,
        headline=steps,
        since_step=found.since.step,
        since_attempt=found.since.attempt,
        found_step=found.found.step,
        beyond_step=_step(found.beyond),
        last_good_step=_step(found.last_good),
        last_good_attempt=_attempt(found.last_good),
        ended_step=_step(found.ended),
        evidence=list(map(_evidence_info, found.evidence)),
    )


def _evidence_info(evidence: Evidence) -> EvidenceInfo:
    return EvidenceInfo.from_fields(evidence, words=evidence_words(evidence))


def _course_info(course: Course) -> CourseInfo:
    return CourseInfo.from_fields(course, words=words_of_signal(course.signal))


def _remedy_info(
    judgement: Judgement,
    *,
    framework: str | None,
    config: Mapping[str, Any],
    has_ended: bool,
    checkpoints: Sequence[SavedCheckpoint] | None,
) -> RemedyInfo | None:
    if judgement.lead is None:
        return None
    found = remedy(
        judgement.lead.remedy,
        framework=framework,
        config=config,
        last_good_step=_step(judgement.last_good),
        has_ended=has_ended,
        checkpoints=checkpoints,
    )
    return RemedyInfo.from_fields(found)


def _unmeasured(judgement: Judgement, *, framework: str | None, is_log: bool) -> Iterator[UnmeasuredInfo]:
    lacking = {
        "agreement": not judgement.measures_agreement,
        "reward": judgement.reward is None,
        "training": not judgement.measures_training,
    }
    for what, is_lacking in lacking.items():
        if is_lacking and judgement.rows and not judgement.counts_no_token:
            yield UnmeasuredInfo(what=what, how=how_to_measure(what, framework=framework, from_log=is_log))


def _step(place: Place | None) -> int | None:
    return None if place is None else place.step


def _attempt(place: Place | None) -> int | None:
    return None if place is None else place.attempt
