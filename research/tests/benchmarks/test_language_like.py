"""The simulation of language-like runs: its tokens, its truth and the table of a judge over it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.domain.findings.agreement import differences
from trmon_research.language_like.judged import rows_of_lines
from trmon_research.language_like.plans import Plan, plans
from trmon_research.language_like.policies import Engine, Text, Update, sample
from trmon_research.language_like.runs import Simulated, rows
from trmon_research.language_like.scoring import Judgement, Sent, score

ROWS, ONSET = 60, 30


def _short(name: str) -> Plan:
    plan = next(plan for plan in plans() if plan.name == name)
    return replace(plan, traits=replace(plan.traits, rows=ROWS), onset=None if plan.fault is None else ONSET)


def _column(run: list[dict[str, dict[str, float]]], name: str) -> np.ndarray:
    return np.array([row["values"].get(name, np.nan) for row in run])


def test_three_tokens_of_four_are_certain_and_the_sampler_is_honest() -> None:
    rng = np.random.default_rng(0)
    sequences = np.repeat(np.arange(400), 250)
    tokens = sample(rng, Text(), Engine(logit_sd=0.04), Update(), sequence_of=sequences)
    d = (tokens.old - tokens.mu).astype(float)
    uncertain = tokens.mu < -1e-3
    assert 0.70 < 1 - uncertain.mean() < 0.85
    assert 0.005 < np.abs(d[uncertain]).mean() < 0.02
    assert abs(np.expm1(d).mean()) < 4 * np.expm1(d).std() / np.sqrt(len(d))
    assert -tokens.old.mean() == pytest.approx(tokens.entropy, rel=0.03)


def test_a_shifted_run_agrees_before_its_onset_and_not_after(tmp_path: Path) -> None:
    plan = _short("ill-shifted")
    truth = Simulated.of(plan).truth
    assert truth is not None
    assert (truth.onset, truth.until, truth.accept) == (ONSET, ONSET, ("corrupt_logprobs",))
    run = list(rows(plan, tmp_path))
    assert run == list(rows(plan, tmp_path))
    assert "config" in run[0]
    pearson = _column(run, "mismatch_prob_pearson")
    assert pearson[:ONSET].min() > 0.99
    assert pearson[ONSET:].max() < 0.5
    # A shift moves log-probs within a sequence: the sums over sequences stay.
    assert np.median(_column(run, "seq_shift_share")[ONSET:]) < 0.1


def test_a_healthy_mixture_of_experts_has_large_gaps_and_no_zeros(tmp_path: Path) -> None:
    run = list(rows(_short("healthy-moe_async"), tmp_path))
    assert 0.004 < np.median(_column(run, "mismatch_kl_k3")) < 0.01
    assert _column(run, "n_prob_diff_half").sum() < 1e-3 * _column(run, "n_tokens").sum()
    assert _column(run, "n_mu_zero_unlikely").sum() == 0
    assert set(_column(run, "version_lag_mean")[2:]) == {2.0}


@pytest.mark.parametrize("seed", [0, 1])
def test_each_seed_has_thirty_healthy_and_thirty_ill_runs_whose_onsets_are_within_them(seed: int) -> None:
    runs = [Simulated.of(plan).manifest() for plan in plans(seed)]
    ill = [run for run in runs if run["fault"] is not None]
    assert (len(runs), len(ill)) == (60, 30)
    assert all(0 <= run["onset"] <= run["onset_until"] < run["rows"] and run["accept"] for run in ill)
    assert any(run["dead_from_start"] for run in ill)


def test_the_table_counts_what_a_judge_got_right() -> None:
    healthy, ill = _short("healthy-async_1"), _short("ill-shifted")
    silent = Judgement([frozenset()] * ROWS, [None] * ROWS, [])
    told_at = ONSET + 2
    leaders = [None] * told_at + ["corrupt_logprobs"] * (ROWS - told_at)
    standing = [frozenset(filter(None, [leader])) for leader in leaders]
    right = Judgement(standing, leaders, [Sent(told_at, "page", "corrupt_logprobs")], ONSET, ONSET - 1)
    early = Judgement(standing, leaders, [], ONSET, ONSET - 12)
    wrong = Judgement(standing, leaders, [Sent(ONSET - 5, "warning", "temperature")], ONSET - 20, ONSET)
    good, bad = score({healthy: silent, ill: right}), score({healthy: right, ill: wrong})
    for figure in ("ill: told", "ill: first cause right", "ill: cause right in the end", "onset within 3 rows"):
        assert f"| {figure} | 1 | 1 |" in good
    assert "| healthy: paged | 0 | 1 |" in good
    assert "| healthy: paged | 1 | 1 |" in bad
    assert "| ill: told | 0 | 1 |" in bad
    assert "| ill: told before the onset | 1 | 1 |" in bad
    assert "| onset within 10 rows | 0 | 1 |" in bad
    assert "| last good row after the onset | 1 | 1 |" in bad
    for judgement, count in ((right, 0), (early, 1)):
        assert f"| last good row over 10 rows too early | {count} | 1 |" in score({ill: judgement})


@pytest.mark.parametrize("name", ["healthy-moe_async", "healthy-growth_verifier", "ill-shifted", "ill-zeros_2"])
def test_the_judge_agrees_with_the_independent_evaluator(name: str, tmp_path: Path) -> None:
    run = list(rows_of_lines(rows(_short(name), tmp_path)))
    fresh = [place for place in range(1, ROWS) if run[place].config != run[place - 1].config]
    config = {"router_replay": "replay_declared" in run[0].facts}
    attempts = [row.place.attempt for row in run]
    assert not list(differences([row.values for row in run], attempts=attempts, fresh=fresh, config=config))
