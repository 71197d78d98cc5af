"""The product's judge agrees with the independent evaluator: findings, leader and onsets, row by row.

Each random series is evaluated once, for all tests of this file.
"""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

from tests.domain.findings.agreement import differences
from tests.domain.findings.independent import CLAUSES, Evaluated, evaluate
from tests.domain.findings.series import COUNT, Case, series


@cache
def cases() -> tuple[Case, ...]:
    return tuple(series())


@cache
def evaluated(place: int) -> Evaluated:
    case = cases()[place]
    return evaluate(case.rows, attempts=case.attempts, fresh=case.fresh, config=case.config)


def assert_agreement(first: int, last: int) -> None:
    for place, case in enumerate(cases()[first:last], first):
        given = {"attempts": case.attempts, "fresh": case.fresh, "config": case.config}
        found = differences(case.rows, **given, found=evaluated(place))
        assert next(found, None) is None, case.illnesses


def test_the_judge_agrees_with_the_independent_evaluator_on_thirty_series() -> None:
    assert_agreement(0, 30)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_judge_agrees_with_the_independent_evaluator_on_all_series() -> None:
    assert_agreement(30, COUNT)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_clause_fires_in_two_series() -> None:
    fired = Counter(key for place in range(COUNT) for key in {spell.clause.key for spell in evaluated(place).spells})

    assert {clause.key: fired[clause.key] for clause in CLAUSES if fired[clause.key] < 2} == {}
