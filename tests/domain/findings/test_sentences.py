"""Findings and clauses in words: the same steps in every line of a run."""

from __future__ import annotations

import math
import random
import re
from dataclasses import replace

import pytest
from msgspec import structs

from tests.domain.findings.test_judge import healthy, judged, with_values
from trmon.api.diagnosis_answer import judgement_info
from trmon.domain.findings.catalogue import Clause, builtin_catalogue
from trmon.domain.findings.judge import Evidence, Place
from trmon.domain.findings.sentences import NO_EXAMPLE, clause_words, evidence_words, seen_words, severity_words
from trmon.domain.findings.verdict import words_of


def test_the_finding_that_leads_has_the_steps_of_the_whole_illness() -> None:
    found = judged([{"mismatch_kl_k3": 0.0002 if step < 30 else 0.2} for step in range(40)])
    fell = structs.replace(found, since=Place(0, 22), last_good=Place(0, 21))  # The reward fell before.
    info = judgement_info(fell, framework=None, config={})
    assert info.findings[0].headline == "engine mismatch, or stale rollouts since step 22 (last good step 21)"
    assert (info.since_step, info.last_good_step, info.findings[0].since_step) == (22, 21, 30)


def test_only_the_illness_has_a_last_good_step_in_words() -> None:
    falls = [{"reward_mean": 0.8 if step < 30 else 0.1, "entropy": 0.5 + 0.01 * (step % 3)} for step in range(60)]
    rows = [{**row, "mismatch_kl_k3": 0.0002 if step < 25 else 0.2} for step, row in enumerate(falls)]
    leading, *others = judgement_info(judged(rows), framework=None, config={}).findings
    assert leading.headline == "engine mismatch, or stale rollouts since step 25 (last good step 24)"
    assert "reward collapse since step 30" in [one.headline for one in others]


def test_too_few_rows_tell_what_changed() -> None:
    rows = [{"reward_mean": 1.08 - 0.1 * i, "entropy": 0.8 / (i + 1)} for i in range(5)]
    assert words_of(judged(rows)) == "too few rows to judge (5 of 20); reward 1.08 to 0.68; entropy 0.8 to 0.16"


def test_without_a_lag_a_mismatch_may_be_stale_rollouts() -> None:
    ill = with_values(healthy(30), mismatch_kl_k3=0.2)
    assert words_of(judged(ill)).startswith("engine mismatch, or stale rollouts;")
    assert words_of(judged(with_values(ill, engine_lag=0.0))).startswith("engine mismatch;")


def test_a_collapse_says_no_second_word_on_the_reward() -> None:
    assert words_of(judged([*healthy(200), *with_values(healthy(30), reward_mean=0.1)])) == "reward collapse"


@pytest.mark.parametrize(
    ("value", "side", "limit", "words"),
    [
        (0.2, ">", 0.05, "KL per token is 0.2 (limit 0.05; 0.001 before)"),
        (0.045, ">", 0.05, "KL per token is 0.045 (limit 0.05; over at 0.04; 0.001 before)"),
        (0.2, ">", 0.0, "KL per token is 0.2 (0.001 before)"),
    ],
)
def test_evidence_says_its_limit_and_where_a_finding_is_over(value: float, side: str, limit: float, words: str) -> None:
    assert (
        evidence_words(
            Evidence(measure="kl_k3", signal="mismatch_kl_k3", value=value, side=side, limit=limit, then=0.001)
        )
        == words
    )


def test_a_reward_that_rises_all_the_time_rose_and_one_that_wanders_is_flat() -> None:
    noise = random.Random(1)
    learns = [{"reward_mean": 0.9 / (1.0 + math.exp((25 - row) / 6)) + noise.gauss(0, 0.03)} for row in range(50)]
    assert words_of(judged(learns)).endswith("reward rose")
    wanders = [{"reward_mean": 0.5 + 0.2 * math.sin(row / 8) + noise.gauss(0, 0.03)} for row in range(60)]
    assert words_of(judged(wanders)).endswith("reward flat")


def test_a_reward_alone_says_nothing_of_the_engines() -> None:
    rows = [{"reward_mean": 0.5 + 0.01 * (row % 5)} for row in range(30)]
    assert words_of(judged(rows)).startswith("no finding; training and agreement not judged; reward")
    assert words_of(judged([{"mismatch_kl_k3": 0.001}] * 30)) == "no drift found; training not judged"


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
