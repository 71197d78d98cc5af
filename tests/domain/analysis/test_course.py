"""The course of a run: findings over its steps, and where it broke."""

from __future__ import annotations

import math

import numpy as np
import pytest

from trmon.domain.analysis.logged_run import BRIDGED_STEPS, course_of
from trmon.domain.diagnosis.history import History
from trmon.domain.finding import Finding

HEALTHY = {
    "mismatch_kl_k1": 1e-4,
    "mismatch_kl_k3": 1e-4,
    "mismatch_ppl_ratio": 1.0,
    "mismatch_prob_pearson": 0.999,
    "mismatch_prob_diff_max": 0.1,
    "mismatch_chi2_token": 1e-3,
    "mismatch_ess_token": 0.99,
}


def history(n: int, **ill: tuple[float, range]) -> History:
    """Return n healthy steps; signals have another value over a range of steps."""
    values = {name: np.full(n, value) for name, value in HEALTHY.items()}
    for name, (value, steps) in ill.items():
        values.setdefault(name, np.full(n, math.nan))[list(steps)] = value
    return History(np.arange(n), values)


def test_a_healthy_run_did_not_break() -> None:
    course = course_of(history(300))
    assert (course.spans, course.broke_at, course.last_good_step) == ((), None, None)


def test_a_finding_that_stands_says_where_the_run_broke() -> None:
    course = course_of(history(300, mismatch_chi2_token=(0.5, range(200, 300))))
    (span,) = course.spans
    assert (span.finding, span.stands) == (Finding.MODERATE_DRIFT, True)
    assert 200 <= span.first_step <= 204
    assert course.broke_at == span.first_step
    assert course.last_good_step == span.first_step - 1
    assert course.diagnosis.primary is Finding.MODERATE_DRIFT


def test_the_chain_begins_with_the_finding_that_held_when_the_next_one_began() -> None:
    course = course_of(
        history(300, mismatch_chi2_token=(0.5, range(150, 220)), mismatch_prob_pearson=(0.5, range(200, 300)))
    )
    assert [span.finding for span in course.spans] == [Finding.MODERATE_DRIFT, Finding.ENGINE_MISMATCH]
    assert course.broke_at is not None
    assert 150 <= course.broke_at <= 154


def test_an_illness_that_was_over_before_the_next_began_is_no_part_of_its_chain() -> None:
    course = course_of(
        history(400, mismatch_chi2_token=(0.5, range(50, 100)), mismatch_prob_pearson=(0.5, range(300, 400)))
    )
    assert course.broke_at is not None
    assert course.broke_at >= 300
    assert course.findings == (Finding.MODERATE_DRIFT, Finding.ENGINE_MISMATCH)


def test_a_run_that_recovered_did_not_break() -> None:
    course = course_of(history(300, mismatch_chi2_token=(0.5, range(100, 150))))
    assert [span.stands for span in course.spans] == [False]
    assert course.broke_at is None


def test_a_short_gap_does_not_split_a_finding() -> None:
    gap = history(300, mismatch_chi2_token=(0.5, range(100, 300)))
    gap.values["mismatch_chi2_token"][150 : 150 + BRIDGED_STEPS - 6] = 1e-3
    assert len(course_of(gap).spans) == 1


@pytest.mark.parametrize("onset", [5, 127, 128, 129, 255, 256, 700])
def test_the_step_is_the_same_wherever_the_windows_meet(onset: int) -> None:
    course = course_of(history(1000, mismatch_prob_pearson=(0.5, range(onset, 1000))))
    assert course.broke_at is not None
    assert onset <= course.broke_at <= onset + 4


def test_a_run_that_was_ill_from_its_first_step_has_no_good_one() -> None:
    course = course_of(history(60, mismatch_prob_pearson=(0.5, range(60))))
    assert (course.broke_at, course.last_good_step) == (0, None)


def test_a_single_line_has_a_course() -> None:
    course = course_of(History.of_signals({**HEALTHY, "mismatch_prob_pearson": 0.1}, step=9))
    assert (course.broke_at, course.last_good_step) == (9, None)
