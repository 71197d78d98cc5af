"""The product's judge agrees with the independent evaluator: findings, leader and onsets, row by row."""

from __future__ import annotations

from itertools import islice

import pytest

from tests.domain.findings.agreement import differences
from tests.domain.findings.series import COUNT, series


def assert_agreement(first: int, last: int) -> None:
    for case in islice(series(count=last), first, None):
        found = differences(case.rows, attempts=case.attempts, fresh=case.fresh, config=case.config)
        assert next(found, None) is None, case.illnesses


def test_the_judge_agrees_with_the_independent_evaluator_on_thirty_series() -> None:
    assert_agreement(0, 30)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_judge_agrees_with_the_independent_evaluator_on_all_series() -> None:
    assert_agreement(30, COUNT)
