"""The fold over rows: holds, clears, guards, attempts, the end of a run, onset, leader, and what is stored."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence

import msgspec
import pytest

from trmon.domain.findings.catalogue import builtin_catalogue, with_limits, without
from trmon.domain.findings.judge import Judge, JudgeState, Place, Row
from trmon.domain.findings.remedies import remedy
from trmon.domain.findings.verdict import Judgement, Word, judge_run, leader_of, words_of
from trmon.domain.severity import Severity

CATALOGUE = builtin_catalogue()
JUDGE = Judge(CATALOGUE)
Values = Mapping[str, float]


def folded(
    rows: Iterable[Values],
    *,
    judge: Judge = JUDGE,
    attempt: int = 0,
    state: JudgeState | None = None,
    facts: Mapping[str, float] = {},
) -> JudgeState:
    """Return the state after rows of an attempt, whose steps count up."""
    found = state or JudgeState()
    for step, values in enumerate(rows, start=found.rows):
        found = judge.fold(found, Row(place=Place(attempt, step), values=values, facts=facts))
    return found


def judged(rows: Iterable[Values]) -> Judgement:
    """Return the judgement after rows."""
    return judge_run(folded(rows), CATALOGUE)


def healthy(n: int, *, seed: int = 0, **others: float) -> list[Values]:
    """Return rows of a run that trains well."""
    noise = random.Random(seed)
    return [
        {
            "reward_mean": 0.4 + 0.3 * min(1.0, row / 100) + noise.gauss(0, 0.04),
            "reward_std": 0.4 + noise.gauss(0, 0.01),
            "grad_norm": 0.3 + noise.gauss(0, 0.02),
            "loss": noise.gauss(0, 0.01),
            "entropy": 0.5 + noise.gauss(0, 0.02),
            "response_length_mean": 300 + noise.gauss(0, 5),
            "mismatch_kl_k3": 0.0006 + noise.gauss(0, 0.00005),
            "mismatch_prob_pearson": 0.998 + noise.gauss(0, 0.0002),
            **others,
        }
        for row in range(n)
    ]


def with_values(rows: Sequence[Values], **values: float) -> list[Values]:
    """Return rows with other values."""
    return [{**row, **values} for row in rows]


def test_a_healthy_run_has_no_finding() -> None:
    found = judged(healthy(300))
    assert (found.word, found.findings, found.over) == (Word.HEALTHY, (), ())
    assert words_of(found) == "healthy; reward rose"


def test_a_level_holds_in_five_of_ten_rows_and_not_in_four() -> None:
    start = folded(healthy(30))
    for bad, holds in ((4, False), (5, True)):
        rows = [*with_values(healthy(bad), mismatch_kl_k3=0.2), *healthy(5)]
        assert ("engine_mismatch" in folded(rows[:bad], state=start).standing) is holds


def test_a_finding_closes_after_ten_rows_inside_its_relaxed_limit() -> None:
    ill = folded([*healthy(30), *with_values(healthy(10), mismatch_kl_k3=0.2)])
    assert "engine_mismatch" in folded(with_values(healthy(40), mismatch_kl_k3=0.045), state=ill).standing
    assert "engine_mismatch" in folded(healthy(9), state=ill).standing
    closed = folded(healthy(10), state=ill)
    assert "engine_mismatch" not in closed.standing
    assert [(spell.finding, spell.onset, spell.end) for spell in closed.ended] == [("engine_mismatch", 30, 49)]


def test_rows_without_the_signal_change_nothing() -> None:
    ill = folded([*healthy(30), *with_values(healthy(10), mismatch_kl_k3=0.2)])
    rows = [{name: value for name, value in row.items() if not name.startswith("mismatch")} for row in healthy(50)]
    assert "engine_mismatch" in folded(rows, state=ill).standing


def test_an_illness_that_comes_again_before_it_was_over_is_the_same() -> None:
    ramp = [{**row, "response_length_mean": 300 - 5.0 * place} for place, row in enumerate(healthy(38))]
    low = with_values(healthy(30), response_length_mean=110.0, reward_mean=0.3)
    part = with_values(healthy(25), response_length_mean=230.0, reward_mean=0.3)
    state = folded([*healthy(60), *ramp, *low])
    first = state.standing["length_collapse"].onset
    state = folded(part, state=state)
    assert "length_collapse" not in state.standing
    state = folded(low, state=state)
    assert state.standing["length_collapse"].onset == first
    assert not state.ended


@pytest.mark.parametrize("name", ["loss", "grad_norm"])
def test_a_loss_that_is_no_number_needs_two_of_three_rows_or_the_last_one(name: str) -> None:
    bad = with_values(healthy(1), **{name: math.nan})
    once = folded([*healthy(5), *bad])
    assert not once.standing
    assert JUDGE.finish(once).standing["not_a_number"].severity is Severity.PAGE
    assert JUDGE.finish(folded(healthy(1), state=once)).standing == {}
    twice = folded([*healthy(1), *bad], state=once)
    assert (twice.standing["not_a_number"].onset, twice.standing["not_a_number"].trip) == (5, 7)


def test_a_metric_that_is_mostly_no_number_is_sparse() -> None:
    rows = [
        {**row, "entropy": row["entropy"] if place % 10 == 0 else math.nan} for place, row in enumerate(healthy(60))
    ]
    assert not folded(rows).standing
    lost = [*healthy(20), *with_values(healthy(3), entropy=math.nan)]
    assert "not_a_number" in folded(lost).standing


def test_growing_responses_are_no_surge_while_the_reward_rises() -> None:
    def rows(*, rises: bool) -> list[Values]:
        return [
            {
                **row,
                "response_length_mean": 300 * 1.012**place,
                "reference_kl": 0.05 * 1.02**place,
                "reward_mean": 0.2 + 0.002 * place if rises else 0.2 + 0.001 * (place % 3),
            }
            for place, row in enumerate(healthy(200))
        ]

    assert "length_surge" not in folded(rows(rises=True)).standing
    assert "length_surge" in folded(rows(rises=False)).standing


@pytest.mark.parametrize(("reward", "is_ill"), [(0.3, True), (0.5, False), (0.0, True)], ids=["as", "above", "fallen"])
def test_shorter_responses_are_no_collapse_where_the_reward_waits_above_its_start(reward: float, is_ill: bool) -> None:
    starts = [{**row, "reward_mean": 0.3 + 0.01 * (place % 2)} for place, row in enumerate(healthy(30))]
    rises = [{**row, "reward_mean": 0.5 + 0.01 * (place % 2)} for place, row in enumerate(healthy(60))]
    waits = [
        {**row, "response_length_mean": 100.0, "reward_mean": reward + 0.01 * (place % 2)}
        for place, row in enumerate(healthy(150))
    ]
    assert ("length_collapse" in folded([*starts, *(rises if reward != 0.3 else []), *waits]).standing) is is_ill


def test_the_onset_is_not_before_the_last_row_in_which_the_reward_rose() -> None:
    grows = [
        {**row, "response_length_mean": 300 * 1.01**place, "reference_kl": 0.1 * 1.02**place,
         "reward_mean": 0.2 + 0.004 * place}
        for place, row in enumerate(healthy(120))
    ]  # fmt: skip
    flat = [
        {**row, "response_length_mean": 990 * 1.01**place, "reference_kl": 1.1 * 1.02**place, "reward_mean": 0.68}
        for place, row in enumerate(healthy(150))
    ]
    state = folded([*grows, *flat])
    spell = next(spell for spell in (*state.ended, *state.standing.values()) if spell.finding == "length_surge")
    assert spell.onset >= 120


def test_a_run_that_is_ill_from_its_first_row_has_no_last_good_step() -> None:
    found = judged(with_values(healthy(60), mismatch_kl_k3=0.2))
    assert (found.lead.finding, found.lead.since.step, found.lead.from_start) == ("engine_mismatch", 0, True)
    assert (found.last_good, found.since) == (None, Place(0, 0))


def test_an_onset_in_the_first_rows_leaves_the_last_good_step_unknown() -> None:
    found = judged([*healthy(4), *with_values(healthy(60), mismatch_kl_k3=0.2)])
    assert (found.lead.since.step, found.lead.from_start, found.last_good) == (4, False, None)


def test_a_collapse_begins_where_the_reward_fell_and_not_where_it_was_found() -> None:
    found = judged([*healthy(200), *with_values(healthy(30), reward_mean=0.1)])
    assert found.lead.finding == "reward_collapse"
    assert abs(found.lead.since.step - 200) <= 1
    assert found.lead.found.step > 201
    assert found.last_good.step == found.lead.since.step - 1


ILL, FALLEN, AT_RISK = {"mismatch_kl_k3": 0.3}, {"reward_mean": 0.05}, {"collapse_risk": 0.9}
EQUAL = {"reward_mean": 0.0, "reward_std": 0.0}
Parts = list[tuple[int, Values]]
"""Numbers of healthy rows, and the other values that they have."""


def in_parts(parts: Parts) -> list[Values]:
    return [row for n, values in parts for row in with_values(healthy(n), **values)]


@pytest.mark.parametrize(
    ("parts", "leader", "beside"),
    [
        ([(150, {}), (5, ILL), (60, ILL | FALLEN)], "engine_mismatch", "reward_collapse"),
        ([(30, {}), (150, ILL), (40, ILL | FALLEN)], "reward_collapse", "engine_mismatch"),
        ([(200, {}), (12, {"reward_mean": 0.1}), (90, EQUAL)], "reward_collapse", "no_learning_signal"),
        ([(120, AT_RISK), (20, AT_RISK | ILL | {"reward_mean": 0.7})], "engine_mismatch", "collapse_risk"),
    ],
    ids=["a cause, not its consequence", "not what stood for long before", "a collapse", "not a prediction"],
)
def test_one_of_several_findings_leads(parts: Parts, leader: str, beside: str) -> None:
    state = folded(in_parts(parts))
    assert {leader, beside} <= state.standing.keys()
    assert leader_of(state, CATALOGUE).finding == leader


def test_a_finding_whose_signal_the_run_does_not_have_is_shown_by_its_evidence() -> None:
    (found,) = judged(with_values(healthy(40), eos_tokens=0.0)).findings
    assert (found.clause, found.chart) == ("no_end", "eos_tokens")


def test_a_prediction_ends_where_the_predictor_falls_silent_and_what_it_said_last_pages_nothing() -> None:
    rows = healthy(150)
    state = folded(with_values([rows[-1]] * 5, collapse_risk=0.9), state=folded(rows))
    assert set(state.standing) == {"collapse_risk"}
    down = with_values(rows[-1:] * 40, reward_mean=0.64)
    assert not folded(down[:1], state=state).standing
    again = folded(with_values(rows[-2:], collapse_risk=0.9), state=folded(rows[-1:], state=state))
    assert not again.standing, "the hold starts again"
    silent, speaking = folded(down, state=state), folded(with_values(down, collapse_risk=0.9), state=state)
    assert silent.standing["reward_decline"].severity is Severity.WARN
    assert speaking.standing["reward_decline"].severity is Severity.PAGE


def test_equal_rewards_at_the_top_are_solved() -> None:
    top = {"reward_mean": 0.99, "zero_variance_groups": 0.97, "reward_max": 1.0, "reward_min": 0.0}
    quantiles = {f"reward_{name}": 1.0 for name in ("q01", "q05", "q25", "median")}
    learns = [{**row, "reward_min": 0.0, "reward_max": 1.0, "zero_variance_groups": 0.2} for row in healthy(60)]
    state = folded([*learns, *with_values(healthy(40), **top, **quantiles)])
    assert set(state.standing) == {"solved"}
    stuck = folded([*learns, *with_values(healthy(40), **top | {"reward_mean": 0.45}, **quantiles)])
    assert "no_learning_signal" in stuck.standing


def test_what_stood_as_solved_is_judged_after_a_change_of_the_configuration() -> None:
    top = {"reward_mean": 0.99, "zero_variance_groups": 0.97, "reward_max": 1.0, "reward_min": 0.0}
    solved = folded(with_values(healthy(40), **top, reward_q01=0.0, reward_q25=1.0))
    assert set(solved.standing) == {"solved"}
    below = {**healthy(1)[0], "reward_mean": 0.4}
    state = JUDGE.fold(solved, Row(place=Place(1, 40), values=below, facts={}, config="1"))
    assert {name: spell.onset for name, spell in state.standing.items()} == {"no_learning_signal": 40}


@pytest.mark.parametrize(("step", "keeps"), [(60, True), (30, True), (200, False)])
def test_an_attempt_that_goes_on_keeps_the_start_of_the_run(step: int, keeps: bool) -> None:
    state = folded(healthy(60))
    state = JUDGE.fold(state, Row(place=Place(1, step), values=healthy(1)[0], facts={}))
    memory = state.signals["mismatch_kl_k3"]
    assert (memory.count == 61) is keeps
    assert (memory.ema == memory.values[-1]) is True


def test_another_configuration_begins_a_new_start() -> None:
    state = folded(healthy(60))
    state = JUDGE.fold(state, Row(place=Place(1, 60), values=healthy(1)[0], facts={}, config="1"))
    assert state.signals["mismatch_kl_k3"].count == 1


def test_the_fold_goes_on_from_stored_bytes_at_any_row() -> None:
    rows = [*healthy(120), *with_values(healthy(30), mismatch_kl_k3=0.3, reward_mean=0.05), *healthy(40)]
    straight = JudgeState()
    for step, values in enumerate(rows):
        row = Row(place=Place(0, step), values=values, facts={})
        stored = msgspec.msgpack.decode(msgspec.msgpack.encode(straight), type=JudgeState)
        straight = JUDGE.fold(straight, row)
        again = JUDGE.fold(stored, row)
        assert msgspec.msgpack.encode(again) == msgspec.msgpack.encode(straight)
    assert judge_run(straight, CATALOGUE) == judge_run(again, CATALOGUE)


def test_the_memory_of_a_long_run_is_bounded() -> None:
    sizes = []
    state = JudgeState()
    for _ in range(4):
        state = folded(healthy(400), state=state)
        sizes.append(len(msgspec.msgpack.encode(state)))
    assert sizes[3] < 1.05 * sizes[1]


def test_a_judgement_is_stored_as_json() -> None:
    found = judged([*healthy(60), *with_values(healthy(30), mismatch_kl_k3=math.inf, mismatch_prob_pearson=0.3)])
    stored = msgspec.json.decode(msgspec.json.encode(msgspec.to_builtins(found)), type=Judgement)
    assert stored == found


def test_a_users_limit_changes_what_is_found() -> None:
    rows = [*healthy(30), *with_values(healthy(20), mismatch_kl_k3=0.2)]
    lenient = with_limits(CATALOGUE, "engine_mismatch", limits={"kl_k3": 0.5, "kl_k3_growth": 1e6}, severity=None)
    assert "engine_mismatch" not in folded(rows, judge=Judge(lenient)).standing
    paged = with_limits(CATALOGUE, "engine_mismatch", limits={}, severity=Severity.PAGE)
    assert folded(rows, judge=Judge(paged)).standing["engine_mismatch"].severity is Severity.PAGE
    assert "engine_mismatch" not in folded(rows, judge=Judge(without(CATALOGUE, "engine_mismatch"))).standing


@pytest.mark.parametrize(
    ("rows", "word"),
    [
        ([{"unheard_of": 1.0}] * 3, Word.NOTHING_KNOWN),
        (healthy(7), Word.TOO_FEW_ROWS),
        (with_values(healthy(7), mismatch_kl_k3=0.2, mismatch_prob_pearson=0.99)[:3], Word.OUTSIDE),
        ([{"mismatch_kl_k3": 0.001}] * 30, Word.NOT_JUDGED),
        ([{"reward_mean": 0.5 + 0.01 * (i % 5), "grad_norm": 0.3} for i in range(40)], Word.TRAINING_HEALTHY),
        ([{"reward_mean": 0.0, "loss": 0.1 * i} for i in range(60)], Word.FINDING),
    ],
)  # fmt: skip
def test_the_word_on_a_run_is_the_first_that_holds(rows: list[Values], word: Word) -> None:
    assert judged(rows).word is word


def test_a_change_that_two_pairs_show_is_told_once() -> None:
    rows = [{"mismatch_kl_k3": 0.001 * (i + 1), "total_kl_k3": 0.001 * (i + 1)} for i in range(5)]
    assert [course.signal for course in judged(rows).changed] == ["mismatch_kl_k3"]


def test_a_run_whose_reward_collapsed_has_learnt_something() -> None:
    rows = [{"reward_mean": 0.7 + 0.01 * (i % 3)} for i in range(60)] + [{"reward_mean": 0.0}] * 60
    assert "not_learning" not in folded(rows).standing
    assert "not_learning" in folded([{"reward_mean": 0.0}] * 60).standing


def test_evidence_has_the_newest_value_of_its_signal_and_not_a_distance() -> None:
    found = judged([*healthy(40), *with_values(healthy(20), mismatch_prob_pearson=0.7)])
    [evidence] = [one for one in found.lead.evidence if one.measure == "pearson_gap"]
    assert (evidence.now, round(evidence.value, 9)) == (0.7, 0.3)


RAMP = [(1, {"mismatch_kl_k3": 0.02 * i}) for i in range(1, 13)]
SPIKE, FLOOR = {"lr": 1e-6, "grad_norm": 2e4}, {"reward_mean": 0.0, "reward_std": 0.0, "loss": 0.1}


@pytest.mark.parametrize(
    ("parts", "finding", "remedy"),
    [
        ([(60, {"lr": 1e-6}), (10, SPIKE)], "step_too_large", "step_too_large"),
        ([(60, {"lr": 1e-6}), (10, SPIKE | {"lr": 1e-5})], "step_too_large", "lr_rose"),
        ([(40, {}), (12, {"mismatch_kl_k3": 0.2})], "engine_mismatch", "engine_mismatch"),
        ([(40, {}), *RAMP], "engine_mismatch", "weights_fall_behind"),
        ([(40, {}), (25, {"n_tokens": 0.0})], "no_learning_signal", "empty_mask"),
        ([(40, {}), (25, {"reward_invalid_share": 1.0})], "not_a_number", "reward_lost"),
        ([(30, FLOOR)], "no_learning_signal", "reward_broken"),
        ([(30, FLOOR | {"reward_mean": 4.0})], "no_learning_signal", "no_learning_signal"),
    ],
)
def test_what_the_rows_suggest_is_the_remedy(parts: Parts, finding: str, remedy: str) -> None:
    found = judged(in_parts(parts)).findings
    assert {one.finding: one.remedy for one in found}[finding] == remedy


SCALED = {"mismatch_logp_slope_q": 0.24, "mismatch_logp_slope_p": 0.2, "mismatch_logp_corr_q": 0.97}


@pytest.mark.parametrize(
    ("sign", "declared", "remedy"),
    [
        (1, {"temperature": 0.8}, "sampler_temperature"),
        (-1, {"temperature": 0.8}, "trainer_temperature"),
        (-1, {"temperature": 1.2}, "sampler_temperature"),
        (1, {"temperature": 1.0}, "sampler_hotter"),
        (-1, {}, "sampler_colder"),
    ],
)
def test_two_temperatures_are_named_after_five_rows_with_the_side_that_lacks_one(
    sign: int, declared: Values, remedy: str
) -> None:
    same = with_values(healthy(40), **dict.fromkeys(SCALED, 0.0), mismatch_ratio_mean=1.0)
    scaled = with_values(healthy(5), **{name: sign * value for name, value in SCALED.items()}, mismatch_ratio_mean=1.0)
    spell = folded([*same, *scaled], facts=declared).standing["temperature"]
    assert (spell.trip, spell.onset, spell.remedy) == (44, 40, remedy)


def test_a_sampler_whose_weights_fall_behind_has_no_other_temperature() -> None:
    state = folded(with_values(healthy(40), **dict.fromkeys(SCALED, 0.0), mismatch_ratio_mean=1.0))
    for row in range(60):
        scale = min(1.0, row / 40)
        moved = {"mismatch_logp_slope_q": 0.24 * scale, "mismatch_logp_slope_p": 0.2 * scale}
        state = folded(
            with_values(healthy(1), **moved, mismatch_logp_corr_q=0.97, mismatch_ratio_mean=1.0), state=state
        )
        assert "temperature" not in state.standing


def test_log_probs_of_another_distribution_than_sampled_are_no_support_shift() -> None:
    same, above = {**healthy(1)[0], "mismatch_ratio_mean": 1.0}, {"mismatch_ratio_mean": 1.05}
    spell = folded([*[same] * 40, *[{**same, **above}] * 10]).standing["support_shift"]
    assert (spell.clause, spell.onset) == ("returned", 40)


def test_a_policy_without_doubt_has_no_padding_under_its_mask() -> None:
    counts = {"n_tokens": 3000.0, "n_sequences": 128.0, "n_mu_zero_unlikely": 0.0, "n_unlikely": 200.0}
    few, many = {"n_mu_zero": 0.0, "n_zero_tail": 0.0}, {"n_mu_zero": 2600.0, "n_zero_tail": 2200.0}
    before = with_values(healthy(60), **counts, **few, n_prob_diff_half=0.0)
    padded = with_values(healthy(20), **counts, **many, n_prob_diff_half=0.0)
    assert folded([*before, *padded]).standing["corrupt_logprobs"].clause == "padding"
    broken = [*before, *with_values(padded, reward_mean=0.02, entropy=0.001, length_limit_share=1.0)]
    assert folded(broken).standing.keys() & {"corrupt_logprobs", "cut_at_limit"} == set()
    assert judged(broken).lead.finding == "entropy_collapse"


def test_the_certain_ends_of_text_from_a_nucleus_are_no_padding() -> None:
    tails = {"n_tokens": 3600.0, "n_sequences": 48.0, "n_zero_tail": 420.0, "n_mu_zero": 2060.0, "n_unlikely": 1043.0}
    tails |= {"n_mu_zero_unlikely": 0.0, "n_prob_diff_half": 0.0, "mismatch_prob_pearson": 0.989}
    rows = with_values(healthy(40), **tails)
    padded, cut = (
        folded([{**row, "mismatch_ratio_mean": mean + 0.1 * row["loss"]} for row in rows]) for mean in (1.0, 0.906)
    )
    assert (set(padded.standing), set(cut.standing)) == ({"corrupt_logprobs"}, {"support_shift"})


def test_every_remedy_exists() -> None:
    of_side = ("sampler_temperature", "trainer_temperature", "sampler_hotter", "sampler_colder")
    dynamic = ("lr_rose", "in_one_step", "nothing_trains", "all_solved", "none_solved", "reward_broken", *of_side)
    dynamic += ("weights_fall_behind",)
    for key in {*dynamic, *(clause.remedy for clause in CATALOGUE.clauses)}:
        assert remedy(key, framework=None, config={}, last_good_step=None, has_ended=False).first


def test_noisy_engines_have_wider_ranges() -> None:
    rows = with_values(healthy(60), mismatch_kl_k3=0.012, mismatch_prob_pearson=0.975)
    assert judged(rows).word is Word.HEALTHY
    later = [*healthy(60), *with_values(healthy(60), mismatch_kl_k3=0.009, mismatch_prob_pearson=0.985)]
    assert {out.signal for out in judged(later).outside} == {"mismatch_kl_k3", "mismatch_prob_pearson"}


def test_what_a_clause_is_meant_for_is_no_evidence_and_is_not_asked_where_it_is_not_known() -> None:
    cut = with_values(healthy(30), length_limit_share=0.8, response_length_mean=900.0)
    for rows in (cut, [{name: value for name, value in row.items() if name != "response_length_mean"} for row in cut]):
        [evidence] = folded(rows).standing["cut_at_limit"].evidence
        assert evidence.signal == "length_limit_share"
    assert "cut_at_limit" not in folded(with_values(cut, response_length_mean=8.0)).standing


def test_rewards_of_a_step_that_are_all_equal_are_groups_of_equal_rewards() -> None:
    dead = {"reward_mean": 0.0, "reward_min": 0.0, "reward_max": 0.0, "grad_norm": 0.005}
    assert words_of(judged([dead])) == "outside the healthy range: groups of equal rewards 1 (healthy < 0.9); reward 0"
    some = [{**dead, "reward_max": 0.0 if i % 5 else 1.0} for i in range(60)]
    assert (
        judged(some).outside,
        "no_learning_signal" in folded([{**row, "reward_mean": 0.1} for row in some]).standing,
    ) == ((), False)
    solved = [{**dead, "reward_mean": 1.0, "reward_min": 1.0, "reward_max": 1.0}] * 5
    assert judged([{**dead, "reward_max": 1.0}, *solved]).outside == ()


def test_evaluations_before_the_first_reward_are_judged_beside_a_reward_without_noise() -> None:
    evaluated = [{"eval_reward": 0.8 - 0.1 * i} for i in range(4)]
    state = folded([*evaluated, *({"eval_reward": 0.3, "reward_mean": 0.0} for _ in range(30))])
    assert "overoptimisation" not in state.standing


def test_a_training_that_is_no_number_was_measured() -> None:
    judgement = judged([{"grad_norm": math.nan, "loss": math.nan}] * 2)
    assert (judgement.word, judgement.measures_training) == (Word.FINDING, True)
