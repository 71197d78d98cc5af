"""Clauses in words."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from trmon.domain.findings.catalogue import Clause, builtin_catalogue
from trmon.domain.findings.clause_words import NO_EXAMPLE, clause_words, seen_words, severity_words

CLAUSES = builtin_catalogue().by_key


@pytest.mark.parametrize("clause", CLAUSES.values(), ids=list(CLAUSES))
def test_every_clause_is_told_with_each_of_its_limits(clause: Clause) -> None:
    words = f"{clause_words(clause)} {severity_words(clause)}"
    assert not re.search(r"[{}_]|None|nan", words)
    told = [float(one) for one in re.findall(r"-?\d+(?:\.\d+)?(?:e-?\d+)?", words)]
    flags = ("rising", "has_risen", "at_top", "reward_mean.above_floor", "lost", "nonfinite")
    for comparison in clause.comparisons:
        if comparison.side and comparison.measure not in flags and comparison.transform not in flags:
            assert any(abs(one - limit) <= 1e-9 for limit in (comparison.limit, 100 * comparison.limit) for one in told)


def test_a_clause_says_what_it_compares_when_it_is_not_judged_and_for_how_many_rows() -> None:
    assert clause_words(CLAUSES["engine_mismatch.kl_k3"]) == (
        "KL per token is more than 0.05; unless lag is more than 0; in 5 of 10 rows"
    )
    assert (
        clause_words(CLAUSES["reference_kl.level"])
        == "KL to the reference model is more than 3 over 20 rows without the largest"
    )


def test_a_clause_says_what_must_be_there_when_it_begins() -> None:
    assert "; it begins only if the fall of the reward" in clause_words(CLAUSES["step_too_large.spikes"])


def test_a_warning_that_becomes_a_page_says_when() -> None:
    assert severity_words(CLAUSES["corrupt_logprobs.zeros"]) == (
        "warn; page when more than 1% of the log-probs are dropped"
    )
    assert severity_words(CLAUSES["reward_collapse.fall"]) == "page"


def test_a_clause_without_a_real_example_says_so() -> None:
    known = CLAUSES["reward_collapse.fall"]
    assert seen_words(replace(known, seen=(3, 1))) == "right on 3, wrong on 1 real runs"
    assert seen_words(replace(known, seen=None)) == NO_EXAMPLE


@pytest.mark.parametrize("finding", ["not_a_number", "no_learning_signal"])
def test_a_clause_that_knows_what_is_wrong_says_it_without_the_alternatives(finding: str) -> None:
    spec = builtin_catalogue().by_id[finding]
    assert " or " in spec.meaning
    assert [clause.id for clause in spec.clauses if " or " in clause.meaning] == []
