"""Preflight: each cause is named when a small transformer shows it, healthy engines pass, and every form is read."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.fixtures.tiny_transformer import PROMPT, TinyEngine, prompts, response_mask, tiny_engine
from trmon.domain.errors import InvalidInput
from trmon.domain.findings.catalogue import builtin_catalogue
from trmon.domain.findings.remedies import remedy
from trmon.domain.preflight.causes import PreflightCause, PreflightLimits, PreflightResult, preflight
from trmon.domain.preflight.token_pairs import EngineScores
from trmon_client.core.logprob_mistakes import UNIT_RESIDUAL, UNIT_WITHIN, LogprobMistake

LIMITS = PreflightLimits()


@cache
def healthy_tokens() -> Tensor:
    return tiny_engine().sample(prompts())


def scores(engine: TinyEngine, tokens: Tensor, **others: Any) -> EngineScores:
    given = others if "logprobs" in others else {"logprobs": engine.score(tokens), **others}
    return EngineScores.of("test", **{"mask": response_mask(tokens), "token_ids": tokens} | given)


@cache
def trainer_logprobs() -> Tensor:
    return tiny_engine().score(healthy_tokens())


def trainer_scores(tokens: Tensor | None = None, **others: Any) -> EngineScores:
    if tokens is None:
        tokens, others = healthy_tokens(), {"logprobs": trainer_logprobs(), **others}
    return scores(tiny_engine(), tokens, **others)


@cache
def bfloat16_logprobs() -> Any:
    return tiny_engine().in_bfloat16().score(healthy_tokens()).numpy()


def arrays() -> tuple[Any, Any]:
    """Return the log-probs of the rollout in bfloat16 and the mask, both to be damaged."""
    return bfloat16_logprobs().copy(), response_mask(healthy_tokens()).numpy().copy()


def sampled_by(rollout: TinyEngine) -> PreflightResult:
    """Return the result for tokens that an engine sampled."""
    tokens = rollout.sample(prompts())
    return preflight(scores(rollout, tokens), trainer_scores(tokens))


def rescored(logprobs: Any) -> PreflightResult:
    """Return the result for a rollout of the trainer's tokens with these log-probs."""
    return preflight(trainer_scores(logprobs=logprobs), trainer_scores())


def damaged_on(side: str, logprobs: Any) -> PreflightResult:
    """Return the result for these log-probs on one side, beside sound ones."""
    damaged, sound = trainer_scores(logprobs=logprobs), trainer_scores()
    return preflight(damaged, sound) if side == "rollout" else preflight(sound, damaged)


def causes(result: PreflightResult) -> list[PreflightCause]:
    return [found.cause for found in result.causes]


def test_equal_engines_are_equal_to_the_bit() -> None:
    result = preflight(trainer_scores(), trainer_scores(), limits=PreflightLimits(equal_share=1.0))
    assert (result.passed, result.equal_share, result.max_abs_d, result.tv_p95) == (True, 1.0, 0.0, 0.0)
    assert result.tokens == int(response_mask(healthy_tokens()).sum())
    assert result.unknown == ()


@pytest.mark.parametrize("swaps", [False, True], ids=["bf16 rollout", "bf16 trainer"])
def test_bfloat16_beside_float32_passes_unless_equal_bits_are_asked_for(swaps: bool) -> None:
    pair = [trainer_scores(logprobs=bfloat16_logprobs()), trainer_scores()][:: -1 if swaps else 1]
    result = preflight(*pair)
    assert result.passed, result.causes
    assert result.equal_share < 0.1
    assert 0 < result.tv_p95 < LIMITS.tv_p95
    result = preflight(*pair, limits=PreflightLimits(equal_share=1.0))
    assert causes(result) == [PreflightCause.ENGINES]
    assert [item.signal for item in result.causes[0].evidence] == ["equal_share"]


def test_quantised_weights_are_an_engine_mismatch() -> None:
    result = sampled_by(tiny_engine().quantised(5))
    assert causes(result) == [PreflightCause.ENGINES]
    assert causes(rescored(tiny_engine().quantised(6).score(healthy_tokens()))) == [PreflightCause.ENGINES]
    assert result.causes[0].finding == "engine_mismatch"
    assert "tv_p95" in [item.signal for item in result.causes[0].evidence]


@pytest.mark.parametrize("temperature", [0.7, 1.2])
def test_another_temperature_is_named_with_its_ratio(temperature: float) -> None:
    result = sampled_by(replace(tiny_engine(), temperature=temperature))
    assert causes(result) == [PreflightCause.TEMPERATURE]
    assert result.signals["temperature_near"] == pytest.approx(temperature, abs=0.1)
    assert "The rollout's temperature is" in result.causes[0].detail


def test_a_nucleus_that_was_sampled_is_a_support_shift() -> None:
    result = sampled_by(replace(tiny_engine(), top_p=0.9))
    assert causes(result) == [PreflightCause.SUPPORT]
    assert result.counts.rollout_no_probability == 0


def test_tokens_outside_the_nucleus_are_counted() -> None:
    nucleus = replace(tiny_engine(), top_p=0.9)
    logprobs = nucleus.score(healthy_tokens())
    result, outside = rescored(logprobs), np.isneginf(logprobs.numpy())[:, PROMPT:]
    assert result.counts.rollout_no_probability == outside.sum() > 0
    assert causes(result) == [PreflightCause.SUPPORT]
    assert np.isfinite(result.max_abs_d)


def test_logits_give_the_exact_variation_and_the_mass_outside_the_support() -> None:
    tokens, nucleus = healthy_tokens()[:8], replace(tiny_engine(), top_p=0.9)
    sides = [
        EngineScores.of(
            "test",
            logprobs=engine.score(tokens)[:, 1:],
            mask=response_mask(tokens)[:, 1:],
            logits=engine.all_logprobs(tokens),
        )
        for engine in (nucleus, tiny_engine())
    ]
    result = preflight(*sides)
    kept = response_mask(tokens)[:, 1:].numpy() & np.isfinite(sides[0].logprobs)
    p, q = (np.exp(engine.all_logprobs(tokens).double().numpy())[kept] for engine in (nucleus, tiny_engine()))
    assert result.tv_is == "exact"
    assert result.tv_p95 == pytest.approx(np.percentile(np.abs(p - q).sum(-1) / 2, 95), rel=1e-6)
    assert result.trainer_mass_outside == pytest.approx(np.where(p == 0, q, 0).sum(-1).mean(), rel=1e-6)


@pytest.mark.parametrize("by", [1, -1])
def test_a_shift_by_one_position_is_named_and_undone(by: int) -> None:
    logprobs, _ = arrays()
    result = rescored(np.roll(logprobs, by, axis=1))
    assert causes(result) == [PreflightCause.SHIFTED]
    assert result.alignment.shift == by
    assert ("late" if by == 1 else "early") in result.causes[0].detail
    assert result.tv_p95 < LIMITS.tv_p95
    quantised = tiny_engine().quantised(5).score(healthy_tokens()).numpy()
    assert causes(rescored(np.roll(quantised, by, axis=1))) == [PreflightCause.SHIFTED, PreflightCause.ENGINES]


def test_padding_that_only_one_engine_counts_is_named() -> None:
    logprobs, mask = arrays()
    shorter = mask.copy()
    shorter[:5, -3:] = False
    result = preflight(trainer_scores(logprobs=logprobs), trainer_scores(mask=shorter))
    assert causes(result) == [PreflightCause.PADDING]
    assert (result.alignment.rollout_only, result.alignment.trainer_only) == (15, 0)


def test_left_padding_beside_right_padding_is_named_and_undone() -> None:
    logprobs, mask = arrays()
    left = {"logprobs": np.roll(logprobs, -PROMPT, axis=1), "mask": np.roll(mask, -PROMPT, axis=1)}
    result = preflight(EngineScores.of("rollout", **left), trainer_scores())
    assert causes(result) == [PreflightCause.PADDING]
    assert result.tv_p95 < LIMITS.tv_p95


def test_rows_of_other_lengths_are_padding() -> None:
    tokens = healthy_tokens()
    longer = [np.append(row, -1.0) for row in tiny_engine().score(tokens).numpy()]
    trainer = EngineScores.of("trainer", logprobs=[*longer[:-1], longer[-1][:-1]])
    result = preflight(EngineScores.of("rollout", logprobs=longer), trainer)
    assert causes(result) == [PreflightCause.PADDING]
    assert (result.alignment.rollout_only, result.alignment.trainer_only) == (1, 0)


def test_retokenised_ids_are_named_and_only_their_equal_beginning_is_compared() -> None:
    tokens = healthy_tokens()
    other = tokens.clone()
    other[3, 20:] = (other[3, 20:] + 1) % 64
    result = preflight(scores(tiny_engine(), tokens), trainer_scores(other))
    assert causes(result) == [PreflightCause.RETOKENISED]
    assert result.alignment.n_retokenised == 1
    difference = result.alignment.first_difference
    assert (difference.sequence, difference.position) == (3, 20)
    assert result.tokens == int(response_mask(tokens).sum()) - (tokens.shape[1] - 20)
    assert result.max_abs_d == 0.0


def test_a_prompt_that_one_side_encodes_otherwise_is_retokenised() -> None:
    tokens = healthy_tokens()
    rows = [row.numpy() for row in tokens]
    doubled = [np.append(row[0], row) for row in rows]
    logprobs = [np.append(0.0, row) for row in tiny_engine().score(tokens).numpy()]
    mask = [np.append(False, row) for row in response_mask(tokens).numpy()]
    result = preflight(EngineScores.of("rollout", logprobs=logprobs, mask=mask, token_ids=doubled), trainer_scores())
    assert causes(result) == [PreflightCause.RETOKENISED]
    assert result.alignment.n_retokenised == len(rows)
    assert result.tokens == 0


def test_a_response_that_was_encoded_again_to_another_length_is_no_padding() -> None:
    tokens = healthy_tokens()
    keep = np.ones(tokens.shape[1], bool)
    keep[10] = False
    shorter = scores(tiny_engine(), tokens[:, keep])
    assert causes(preflight(shorter, trainer_scores())) == [PreflightCause.RETOKENISED]


@pytest.mark.parametrize("side", ["rollout", "trainer"])
def test_zeros_at_the_end_of_responses_are_named(side: str) -> None:
    logprobs, _ = arrays()
    logprobs[:8, -6:] = 0.0
    result = damaged_on(side, logprobs)
    zeros = result.counts.rollout_zeros, result.counts.trainer_zeros
    assert causes(result) == [PreflightCause.ZEROS]
    assert 40 <= zeros[side == "trainer"] <= 48
    assert zeros[side == "rollout"] == 0
    assert result.tv_p95 < LIMITS.tv_p95
    assert causes(damaged_on(side, np.zeros_like(logprobs)))[0] is PreflightCause.ZEROS


@pytest.mark.parametrize("side", ["rollout", "trainer"])
@pytest.mark.parametrize("mistake", LogprobMistake)
def test_what_is_no_natural_log_prob_is_named_in_the_words_of_a_run(mistake: LogprobMistake, side: str) -> None:
    logprobs, _ = arrays()
    of = {
        LogprobMistake.SIGN: -logprobs,
        LogprobMistake.PROBABILITIES: np.exp(logprobs),
        LogprobMistake.UNIT: logprobs / np.log(2),
    }
    result = damaged_on(side, of[mistake])
    assert causes(result) == [PreflightCause.CORRUPT], "all else is measured of the log-probs"
    (found,) = result.causes
    assert (found.detail, found.fix) == (mistake.said_of(f"the {side}", base="log2"), mistake.fix)
    if mistake is not LogprobMistake.UNIT:
        assert result.max_abs_d < 0.2
    clause = builtin_catalogue().by_key[f"corrupt_logprobs.{mistake.value}"]
    assert clause.title == mistake.title
    assert remedy(clause.remedy, framework=None, config={}, last_good_step=None, has_ended=False).first == mistake.fix


def test_the_client_finds_another_base_by_the_limits_of_the_finding() -> None:
    when = builtin_catalogue().by_key["corrupt_logprobs.unit"].when
    assert [comparison.limit for comparison in when] == [UNIT_WITHIN, UNIT_RESIDUAL]


@pytest.mark.parametrize("value", [np.nan, 0.7, np.inf], ids=["missing", "a probability", "infinite"])
def test_what_is_no_log_prob_is_missing(value: float) -> None:
    logprobs, _ = arrays()
    logprobs[2, 20:24] = value
    result = rescored(logprobs)
    assert causes(result) == [PreflightCause.MISSING]
    assert (result.counts.rollout_missing, result.counts.trainer_missing) == (4, 0)


def test_log_probs_of_other_tokens_are_corrupt_or_a_mismatch() -> None:
    logprobs, mask = arrays()
    logprobs[mask] = np.random.default_rng(0).permutation(logprobs[mask])
    assert causes(rescored(logprobs)) == [PreflightCause.CORRUPT]


def test_a_finding_that_needs_more_tokens_is_unknown() -> None:
    few = healthy_tokens()[:4]
    result = preflight(scores(tiny_engine().in_bfloat16(), few), trainer_scores(few))
    assert result.unknown == ("support_shift", "temperature")


def test_the_worst_tokens_come_first_with_their_ids() -> None:
    logprobs, _ = arrays()
    logprobs[7, 9] -= 3.0
    result = preflight(trainer_scores(logprobs=logprobs), trainer_scores(), n_worst=3)
    first, second, _ = result.worst
    assert (first.sequence, first.position, first.token_id) == (7, 9, int(healthy_tokens()[7, 9]))
    assert first.d == pytest.approx(3.0, abs=0.2)
    assert abs(first.d) > abs(second.d)


def test_every_cause_says_what_to_do() -> None:
    logprobs, mask = arrays()
    logprobs[0, 10], mask[1, -1] = np.nan, False
    for found in preflight(trainer_scores(logprobs=logprobs, mask=mask), trainer_scores()).causes:
        assert found.fix.endswith(".")
        assert found.remedy.then


@pytest.mark.parametrize(
    ("rollout", "trainer", "reason"),
    [
        ({"logprobs": [[-1.0]]}, {"logprobs": [[-1.0], [-1.0]]}, "1 sequences in the rollout and 2 in the trainer"),
        ({"logprobs": [[-1.0]], "mask": [[0]]}, {"logprobs": [[-1.0]]}, "no token counts for both"),
    ],
)
def test_pairs_that_cannot_be_compared_are_refused(rollout: dict, trainer: dict, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        preflight(EngineScores.of("a", **rollout), EngineScores.of("b", **trainer))


@pytest.mark.parametrize(
    "logprobs",
    [
        [[-1.0, -2.0]],
        np.array([[-1.0, -2.0]], np.float16),
        torch.tensor([[-1.0, -2.0]], dtype=torch.bfloat16),
        [torch.tensor([-1.0, -2.0], requires_grad=True)],
    ],
)
def test_arrays_tensors_and_lists_are_read(logprobs: Any) -> None:
    [row] = EngineScores.of("a", logprobs=logprobs).logprobs
    assert row.tolist() == [-1.0, -2.0]
    assert row.dtype == np.float64


def test_none_is_a_missing_log_prob() -> None:
    [row] = EngineScores.of("a", logprobs=[[None, -1.0]]).logprobs
    assert np.isnan(row[0])


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"logprobs": []}, "a: logprobs has no sequences"),
        ({"logprobs": [-1.0]}, "is not \\[tokens\\]"),
        ({"logprobs": ["x"]}, "not a list of rows"),
        ({"logprobs": 3}, "not a list of rows"),
        ({"logprobs": [[-1.0]], "mask": [[1, 1]]}, "mask has other lengths"),
        ({"logprobs": [[-1.0]], "token_ids": [[0.5]]}, "expected whole numbers"),
        ({"logprobs": [[-1.0]], "logits": [[1.0]]}, "vocabulary"),
    ],
)
def test_what_is_no_list_of_rows_is_refused_by_name(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        EngineScores.of("a", **fields)
