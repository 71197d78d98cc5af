"""The course of a run: which findings held over which steps, and where it broke."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from trmon.domain.diagnosis import Diagnosis, Finding, History, Thresholds, diagnose
from trmon.domain.diagnosis.conditions import TRUE
from trmon.domain.diagnosis.criteria import finding_conditions
from trmon.domain.diagnosis.features import with_features
from trmon.domain.model.finding import CAUSES

Array: TypeAlias = Any
WINDOW_STEPS = 256
"""The steps that a diagnosis reads, as in the service."""
STRIDE_STEPS = 128
BRIDGED_STEPS = 20
"""A finding that is absent for fewer steps than this is one episode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingSpan:
    """Consecutive steps in which a finding held; `stands` if it still held at the last step of the log."""

    finding: Finding
    first_step: int
    last_step: int
    stands: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """The findings over the steps of a run, oldest first, and the diagnosis at its end.

    `broke_at` is the earliest step at which the chain of findings began that still stands at the end, None without one;
    `last_good_step` is the step before it, None if the run was ill from its first step.
    """

    diagnosis: Diagnosis
    spans: tuple[FindingSpan, ...]
    broke_at: int | None
    last_good_step: int | None

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings that held at some step, in the order in which they began."""
        return tuple(dict.fromkeys(span.finding for span in self.spans))


def course_of(history: History, *, limits: Thresholds | None = None) -> Course:
    """Return the course of a run from its whole history. Source: formulas, section 10 (where it broke)."""
    limits = limits or Thresholds()
    steps = [int(step) for step in history.steps]
    spans = sorted(_all_spans(history, limits), key=lambda span: (span.first_step, CAUSES.index(span.finding)))
    broke_at = _chain_start(spans)
    before = [step for step in steps if broke_at is not None and step < broke_at]
    return Course(
        diagnosis=diagnose(_rows(history, slice(-WINDOW_STEPS, None)), limits=limits),
        spans=tuple(spans),
        broke_at=broke_at,
        last_good_step=before[-1] if before else None,
    )


def _all_spans(history: History, limits: Thresholds) -> Iterator[FindingSpan]:
    for finding, holds in _truths(history, limits).items():
        yield from _spans(finding, holds, history.steps)


def _truths(history: History, limits: Thresholds) -> Mapping[Finding, Array]:
    """Return whether each finding holds at each step, [n], read in overlapping windows as long as the service's."""
    conditions = finding_conditions(limits)
    holds = {finding: np.zeros(len(history), bool) for finding in conditions}
    for begin in range(0, len(history), STRIDE_STEPS):
        lead_in = max(0, begin + STRIDE_STEPS - WINDOW_STEPS)
        window = with_features(_rows(history, slice(lead_in, begin + STRIDE_STEPS)))
        for finding, condition in conditions.items():
            truths = condition.read(window).truths[begin - lead_in :]
            holds[finding][begin : begin + len(truths)] = truths == TRUE
    return holds


def _rows(history: History, rows: slice) -> History:
    return History(history.steps[rows], {name: column[rows] for name, column in history.values.items()})


def _spans(finding: Finding, holds: Array, steps: Array) -> Iterator[FindingSpan]:
    at = np.flatnonzero(holds)
    if not len(at):
        return
    for run in np.split(at, np.flatnonzero(np.diff(at) > BRIDGED_STEPS) + 1):
        yield FindingSpan(
            finding=finding,
            first_step=int(steps[run[0]]),
            last_step=int(steps[run[-1]]),
            stands=bool(run[-1] == len(steps) - 1),
        )


def _chain_start(spans: Sequence[FindingSpan]) -> int | None:
    """Return the first step of the chain that stands: a finding joins it if it held when the chain began."""
    standing = [span.first_step for span in spans if span.stands]
    if not standing:
        return None
    start = min(standing)
    for span in sorted(spans, key=lambda span: span.last_step, reverse=True):
        if span.last_step >= start - 1:
            start = min(start, span.first_step)
    return start
