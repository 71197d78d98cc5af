"""The product's judge agrees with the independent evaluator: findings, leader and onsets, row by row.

Each random series is evaluated once, for all tests of this file.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import pytest

from tests.domain.findings.agreement import CATALOGUE, differences
from tests.domain.findings.independent import CLAUSES, Evaluated, evaluate
from tests.domain.findings.series import COUNT, RARE, SEED, Case, one_of_series

PLACES = (*range(165), *range(COUNT - 3 * len(RARE), COUNT))
"""Series in which every illness comes once at least, and every clause fires."""
ELSEWHERE = {"collapse_risk.risk", "version_span.span"}
"""Clauses of a single level, which have their rows in test_conditions.py."""


@cache
def evaluated(place: int) -> tuple[Case, Evaluated]:
    case = one_of_series(SEED, place)
    return case, evaluate(case.rows, attempts=case.attempts, fresh=case.fresh, config=case.config)


def assert_agreement(places: Iterable[int]) -> None:
    for place in places:
        case, found = evaluated(place)
        given = {"attempts": case.attempts, "fresh": case.fresh, "config": case.config}
        assert next(differences(case.rows, **given, found=found), None) is None, case.illnesses


def test_the_judge_agrees_with_the_independent_evaluator_on_thirty_series() -> None:
    assert_agreement(PLACES[:30])


def test_every_clause_is_written_twice() -> None:
    assert {clause.key for clause in CLAUSES} | ELSEWHERE == CATALOGUE.by_key.keys()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_judge_agrees_with_the_independent_evaluator_on_all_series() -> None:
    assert_agreement(PLACES[30:])


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_clause_fires() -> None:
    fired = {spell.clause.key for place in PLACES for spell in evaluated(place)[1].spells}
    assert fired == {clause.key for clause in CLAUSES}
