"""Where runs part: planted divergences are found at their step, noise is none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.domain.findings.judgements import KL_OUTSIDE, found, judged
from tests.domain.memory_log import MemoryLog
from trmon.domain.comparison import (
    LASTING_POINTS,
    ComparedSignals,
    SiblingCandidate,
    compare_configs,
    divergence_sentence,
    divergences,
    healthy_sibling,
)
from trmon.domain.findings.verdict import Judgement, Word
from trmon.domain.health.verdict import VerdictInputs, verdict_of
from trmon.domain.runs.run import Run
from trmon_client.api.comparison import ConfigDifferenceInfo, PartingInfo

STEPS = np.arange(200)


def noisy(seed: int, *, level: float = 0.5, noise: float = 0.02) -> Any:
    return level + noise * np.random.default_rng(seed).standard_normal(len(STEPS))


def course(**signals: Any) -> ComparedSignals:
    return ComparedSignals(places=STEPS, signals=signals)


@pytest.mark.parametrize("seed", range(20))
def test_runs_that_differ_by_noise_alone_do_not_part(seed: int) -> None:
    assert divergences(course(reward_mean=noisy(seed)), course(reward_mean=noisy(100 + seed))) == ()


@pytest.mark.parametrize("step", [40, 120])
def test_a_signal_parts_at_the_step_at_which_it_leaves(step: int) -> None:
    left = noisy(1)
    left[step:] -= 0.3
    [found] = divergences(course(reward_mean=noisy(0)), course(reward_mean=left))
    assert found.signal == "reward_mean"
    assert not found.from_start
    assert abs(found.place - step) <= 2


def test_the_earliest_signal_comes_first_and_one_that_always_differed_last() -> None:
    late, early = noisy(2), noisy(3)
    late[150:] += 0.4
    early[90:] -= 0.4
    first = course(grad_norm=noisy(5), reward_mean=noisy(0), entropy=noisy(1))
    second = course(grad_norm=noisy(6, level=3.0), reward_mean=late, entropy=early)
    found = divergences(first, second)
    assert [divergence.signal for divergence in found] == ["entropy", "reward_mean", "grad_norm"]
    assert found[-1] == PartingInfo(signal="grad_norm", place=0.0, from_start=True)


def test_a_short_excursion_is_no_parting() -> None:
    spiked = noisy(1)
    spiked[100 : 100 + LASTING_POINTS - 2] += 1.0
    assert divergences(course(loss=noisy(0)), course(loss=spiked)) == ()


def test_signals_over_decades_part_by_a_factor() -> None:
    small = np.full(len(STEPS), 1e-4)
    grown = np.where(STEPS >= 60, 1e-2, 1e-4)
    [found] = divergences(course(kl_k3=small), course(kl_k3=grown), logs=["kl_k3"])
    assert abs(found.place - 60) <= 2
    assert divergences(course(kl_k3=small), course(kl_k3=1.5 * small), logs=["kl_k3"]) == ()


def test_runs_are_compared_where_both_have_steps() -> None:
    shifted = ComparedSignals(places=STEPS + 150, signals={"reward_mean": noisy(1)})
    assert divergences(course(reward_mean=noisy(0)), shifted) == ()
    apart = ComparedSignals(places=STEPS + 150, signals={"reward_mean": noisy(1, level=2.0)})
    [found] = divergences(course(reward_mean=noisy(0)), apart)
    assert found == PartingInfo(signal="reward_mean", place=150.0, from_start=True)
    nothing = ComparedSignals(places=STEPS, signals={"reward_mean": np.full(len(STEPS), np.nan)})
    assert divergences(course(reward_mean=noisy(0)), nothing) == ()


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        ((), "They do not part: no signal differs."),
        (
            (PartingInfo(signal="loss", place=0.0, from_start=True),),
            "They do not part: loss differs from the start, and nothing else.",
        ),
        (
            (
                PartingInfo(signal="sampled_entropy", place=250.0, from_start=False),
                PartingInfo(signal="reward_mean", place=262.0, from_start=False),
            ),
            "They part at step 250: entropy first, then reward at 262.",
        ),
    ],
)
def test_the_sentence_names_the_first_signal(found: tuple[PartingInfo, ...], sentence: str) -> None:
    assert divergence_sentence(found, by_time=False, is_long_enough=True) == sentence


def test_the_sentence_tells_times_and_what_is_too_short() -> None:
    found = (
        PartingInfo(signal="reward_mean", place=600.0, from_start=False),
        PartingInfo(signal="loss", place=9000.0, from_start=False),
    )
    told = divergence_sentence(found, by_time=True, is_long_enough=True)
    assert told == "They part at 10.0 min: reward first, then loss at 2.5 h."
    assert "too few steps" in divergence_sentence((), by_time=False, is_long_enough=False)


def test_only_entries_that_differ_are_listed_with_dotted_names() -> None:
    first = {"lr": 1e-6, "actor": {"epochs": 1, "clip": 0.2}, "same": [1, 2]}
    second = {"lr": 1e-6, "actor": {"epochs": 4, "clip": 0.2}, "same": [1, 2], "tag": None}
    assert compare_configs([first, second]) == [
        ConfigDifferenceInfo(name="actor.epochs", values=(1, 4), given=(True, True)),
        ConfigDifferenceInfo(name="tag", values=(None, None), given=(False, True)),
    ]
    assert compare_configs([{"a": {"b": 1}}, {"a": {"b": 1}}]) == []
    assert [one.values for one in compare_configs([{"lr": 1}, {"lr": 1}, {"lr": 2}])] == [(1, 1, 2)]


RUN = replace(MemoryLog().stored_run, last_step=40, last_report_at=0.0, config={"lr": 1e-6, "seed": 1})


def candidate(run_id: int, judgement: Judgement | None, **config: object) -> SiblingCandidate:
    run: Run = replace(RUN, id=run_id, config={**RUN.config, **config})
    verdict = verdict_of(VerdictInputs(run=run, judgement=judgement), now=1.0)
    return SiblingCandidate(run=run, verdict=verdict, judgement=judgement)


@pytest.mark.parametrize(
    ("judgement", "is_sound"),
    [
        (judged(), True),
        (judged(word=Word.TRAINING_HEALTHY), True),
        (judged(word=Word.NOT_JUDGED), True),
        (judged(over=(found("reward_decline"),)), True),
        (judged(word=Word.OUTSIDE, outside=(KL_OUTSIDE,)), False),
        (judged(word=Word.LEARNT_NOTHING), False),
        (judged(word=Word.TOO_FEW_ROWS, rows=9), False),
        (judged(found("engine_mismatch")), False),
        (None, False),
    ],
    ids=lambda value: getattr(getattr(value, "word", None), "value", None),
)
def test_a_sibling_is_a_run_in_which_nothing_stands(judgement: Judgement | None, is_sound: bool) -> None:
    assert (healthy_sibling(RUN, [candidate(7, judgement)]) is not None) is is_sound


def test_the_sibling_differs_least_and_is_the_newest_of_several() -> None:
    candidates = [
        candidate(7, judged(), seed=2),
        candidate(8, judged(), seed=3),
        candidate(9, judged(), seed=2, lr=1.0),
    ]
    sibling = healthy_sibling(RUN, candidates)
    assert sibling is not None
    assert sibling.id == 8
